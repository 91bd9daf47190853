"""A container that is killed in mid-run: the rollout goes on in a new one, or in bubblewrap, and ends with the same files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from providers.models.base import ModelAnswer, ModelCall
from providers.sandboxes import SandboxProvider, make_provider
from providers.sandboxes.docker_owners import LABEL
from schemas.events import (
    CheckpointSaved,
    ModelCallCompleted,
    RolloutFinished,
    SandboxCreated,
    SandboxLost,
    ToolCallCompleted,
    ToolCallRequested,
)
from schemas.sandboxes import Bubblewrap, Checkpoints, Docker, Layout, SandboxConfig
from tests.support.boxes import config_of
from tests.support.engine import IMAGE, needs_engine
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.world import World, config

TURNS = 5
RUN = f"lost{os.getpid()}"
LOOK = "find . -type f | sort | xargs sha256sum; ls -l link; cat log"
COMMANDS = {
    1: "mkdir -p a/b; echo one >a/b/file; ln -s a/b/file link",
    2: "head -c 300000 /dev/zero | tr '\\0' x >large; chmod 600 large",
    3: "mv a/b/file a/moved; echo three >>log",
    4: "rm large; echo four >>log",
    5: LOOK,
}


def works(call: ModelCall, first: str) -> ModelAnswer:
    """Make files, change them, look at them."""
    if call.turn in COMMANDS:
        before = first if call.turn == 1 else "true"
        return calls_tools(json.dumps({"command": f"{before}; echo {call.turn} >>log; {COMMANDS[call.turn]}"}))
    return says("<answer>1</answer>")


@asynccontextmanager
async def a_world(tmp_path: Path) -> AsyncIterator[World]:
    """Give a world whose machines are real ones."""
    world, made = World(tasks=1), dict[str, SandboxProvider]()

    def provider_for(wanted: SandboxConfig) -> SandboxProvider:
        if wanted.type not in made:
            made[wanted.type] = make_provider(wanted, tmp_path / wanted.type)
        return made[wanted.type]

    world.provider_for = provider_for  # type: ignore[method-assign]
    try:
        yield world
    finally:
        for provider in made.values():
            await provider.aclose()


async def run(
    tmp_path: Path,
    sandbox: SandboxConfig,
    checkpoints: Checkpoints,
    disturb: Callable[[World], None] | None = None,
    first: str = "true",
) -> World:
    """Run one rollout to its end; `disturb` is called when the third turn's command has been asked for. It begins with `first`."""
    async with a_world(tmp_path) as world:
        model = with_model(world, FakeModel(partial(works, first=first)))
        model.delay_s = 0.2

        async def watch() -> None:
            while len(world.events(ToolCallRequested)) < 3:
                await asyncio.sleep(0.01)
            if disturb:
                await asyncio.to_thread(disturb, world)

        world.start_host()
        watching = asyncio.create_task(watch())
        await world.request_run(RUN, config(sandbox=sandbox, checkpoints=checkpoints))
        await world.finished(RUN, 120)
        await watching
        await settled(world)
    return world


def kill_the_container(_: World) -> None:
    """Kill it as the kernel or an operator would."""
    found = subprocess.run(
        ["docker", "ps", "-q", "--filter", f"label={LABEL}={RUN}.0-0.b1"],
        capture_output=True,
        text=True,
        check=True,
    )
    (container,) = found.stdout.split()
    with contextlib.suppress(subprocess.CalledProcessError):
        subprocess.run(["docker", "kill", container], capture_output=True, check=True)


def seen(world: World) -> str:
    """Return what the last command saw."""
    return [e.data.output for e in world.events() if isinstance(e.data, ToolCallCompleted)][-1]


@needs_engine
@pytest.mark.parametrize("then", [None, Bubblewrap()], ids=["a new container", "bubblewrap"])
async def test_a_killed_container(tmp_path: Path, then: Bubblewrap | None) -> None:
    """The same files as undisturbed, in the same attempt, with no call of the model made twice."""
    docker = config_of("docker")
    assert isinstance(docker, Docker)
    undisturbed = await run(tmp_path / "undisturbed", docker, Checkpoints())
    world = await run(tmp_path / "disturbed", docker, Checkpoints(restore_in=then), kill_the_container)
    (end,) = [e.data for e in world.events() if isinstance(e.data, RolloutFinished)]
    assert (end.state, end.failure) == ("scored", None)
    assert len(world.events(SandboxLost)) == 1
    kinds = [e.data.provider for e in world.events() if isinstance(e.data, SandboxCreated)]
    assert kinds == ["docker", then.type if then else "docker"]
    assert len(world.events(ModelCallCompleted)) == TURNS + 1
    assert len(world.events(CheckpointSaved)) >= TURNS
    without_times = [line for line in seen(world).splitlines() if " link -> " not in line]
    assert without_times == [line for line in seen(undisturbed).splitlines() if " link -> " not in line]
    assert "link -> a/b/file" in seen(world)


@needs_engine
async def test_a_killed_container_whose_workspace_began_as_its_images(tmp_path: Path) -> None:
    """What the agent had removed of that is not there again in the container that follows."""
    (tmp_path / "Dockerfile").write_text(
        f"FROM {IMAGE}\nWORKDIR /srv/app\nRUN mkdir a && echo old >a/old && echo kept >kept\n"
    )
    docker = config_of("docker")
    assert isinstance(docker, Docker)
    layout = Layout(workspace="/srv/app", is_seeded=True)
    built = {"image": None, "dockerfile": str(tmp_path / "Dockerfile"), "build_network": "none", "layout": layout}
    world = await run(
        tmp_path / "disturbed", docker.replaced(**built), Checkpoints(), kill_the_container, "rm -f a/old"
    )
    (end,) = [e.data for e in world.events() if isinstance(e.data, RolloutFinished)]
    assert (end.state, end.failure) == ("scored", None)
    assert len(world.events(SandboxLost)) == 1
    assert "./kept" in seen(world)
    assert "a/old" not in seen(world)
