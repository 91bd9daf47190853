"""What the tests run instead of Enroot: takes the documented commands and options, no others, and does what they say.

Started as `enroot_stand_in.py RECORD ARGUMENT…`: the arguments and the environment go to the file RECORD, a JSON line a call.

A container is a directory under ENROOT_DATA_PATH with this host's /usr in it; of namespaces it has those of mounts and users.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

ACCEPTED = {
    "create": ({"--name", "-n"}, set()),
    "start": ({"--conf", "-c", "--env", "-e", "--rc", "--mount", "-m"}, {"--root", "-r", "--rw", "-w"}),
    "remove": (set(), {"--force", "-f"}),
}
SHARED = ("usr", "proc", "dev")


def fail(words: str) -> None:
    """Say something as Enroot does, and end."""
    sys.stderr.write(f"[ERROR] {words}\n")
    sys.exit(1)


def main() -> None:
    """Do as Enroot does."""
    record, command, *arguments = sys.argv[1:]
    with Path(record).open("a") as file:
        file.write(json.dumps({"arguments": [command, *arguments], "environment": dict(os.environ)}) + "\n")
    if command not in ACCEPTED:
        fail(f"Invalid command: {command}")
    valued, flags = ACCEPTED[command]
    found: dict[str, list[str]] = {}
    while arguments and arguments[0].startswith("-"):
        name = arguments.pop(0)
        if name == "--":
            break
        if name not in valued | flags:
            fail(f"Invalid argument: {name}")
        found.setdefault(name, []).extend([arguments.pop(0)] if name in valued else [])
    data = Path(os.environ["ENROOT_DATA_PATH"])
    match command:
        case "create":
            create(data, found["--name"][0], Path(arguments[0]))
        case "remove":
            for name in arguments:
                shutil.rmtree(data / name)
        case _:
            start(data / arguments[0], found, arguments[1:])


def create(data: Path, name: str, image: Path) -> None:
    """Unpack an image, which is believed to be one if it says so."""
    if not image.is_file() or not image.read_bytes().startswith(b"hsqs"):
        fail(f"Invalid image format: {image}")
    if (data / name).exists():
        fail(f"File already exists: {data / name}")
    for place in (*SHARED, "etc", "tmp", "run"):
        (data / name / place).mkdir(parents=True)
    for place in ("bin", "sbin", "lib", "lib64"):
        (data / name / place).symlink_to(f"usr/{place}")


def start(root: Path, found: dict[str, list[str]], command: list[str]) -> None:
    """Become the container: every program the next, so that the process stays the same."""
    if not root.is_dir():
        fail(f"No such file or directory: {root}")
    steps = [f"mount --rbind {shlex.quote(str(root))} {shlex.quote(str(root))}"]
    steps += [f"mount --rbind /{place} {shlex.quote(str(root / place))}" for place in SHARED]
    steps.append(f"mount -o remount,bind,ro {shlex.quote(str(root / 'usr'))}")
    for mount in found.get("--mount", []):
        if not re.fullmatch(r"\S+:\S+", mount):
            fail(f"Invalid argument: {mount}")
        source, target, kind, wanted = (*mount.split(":"), "none", "bind")[:4]
        steps.append(mounted(root, source, target, kind, wanted.split(",")))
    if "--rw" not in found:
        steps.append(f"mount -o remount,bind,ro {shlex.quote(str(root))}")
    given = found.get("--env", [])
    variables = ["PATH=/usr/bin:/bin", *(name if "=" in name else f"{name}={os.environ[name]}" for name in given)]
    if "--rc" in found:
        command = ["/bin/sh", "-c", Path(found["--rc"][0]).read_text(), "rc", *command]
    become = shlex.join(["/usr/sbin/chroot", str(root), "/usr/bin/env", "-i", *variables, *command])
    script = " && ".join([*steps, f"exec {become}"])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the box
        signal.signal(number, signal.SIG_DFL)
    os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script])


def mounted(root: Path, source: str, target: str, kind: str, options: list[str]) -> str:
    """Return the step that does what a line of fstab says."""
    place = shlex.quote(f"{root}{target}")
    made = f"mkdir -p {place} && " if "x-create=dir" in options else ""
    left = [option for option in options if option not in {"x-create=dir", "bind", "ro"}]
    if kind == "tmpfs":
        return f"{made}mount -t tmpfs -o {','.join(left)} tmpfs {place}"
    read_only = f" && mount -o remount,bind,ro {place}" if "ro" in options else ""
    return f"{made}mount --bind {shlex.quote(source)} {place}{read_only}"


main()
