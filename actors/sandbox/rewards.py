"""The reward that tests write into their machine, read from outside of it when nothing runs there any more.

The directory is emptied before the tests begin. It is read when they have ended, and emptied again; then everything in the machine is
killed. A reward that is there after that was written by something that outlived the tests, as the first may have been.
"""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from pathlib import Path
from typing import Final

from gym_bus.errors import Retryable
from providers.sandboxes.base import Box
from providers.sandboxes.capabilities import NoSuchFile, WithFiles
from providers.sandboxes.processes import with_usual_path
from providers.sandboxes.snapshots import TooLarge
from schemas.events import GradingDone

NAMES: Final = ("reward.json", "reward.txt")
REWARD_MAX_BYTES: Final = 65_536
EMPTIED_WITHIN_S: Final = 60.0
WAIT: Final = "while :; do :; done"
"""A command without an end, of which no image is without a part."""
STANDSTILL_S: Final = 0.2
"""A command meets its deadline after so long: at one, everything in a machine is killed."""


class RewardLeft(Retryable):
    """There is a reward before the tests began."""


class RewardUnsure(Retryable):
    """Something may still run that writes a reward."""


class Rewards:
    """The files of a reward in the directory `place` of a machine."""

    def __init__(self, box: Box, place: str, key: str) -> None:
        """Commands of ours in `box` are known by `key`."""
        self._box = box
        self._place = place
        self._key = key

    async def begin(self) -> None:
        """Empty the directory; raises `RewardLeft` if a reward is there all the same, `BoxLost`."""
        await self._empty("empty")
        if await self._found():
            raise RewardLeft(f"a reward lies in {self._place} before the tests have begun")

    async def read(self, done: GradingDone) -> GradingDone:
        """Return the end of the tests with what they wrote; raises `BoxLost`, `RewardUnsure`."""
        if done.ended_by != "exit":
            return done
        found = await self._found()
        await self._remove()
        still = await self._box.exec(WAIT, key=f"{self._key}/standstill", timeout_s=STANDSTILL_S)
        if still.ended_by != "timeout":
            msg = f"what runs in the machine of the tests was not ended: the command for that {still.ended_by}ed"
            raise RewardUnsure(msg)
        return done.replaced(rewards=found, rewards_changed=bool(await self._found()))

    async def _empty(self, what: str) -> None:
        place = shlex.quote(self._place)
        command = f"mkdir -p {place} && cd {place} && rm -rf ./* ./.[!.]* ./..?*"
        await self._box.exec(with_usual_path(command), key=f"{self._key}/{what}", timeout_s=EMPTIED_WITHIN_S)

    async def _remove(self) -> None:
        """Remove the rewards alone: of what else lies there may be more than a command line holds, and nothing of it counts."""
        place, names = shlex.quote(self._place), " ".join(NAMES)
        command = f"chmod u+rwx {place}; cd {place} && rm -rf {names}"
        await self._box.exec(with_usual_path(command), key=f"{self._key}/empty-again", timeout_s=EMPTIED_WITHIN_S)

    async def _found(self) -> dict[str, str]:
        found: dict[str, str] = {}
        with tempfile.TemporaryDirectory(prefix="gym-bus-reward-") as directory:
            for name in NAMES:
                target = Path(directory) / name
                if (text := await self._text(f"{self._place}/{name}", target)) is not None:
                    found[name] = text
        return found

    async def _text(self, path: str, target: Path) -> str | None:
        """Return what is in a file of the machine, None if it is not there; what is too long to be a reward is none in words."""
        if not isinstance(self._box, WithFiles):
            return None
        try:
            await self._box.get(path, target, max_bytes=REWARD_MAX_BYTES)
        except NoSuchFile:
            return None
        except TooLarge as error:
            return str(error)
        content = await asyncio.to_thread(target.read_bytes)
        return content.decode(errors="replace").replace("\0", "\ufffd")
