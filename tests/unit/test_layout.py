"""What a task finds in its machine: a workspace of its own that may begin as the image's, directories to write to, variables."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from pydantic import ValidationError

from actors.sandbox.held import HeldBox
from actors.sandbox.rewards import Rewards
from adapters.harnesses.launching import Launch, LaunchBox, Order
from gym_bus.blobs import DirectoryBlobs, MemoryBlobs
from gym_bus.engine_images import built_name
from providers.sandboxes import make_provider
from providers.sandboxes.base import CreateFailed
from providers.sandboxes.snapshots import load
from providers.sandboxes.snapshots.handing_in import laid_over
from providers.sandboxes.snapshots.restoring import restore
from providers.sandboxes.snapshots.taking import store, take
from schemas.machines import ROOM, Machine, Unfit, fitted
from schemas.sandboxes import Bubblewrap, Docker, Inline, Layout, NetworkPolicy, Reach, SandboxConfig, SandboxLimits
from tests.support.engine import IMAGE, USER, needs_engine

RUN = f"layout{os.getpid()}"
LAYOUT = Layout(workspace="/srv/app", scratch=("/logs/verifier", "/tests"), environment={"COLOUR": "light green"})
LOOK = 'pwd; echo "$COLOUR"; echo x >here; cat /box/here; touch /logs/verifier/a /tests/b && echo written; touch /srv/c || echo kept'


@pytest.mark.parametrize(
    "config",
    [Bubblewrap(layout=LAYOUT), pytest.param(Docker(image=IMAGE, user=USER, layout=LAYOUT), marks=needs_engine)],
    ids=["bubblewrap", "docker"],
)
async def test_a_task_has_its_places(config: SandboxConfig, tmp_path: Path) -> None:
    """Commands begin in the workspace, which is the box's own; beside it only what was asked for can be written to."""
    provider = make_provider(config, tmp_path / "boxes")
    try:
        box = await provider.create(f"{RUN}.1-0.b1")
        lines = (await box.exec(LOOK, key="k", timeout_s=20)).output.splitlines()
    finally:
        await provider.aclose()
    assert [line for line in lines if "touch" not in line] == ["/srv/app", "light green", "x", "written", "kept"]


async def test_a_path_of_the_tasks_own_does_not_hold_us_up(tmp_path: Path) -> None:
    """Files go in and out, the workspace is cleared, rewards are read and a program is launched without any of the task's `PATH`."""
    layout = Layout(scratch=("/logs/verifier",), environment={"PATH": "/nonexistent"})
    provider = make_provider(Bubblewrap(layout=layout), tmp_path / "boxes")
    source = tmp_path / "source"
    source.write_text("1")
    try:
        box = cast("LaunchBox", await provider.create(f"{RUN}.1-0.b2"))
        await box.put(source, "/logs/verifier/reward.txt")
        await Rewards(box, "/logs/verifier", "k").begin()
        await box.put(source, "below/file")
        assert await box.get("below/file", tmp_path / "back", max_bytes=10) == 1
        launch = Launch(box, "l1")
        said = {"PATH": "/usr/bin:/bin"}
        await launch.start(
            Order(launch_id="l1", argv=("cat", "below/file"), environment=said, cwd="/box", timeout_s=20)
        )
        assert (receipt := await launch.wait(20))
        assert (receipt.exit_code, await launch.read("stdout", 0)) == (0, b"1")
        await HeldBox(box, MemoryBlobs(), "label").clear("k")
        assert (await box.exec("echo *; echo $PATH", key="k", timeout_s=20)).output == "*\n/nonexistent\n"
    finally:
        await provider.aclose()


@pytest.fixture
def dockerfile(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "context/Dockerfile"
    path.parent.mkdir()
    path.write_text(
        f"FROM {IMAGE}\nENV PATH=/bin:/of/the/image\nWORKDIR /srv/app\n"
        "RUN mkdir -p a/b && echo 1 >a/b/file && chmod 755 a/b/file && ln -s b a/link && ln -s /etc/passwd out\n"
    )
    yield path
    subprocess.run(["docker", "rmi", "-f", built_name(path)], capture_output=True, check=False, timeout=60)


@needs_engine
async def test_a_workspace_begins_as_the_images(dockerfile: Path, tmp_path: Path) -> None:
    """It is the box's user's, who may change all of it; the next machine begins as the image's again."""
    layout = Layout(workspace="/srv/app", is_seeded=True)
    config = Docker(dockerfile=str(dockerfile), build_network="none", user=USER, layout=layout)
    provider = make_provider(config, tmp_path / "boxes")
    look = "cat a/link/file; test -x a/b/file && echo runs; readlink out; echo $PATH; stat -c %u . a a/b/file out | sort -u"
    try:
        for number in (1, 2):
            box = await provider.create(f"{RUN}.1-0.b{number}")
            said = (await box.exec(look, key="k", timeout_s=20)).output.splitlines()
            assert said == ["1", "runs", "/etc/passwd", "/bin:/of/the/image", USER.partition(":")[0]]
            changed = await box.exec(
                "echo 2 >a/b/file && rm out && mkdir a/b/c && mv a d && cat d/b/file", key="k2", timeout_s=20
            )
            assert changed.output == "2\n"
            await box.destroy()
    finally:
        await provider.aclose()
    wanted = ["docker", "ps", "-aq", "--filter", f"label=gymbus.label={RUN}.1-0.b1"]
    left = await asyncio.to_thread(subprocess.run, wanted, capture_output=True, check=True)
    assert left.stdout == b""


@needs_engine
async def test_an_image_without_the_directory_begins_empty(tmp_path: Path) -> None:
    config = Docker(image=IMAGE, user=USER, layout=Layout(workspace="/nowhere/at/all", is_seeded=True))
    provider = make_provider(config, tmp_path / "boxes")
    try:
        box = await provider.create(f"{RUN}.1-0.b1")
        assert (await box.exec("pwd; ls -A", key="k", timeout_s=20)).output == "/nowhere/at/all\n"
    finally:
        await provider.aclose()


@pytest.mark.parametrize(
    "place", ["/", "/usr/x", "/etc", "/box", "/proc/1", "/opt/gym-bus/x", "/tmp", "/a/../etc", "relative", "/a b"]
)
def test_a_place_of_the_system_is_no_place_for_a_task(place: str) -> None:
    for wrong in ({"workspace": place}, {"scratch": (place,)}):
        with pytest.raises(ValidationError):
            Layout.model_validate(wrong)


def test_a_task_has_a_container_in_the_place_of_bubblewrap() -> None:
    """With the run's own limits and lists where the task says nothing; and with room for more than a command."""
    run = Bubblewrap(
        limits=SandboxLimits(output_bytes=1024, cpus=2), network=NetworkPolicy(verify=Reach(allow=("a.example",)))
    )
    machine = Machine(
        image="some:1", memory_mib=100, layout=LAYOUT, user="77", image_timeout_s=9, agent=Reach(allow=("b.example",))
    )
    made = fitted(run, machine)
    assert isinstance(made, Docker)
    assert (made.image, made.user, made.image_timeout_s, made.layout) == ("some:1", "77:77", 9, LAYOUT)
    assert (made.limits.memory_mib, made.limits.cpus, made.limits.output_bytes) == (100, 2, 1024)
    assert made.limits.processes == ROOM["processes"]
    assert (made.network.agent.allow, made.network.verify.allow) == (("b.example",), ("a.example",))
    own = Docker(dockerfile="/d/Dockerfile", user="5:6", build_network="none")
    again = fitted(own, Machine(image="some:1"))
    assert isinstance(again, Docker)
    assert (again.image, again.dockerfile, again.user, again.build_network) == ("some:1", None, "5:6", "none")
    assert fitted(own, None) is own
    assert getattr(fitted(own, Machine(user="someone")), "user", None) == "someone"
    plain = fitted(own, Machine(layout=LAYOUT))
    assert isinstance(plain, Docker)
    assert plain.dockerfile == "/d/Dockerfile"


def test_what_a_sandbox_cannot_be_is_said() -> None:
    with pytest.raises(Unfit, match="choose sandbox"):
        fitted(Bubblewrap(), Machine(user="77"))
    with pytest.raises(Unfit, match="not in a sandbox of type inline"):
        fitted(Inline(), Machine())
    with pytest.raises(ValidationError):
        Machine(user="0")


def test_files_that_are_handed_in_lie_over_what_is_there(tmp_path: Path) -> None:
    """What has the name of another thing takes its place, with all that was in it; links are not followed."""
    below, above, made = tmp_path / "below", tmp_path / "above", tmp_path / "made"
    for path, text in {"same": "old", "kept/a": "a", "way/b": "b", "dir/c": "c", "first": "1"}.items():
        (below / path).parent.mkdir(parents=True, exist_ok=True)
        (below / path).write_text(text)
    (below / "link").symlink_to("kept")
    os.link(below / "first", below / "second")
    for path, text in {
        "same": "new",
        "kept/d": "d",
        "way": "file now",
        "link/e": "e",
        "dir/x/y": "y",
        "first": "2",
    }.items():
        (above / path).parent.mkdir(parents=True, exist_ok=True)
        (above / path).write_text(text)
    blobs = DirectoryBlobs(tmp_path / "blobs")
    one, other = (load(take(root, blobs).ref, blobs) for root in (below, above))
    made.mkdir()
    restore(store(laid_over(one, other), blobs), blobs, made)
    found = {str(p.relative_to(made)): p.read_text() for p in made.rglob("*") if p.is_file()}
    assert {k: v for k, v in found.items() if k != "second"} == {
        "same": "new", "kept/a": "a", "kept/d": "d", "way": "file now", "link/e": "e", "dir/c": "c", "dir/x/y": "y", "first": "2",
    }  # fmt: skip
    assert not (made / "link").is_symlink()


@needs_engine
async def test_a_user_may_be_named_as_the_image_knows_it(tmp_path: Path) -> None:
    """Its files are that user's; a name that the image has not, or has for root, makes no machine."""
    for user, words in (
        ("agent", ""),
        ("root", "no user 'root' who is not root"),
        ("nobody-knows", "no user 'nobody-knows'"),
    ):
        provider = make_provider(Docker(image=IMAGE, user=user), tmp_path / user)
        try:
            if words:
                with pytest.raises(CreateFailed, match=words):
                    await provider.create(f"{RUN}.1-0.b1")
                continue
            box = await provider.create(f"{RUN}.1-0.b1")
            said = await box.exec("id -un; id -u; echo x >file && stat -c %U file", key="k", timeout_s=20)
            assert said.output == "agent\n1000\nagent\n"
        finally:
            await provider.aclose()


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine(memory_mib=8), "limits.memory_mib: Input should be greater"),
        (Machine(memory_mib=10**19), "limits.memory_mib: Input should be less"),
        (Machine(cpus=1e308), "limits.cpus: Input should be less"),
    ],
)
def test_what_no_sandbox_can_be_is_said_before_it_is_asked_for(machine: Machine, words: str) -> None:
    """A request that nobody could read would be set aside, and its attempts with it."""
    with pytest.raises(Unfit, match=words):
        fitted(Bubblewrap(), machine)
