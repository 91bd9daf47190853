"""What the tests run instead of Apptainer: takes the documented options of `apptainer exec`, no others, and does what they say.

Started as `apptainer_stand_in.py RECORD ARGUMENT…`: the arguments and the environment go to the file RECORD, a JSON line a call.

A box is made by bubblewrap; like Apptainer's own it does not end with whoever started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

FLAGS = {
    "--containall", "-C", "--contain", "-c", "--cleanenv", "-e", "--no-home", "--no-init", "--no-privs", "--no-eval", "--net", "-n",
    "--writable-tmpfs", "--pid", "-p", "--ipc", "-i", "--userns", "-u", "--fakeroot", "-f", "--writable", "-w", "--compat",
}  # fmt: skip
VALUED = {
    "--network",
    "--bind",
    "-B",
    "--pwd",
    "--memory",
    "--pids-limit",
    "--env",
    "--env-file",
    "--home",
    "--workdir",
    "--cpus",
}


def fatal(words: str) -> None:
    """Say something as Apptainer does, and end."""
    sys.stderr.write(f"FATAL:   {words}\n")
    sys.exit(255)


def options(arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the options, and the rest."""
    found: dict[str, list[str]] = {}
    while arguments and arguments[0].startswith("-"):
        name, equals, value = arguments.pop(0).partition("=")
        if name in FLAGS and not equals:
            found.setdefault(name, [])
        elif name in VALUED:
            found.setdefault(name, []).append(value if equals else arguments.pop(0))
        else:
            fatal(f"unknown flag: {name}")
    return found, arguments


def main() -> None:
    """Become the box."""
    record, *arguments = sys.argv[1:]
    with Path(record).open("a") as file:
        file.write(json.dumps({"arguments": arguments, "environment": dict(os.environ)}) + "\n")
    if arguments == ["--version"]:
        sys.stdout.write("apptainer version 1.3.0\n")
        return
    while arguments and arguments[0] in {"--quiet", "-q", "--silent", "-s"}:
        arguments.pop(0)
    if arguments[:1] != ["exec"]:
        fatal(f"unknown command {arguments[:1]}")
    found, (image, *command) = options(arguments[1:])
    if not Path(image).exists():
        fatal(f"could not open image {image}: no such file or directory")
    if "--network" in found and "--net" not in found:
        fatal("--network needs --net")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the box
        signal.signal(number, signal.SIG_DFL)
    os.execvpe("bwrap", bwrap(found, command), variables(found))


def variables(found: dict[str, list[str]]) -> dict[str, str]:
    """Return the environment of the box; HOME cannot be handed to it."""
    prefix = "APPTAINERENV_"
    given = {k.removeprefix(prefix): v for k, v in os.environ.items() if k.startswith(prefix) and k != f"{prefix}HOME"}
    given |= dict(pair.split("=", 1) for pair in found.get("--env", []))
    kept = {"PATH": "/usr/bin:/bin"} if "--cleanenv" in found else dict(os.environ)
    return kept | given


def bwrap(found: dict[str, list[str]], command: list[str]) -> list[str]:
    """Return bubblewrap's arguments for what was asked of Apptainer."""
    is_contained = "--containall" in found or "-C" in found
    made = [
        "bwrap",
        "--unshare-user-try",
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/bin",
        "/bin",
        "--symlink",
        "usr/sbin",
        "/sbin",
    ]
    made += [
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--ro-bind-try",
        "/etc/alternatives",
        "/etc/alternatives",
    ]
    if is_contained or "--pid" in found:
        made += ["--unshare-pid", *(["--as-pid-1"] if "--no-init" in found else [])]
    made += (
        ["--unshare-ipc", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        if is_contained
        else ["--dev-bind", "/", "/"]
    )
    if "--net" in found and found.get("--network") == ["none"]:
        made += ["--unshare-net"]
    if "--no-privs" in found:
        made += ["--cap-drop", "ALL"]
    if not is_contained and "--no-home" not in found:
        made += ["--bind", os.environ["HOME"], os.environ["HOME"]]
    for bind in [*found.get("--bind", []), *found.get("-B", [])]:
        source, target, *rights = bind.split(":")
        made += ["--ro-bind" if rights == ["ro"] else "--bind", source, target]
    made += ["--chdir", found.get("--pwd", ["/"])[0]]
    return [*made, *([] if "--writable-tmpfs" in found else ["--remount-ro", "/"]), "--", *command]


main()
