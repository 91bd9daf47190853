"""Detached commands: each under a shell of its own in the machine, which writes down how it ends.

What a job starts carries its name in the environment, and is ended by it: at the job's deadline, or when it is stopped. What has put
that off lives on until the machine's next deadline, or its end. What a job prints is bounded like any other file of its own.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import shlex
from typing import Final

from gym_bus.errors import Permanent
from providers.sandboxes.capabilities import JobStatus
from providers.sandboxes.processes import ulimits
from providers.sandboxes.remote.cloud import CloudRefused
from providers.sandboxes.remote.scripts import CHANGED, IDENTITY, JOB, shell
from providers.sandboxes.remote.shell import Place, RemoteShell

JOBS_MAX: Final = 256
READ_MAX_BYTES: Final = 524_288
OF: Final = "GYMBUS_OF"

_CHECK: Final = (
    "wanted=$1 dir=/tmp/.gymbus-job-$2 job=$2\nshift 2\nfirst=$1 second=$2 third=$3 fourth=$4\n"
    + IDENTITY
    + 'if [ "$identity" != "$wanted" ]; then echo changed; exit 0; fi\n'
)
_END: Final = """
end() {
    round=0 found=1
    while [ -n "$found" ] && [ $round -lt 30 ]; do
        round=$((round + 1)) found=
        for one in /proc/[0-9]*; do
            case " $(tr '\\0' ' ' <"$one/environ" 2>/dev/null) " in
                *" @OF@=$job "*) kill -9 "${one#/proc/}" 2>/dev/null && found=1 ;;
            esac
        done
    done
}
"""
_SUPERVISE: Final = (
    """
dir=$1 work=$2 timeout=$3 command=$4 job=$5
"""
    + _END
    + """
echo $$ >"$dir/pid"
cd "$work" || exit 1
(
    @ULIMITS@
    HOME=$work @OF@=$job
    export HOME @OF@
    exec /bin/sh -c "$command"
) </dev/null >"$dir/out" 2>&1 &
main=$!
(
    sleep "$timeout" &
    trap 'kill $!' TERM
    wait $! && end
) &
dog=$!
wait "$main"
code=$?
kill "$dog"
echo "$code" >"$dir/new" && mv "$dir/new" "$dir/code"
"""
)
_START: Final = (
    _CHECK
    + """
work=$first timeout=$second command=$third file=$fourth
if [ -n "$file" ]; then command=$(cat "$file") && rm -f "$file" || exit 1; fi
mkdir -m 700 "$dir" && : >"$dir/out" || exit 1
@JOB@=$job setsid /bin/sh -c "$SUPERVISE" gymbus "$dir" "$work" "$timeout" "$command" "$job" </dev/null >/dev/null 2>&1 3>&- &
tries=0
while [ ! -s "$dir/pid" ] && [ $tries -lt 200 ]; do tries=$((tries + 1)); sleep 0.02; done
[ -s "$dir/pid" ] && echo started
"""
)
_STATUS: Final = (
    _CHECK
    + """
if [ ! -d "$dir" ]; then echo unknown; exit 0; fi
state="over none"
kill -0 "$(cat "$dir/pid")" 2>/dev/null && state="running none"
[ -e "$dir/code" ] && state="over $(cat "$dir/code")"
echo "$state $(wc -c <"$dir/out")"
"""
)
_READ: Final = _CHECK + """tail -c "+$((first + 1))" "$dir/out" | head -c "$second" | base64\n"""
_STOP: Final = _CHECK + _END + "end\necho ended\n"


class Jobs:
    """The detached commands of one machine. They run beside its other commands."""

    def __init__(self, shell: RemoteShell, place: Place) -> None:
        self._shell = shell
        self._place = place
        self._known: set[str] = set()

    @property
    def names(self) -> frozenset[str]:
        """Return every job that was started."""
        return frozenset(self._known)

    async def start(self, command: str, timeout_s: float) -> str:
        """Start `command`; see `WithDetached.start`. Raises `CloudRefused`."""
        if len(self._known) >= JOBS_MAX:
            raise Permanent(f"a machine has at most {JOBS_MAX} detached commands")
        job = secrets.token_hex(8)
        inline, file = await self._shell.brought(command, job)
        supervise = _SUPERVISE.replace("@ULIMITS@", ulimits(self._place.limits, processes=False, memory=False))
        script = f"SUPERVISE={shlex.quote(supervise)}\n{_START}".replace("@OF@", OF).replace("@JOB@", JOB)
        self._known.add(job)
        said = await self._ask(script, job, self._place.workspace, f"{timeout_s:.3f}", inline, file)
        if said != "started":
            raise CloudRefused("refused", f"a detached command was not started: {said[-300:]!r}")
        return job

    async def status(self, job: str) -> JobStatus:
        """Return how a job stands; see `WithDetached.status`. Raises `CloudRefused`."""
        words = (await self._ask(_STATUS, self._checked(job))).split()
        if len(words) != 3:  # noqa: PLR2004  state, exit code, bytes
            raise CloudRefused("failed", f"detached command {job} has left no trace: {words}")
        return JobStatus(words[0] == "running", int(words[1]) if words[1].isdigit() else None, int(words[2]))

    async def output_of(self, job: str, offset: int, max_bytes: int) -> bytes:
        """Return what a job has written; see `WithDetached.output_of`. Raises `CloudRefused`."""
        most = min(max_bytes, READ_MAX_BYTES)
        said = await self._ask(_READ, self._checked(job), str(offset), str(most))
        try:
            return base64.b64decode(said)
        except binascii.Error as error:
            raise CloudRefused("failed", f"the output of a detached command cannot be read: {said[-300:]!r}") from error

    async def stop(self, job: str) -> None:
        """End a job; see `WithDetached.stop`. Raises `CloudRefused`."""
        await self._ask(_STOP.replace("@OF@", OF), self._checked(job))

    def _checked(self, job: str) -> str:
        if job not in self._known:
            raise Permanent(f"there is no detached command {job}")
        return job

    async def _ask(self, script: str, job: str, *arguments: str) -> str:
        said = (await self._shell.ask(shell(script, self._shell.identity, job, *arguments))).strip()
        if said == CHANGED:
            raise CloudRefused("gone", "the machine was restarted, and its detached commands are gone")
        return said
