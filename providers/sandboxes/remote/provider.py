"""Makes machines at somebody else's: none twice, none forgotten, each renewed while this process lives and no longer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from gym_bus.errors import GymBusError
from providers.sandboxes.base import BoxLost, Capability, CreateFailed, SandboxUnavailable
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.remote.asking import asked
from providers.sandboxes.remote.box import RemoteBox
from providers.sandboxes.remote.cloud import Cloud, CloudRefused, Found, Machine
from providers.sandboxes.remote.keeping import Keeper
from providers.sandboxes.remote.ownership import LABEL, MADE, OURS, RUN, Host, run_of, word
from providers.sandboxes.remote.shell import Place
from schemas.sandboxes import RemoteSandbox

M = TypeVar("M", bound=Machine)
B = TypeVar("B", bound=RemoteBox[Any])
LATE_TRIES: Final = 3
LATE_PAUSE_S: Final = 0.5
UNSURE_MAX: Final = 1000


class RemoteProvider(Generic[M, B]):
    """See the module. `make_box` makes a box of a machine of this maker's."""

    def __init__(
        self,
        config: RemoteSandbox,
        work_dir: Path,
        cloud: Cloud[M],
        place: Place,
        make_box: Callable[[str, M, Place, Ledger, Callable[[], Awaitable[None]]], B],
        capabilities: frozenset[Capability],
    ) -> None:
        self._config = config
        self._name: str = config.model_dump(include={"type"})["type"]
        self._cloud = cloud
        self._place = place
        self._make_box = make_box
        self._capabilities = capabilities
        self._host = Host(work_dir)
        self._ledger = Ledger(config.ledger_path)
        self._boxes: dict[str, B] = {}
        self._making: set[str] = set()
        self._unsure: set[str] = set()
        self._has_reaped = False
        self._keeper = Keeper(config.lifetime_s, config.max_age_s)

    @property
    def name(self) -> str:
        """Return the provider's configuration type."""
        return self._name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what every machine of this provider can do beyond `Box`."""
        return self._capabilities

    async def check(self) -> None:
        """Ask whether the maker answers and takes the key, then make a box, run a command, destroy it."""
        label = f"check.{secrets.token_hex(8)}"
        try:
            await asked(self._cloud.check, self._config.request_timeout_s)
            box = await self.create(label)
            try:
                done = await box.exec("echo >file && cat file", key=label, timeout_s=30)
            finally:
                await box.destroy()
        except CloudRefused as error:
            raise SandboxUnavailable(f"sandbox={self.name}: {error.at_creation()}") from error
        except (CreateFailed, BoxLost) as error:
            raise SandboxUnavailable(f"sandbox={self.name}: no sandbox can be made: {error}") from error
        if done.exit_code != 0:
            raise SandboxUnavailable(
                f"sandbox={self.name}: {self._place.workspace} cannot be written to: {done.output}"
            )

    async def create(self, label: str) -> B:
        """Make the machine `label`; raises `CreateFailed`, or `SandboxUnavailable` if its maker cannot be asked."""
        if label in self._boxes or label in self._making:
            raise CreateFailed(f"sandbox {label} exists already")
        self._making.add(label)
        try:
            await self._cloud.prepare()
            if not self._has_reaped:
                self._has_reaped = True
                await self.reap()
            await self._make_way(label)
            return await self._make(label)
        except CloudRefused as error:
            raise error.at_creation() from error
        finally:
            self._making.discard(label)

    async def reap(self) -> int:
        """Remove the machines of dead processes of this host; return how many."""
        return await self._remove_all({OURS: "1"}, self._host.is_orphan)

    async def remove_run(self, run: str) -> int:
        """Remove every machine that this host made for a run, in whatever process; return how many.

        Those of other hosts are theirs to remove: others may have an account in common with us, and runs of the same name.
        """
        count = await self._remove_all({OURS: "1", RUN: word(run)}, self._host.is_own)
        for label, box in list(self._boxes.items()):
            if run_of(label) == word(run):
                self._keeper.drop(box)
                del self._boxes[label]
        return count

    async def aclose(self) -> None:
        """Destroy every machine still alive, and what was made of calls that were not answered."""
        try:
            await self._keeper.aclose()
            async with asyncio.TaskGroup() as group:
                for box in list(self._boxes.values()):
                    group.create_task(_destroyed(box))
                for made in list(self._unsure):
                    group.create_task(self._remove_late(made, tries=1))
        finally:
            self._ledger.close()
            await self._cloud.aclose()

    async def _make_way(self, label: str) -> None:
        """Remove what a dead process of this host left under this label, and refuse a second machine beside a living one's."""
        for twin in await self._find({OURS: "1", LABEL: word(label)}):
            if twin.metadata.get(MADE) not in self._unsure and not self._host.is_orphan(twin.metadata):
                raise CreateFailed(f"sandbox {label} exists already: machine {twin.id}")
            await self._remove(twin.id)

    async def _make(self, label: str) -> B:
        """Make the machine; nothing is left of it if it cannot be used."""
        metadata = self._host.mark(label)
        made = metadata[MADE]
        try:
            async with asyncio.timeout(self._config.create_timeout_s):
                machine = await self._cloud.make(metadata, self._config.lifetime_s)
        except TimeoutError:
            await self._remove_late(made)
            limit_s = self._config.create_timeout_s
            raise CreateFailed(f"sandbox {label}: there was no answer within {limit_s:g} s") from None
        except CloudRefused as error:
            if error.kind == "failed":
                await self._remove_late(made)
            raise
        except BaseException:
            await self._remove_late(made)
            raise

        async def end() -> None:
            self._keeper.drop(box)
            try:
                await self._remove(machine.id)
            except CloudRefused as error:
                raise error.at_creation() from error
            if self._boxes.get(label) is box:
                del self._boxes[label]

        box = self._make_box(label, machine, self._place, self._ledger, end)
        try:
            await box.set_up()
        except BaseException:
            await self._remove_late(made)
            raise
        self._boxes[label] = box
        self._keeper.keep(box)
        return box

    async def _remove_late(self, made: str, tries: int = LATE_TRIES) -> None:
        """Remove what comes of a call that was not answered, if it comes soon; else it is looked for again, or ends unrenewed."""
        if len(self._unsure) < UNSURE_MAX:
            self._unsure.add(made)
        for n in range(tries):
            if n:
                await asyncio.sleep(LATE_PAUSE_S)
            try:
                found = await self._find({MADE: made})
                for one in found:
                    await self._remove(one.id)
            except GymBusError:
                return
            if found:
                self._unsure.discard(made)
                return

    async def _remove_all(self, metadata: Mapping[str, str], wanted: Callable[[Mapping[str, str]], bool]) -> int:
        count = 0
        try:
            for one in await self._find(metadata):
                if wanted(one.metadata):
                    count += await self._remove(one.id)
        except CloudRefused as error:
            raise error.at_creation() from error
        return count

    async def _find(self, metadata: Mapping[str, str]) -> Sequence[Found]:
        return await asked(lambda: self._cloud.find(metadata), self._config.request_timeout_s)

    async def _remove(self, machine_id: str) -> bool:
        return await asked(lambda: self._cloud.remove(machine_id), self._config.request_timeout_s)


async def _destroyed(box: RemoteBox[Any]) -> None:
    with suppress(GymBusError):  # nobody renews it any more
        await box.destroy()
