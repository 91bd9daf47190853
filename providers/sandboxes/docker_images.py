"""The image that containers are made of: named, and pulled or built when the engine has not got it; progress goes to the log."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from gym_bus.engine_images import ImageUnavailable, fetch, has_image, image_of
from providers.sandboxes.base import SandboxUnavailable
from schemas.sandboxes import Docker

log = structlog.get_logger(__name__)

TOLD_EVERY_S: Final = 5.0


class Images:
    """One configuration's image at one engine; whoever comes while it is fetched waits for it."""

    def __init__(self, config: Docker, socket: str) -> None:
        self._config = config
        self._socket = socket
        self._name: str | None = None
        self._fetching = asyncio.Lock()
        self._told_at = 0.0

    async def name(self) -> str:
        """Return the image's name; raises `SandboxUnavailable` for a Dockerfile that cannot be read."""
        if self._name is None:
            try:
                self._name = await asyncio.to_thread(image_of, self._config)
            except ImageUnavailable as error:
                raise SandboxUnavailable(str(error)) from error
        return self._name

    async def fetch(self, missed: str) -> None:
        """Have the image pulled or built, unless it may not be; `missed` is how the engine said that it is not there.

        Raises `SandboxUnavailable`.
        """
        image = await self.name()
        if self._config.image is not None and self._config.pull == "never":
            raise SandboxUnavailable(f"{missed}. {advice_for(image)}")
        async with self._fetching:
            try:
                if not await asyncio.to_thread(has_image, self._socket, image):
                    await asyncio.to_thread(fetch, self._socket, self._config, self._told)
            except ImageUnavailable as error:
                advice = advice_for(image) if self._config.image is not None else "See the Dockerfile"
                raise SandboxUnavailable(f"{error}. {advice}") from error

    def _told(self, text: str) -> None:
        now = time.monotonic()
        if now - self._told_at >= TOLD_EVERY_S or text.startswith(("pulled", "built")):
            self._told_at = now
            log.info("image_fetched" if text.startswith(("pulled", "built")) else "image_fetching", said=text)


def advice_for(image: str) -> str:
    """Return how an image gets there by hand."""
    made_here = ", or make it with `scripts/setup docker`" if image.startswith("gymbus/") else ""
    return f"Fetch it with `docker pull {image}`, or `docker load`, or `docker import`{made_here}"
