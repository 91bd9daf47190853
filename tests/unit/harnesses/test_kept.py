"""What is installed on a host: what a run would take, what a sandbox is shown, and what can go."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapters.harnesses.installing import InstallFailed, installs_of, pinned, shared_with
from adapters.harnesses.installing.kept import kept_below, remove, size_of, wanted_now
from adapters.harnesses.table import HARNESSES
from gym_bus.cli.programs import group
from gym_bus.shared_directories import MARKER

OLD = "codex_agent-0000000000000000"


@pytest.fixture
def home(elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a place for programs in which there are an old one, one that is wanted, and what is not whole."""
    assert elsewhere is None
    with tempfile.TemporaryDirectory(prefix="gym-bus-kept-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        monkeypatch.setenv("GYM_BUS_PROGRAMS_DIR", directory)
        home = installs_of(Path(directory))
        (wanted,) = (name for name in wanted_now([HARNESSES["codex_agent"]]) if name.startswith("codex"))
        for name in (OLD, wanted):
            (home / name / "deep").mkdir(parents=True)
            (home / name / "deep" / "program").write_bytes(b"x" * 10_000)
            (home / name / MARKER).touch()
        (home / "pi_agent-1111111111111111").mkdir()
        yield home


@pytest.fixture
def shown(home: Path) -> Iterator[None]:
    """Show the old one to a sandbox."""
    words = [
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--tmpfs",
        "/tmp",
        "--ro-bind",
        str(home / OLD),
        "/tmp/it",
        "--die-with-parent",
    ]
    with subprocess.Popen([*words, "sh", "-c", "echo ready; exec sleep 60"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield
        process.kill()


def test_what_there_is(home: Path) -> None:
    """What is not whole is none; sizes are those of the disk."""
    old, wanted = kept_below(home, wanted_now([HARNESSES["codex_agent"]]))
    assert (old.place.name, old.is_wanted, old.is_shown) == (OLD, False, False)
    assert (wanted.is_wanted, wanted.is_shown) == (True, False)
    assert size_of(home / OLD) == old.size >= 10_000


def test_what_runs_take_is_what_is_installed_for_them() -> None:
    """By the same digests: a directory that a run would make is one that is wanted."""
    wanted = wanted_now(HARNESSES.values())
    for name in ("codex_agent", "simple_strands_agent"):
        ecosystem = HARNESSES[name].packages[0].ecosystem
        assert sum(one.rpartition("-")[0] == name for one in wanted) == 1, ecosystem
        assert pinned(HARNESSES[name], "3.11").name == name
    assert {one.rpartition("-")[0] for one in wanted} >= {"node", "opencode_agent", "openclaw_agent"}
    assert not any(one.startswith("prime_agent") for one in wanted), "its program is its user's own"


async def test_what_is_removed_is_gone_and_made_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of it; whoever needs it installs it, and fails here for want of an installer."""
    (wanted,) = (one for one in kept_below(home, wanted_now([HARNESSES["codex_agent"]])) if one.is_wanted)
    remove(wanted)
    assert not wanted.place.exists()
    assert [one.place.name for one in kept_below(home, frozenset())] == [OLD]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InstallFailed, match="npm is not installed"):
        await shared_with(HARNESSES["codex_agent"], home)


def test_the_command_lists_and_removes(home: Path) -> None:
    """What is old goes; what is wanted stays, until it is named."""
    listed = json.loads(CliRunner().invoke(group, ["list", "--json"]).output)["programs"]
    assert (listed[0]["name"], listed[0]["wanted"]) == (OLD, False)
    done = CliRunner().invoke(group, ["remove", "--old"])
    assert done.output.startswith(f"{OLD} is removed: 0 MiB")
    assert CliRunner().invoke(group, ["remove", "--old"]).output == "nothing to remove\n"
    assert "codex_agent-" in CliRunner().invoke(group, ["list"]).output
    assert "is removed" in CliRunner().invoke(group, ["remove", "codex"]).output
    assert CliRunner().invoke(group, ["list"]).output == "nothing is installed\n"
    assert (home / "pi_agent-1111111111111111").exists(), "it may be under way"


@pytest.mark.usefixtures("shown")
def test_what_a_sandbox_is_shown_stays(home: Path) -> None:
    """It is named, and the exit code says that not all went."""
    until = time.monotonic() + 10
    while not kept_below(home, frozenset())[0].is_shown and time.monotonic() < until:
        time.sleep(0.05)
    done = CliRunner().invoke(group, ["remove", "--old"], standalone_mode=False)
    assert done.return_value == 1
    assert f"{OLD} is shown to a sandbox, and stays" in done.output
    assert (home / OLD / MARKER).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["remove"], "name agents, or --old"),
        (["remove", "codex", "--old"], "name agents, or --old"),
        (["install", "codx"], "did you mean codex_agent?"),
        (["install", "prime"], "no agent 'prime' has a program that is installed"),
        (["install"], "Missing argument"),
    ],
)
@pytest.mark.usefixtures("elsewhere")
def test_what_cannot_be_done(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 2
    assert said in done.output
