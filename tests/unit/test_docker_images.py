"""Images of containers: pulled where they are missing, built of a Dockerfile, named by a task; and what is said when that fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gym_bus.engine_images import CONTEXT_MAX_FILES, ImageUnavailable, built_name, fetch, has_image, image_of
from gym_bus.engine_socket import DEFAULT_SOCKET
from providers.sandboxes import SandboxUnavailable, make_provider
from schemas.sandboxes import Apptainer, Bubblewrap, Docker, NoImage, with_image
from tests.support.engine import IMAGE, USER, needs_engine
from tests.support.registry import registry

RUN = f"images{os.getpid()}"


@pytest.fixture
def pulled() -> Iterator[str]:
    """Give the name of an image that the engine can pull, and has not got."""
    with registry(IMAGE) as (name, _):
        yield f"{name}:1"
        subprocess.run(["docker", "rmi", "-f", f"{name}:1"], capture_output=True, check=False, timeout=60)


def dockerfile(tmp_path: Path, more: str = "") -> Path:
    directory = tmp_path / "context"
    directory.mkdir(exist_ok=True)
    (directory / "words").write_text("made here\n")
    path = directory / "Dockerfile"
    path.write_text(f"FROM {IMAGE}\nCOPY words /words\n{more}")
    return path


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Path]:
    path = dockerfile(tmp_path)
    yield path
    subprocess.run(["docker", "rmi", "-f", built_name(path)], capture_output=True, check=False, timeout=60)


@needs_engine
async def test_a_missing_image_is_pulled_by_who_makes_the_first_machine(tmp_path: Path, pulled: str) -> None:
    config = Docker(image=pulled, user=USER)
    assert not has_image(DEFAULT_SOCKET, pulled)
    provider = make_provider(config, tmp_path / "boxes")
    try:
        box = await provider.create(f"{RUN}.1-0.b1")
        assert (await box.exec("echo $((1 + 1))", key="k", timeout_s=20)).output == "2\n"
    finally:
        await provider.aclose()
    assert has_image(DEFAULT_SOCKET, pulled)


@needs_engine
def test_how_a_pull_goes_is_told(pulled: str) -> None:
    said: list[str] = []
    fetch(DEFAULT_SOCKET, Docker(image=pulled, user=USER), said.append)
    assert said[-1] == f"pulled {pulled}"
    assert any("of 2 layers" in text for text in said)


@needs_engine
async def test_an_image_that_may_not_be_pulled_or_is_nowhere(tmp_path: Path, pulled: str) -> None:
    """The engine's own words, and what can be done by hand."""
    for config, words in (
        (Docker(image=pulled, user=USER, pull="never"), "No such image"),
        (Docker(image=pulled.replace(":1", ":2"), user=USER), "manifest"),
    ):
        provider = make_provider(config, tmp_path / config.pull)
        with pytest.raises(SandboxUnavailable, match=words) as told:
            await provider.create(f"{RUN}.1-0.b1")
        assert f"docker pull {config.image}" in str(told.value)
        await provider.aclose()


@needs_engine
async def test_an_image_is_built_of_a_dockerfile_once(tmp_path: Path, built: Path) -> None:
    """What is in its directory is in it; another machine, and another process, find it made."""
    config, said = Docker(dockerfile=str(built), user=USER), list[str]()
    provider = make_provider(config, tmp_path / "boxes")
    try:
        box = await provider.create(f"{RUN}.1-0.b1")
        assert (await box.exec("cat /words", key="k", timeout_s=20)).output == "made here\n"
    finally:
        await provider.aclose()
    assert has_image(DEFAULT_SOCKET, image_of(config))
    fetch(DEFAULT_SOCKET, config, said.append)
    assert any("COPY words /words" in text for text in said)
    assert said[-1].startswith("built gymbus-built:")


@needs_engine
async def test_a_build_that_fails_says_what_it_said(tmp_path: Path) -> None:
    path = dockerfile(tmp_path, "RUN echo before && exit 7\n")
    provider = make_provider(Docker(dockerfile=str(path), user=USER, build_network="none"), tmp_path / "boxes")
    with pytest.raises(SandboxUnavailable, match=r"(?s)was not built: .*7.*before"):
        await provider.create(f"{RUN}.1-0.b1")
    await provider.aclose()


def test_what_is_built_is_named_by_all_that_is_in_it(tmp_path: Path) -> None:
    """Content, names, rights and links count; the same elsewhere has the same name."""
    path = dockerfile(tmp_path)
    first = built_name(path)
    elsewhere = tmp_path / "other"
    elsewhere.mkdir()
    assert built_name(dockerfile(elsewhere)) == first
    (path.parent / "words").chmod(0o755)
    names = {first, built_name(path)}
    (path.parent / "words").write_text("others\n")
    names.add(built_name(path))
    (path.parent / "link").symlink_to("/etc/passwd")
    names.add(built_name(path))
    assert len(names) == 4


def test_a_directory_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONTEXT_MAX_FILES > 1000
    path = dockerfile(tmp_path)
    monkeypatch.setattr("gym_bus.engine_images.CONTEXT_MAX_FILES", 1)
    with pytest.raises(ImageUnavailable, match="too large to build of"):
        built_name(path)
    with pytest.raises(ImageUnavailable, match="no such file"):
        built_name(tmp_path / "nothing")


def test_without_an_engine_it_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ImageUnavailable, match="does not answer"):
        has_image(str(tmp_path / "none.sock"), "any")


@pytest.mark.parametrize("values", [{}, {"image": "a", "dockerfile": "b"}])
def test_a_container_is_made_of_one_thing(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either image has to be set, or dockerfile"):
        Docker(**values)  # type: ignore[arg-type]


def test_a_task_names_its_own_image() -> None:
    assert with_image(Docker(dockerfile="d"), "task:1") == Docker(image="task:1")
    assert with_image(Apptainer(image="a.sif"), "b.sif") == Apptainer(image="b.sif")
    assert with_image(Bubblewrap(), None) == Bubblewrap()
    with pytest.raises(NoImage, match="type bubblewrap is made of none"):
        with_image(Bubblewrap(), "task:1")
