"""Prime Agent, as tests configure it: the real one where somebody has built it, else Pi's own program with Prime's flags and a daemon.

It is in no package, so what most machines can have is the second. `GYM_BUS_PRIME_AGENT_DIR` names a directory with the first
(docs/harnesses.md has how it is made).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.harnesses.installing import installs_of, node_binary, shared_with
from adapters.harnesses.pi import PI, SCRIPT
from gym_bus.shared_directories import MARKER
from schemas.harnesses import PrimeAgent
from schemas.sandboxes import SharedDirectory

PLACE: Final = "/opt/prime"
STAND_IN: Final = f"""#!/bin/sh
# Takes the arguments of Prime Agent, starts a process that stays, as its daemon does, and is Pi.
here=$(dirname "$0")
export PI_CODING_AGENT_DIR="$PRIME_AGENT_CODING_AGENT_DIR"
for word; do
    shift
    case $word in
    --daemon-socket) is_socket=yes; continue ;;
    --resume) word=--session ;;
    esac
    if [ "$is_socket" ]; then socket=$word is_socket=; continue; fi
    set -- "$@" "$word"
done
setsid python3 -I "$here/daemon.py" "$socket" </dev/null >/dev/null 2>&1 &
exec {node_binary("/opt/node")} /opt/pi/{SCRIPT} --session-dir "$PI_CODING_AGENT_DIR/sessions" "$@"
"""
DAEMON: Final = """import pathlib
import socket
import sys

pathlib.Path(sys.argv[1]).unlink(missing_ok=True)
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[1])
    listening.listen()
    while True:
        listening.accept()
"""


@dataclass(frozen=True)
class Primed:
    """How a run has it: the agent, what its sandbox is shown, and which program that is."""

    agent: PrimeAgent
    shared: tuple[SharedDirectory, ...]
    version: str

    def configured(self, directory: Path) -> tuple[str, str, str]:
        """Write a run's configuration into a directory; return how the command line is told of it, whichever sandbox that names."""
        path = directory / "prime.yaml"
        path.write_text(json.dumps({"agent": self.agent.model_dump(mode="json")}))
        return ("--config", str(path), f"sandbox.shared={json.dumps([one.model_dump() for one in self.shared])}")


async def primed(programs: Path) -> Primed:
    """Return what is there; the stand-in is made below `programs`, where Pi is installed."""
    if built := os.environ.get("GYM_BUS_PRIME_AGENT_DIR"):
        agent = PrimeAgent(command=(f"{PLACE}/prime-agent",), kernel_python=f"{PLACE}/kernel/bin/python")
        return Primed(agent, (SharedDirectory(source=built, at=PLACE),), "built")
    pi, node = await shared_with(PI, installs_of(programs))
    directory = programs / "stand-ins" / "prime_agent"
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in {"prime-agent": STAND_IN, "daemon.py": DAEMON, MARKER: ""}.items():
        place, part = directory / name, directory / f".{name}.{os.getpid()}"
        if not place.exists() or place.read_text() != content:
            part.write_text(content)
            part.chmod(0o755)
            part.rename(place)
    shared = (
        SharedDirectory(source=str(directory), at=PLACE),
        SharedDirectory(source=pi.source, at="/opt/pi"),
        SharedDirectory(source=node.source, at="/opt/node"),
    )
    agent = PrimeAgent(command=(f"{PLACE}/prime-agent",))
    return Primed(agent, shared, f"Pi's {PI.packages[0].version}")
