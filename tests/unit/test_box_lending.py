"""Who has a machine: its owner or one borrower with a right, whose word counts, and what becomes of everybody else's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.sandbox.box import ABANDONED, DIED, OVER, BoxMachine, DestroyBox, KeepFiles, RunCommand
from actors.sandbox.box_state import BoxState
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    SandboxCloseRequested,
    SandboxDestroyed,
    SandboxFailed,
    SandboxGiveBackRequested,
    SandboxGivenBack,
    SandboxLendRequested,
    SandboxLent,
    SandboxLost,
    SandboxRequestRefused,
    SessionClosed,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
)
from schemas.tasks import Evidence
from schemas.values import BlobRef, Failure, Party
from tests.support.machine_case import Case, envelope
from tests.unit.test_box_machine import CLOSE, CREATED, OWNER, asked, done, lost, new, ready

GRADER = Party(actor="verifier", key="v1")
OTHER = Party(actor="harness", key="s1-other")
REF = BlobRef(sha256="cd" * 32, size=3)


def said(who: Party, data: Event, event_id: str) -> Envelope:
    """What `who` asks or states."""
    return envelope(data, event_id).replaced(actor=who.actor, key=who.key)


def lend(number: int, to: Party | None = GRADER, who: Party = OWNER) -> Envelope:
    return said(who, SandboxLendRequested(borrower=to), f"lend{number}")


def give_back(number: int, right: int, who: Party = GRADER) -> Envelope:
    return said(who, SandboxGiveBackRequested(right=right), f"back{number}")


def call(index: int, who: Party = GRADER, right: int | None = None) -> Envelope:
    name, request = asked(index)
    return said(who, request.replaced(right=right), name)


def wish(number: int, who: Party = GRADER, right: int | None = None) -> Envelope:
    return said(who, CheckpointRequested(right=right), f"wish{number}")


def saved(request_id: str) -> CheckpointSaved:
    return CheckpointSaved(request_id=request_id, snapshot=REF, files=1, bytes=9, stored_bytes=5, duration_s=0.1)


def lent(to: Party = GRADER) -> Case[BoxState]:
    """A machine that is lent for the first time."""
    return ready().given(lend(1, to)).then(SandboxLent(request_id="lend1", borrower=to, right=1))


def kinds(case: Case[BoxState]) -> list[tuple[str, str]]:
    """Return which requests are refused now, and the kind of refusal."""
    refusals = (ToolCallFailed, CheckpointFailed, SandboxRequestRefused)
    return [(e.request_id, e.failure.kind) for e in case.decided if isinstance(e, refusals)]


def test_a_machine_is_lent_given_back_and_lent_again_with_a_greater_right() -> None:
    """Each lending has a right of its own; giving it back makes the machine its owner's."""
    case = lent().then_nothing().given(give_back(1, 1))
    case = case.then(SandboxGivenBack(request_id="back1", borrower=GRADER, right=1)).then_nothing()
    case = case.given(lend(2, OTHER)).then(SandboxLent(request_id="lend2", borrower=OTHER, right=2)).then_nothing()
    assert case.state.lending.borrower == OTHER


def test_a_request_heard_twice_is_one_lending() -> None:
    """A repeat, before the answer or after it, changes nothing."""
    case = ready().given(lend(1), lend(1)).then(SandboxLent(request_id="lend1", borrower=GRADER, right=1))
    case.given(lend(1), SandboxLent(request_id="lend1", borrower=GRADER, right=1)).then_nothing()
    assert len(lent().given(give_back(1, 1), give_back(1, 1)).decided) == 1


def test_only_who_has_the_machine_has_its_commands_run() -> None:
    """The borrower with its right is served; its owner meanwhile, a stranger, and who names no right are not."""
    assert lent().given(call(0, right=1)).then_nothing().effects == [
        RunCommand("run-call0", asked(0)[1].replaced(right=1), 7, GRADER)
    ]
    for who, right in ((OWNER, None), (OWNER, 1), (OTHER, 1), (OTHER, None), (GRADER, None), (GRADER, 2)):
        refused = lent().given(call(0, who, right))
        assert kinds(refused) == [("call0", "not_lent")], (who, right)
        assert refused.does() == {"AwaitAnswer"}
        assert kinds(lent().given(wish(0, who, right))) == [("wish0", "not_lent")]
        refused.given(*refused.decided).given(call(0, who, right)).then_nothing()


def test_a_machine_that_is_not_lent_is_its_owners() -> None:
    """Whatever a stranger says, and an owner has no right to name."""
    for who, right in ((GRADER, None), (GRADER, 1), (OTHER, None), (OWNER, 1)):
        assert kinds(ready().given(call(0, who, right))) == [("call0", "not_lent")]
        assert kinds(ready().given(wish(0, who, right))) == [("wish0", "not_lent")]


def test_an_older_right_is_stale() -> None:
    """Given back, taken away, or lent again to the same one: the number says so."""
    back = lent().given(give_back(1, 1)).then_types(SandboxGivenBack)
    taken = lent().given(lend(2, None)).then_types(SandboxGivenBack)
    again = lent().given(lend(2)).then(SandboxLent(request_id="lend2", borrower=GRADER, right=2))
    for case in (back, taken, again):
        assert kinds(case.given(call(0, right=1))) == [("call0", "stale")]
        assert kinds(case.given(wish(0, right=1))) == [("wish0", "stale")]
        assert kinds(case.given(give_back(2, 1))) == [("back2", "stale")]
    assert again.given(call(0, right=2)).then_nothing().does() == {"RunCommand"}


def test_an_owner_takes_its_machine_back() -> None:
    """By lending it to another, to nobody or to itself, without asking the borrower, which may be dead."""
    assert lent().given(lend(2, OTHER)).decided == [SandboxLent(request_id="lend2", borrower=OTHER, right=2)]
    for nobody in (None, OWNER):
        taken = lent().given(lend(2, nobody))
        taken = taken.then(SandboxGivenBack(request_id="lend2", borrower=GRADER, right=1, is_taken=True))
        assert taken.given(call(0, OWNER)).then_nothing().does() == {"RunCommand"}
    again = ready().given(lend(1, None)).then(SandboxGivenBack(request_id="lend1", right=0, is_taken=True))
    again.then_nothing()


def test_only_the_owner_lends() -> None:
    """Nobody lends what is not its own, a borrower neither."""
    for case, who in ((ready(), GRADER), (lent(), GRADER), (lent(), OTHER)):
        refused = case.given(lend(7, OTHER, who))
        assert kinds(refused) == [("lend7", "not_lent")]
        assert refused.given(*refused.decided).then_nothing().state.lending.borrower == case.state.lending.borrower


def test_only_the_borrower_gives_back() -> None:
    """With its right; its owner takes it."""
    for who, right in ((OWNER, 1), (OTHER, 1), (GRADER, 2)):
        assert kinds(lent().given(give_back(1, right, who))) == [("back1", "not_lent")]


def test_a_borrower_cannot_end_the_machine() -> None:
    """Its close is refused, as a stranger's is, and the machine stands; the owner's close ends it, lent or not."""
    for case in (lent(), ready()):
        for who in (GRADER, OTHER):
            refused = case.given(said(who, SandboxCloseRequested(), "end"))
            assert kinds(refused) == [("end", "not_lent")]
            assert refused.does() == {"AwaitAnswer"}
    closing = lent().given(call(0, right=1), CLOSE).then(lost(0, ABANDONED))
    assert closing.effects == [DestroyBox("destroy")]


def test_only_the_owners_session_ends_the_machine() -> None:
    """The end of another session of the rollout is no reason."""
    evidence = Evidence(answer="4", stop_reason="stop", turns=1)
    end = SessionClosed(request_id="session", evidence=evidence)
    assert lent().given(said(OTHER, end, "end")).does() == {"AwaitAnswer"}
    assert lent().given(said(GRADER, end, "end")).does() == {"AwaitAnswer"}
    assert lent().given(said(OWNER, end, "end")).does() == {"DestroyBox"}


def test_nobody_else_asks_for_the_same_machine() -> None:
    """A second request for a machine of this number is answered, and changes nothing."""
    case = ready().given(said(OTHER, ready().state.request, "second"))
    assert kinds(case) == [("second", "not_lent")]
    assert case.given(said(OWNER, case.state.request, "box")).state == case.state


@pytest.mark.parametrize(
    "claimed",
    [
        ToolCallCompleted(request_id="call0", exit_code=0, output="", output_bytes=0, duration_s=0.1),
        SandboxLost(reason="so they say"),
        SandboxDestroyed(request_id="close"),
        SandboxLent(request_id="lend9", borrower=OTHER, right=9),
        SandboxGivenBack(request_id="lend9", right=1),
        SandboxFailed(request_id="box", failure=Failure(kind="internal", message="x")),
    ],
)
def test_what_others_state_of_a_machine_is_not_believed(claimed: Event) -> None:
    """Only what stands in the machine's own aggregate is a fact about it."""
    case = lent().given(call(0, right=1))
    for who in (OWNER, GRADER, Party(actor="sandbox", key="b1-2"), Party(actor="harness", key="b1")):
        assert case.given(said(who, claimed, "claim")).state == case.state


def test_a_command_under_way_outlives_its_right() -> None:
    """It is finished, and answered; what waits behind it is refused, and the next borrower's comes after it."""
    case = lent().given(call(0, right=1), call(1, right=1), lend(2, OTHER))
    case = case.then(SandboxLent(request_id="lend2", borrower=OTHER, right=2))
    assert kinds(case) == [("call1", "stale")]
    case = case.given(*case.decided).given(call(2, OTHER, 2)).then_nothing()
    assert case.effects == [RunCommand("run-call0", asked(0)[1].replaced(right=1), 7, GRADER)]
    assert case.given(done(0)).effects == [RunCommand("run-call2", asked(2)[1].replaced(right=2), 7, OTHER)]


def test_what_an_owner_asked_for_before_it_lent_is_not_run_for_the_borrower() -> None:
    """The same holds for the owner's right to its own machine."""
    case = ready().given(call(0, OWNER), call(1, OWNER), lend(1)).then_types(SandboxLent)
    assert kinds(case) == [("call1", "not_lent")]
    assert case.effects == [RunCommand("run-call0", asked(0)[1], 7, OWNER)]


def test_what_was_wanted_to_be_kept_is_kept_before_the_borrowers_first_command() -> None:
    """An older right's checkpoint never holds what came after it; a command under way goes on meanwhile."""
    case = ready().given(call(0, OWNER), wish(1, OWNER), lend(1)).then_types(SandboxLent)
    case = case.given(call(1, right=1)).then_nothing()
    assert case.does() == {"KeepFiles", "RunCommand"}
    assert case.given(done(0)).effects == [KeepFiles("keep-0")]
    assert case.given(saved("wish1")).does() == {"RunCommand"}
    assert case.given(done(0), saved("wish1")).effects == [
        RunCommand("run-call1", asked(1)[1].replaced(right=1), 7, GRADER)
    ]


def test_a_machine_is_lent_when_it_is_there() -> None:
    """Not before it was made; one that cannot be made, or is lost or over, is not lent."""
    case = new().given(lend(1)).then_nothing()
    case.given(CREATED).then_types(SandboxLent)
    failed = SandboxFailed(request_id="box", failure=Failure(kind="internal", message="x"))
    assert kinds(case.given(failed)) == [("lend1", "sandbox_lost")]
    assert kinds(ready().given(SandboxLost(reason="x"), lend(1))) == [("lend1", "sandbox_lost")]
    over = ready().given(CLOSE, SandboxDestroyed(request_id="close"))
    refused = over.given(lend(1))
    failure = Failure(kind="sandbox_lost", message=OVER, stage="tool")
    refused.then(SandboxRequestRefused(request_id="lend1", failure=failure)).then_nothing()


def test_a_borrowers_commands_are_lost_with_the_machine() -> None:
    """As anybody's; the rest of what is asked is answered too."""
    case = lent().given(call(0, right=1), give_back(1, 1)).taken_over()
    gone = Failure(kind="sandbox_lost", message=DIED, stage="tool")
    refused = SandboxRequestRefused(request_id="back1", failure=gone)
    case = case.then(refused, SandboxLost(reason=DIED), lost(0, DIED)).then_nothing()
    assert case.given(call(1, right=1)).decided == [ToolCallLost(request_id="call1", reason=DIED)]
    assert kinds(case.given(call(1, OTHER, 1))) == [("call1", "not_lent")]


# -- over any order ------------------------------------------------------------------------------------------------------------

WHO = (OWNER, GRADER, OTHER)


@dataclass
class Played:
    """A machine that is asked anything by anyone, as its drive would serve it; who has it is counted beside it."""

    case: Case[BoxState] = field(default_factory=ready)
    asked: dict[str, Envelope] = field(default_factory=dict)
    answers: dict[str, list[Event]] = field(default_factory=dict)
    running: RunCommand | None = None
    has_it: tuple[Party, int | None] = (OWNER, None)
    rights: list[int] = field(default_factory=list)

    def settle(self) -> None:
        """Append what is decided until nothing is, and start what may be started."""
        for _ in range(50):
            if not (drafts := self.case.drafts):
                break
            for draft in drafts:
                self.note(draft.data)
        assert not self.case.drafts
        if self.running is None:
            self.running = next((e for e in self.case.effects if isinstance(e, RunCommand)), None)
            if self.running and self.refused(self.running):
                self.running = None
                self.settle()

    def refused(self, effect: RunCommand) -> bool:
        """Do what the handler does before it starts a command."""
        failure = self.case.state.lending.refusal(effect.requester, effect.request.right)
        if failure:
            self.note(ToolCallFailed(request_id=effect.id.removeprefix("run-"), failure=failure))
        else:
            assert (effect.requester, effect.request.right) == self.has_it, "started for one who does not have it"
        return failure is not None

    def note(self, data: Any) -> None:
        """Fold what was stated, and count who has the machine now."""
        self.answers.setdefault(data.request_id, []).append(data)
        if isinstance(data, SandboxLent):
            self.rights.append(data.right)
            self.has_it = (data.borrower, data.right)
        elif isinstance(data, SandboxGivenBack):
            self.has_it = (OWNER, None)
        self.case = self.case.given(data)

    def ask(self, event: Envelope) -> None:
        """Hand a request over."""
        self.asked[event.event_id] = event
        self.case = self.case.given(event)


@st.composite
def steps(draw: st.DrawFn) -> list[Any]:
    """Return what happens: requests of anyone with any right, several at once, repeats, and commands that end."""
    found: list[Any] = []
    for n in range(draw(st.integers(1, 25))):
        who, right = draw(st.sampled_from(WHO)), draw(st.sampled_from([None, 1, 2, 3, 4]))
        found.append(
            draw(
                st.sampled_from(
                    [
                        said(who, asked(n)[1].replaced(right=right), f"c{n}"),
                        said(who, asked(n)[1].replaced(right=right), f"d{n}"),
                        said(who, SandboxLendRequested(borrower=draw(st.sampled_from([None, *WHO]))), f"l{n}"),
                        said(OWNER, SandboxLendRequested(borrower=draw(st.sampled_from([None, *WHO]))), f"o{n}"),
                        said(who, SandboxGiveBackRequested(right=right or 1), f"g{n}"),
                        said(who, CheckpointRequested(right=right), f"w{n}"),
                        "settle",
                        "command ends",
                        "files are kept",
                        "repeat",
                    ]
                )
            )
        )
    return found


@given(steps())
@settings(derandomize=True, max_examples=300, deadline=None)
def test_whatever_is_asked_commands_run_for_who_has_the_machine(happens: list[Any]) -> None:
    """Rights grow, nothing starts for anybody else, and in the end every request has one answer."""
    played = Played()
    for step in [*happens, said(OWNER, SandboxCloseRequested(), "close")]:
        match step:
            case "settle":
                played.settle()
            case "command ends":
                played.settle()
                if played.running:
                    request_id, played.running = played.running.id.removeprefix("run-"), None
                    played.note(
                        ToolCallCompleted(request_id=request_id, exit_code=0, output="", output_bytes=0, duration_s=1)
                    )
            case "files are kept":
                played.settle()
                if wanted := played.case.state.wanted:
                    played.note(saved(wanted[-1].request_id))
            case "repeat":
                played.case = played.case.given(*played.asked.values())
            case Envelope():
                played.ask(step)
    played.settle()
    for wanted in played.case.state.wanted:
        played.note(saved(wanted.request_id))
    played.settle()
    assert played.rights == list(range(1, len(played.rights) + 1))
    assert not played.case.state.lending.asked
    assert not played.case.state.lending.refused
    closed = {"close"} if isinstance(played.asked["close"].data, SandboxCloseRequested) else set()
    assert {i for i, found in played.answers.items() if len(found) != 1} == set()
    assert set(played.asked) - set(played.answers) == closed
    assert played.case.effects == [DestroyBox("destroy")]


def test_a_state_that_is_lent_survives_its_snapshot() -> None:
    """Written down as JSON and read again it is the same."""
    case = lent().given(call(0, right=1), call(1, OTHER), lend(2, OTHER), give_back(3, 1), wish(4))
    assert BoxState.model_validate_json(case.state.model_dump_json()) == case.state
    machine = BoxMachine()
    assert machine.taken_over(case.state).lending == case.state.lending
