"""How many machines this host holds at once: by their number (slots of the queue), their memory and their processors."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from providers.sandboxes.base import CreateFailed, SandboxUnavailable
from schemas.sandboxes import Inline, RemoteSandbox, SandboxConfig

WAITS_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Need:
    """What one machine may use of this host."""

    memory_mib: int = 0
    cpus: float = 0.0

    @classmethod
    def of(cls, sandbox: SandboxConfig) -> Need:
        """Return the need of a machine; one that is elsewhere, or none at all, needs nothing here."""
        if isinstance(sandbox, Inline | RemoteSandbox):
            return cls()
        limits = sandbox.limits
        return cls(limits.memory_mib + (limits.disk_mib or 0), limits.cpus or 0.0)


class Admission:
    """Lets machines in as long as all together may not use more than there is; who comes first is let in first.

    Without a limit nothing is counted: what machines may use is a bound, and most use far less. `on_short` is called while somebody
    waits for room, for each one that comes and for each that leaves: whoever has machines that can be spared gives one up.
    """

    def __init__(self, memory_mib: int | None = None, cpus: float | None = None, waits_s: float = WAITS_S) -> None:
        """Hold machines of `memory_mib` and `cpus` in all; one that there is no room for waits `waits_s` at most."""
        self._memory_mib = memory_mib
        self._cpus = cpus
        self._waits_s = waits_s
        self._held: dict[str, Need] = {}
        self._waiting: deque[tuple[str, Need, asyncio.Future[None]]] = deque()
        self.on_short: Callable[[], None] = lambda: None

    @property
    def is_short(self) -> bool:
        """Say whether somebody waits for room."""
        return bool(self._waiting)

    async def enter(self, label: str, sandbox: SandboxConfig) -> None:
        """Wait for room; whoever got in says `leave`.

        Raises `SandboxUnavailable` for a machine that never fits, `CreateFailed` for one that nothing made room for in time.
        """
        need = Need.of(sandbox)
        if too_much := self._over(need):
            msg = f"a sandbox of this kind never fits on this host: it wants {too_much}"
            raise SandboxUnavailable(msg)
        coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry, is_in = (label, need, coming), False
        self._waiting.append(entry)
        self._let_in()
        if self._waiting:
            self.on_short()
        try:
            async with asyncio.timeout(self._waits_s):
                await coming
            is_in = True
        except TimeoutError as error:
            held = (
                f"{len(self._held)} sandboxes hold {self._used().memory_mib} MiB and {self._used().cpus:g} processors"
            )
            wanted = self._over(self._with(need)) or "its turn"
            msg = f"no room for sandbox {label} in {self._waits_s:g} s: {held} of this host, and with it they want {wanted}"
            raise CreateFailed(msg) from error
        finally:
            if not is_in:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                self.leave(label)

    def try_enter(self, label: str, sandbox: SandboxConfig) -> bool:
        """Enter if there is room that nobody waits for; return whether it did."""
        need = Need.of(sandbox)
        if self._waiting or self._over(self._with(need)):
            return False
        self._held[label] = need
        return True

    def hand_over(self, label: str, to: str) -> None:
        """Have what `label` holds be held by `to`."""
        self._held[to] = self._held.pop(label, Need())

    def leave(self, label: str) -> None:
        """Make room; safe to repeat."""
        has_left = self._held.pop(label, None) is not None
        self._let_in()
        if has_left and self._waiting:
            self.on_short()

    def _let_in(self) -> None:
        while self._waiting and not self._over(self._with(self._waiting[0][1])):
            label, need, coming = self._waiting.popleft()
            if not coming.done():
                self._held[label] = need
                coming.set_result(None)

    def _used(self) -> Need:
        needs = self._held.values()
        return Need(sum(need.memory_mib for need in needs), sum(need.cpus for need in needs))

    def _with(self, need: Need) -> Need:
        used = self._used()
        return Need(used.memory_mib + need.memory_mib, used.cpus + need.cpus)

    def _over(self, need: Need) -> str | None:
        if self._memory_mib is not None and need.memory_mib > self._memory_mib:
            return f"{need.memory_mib} MiB of {self._memory_mib} (GYM_BUS_BOX_MEMORY_MIB)"
        if self._cpus is not None and need.cpus > self._cpus:
            return f"{need.cpus:g} processors of {self._cpus:g} (GYM_BUS_BOX_CPUS)"
        return None
