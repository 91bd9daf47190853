"""Programs in a machine: followed beside its commands, each answered once, whatever becomes of the machine."""

from __future__ import annotations

import pytest

from actors.sandbox.box import DIED, OVER, BoxMachine, RunCommand
from actors.sandbox.box_state import BoxState
from actors.sandbox.launches import GIVEN_UP, FollowLaunch
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.events import (
    LaunchEnded,
    LaunchFailed,
    LaunchLost,
    LaunchRequested,
    LaunchTold,
    SandboxDestroyed,
    SandboxLendRequested,
    SandboxLent,
    SandboxLost,
)
from schemas.harnesses import CodexAgent, ToldItem
from schemas.values import Party
from tests.support.machine_case import Case, envelope
from tests.unit.test_box_machine import CLOSE, CREATED, OWNER, asked, new, ready

GO = ("go", LaunchRequested(agent=CodexAgent(), activation=1, prompt="Do it.", model="m", timeout_s=9))
ENDED = LaunchEnded(request_id="go", ended_by="exit", exit_code=0, duration_s=2.0)
ITEMS = (ToldItem(kind="finished"),)


def told(part: int) -> LaunchTold:
    return LaunchTold(launch_id="go", part=part, items=ITEMS)


def follows(case: Case[BoxState]) -> list[str]:
    return [effect.id for effect in case.effects if isinstance(effect, FollowLaunch)]


def lost_of(case: Case[BoxState]) -> list[str]:
    return [data.reason for data in case.decided if isinstance(data, LaunchLost)]


def said(who: Party, data: Event, event_id: str) -> Envelope:
    return envelope(data, event_id).replaced(actor=who.actor, key=who.key)


def test_it_is_followed_piece_by_piece_until_its_end() -> None:
    """Each piece that is stated asks for the next; with the end nothing goes on."""
    case = ready().given(GO)
    assert follows(case) == ["launch-go-0"]
    case = case.given(told(1), told(1), told(2))
    assert follows(case) == ["launch-go-2"]
    assert case.decided == []
    case = case.given(ENDED)
    assert (follows(case), case.decided) == ([], [])
    assert follows(case.given(GO)) == [], "a request heard again opens nothing"


def test_it_goes_on_beside_commands() -> None:
    case = ready().given(GO, asked(0))
    assert follows(case) == ["launch-go-0"]
    assert any(isinstance(effect, RunCommand) for effect in case.effects)


def test_it_waits_for_its_machine() -> None:
    case = new().given(GO)
    assert follows(case) == []
    assert follows(case.given(CREATED)) == ["launch-go-0"]


def test_a_machine_that_is_given_back_ends_it() -> None:
    case = ready().given(GO, told(1), CLOSE)
    assert lost_of(case) == [GIVEN_UP]
    assert follows(case) == []


def test_a_lost_machine_loses_it() -> None:
    assert lost_of(ready().given(GO, SandboxLost(reason="oom"))) == ["oom"]


def test_whoever_takes_over_finds_it_lost() -> None:
    """The machine died with the process that held it, and the program with the machine: it is not started again."""
    case = ready().given(GO, told(1))
    taken = Case(BoxMachine(), BoxMachine().taken_over(case.state))
    assert lost_of(taken) == [DIED]
    assert follows(taken) == []


def test_one_that_comes_too_late_is_told_so() -> None:
    case = ready().given(CLOSE)
    over = case.given(SandboxDestroyed(request_id=CLOSE[0]), GO)
    assert lost_of(over) == [OVER]


@pytest.mark.parametrize("right", [None, 7])
def test_a_stranger_launches_nothing(right: int | None) -> None:
    other = Party(actor="verifier", key="v1")
    case = ready().given(said(other, GO[1].replaced(right=right), "go"))
    (refused,) = case.decided
    assert isinstance(refused, LaunchFailed)
    assert refused.failure.kind == "not_lent"
    assert follows(case) == []


def test_a_borrower_launches_with_its_right() -> None:
    borrower = Party(actor="verifier", key="v1")
    lend = said(OWNER, SandboxLendRequested(borrower=borrower), "lend")
    case = ready().given(lend, SandboxLent(request_id="lend", borrower=borrower, right=1))
    assert follows(case.given(said(borrower, GO[1].replaced(right=1), "go"))) == ["launch-go-0"]
    (refused,) = case.given(GO).decided
    assert isinstance(refused, LaunchFailed)
