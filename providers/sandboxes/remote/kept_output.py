"""Commands on machines whose makers carry lines of text only: what a command prints stays in the machine, and comes out encoded.

A small loop in the machine takes the output from a pipe, keeps its head and its tail, and counts. When the command has ended, or was
ended, both come out as one line. A mark in the pipe says that the command's own output is over, whoever else still holds it open.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from providers.sandboxes.output import BoundedOutput, Output
from providers.sandboxes.processes import ulimits
from providers.sandboxes.remote.scripts import BEGAN, IDENTITY, shell
from schemas.sandboxes import SandboxLimits

PLACE: Final = "/tmp/.gymbus-"  # noqa: S108  in the machine, under a name that nobody can guess

_TELL: Final = """
tell() {
    size=$(cat "$dir/size" 2>/dev/null)
    head=$(base64 <"$dir/head" 2>/dev/null | tr -d '\\n')
    tail=$(cat "$dir/old" "$dir/new" 2>/dev/null | tail -c "$most" | base64 | tr -d '\\n')
    echo "$nonce ${code:-none} ${size:-0} =$head =$tail"
    rm -rf "$dir"
}
"""
_RUN: Final = (
    """
nonce=$1 wanted=$2 work=$3 command=$4 file=$5 most=$6
"""
    + IDENTITY
    + _TELL
    + """
if [ "$identity" != "$wanted" ]; then echo "$nonce changed"; exit; fi
if [ -n "$file" ]; then command=$(cat "$file") && rm -f "$file" || { echo "$nonce broken"; exit; }; fi
dir=@PLACE@$nonce
mkdir -m 700 "$dir" && mkfifo -m 600 "$dir/pipe" && cd "$work" || { echo "$nonce broken"; exit; }
echo "$nonce began"
(
    size=0
    while dd bs=131072 count=1 of="$dir/chunk" 2>/dev/null && [ -s "$dir/chunk" ]; do
        count=$(wc -c <"$dir/chunk")
        if [ -e "$dir/over" ] && grep -q "$nonce" "$dir/chunk" 2>/dev/null; then last=1; fi
        size=$((size + count))
        if [ "$size" -le "$most" ]; then
            cat "$dir/chunk" >>"$dir/head"
        elif [ ! -e "$dir/new" ]; then
            room=$((most - size + count))
            head -c "$room" "$dir/chunk" >>"$dir/head"
            tail -c "$((count - room))" "$dir/chunk" >"$dir/new"
        else
            cat "$dir/chunk" >>"$dir/new"
            if [ "$(wc -c <"$dir/new")" -gt "$most" ]; then mv "$dir/new" "$dir/old" && : >"$dir/new"; fi
        fi
        echo "$size" >"$dir/size"
        [ -n "$last" ] && break
    done
) <"$dir/pipe" >/dev/null 2>&1 &
keeper=$!
exec 3>"$dir/pipe"
(
    @ULIMITS@
    unset boot stat identity nonce wanted dir keeper file most
    HOME=$work
    export HOME
    exec /bin/sh -c "$command"
) </dev/null >&3 2>&1 3>&-
code=$?
: >"$dir/over"
printf %s "$nonce" >&3
exec 3>&-
(
    sleep 5 &
    trap 'kill $!' TERM
    wait $! && kill -9 "$keeper"
) </dev/null >/dev/null 2>&1 &
dog=$!
wait "$keeper"
kill "$dog"
tell
"""
)
_COLLECT: Final = (
    """
nonce=$1 most=$2 dir=@PLACE@$1
"""
    + _TELL
    + "tell\n"
)


def run(command: str, file: str, *, nonce: str, identity: str, workspace: str, limits: SandboxLimits) -> str:
    """Return a command that runs `command`, or what is in the machine's `file`, and says how it ended and what it printed."""
    script = _RUN.replace("@ULIMITS@", ulimits(limits, processes=False, memory=False)).replace("@PLACE@", PLACE)
    return shell(script, nonce, identity, workspace, command, file, str(limits.output_bytes))


def collect(nonce: str, limits: SandboxLimits) -> str:
    """Return a command that says what was kept of one that was ended."""
    return shell(_COLLECT.replace("@PLACE@", PLACE), nonce, str(limits.output_bytes))


class KeptListener:
    """Takes apart what `run` and `collect` print. `on_begin` is called when the command begins, if its maker tells so early."""

    def __init__(self, nonce: str, limit: int, on_begin: Callable[[], None]) -> None:
        self._nonce = nonce
        self._limit = limit
        self._held = b""
        self._told: Output | None = None
        self._on_begin = on_begin
        self.has_begun = False
        self.trouble: str | None = None
        self.exit_code: int | None = None

    def hear(self, data: bytes) -> bool:
        """Take the next bytes; return whether there is nothing more to wait for."""
        self._held += data
        while b"\n" in self._held:
            line, _, self._held = self._held.partition(b"\n")
            first, _, rest = line.decode(errors="replace").strip().partition(" ")
            if first == self._nonce and self._line(rest):
                return True
        return False

    def output(self) -> Output:
        """Return what was told of the command's output."""
        return self._told or BoundedOutput(self._limit).result()

    def said(self) -> str:
        """Return what was said that is none of our lines."""
        return self._held.decode(errors="replace").strip()[:500]

    def _line(self, rest: str) -> bool:
        if rest == BEGAN:
            self.has_begun = True
            self._on_begin()
            return False
        words = rest.split(" ")
        if len(words) != 4:  # noqa: PLR2004  code, size, head, tail
            self.trouble = rest
            return True
        self.has_begun = True
        self.exit_code = int(words[0]) if words[0].isdigit() else None
        self._told = _output(words, self._limit, self._nonce.encode())
        return True


def _output(words: list[str], limit: int, mark: bytes) -> Output:
    """Return what a line tells: as many bytes as were counted, of which head and tail are known. After the mark it is another's."""
    try:
        head, tail = (base64.b64decode(word[1:], validate=True) for word in words[2:])
    except (binascii.Error, ValueError):
        head = tail = b""
    left_out = max(int(words[1] if words[1].isdigit() else 0) - len(head) - len(tail), 0)
    kept, is_marked, _ = (head + tail).rpartition(mark)
    kept = kept if is_marked else head + tail
    output = BoundedOutput(limit)
    output.feed(kept[: len(head)])
    output.skip(left_out)
    output.feed(kept[len(head) :])
    return output.result()
