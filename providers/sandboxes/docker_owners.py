"""Whose a container is: labels that name the process that made it, and the removal of what dead processes left behind.

A container ends when its owner's connection does, and its engine then removes it. Reaping is for what that missed: an engine that
crashed or was restarted, or a command that holds the container's input open.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from aiodocker.containers import DockerContainer

from providers.sandboxes.base import CreateFailed
from providers.sandboxes.docker_engine import Engine, EngineRefused
from providers.sandboxes.owners import boot, pid_namespace, started

OURS: Final = "gymbus"
LABEL: Final = "gymbus.label"
OWNER: Final = "gymbus.owner"
BOOT: Final = "gymbus.boot"
PIDS: Final = "gymbus.pids"
"""The owner's pid namespace: in another one its pid means nothing, and it is left alone."""
REMOVAL_TRIES: Final = 200
REMOVAL_PAUSE_S: Final = 0.05


def labels_of(label: str) -> dict[str, str]:
    """Return the labels of a container that this process makes for the box `label`. Blocking, for no time."""
    pid = os.getpid()
    return {OURS: "1", LABEL: label, OWNER: f"{pid}:{started(pid)}", BOOT: boot(), PIDS: pid_namespace()}


def is_orphan(labels: Mapping[str, str]) -> bool:
    """Say whether the process that made a container is surely dead. A pid that was used again has another start time."""
    if labels.get(BOOT) != boot():
        return True
    if labels.get(PIDS) != pid_namespace():
        return False
    pid, _, since = labels.get(OWNER, "").partition(":")
    return not pid.isdecimal() or started(int(pid)) != since


async def containers_of(engine: Engine, *labels: str) -> list[DockerContainer]:
    """Return the containers, running or not, that have all of `labels` (`name=value`)."""
    wanted = json.dumps({"label": labels})
    return await engine.ask("looking for containers", engine.client.containers.list(all=1, filters=wanted))


async def remove(engine: Engine, container: DockerContainer) -> bool:
    """Kill and remove a container; return whether that was our doing. Of one that is being removed the end is waited for."""
    for _ in range(REMOVAL_TRIES):
        try:
            await engine.ask("removing a container", container.delete(force=True, v=True))
        except EngineRefused as error:
            match error.status:
                case HTTPStatus.NOT_FOUND:
                    return False
                case HTTPStatus.CONFLICT:  # "removal of container … is already in progress"
                    await asyncio.sleep(REMOVAL_PAUSE_S)
                case _:
                    raise
        else:
            return True
    raise CreateFailed(f"container {container.id[:12]} is being removed, and does not go")


async def reap(engine: Engine) -> int:
    """Remove the containers of dead processes; return how many. One that cannot be removed does not keep the others."""
    count = 0
    for container in await containers_of(engine, f"{OURS}=1"):
        if is_orphan(container["Labels"]):
            with suppress(CreateFailed):
                count += await remove(engine, container)
    return count
