"""A process that kills what carries a mark when we die, for machines that the kernel does not end with us."""

from __future__ import annotations

import subprocess
from typing import Final

from providers.sandboxes.processes import exited, pipe

MARK: Final = "GYM_BUS_BOX"
END_TIMEOUT_S: Final = 10.0
_SCRIPT: Final = (
    "read -r _; for round in 1 2 3 4 5; do "
    'for p in $(grep -lzxsF -e "$1" /proc/[0-9]*/environ); do p=${p#/proc/}; kill -9 "${p%/environ}"; done; sleep 0.02; done'
)


class Keeper:
    """Reads from a pipe to us, which the kernel closes at our death, however that comes."""

    def __init__(self, mark: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603  a constant script
            ["/bin/sh", "-c", _SCRIPT, "keeper", f"{MARK}={mark}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": "/usr/bin:/bin"},
        )

    async def end(self) -> None:
        """Let it go without having done anything; safe to repeat."""
        if self._process.returncode is None:
            self._process.kill()
            pipe(self._process.stdin).close()
            await exited(self._process.pid, END_TIMEOUT_S)
            self._process.poll()
