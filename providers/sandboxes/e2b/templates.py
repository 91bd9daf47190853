"""What machines are made of: a template of the configuration's name, built of a Dockerfile if there is none yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog
from e2b import ApiParams, AsyncTemplate, LogEntry

from providers.sandboxes.e2b.refusals import refusals
from providers.sandboxes.remote.cloud import CloudRefused
from schemas.sandboxes import E2B

_log = structlog.get_logger()


async def build_if_missing(config: E2B, params: ApiParams) -> None:
    """Build `config.dockerfile` as `config.template` unless E2B has that name; raises `CloudRefused`. Its progress is logged."""
    if config.dockerfile is None:
        return
    async with refusals("looking for a template"):
        if await AsyncTemplate.exists(config.template, **params):
            return
    try:
        content = await asyncio.to_thread(Path(config.dockerfile).read_text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CloudRefused("refused", f"sandbox.dockerfile: {config.dockerfile} cannot be read: {error}") from error

    def on_log(entry: LogEntry) -> None:
        _log.info("template_building", template=config.template, level=entry.level, message=entry.message[:500])

    context = Path(config.dockerfile).parent
    try:
        async with asyncio.timeout(config.build_timeout_s), refusals(f"building the template {config.template}"):
            template = AsyncTemplate(file_context_path=context).from_dockerfile(content)
            await AsyncTemplate.build(template, config.template, on_build_logs=on_log, **params)
    except TimeoutError:
        limit_s = config.build_timeout_s
        raise CloudRefused("failed", f"the template {config.template} was not built within {limit_s:g} s") from None
