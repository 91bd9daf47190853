"""The request for one container: what it sees, what it may not, and its first process, which is the lease on it.

The first process is a shell script of builtins that does three things:

- It ends, and so ends the container, when its input does: that is our connection to the engine, which the kernel closes at our
  death, however that comes. No janitor is needed.
- At a signal (USR1, sent through the engine) it stops everything else, then kills it, then says `cleared`. It starts nothing for
  that, so a container full of processes is cleared like any other, and what is stopped cannot fork meanwhile.
- It waits for a child all the time, and so buries what commands leave behind: an init (`docker-init`) would do that too, but
  what clears the container would then be a process that a command could kill. Process 1 cannot be killed from inside.

Its input is read by a child, which commands can kill; it is started again. A command that sends the signal itself ends only itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from providers.sandboxes.bubblewrap_argv import ENVIRONMENT, PIPES_IN_BOX
from providers.sandboxes.docker_owners import labels_of
from providers.sandboxes.rooms import Room
from schemas.sandboxes import Docker

OWN_PROCESSES: Final = 12
"""The script, its child, the standing shell, the side shell with what waits for its jobs, and what a runtime needs to start those."""
MIB: Final = 1024 * 1024
CLEAR: Final = "SIGUSR1"
CLEARED: Final = "cleared"
FIRST_PROCESS: Final = f"""
exec 3<&0 </dev/null
clear() {{
    kill -STOP -1
    for process in /proc/[0-9]*; do
        process=${{process#/proc/}}
        case $process in 1 | "$lease") ;; *) kill -KILL "$process" ;; esac
    done
    kill -CONT "$lease"
    echo {CLEARED}
}}
trap clear USR1
while :; do
    (while read -r _; do :; done) <&3 >/dev/null & lease=$!
    while :; do
        wait "$lease"
        code=$?
        kill -0 "$lease" || break
    done
    [ "$code" = 0 ] && exit
done 2>/dev/null
"""


def name_of(label: str) -> str:
    """Return the container's name, the same for the same label: engines refuse a second one."""
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", label)[:100]
    return f"gym-bus-{readable}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def body_of(config: Docker, label: str, room: Room, shared: Sequence[tuple[Path, str]] = ()) -> dict[str, Any]:
    """Return the engine's request for the box `label`, whose files are in `room`; `shared` is what is shown where."""
    limits, memory, layout = config.limits, config.limits.memory_mib * MIB, config.layout
    usual = {name: value for name, value in ENVIRONMENT.items() if name != "PATH" or not layout.is_seeded}
    workspaces = ("/box", layout.workspace) if layout.workspace else ("/box",)
    whole = memory + (limits.disk_mib or 0) * MIB  # the files of a bounded workspace are memory
    return {
        "Image": config.image,
        "Hostname": "box",
        "User": config.user,
        "Labels": labels_of(label),
        "Env": [f"{name}={value}" for name, value in {**usual, **layout.environment}.items()],
        "Entrypoint": ["/bin/sh", "-c", FIRST_PROCESS],
        "Cmd": [],
        "WorkingDir": workspaces[-1],
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": False,
        "NetworkDisabled": True,
        "HostConfig": {
            "AutoRemove": True,
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "IpcMode": "private",
            "ShmSize": memory,
            "Tmpfs": dict.fromkeys(("/tmp", *layout.scratch), f"rw,exec,nosuid,nodev,mode=1777,size={memory}"),  # noqa: S108
            "Binds": [
                *(f"{room.work}:{at}:rw" for at in workspaces),
                f"{room.pipes}:{PIPES_IN_BOX}:ro",
                *(f"{source}:{at}:ro" for source, at in shared),
            ],
            "Memory": whole,
            "MemorySwap": whole,
            "PidsLimit": limits.processes + OWN_PROCESSES,
            **({"NanoCpus": int(limits.cpus * 1e9)} if limits.cpus else {}),
            "LogConfig": {"Type": "none", "Config": {}},
        },
    }
