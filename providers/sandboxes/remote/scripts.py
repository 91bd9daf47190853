"""What is run in a machine for us, in the words of any POSIX shell with the usual small programs.

A command's output goes through a named pipe, so that what it leaves running in the background does not hold up its result: after
its last word comes a line with a nonce, and then nobody listens any more. Whoever runs in the machine can read the nonce and say false
things in the command's name; that harms no other machine.

`identity` is what a machine is known by: the boot of its kernel and the start of its first process. A machine that was restarted
has another one, and its commands are not run.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

from providers.sandboxes.processes import ulimits
from schemas.sandboxes import SandboxLimits

BEGAN: Final = "began"
CHANGED: Final = "changed"
JOB: Final = "GYMBUS_JOB"
INLINE_MAX_BYTES: Final = 16_384
"""A longer command goes in as a file: the whole of what the maker's client runs is one argument."""

IDENTITY: Final = """
read -r boot </proc/sys/kernel/random/boot_id
read -r stat </proc/1/stat
set -- ${stat##*) }
identity="$boot.${20}"
"""

_SETUP: Final = (
    """
work=$1 user=$2
mkdir -p -- "$work" || exit 1
if [ -n "$user" ]; then chown -- "$user" "$work" || exit 1; fi
"""
    + IDENTITY
    + """
echo "$identity"
for dir in /proc/[0-9]*; do
    { read -r stat <"$dir/stat"; } 2>/dev/null || continue
    set -- ${stat##*) }
    echo "${dir#/proc/}:${20}"
done
"""
)

_RUN: Final = (
    """
nonce=$1 wanted=$2 work=$3 command=$4 file=$5
"""
    + IDENTITY
    + """
if [ "$identity" != "$wanted" ]; then echo "$nonce changed"; exit; fi
if [ -n "$file" ]; then command=$(cat "$file") && rm -f "$file" || { echo "$nonce broken"; exit; }; fi
dir=/tmp/.gymbus-$nonce
mkdir -m 700 "$dir" && mkfifo -m 600 "$dir/pipe" && cd "$work" || { echo "$nonce broken"; exit; }
echo "$nonce began"
cat <"$dir/pipe" &
relay=$!
exec 3>"$dir/pipe"
rm -rf "$dir"
(
    @ULIMITS@
    unset boot stat identity nonce wanted dir relay file
    HOME=$work
    export HOME
    exec /bin/sh -c "$command"
) </dev/null >&3 2>&1 3>&-
code=$?
printf '\\n%s %s\\n' "$nonce" "$code" >&3
exec 3>&-
(
    sleep @LINGER@ &
    trap 'kill $!' TERM
    wait $! && kill -9 "$relay"
) </dev/null >/dev/null 2>&1 &
dog=$!
wait "$relay"
kill "$dog"
exit "$code"
"""
)

_CLEAR: Final = """
base=" $1 " jobs=$2 own=" $$ 1 "
next=$PPID
while [ "$next" -gt 1 ] 2>/dev/null && { read -r stat <"/proc/$next/stat"; } 2>/dev/null; do
    own="$own$next "
    set -- ${stat##*) }
    next=$2
done
round=0
while [ $round -lt 30 ]; do
    round=$((round + 1)) found=
    [ $round -gt 20 ] && sleep 1
    for dir in /proc/[0-9]*; do
        pid=${dir#/proc/}
        case $own in *" $pid "*) continue ;; esac
        { read -r stat <"$dir/stat"; } 2>/dev/null || continue
        set -- ${stat##*) }
        case $1 in Z | X) continue ;; esac
        if [ "$2" = $$ ] || [ $(($7 & 2097152)) -ne 0 ]; then continue; fi
        case $base in *" $pid:${20} "*) continue ;; esac
        if [ -n "$jobs" ]; then
            words=" $(tr '\\0' ' ' <"$dir/environ" 2>/dev/null) "
            for job in $jobs; do
                case $words in *" @JOB@=$job "*) continue 2 ;; esac
            done
        fi
        kill -9 "$pid" 2>/dev/null && found=1
    done
    [ -z "$found" ] && exit 0
done
exit 1
"""


def setup(workspace: str, user: str | None) -> str:
    """Return a command that makes the workspace, for `user` if that is not who runs it, and prints identity and processes."""
    return shell(_SETUP, workspace, user or "")


def run(command: str, file: str, *, nonce: str, identity: str, workspace: str, limits: SandboxLimits) -> str:
    """Return a command that runs `command`, or what is in the machine's `file`, and says how it ended."""
    script = _RUN.replace("@ULIMITS@", ulimits(limits, processes=False, memory=False)).replace("@LINGER@", "5")
    return shell(script, nonce, identity, workspace, command, file)


def who() -> str:
    """Return a command that prints the machine's identity."""
    return shell(IDENTITY + 'echo "$identity"')


def clear(baseline: Iterable[str], jobs: Iterable[str] = ()) -> str:
    """Return a command that kills whatever was not there at the beginning, and belongs to none of the detached `jobs`."""
    return shell(_CLEAR.replace("@JOB@", JOB), " ".join(baseline), " ".join(jobs))


def shell(script: str, *arguments: str) -> str:
    """Return a command that runs a script of ours."""
    return f"exec /bin/sh -c {shlex.quote(script)} gymbus {' '.join(shlex.quote(a) for a in arguments)}"
