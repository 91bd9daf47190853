"""What makes a new machine ready: stated before it begins and when it has ended, once in each machine, and no machine without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from actors.sandbox.box import BoxMachine, BoxState
from actors.sandbox.held import HeldBox
from actors.sandbox.install import LAST_LINE_MAX_CHARS, LOG_MAX_CHARS, InstallBox
from gym_bus.blobs import MemoryBlobs
from gym_bus.errors import Permanent
from providers.sandboxes.base import Box, ExecResult
from providers.sandboxes.phases import phase_of
from schemas.events import SandboxCreated, SandboxFailed, SandboxInstalled, SandboxInstallStarted, SandboxRequested
from schemas.readiness import Install
from schemas.sandboxes import Bubblewrap, NetworkPolicy, Reach
from schemas.values import Failure
from tests.support.machine_case import Case, envelope

HOSTS = ("mirror.example:8080",)
SANDBOX = Bubblewrap(network=NetworkPolicy(install=Reach(allow=HOSTS)))
FAILURE = Failure(kind="sandbox_create_failed", message="no room", stage="seed")


def new() -> Case[BoxState]:
    request = SandboxRequested(sandbox=SANDBOX, install=Install(command="make ready", timeout_s=9))
    return Case(BoxMachine(), BoxMachine().begin(envelope(request, "box")))


def begun(number: int = 1) -> SandboxInstallStarted:
    return SandboxInstallStarted(number=number, phase="install", allow=HOSTS)


def ended(number: int = 1, **changes: Any) -> SandboxInstalled:
    said = {"exit_code": 0, "output": "", "output_bytes": 0, "duration_s": 1.5, **changes}
    return SandboxInstalled(number=number, phase="install", allow=HOSTS, **said)


def failed(case: Case[BoxState]) -> Failure:
    (failed,) = case.decided
    assert isinstance(failed, SandboxFailed)
    assert case.given(failed).is_done
    return failed.failure


def test_it_begins_is_run_and_then_the_machine_is_made() -> None:
    """That it begins is stated with what it may reach; nothing but it goes on meanwhile; the machine is not made before."""
    case = new().then(begun())
    assert case.then_nothing().effects == [InstallBox("install-1", 1)]
    done = case.given(ended()).then_nothing()
    assert done.does() == {"CreateBox"}
    assert done.given(SandboxCreated(request_id="box", place="h0", provider="bubblewrap")).does() == {"AwaitAnswer"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exit_code": 1, "output": "a\nno b\n"}, "ended with exit code 1 after 1.5 s: no b\nit printed:\na\nno b"),
        ({"exit_code": 143, "ended_by": "signal"}, "ended with exit code 143 after 1.5 s"),
        ({"exit_code": None, "ended_by": "timeout"}, "was not finished (install.timeout_s)"),
        ({"exit_code": 0, "ended_by": "out_of_memory"}, "ran out of memory (sandbox.limits.memory_mib)"),
        ({"exit_code": None, "lost": "killed"}, "was lost with its machine (killed)"),
    ],
)  # fmt: skip
def test_what_did_not_end_well_leaves_no_machine(changes: dict[str, Any], words: str) -> None:
    """It is a failure of the machinery that may be tried again, never a reward; nothing runs any more."""
    case = new().then(begun()).given(ended(**changes))
    failure = failed(case)
    assert (failure.kind, failure.stage, failure.terminal) == ("install_failed", "seed", False)
    assert words in failure.message


def test_of_a_long_log_the_end_is_told() -> None:
    """The failure is bounded, and says that there was more."""
    failure = failed(new().then(begun()).given(ended(exit_code=2, output="x" * LOG_MAX_CHARS + "the cause")))
    assert failure.message.endswith("the cause")
    assert "it printed, at the end:" in failure.message
    assert len(failure.message) < LOG_MAX_CHARS + LAST_LINE_MAX_CHARS + 200
    assert "at the end" in failed(new().then(begun()).given(ended(exit_code=2, output="x", truncated=True))).message


def test_the_next_machine_installs_anew() -> None:
    """Whoever takes it over has no machine, whether the install was under way or had just ended."""
    for case in (new().then(begun()), new().then(begun()).given(ended())):
        again = case.taken_over().then(begun(2))
        assert again.effects == [InstallBox("install-2", 2)]
        assert again.given(ended(2)).then_nothing().does() == {"CreateBox"}
    assert begun(1) != begun(2)
    drafts = [new().drafts[0], new().then(begun()).taken_over().drafts[0]]
    assert drafts[0].tag != drafts[1].tag, "each has an id of its own"


def test_a_failed_install_is_not_run_again_by_the_next_owner() -> None:
    """All that is missing is the answer."""
    assert failed(new().then(begun()).given(ended(exit_code=1)).taken_over()).kind == "install_failed"


def test_what_is_heard_twice_or_late_changes_nothing() -> None:
    """An end belongs to one beginning."""
    case = new().then(begun())
    assert case.given(begun()).state == case.state
    assert case.given(ended(), ended(exit_code=1)).state == case.given(ended()).state
    again = case.taken_over().then(begun(2))
    assert again.given(ended(1), begun(1)).state == again.state


def test_a_machine_that_could_not_be_made_is_over() -> None:
    """Also if that was to install in it."""
    case = new().then(begun()).given(SandboxFailed(request_id="box", failure=FAILURE))
    assert case.is_done
    assert case.then_nothing().effects == []


def test_a_handler_that_breaks_down_is_answered() -> None:
    (answer,) = new().then(begun()).crashed()
    assert isinstance(answer, SandboxFailed)
    assert answer.failure.kind == "internal"


def test_without_one_nothing_is_stated() -> None:
    case = Case(BoxMachine(), BoxMachine().begin(envelope(SandboxRequested(sandbox=SANDBOX), "box")))
    assert case.then_nothing().does() == {"CreateBox"}


class ListedBox(Box):
    """A machine that can be held to lists of hosts, and remembers them."""

    is_alive = True

    def __init__(self) -> None:
        self.lists: list[tuple[tuple[str, ...], str]] = []

    async def allow(self, hosts: Sequence[str], phase: str = "") -> None:
        """Remember."""
        self.lists.append((tuple(hosts), phase))

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Run nothing."""
        raise NotImplementedError

    async def destroy(self) -> None:
        """Leave nothing."""


@pytest.mark.parametrize(
    ("install", "agent", "wanted"),
    [
        (HOSTS, (), [(HOSTS, "install"), ((), "agent")]),
        (HOSTS, ("a.example",), [(HOSTS, "install"), (("a.example",), "agent")]),
        ((), ("a.example",), [(("a.example",), "agent")]),
        ((), (), []),
    ],
)
async def test_the_agent_keeps_nothing_of_the_installs_list(
    install: tuple[str, ...], agent: tuple[str, ...], wanted: list[Any]
) -> None:
    """An empty list is said too, where there was another one before it; no phase comes back."""
    box, sandbox = (
        ListedBox(),
        Bubblewrap(network=NetworkPolicy(install=Reach(allow=install), agent=Reach(allow=agent))),
    )
    held = HeldBox(box, MemoryBlobs(), "r.0-0.b1")
    for phase in ("install", "agent"):
        change = phase_of(sandbox, phase, held.phase)
        assert change is not None
        await held.enter(change)
    assert box.lists == wanted
    with pytest.raises(Permanent, match="none comes back"):
        phase_of(sandbox, "install", held.phase)
