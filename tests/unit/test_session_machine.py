"""A session: model call, tool calls, model call … answer; and how it winds up when something fails."""

from __future__ import annotations

from typing import Any

import pytest

from actors.harness.commands import describe_result
from actors.harness.core import MAX_STALE_TRIES
from actors.harness.session import SessionMachine
from actors.harness.state import SessionState
from gym_bus.runtime.machine import Alarm
from schemas.config import ScriptedModel, SimpleAgent
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLost,
    ModelCallRequested,
    RequestParked,
    RunCancelled,
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxLost,
    SandboxRequested,
    SessionClosed,
    SessionFailed,
    SessionRequested,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
    ToolCallRejected,
    ToolCallRequested,
)
from schemas.loops import CompactingAgent
from schemas.sandboxes import Inline
from schemas.tasks import Evidence, TaskInput
from schemas.values import Failure, Message, Sampling, ToolCall, Usage
from tests.support.machine_case import Case, envelope

GOOD = '{"command": "echo 1"}'
PLACE = "h3"
BOX = ("box", SandboxRequested(sandbox=Inline()))
CREATED = SandboxCreated(request_id="box", place=PLACE, provider="inline")
CLOSING = ("closing", SandboxCloseRequested())
TROUBLE = Failure(kind="provider_unavailable", message="503", stage="model")


def new(**agent: Any) -> Case[SessionState]:
    """Return a session that has just been asked for."""
    task = TaskInput(task_id="t", messages=(Message(role="user", content="What is 1 + 1?"),))
    request = SessionRequested(
        task=task,
        repeat=0,
        agent=SimpleAgent(**agent),
        model=ScriptedModel(),
        sandbox=Inline(),
        sampling=Sampling(),
    )
    return Case(SessionMachine(), SessionMachine().begin(envelope(request, "session")))


def trying(turn: int = 1, tries: int = 1) -> tuple[str, ModelCallRequested]:
    """Return a try of a model call, as `m<turn>.<tries>`."""
    data = ModelCallRequested(turn=turn, tries=tries, parent_id=None, new_messages=(), context_digest=f"d{turn}")
    return f"m{turn}.{tries}", data


def says(content: str | None, *arguments: str, turn: int = 1, tries: int = 1, stop: str = "stop") -> ModelCallCompleted:
    """Return a model's answer, with a shell call for each of `arguments`."""
    calls = tuple(ToolCall(id=f"c{turn}{i}", name="shell", arguments=a) for i, a in enumerate(arguments))
    return ModelCallCompleted(
        request_id=f"m{turn}.{tries}",
        turn=turn,
        message=Message(role="assistant", content=content, tool_calls=calls),
        stop_reason="tool_calls" if calls else stop,  # type: ignore[arg-type]
        usage=Usage(),
        duration_s=0.1,
    )


def asked(index: int = 0, *, turn: int = 1, tries: int = 1, command: str = "echo 1") -> tuple[str, ToolCallRequested]:
    """Return a tool call's request, as `t<turn>.<index>.<tries>`."""
    data = ToolCallRequested(
        call_id=f"c{turn}{index}",
        turn=turn,
        index=index,
        tool="shell",
        command=command,
        timeout_s=30,
        tries=tries,
    )
    return f"t{turn}.{index}.{tries}", data


def ran(request_id: str = "t1.0.1", output: str = "1\n", **changes: Any) -> ToolCallCompleted:
    """Return a command's end."""
    values = {"exit_code": 0, "output_bytes": len(output), "duration_s": 0.1, **changes}
    return ToolCallCompleted(request_id=request_id, output=output, **values)


def with_tools(*arguments: str, **agent: Any) -> Case[SessionState]:
    """Return a session with a machine, whose model has asked for commands."""
    return new(**agent).given(trying(), says(None, *(arguments or (GOOD,))), BOX, CREATED)


def types(case: Case[SessionState]) -> list[type]:
    return [type(data) for data in case.decided]


# -- the usual course ----------------------------------------------------------------------------------------------------------


def test_it_begins_with_a_model_call() -> None:
    """The first thing is to ask, with the task's messages and before them the system prompt; and to watch the clock."""
    case = new(system_prompt="Be brief.")
    assert case.then_nothing().does() == {"CallModel", "Alarm"}
    assert [m.role for m in case.state.messages] == ["system", "user"]
    assert [m.role for m in new().state.messages] == ["user"]


def test_an_answer_without_tools_is_the_end() -> None:
    """The answer is the evidence, and without a machine the session closes at once."""
    case = new().given(trying(), says("2"))
    evidence = Evidence(answer="2", stop_reason="stop", turns=1)
    case = case.then(ActivationCompleted(activation=1, evidence=evidence))
    case = case.then(SessionClosed(request_id="session", evidence=evidence))
    assert case.is_done
    assert case.effects == []


def test_a_machine_is_made_only_when_it_is_needed() -> None:
    """The first tool call asks for one; the commands wait until it is ready, then go to its place."""
    case = new().given(trying(), says(None, GOOD, GOOD)).then(BOX[1])
    case = new().given(trying(), says(None, GOOD, GOOD), BOX)
    assert case.then_nothing().does() == {"AwaitAnswer", "Alarm"}
    ready = case.given(CREATED)
    assert [d.place for d in ready.drafts] == [PLACE, PLACE]
    assert ready.decided == [asked(0)[1], asked(1)[1]]
    assert len({d.tag for d in ready.drafts}) == 2


def test_answers_become_the_next_calls_messages() -> None:
    """When the last command is answered the model is asked again, with the answers in the order of the calls."""
    case = with_tools(GOOD, GOOD).given(asked(0), asked(1), ran("t1.1.1", "b"))
    assert case.then_nothing().does() == {"AwaitAnswer", "Alarm"}
    case = case.given(ran("t1.0.1", "a"))
    assert [(m.tool_call_id, m.content) for m in case.state.messages[-2:]] == [("c10", "a"), ("c11", "b")]
    assert case.then_nothing().does() == {"CallModel", "Alarm"}
    assert len(case.state.messages) - case.state.sent == 2, "what is new since the last call"
    again = case.given(trying(2), says("done", turn=2)).decided[0]
    assert again == ActivationCompleted(activation=1, evidence=Evidence(answer="done", stop_reason="stop", turns=2))


def test_the_machine_is_kept_for_later_turns() -> None:
    """A second turn's commands go to the same place, without another request for a machine."""
    case = with_tools().given(asked(0), ran(), trying(2), says(None, GOOD, turn=2))
    case.then(asked(0, turn=2)[1])


def test_a_finished_session_gives_its_machine_back_before_it_closes() -> None:
    """Close before verify: the machine is gone when the session is said to be closed."""
    case = with_tools().given(asked(0), ran(), trying(2), says("2", turn=2))
    case = case.then_types(ActivationCompleted)
    assert case.drafts[0].place == PLACE
    case = case.then_types(SandboxCloseRequested).then_nothing()
    assert case.does() == {"AwaitAnswer"}
    case = case.given(SandboxDestroyed(request_id="e9")).then_types(SessionClosed)
    assert case.is_done


def test_without_parallel_calls_the_second_waits_for_the_first() -> None:
    """One command at a time, in the model's order."""
    case = with_tools(GOOD, GOOD, parallel_tool_calls=False)
    case = case.then(asked(0)[1])
    case = with_tools(GOOD, GOOD, parallel_tool_calls=False).given(asked(0)).then_nothing()
    case.given(ran()).then(asked(1)[1])


def test_what_cannot_be_understood_is_told_and_not_run() -> None:
    """Broken arguments and unknown tools are answered with words, without a machine."""
    bad = says(None, '{"command": ', "[]")
    case = new().given(trying(), bad).then_types(ToolCallRejected, ToolCallRejected)
    assert case.then_nothing().does() == {"CallModel", "Alarm"}
    assert all(m.content for m in case.state.messages[-2:])
    assert case.state.box.stands == "none"
    mixed = new().given(trying(), says(None, "nonsense", GOOD))
    mixed.then_types(ToolCallRejected, SandboxRequested)


def test_with_tools_switched_off_every_call_is_rejected() -> None:
    """An agent without tools has no machine."""
    case = new(enable_tools=False).given(trying(), says(None, GOOD))
    assert types(case) == [ToolCallRejected]


def test_after_its_last_step_the_agent_is_stopped() -> None:
    """At `max_steps` model calls its tool calls are not run, and there is no answer."""
    case = new(max_steps=1).given(trying(), says("thinking", GOOD))
    evidence = Evidence(answer=None, stop_reason="max_steps", turns=1)
    case.then(ActivationCompleted(activation=1, evidence=evidence)).then_types(SessionClosed)


@pytest.mark.parametrize("stop", ["length", "content_filter"])
def test_an_answer_cut_short_is_still_the_answer(stop: str) -> None:
    """The reason is part of the evidence."""
    evidence = new().given(trying(), says("2", stop=stop)).decided[0]
    assert evidence == ActivationCompleted(activation=1, evidence=Evidence(answer="2", stop_reason=stop, turns=1))


# -- model calls ---------------------------------------------------------------------------------------------------------------


def test_a_failed_try_is_followed_by_another() -> None:
    """As long as a wait is named, the call goes on, and the number of tries is kept."""
    failed = ModelCallFailed(request_id="m1.1", turn=1, failure=TROUBLE, retry_in_s=0.5, duration_s=0.1)
    case = new().given(trying(), failed)
    assert case.then_nothing().does() == {"CallModel", "Alarm"}
    assert (case.state.call_tries, case.state.open_call) == (1, None)
    assert case.given(trying(1, 2), says("2", tries=2)).state.call_tries == 0


def test_the_last_failed_try_fails_the_session() -> None:
    """With no further try the session ends for a reason that is not the model's answer."""
    failed = ModelCallFailed(request_id="m1.1", turn=1, failure=TROUBLE, retry_in_s=None, duration_s=0.1)
    case = new().given(trying(), failed)
    assert case.then(SessionFailed(request_id="session", failure=TROUBLE)).is_done


def test_a_lost_try_may_be_made_again() -> None:
    """Its worker died: the try is counted and over."""
    case = new().given(trying(), ModelCallLost(request_id="m1.1", turn=1))
    assert (case.state.open_call, case.state.call_tries) == (None, 1)
    assert case.does() == {"CallModel", "Alarm"}


def test_a_recorded_answer_is_not_asked_for_again() -> None:
    """A second answer to the same turn changes nothing."""
    case = new().given(trying(), says("2"))
    assert case.given(says("3")).state == case.state
    assert case.given(trying(1, 2)).state == case.state


def test_answers_to_other_tries_are_ignored() -> None:
    """Only the open try can fail or be lost."""
    case = new().given(trying(1, 2))
    late = ModelCallFailed(request_id="m1.1", turn=1, failure=TROUBLE, retry_in_s=None, duration_s=0.1)
    assert case.given(late, ModelCallLost(request_id="m1.1", turn=1)).state == case.state


# -- what goes wrong -----------------------------------------------------------------------------------------------------------


def test_a_machine_that_cannot_be_made_fails_the_session() -> None:
    """There is nothing to give back."""
    failure = Failure(kind="sandbox_unavailable", message="no bwrap", stage="seed")
    case = new().given(trying(), says(None, GOOD), BOX, SandboxFailed(request_id="box", failure=failure))
    case.then(SessionFailed(request_id="session", failure=failure))


def test_a_lost_machine_fails_the_session_without_another_model_call() -> None:
    """What is lost is no observation: the model is not told, the attempt ends."""
    case = with_tools().given(asked(0), SandboxLost(reason="out of memory"))
    (end,) = case.decided
    assert isinstance(end, SessionFailed)
    assert end.failure.kind == "sandbox_lost"
    assert "CallModel" not in case.does()


def test_a_lost_command_fails_the_session_after_the_machine_is_given_back() -> None:
    """It may have run once; nobody knows, so nothing is built on it."""
    case = with_tools().given(asked(0), ToolCallLost(request_id="t1.0.1", reason="died"))
    case = case.then_types(SandboxCloseRequested).then_nothing().given(SandboxDestroyed(request_id="e7"))
    (end,) = case.decided
    assert isinstance(end, SessionFailed)
    assert end.failure.kind == "tool_lost"


def test_a_stale_command_is_asked_for_again_a_few_times() -> None:
    """A command refused because its asker was replaced was not started: it is sent again under another id, with a bound."""
    stale = Failure(kind="stale", message="another owner", stage="tool")
    case = with_tools()
    for tries in range(1, MAX_STALE_TRIES):
        case = case.given(asked(tries=tries), ToolCallFailed(request_id=f"t1.0.{tries}", failure=stale))
        case.then(asked(tries=tries + 1)[1])
        assert case.drafts[0].tag == f"0/{tries + 1}"
    case = case.given(asked(tries=MAX_STALE_TRIES), ToolCallFailed(request_id=f"t1.0.{MAX_STALE_TRIES}", failure=stale))
    case.then_types(SandboxCloseRequested)
    assert case.state.failure == stale


def test_a_command_refused_for_any_other_reason_fails_the_session() -> None:
    """A machine that refuses cannot be used."""
    failure = Failure(kind="internal", message="broken", stage="tool")
    case = with_tools().given(asked(0), ToolCallFailed(request_id="t1.0.1", failure=failure))
    case.then_types(SandboxCloseRequested)


@pytest.mark.parametrize("what", ["box", "t1.0.1", "stranger"])
def test_a_parked_request_fails_the_session_that_waits_for_it(what: str) -> None:
    """Whether for a machine or for a command; another's is not mine."""
    failure = Failure(kind="parked", message="nobody could", terminal=True)
    parked = RequestParked(request_id=what, request_type="x", tries=8, failure=failure)
    waiting = new().given(trying(), says(None, GOOD), BOX) if what == "box" else with_tools().given(asked(0))
    case = waiting.given(parked)
    assert case.state.failure == (None if what == "stranger" else failure)


def test_a_parked_goodbye_ends_the_wait() -> None:
    """A machine that nobody can end does not keep its session open."""
    failure = Failure(kind="parked", message="nobody could", terminal=True)
    case = with_tools().given(asked(0), ran(), trying(2), says("2", turn=2)).then_types(ActivationCompleted)
    case = case.given(CLOSING, RequestParked(request_id="closing", request_type="x", tries=8, failure=failure))
    assert case.state.box.stands == "gone"
    assert len(case.decided) == 1


def test_a_session_has_a_deadline() -> None:
    """One second before nothing happens; at the deadline the activation fails, the machine goes back, the session fails."""
    case = with_tools(timeout_s=60).given(asked(0))
    case.after_s(59).then_nothing()
    late = case.after_s(60)
    (failed,) = late.decided
    assert isinstance(failed, ActivationFailed)
    assert failed.failure.kind == "agent_timeout"
    late = late.given(failed).then_types(SandboxCloseRequested)
    late = late.given(SandboxDestroyed(request_id="e7")).then_types(SessionFailed)
    assert late.is_done
    alarms = [e for e in case.effects if isinstance(e, Alarm)]
    assert [(a.at - case.now).total_seconds() for a in alarms] == [60]


def test_no_deadline_for_what_is_finished() -> None:
    """An activation that is over cannot time out while its machine is given back."""
    case = with_tools(timeout_s=60).given(asked(0), ran(), trying(2), says("2", turn=2)).then_types(ActivationCompleted)
    assert types(case.after_s(1000)) == [SandboxCloseRequested]


def test_a_cancelled_run_ends_its_sessions() -> None:
    """An open model call is settled first; what is finished stays finished."""
    cancelled = RunCancelled(request_id="x", reason="enough")
    case = new().given(trying(), cancelled)
    assert case.then_nothing().does() == {"SettleCall"}
    case = case.given(ModelCallLost(request_id="m1.1", turn=1))
    (end,) = case.decided
    assert isinstance(end, SessionFailed)
    assert end.failure.kind == "cancelled"
    done = new().given(trying(), says("2")).then_types(ActivationCompleted)
    assert done.given(cancelled).state == done.state


def test_the_first_failure_is_the_one_that_counts() -> None:
    """What follows from a failure does not replace it."""
    first = ActivationFailed(activation=1, failure=TROUBLE)
    case = with_tools().given(
        asked(0), first, ToolCallLost(request_id="t1.0.1", reason="died"), SandboxLost(reason="x")
    )
    assert case.state.failure == TROUBLE


def test_a_machine_lost_after_the_answer_does_not_undo_it() -> None:
    """The evidence is there; the session closes."""
    case = with_tools().given(asked(0), ran(), trying(2), says("2", turn=2)).then_types(ActivationCompleted)
    assert types(case.given(SandboxLost(reason="x"))) == [SessionClosed]


def test_a_defect_of_ours_fails_the_activation_once() -> None:
    """Then it winds up as usual; a second defect adds nothing, and what is closed stays closed."""
    (failed,) = new().given(trying()).crashed("broken")
    assert isinstance(failed, ActivationFailed)
    assert new().given(failed).crashed() == []
    assert new().given(SessionFailed(request_id="session", failure=TROUBLE)).crashed() == []


def test_what_comes_after_the_end_is_ignored() -> None:
    """A closed session decides nothing more, whatever is heard."""
    over = new().given(SessionFailed(request_id="session", failure=TROUBLE))
    late = over.given(trying(), says(None, GOOD), CREATED, ran(), RunCancelled(request_id="x", reason="r"))
    assert late.after_s(1e6).then_nothing().effects == []


def test_a_takeover_changes_nothing() -> None:
    """Nothing of a session lives in memory only."""
    case = with_tools().given(asked(0))
    assert case.taken_over().state == case.state


# -- what the model is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ran(output="1\n"), "1\n"),
        (ran(output=""), "(no output)"),
        (ran(output="no", exit_code=3), "no\n[exit code 3]"),
        (
            ran(output="ab", exit_code=0, output_bytes=9, truncated=True),
            "ab\n[output truncated: 2 of 9 bytes shown]",
        ),
        (
            ran(output="x", exit_code=None, ended_by="timeout", duration_s=2.04),
            "x\n[ended at its deadline after 2.0 s]",
        ),
        (ran(output="x", exit_code=137, ended_by="out_of_memory"), "x\n[ended: out of memory]"),
        (ran(output="x", exit_code=143, ended_by="signal"), "x\n[exit code 143]"),
    ],
)
def test_a_result_is_told_with_its_end(result: ToolCallCompleted, expected: str) -> None:
    """Output first, then in brackets whatever was not a plain success."""
    assert describe_result(result) == expected


def test_a_truncated_result_counts_bytes_as_bytes() -> None:
    """The two numbers are of one unit."""
    told = describe_result(ran(output="äöü", output_bytes=9, truncated=True))
    assert told.endswith("[output truncated: 6 of 9 bytes shown]")


def test_loops_that_leave_out_what_is_old_take_no_further_inputs() -> None:
    """They could leave out the input that is being worked on; it is refused before anything is made."""
    message = Message(role="user", content="And now?")
    task = TaskInput(task_id="t", messages=(message,), follow_ups=((message,),))
    request = SessionRequested(
        task=task,
        repeat=0,
        agent=CompactingAgent(),
        model=ScriptedModel(),
        sandbox=Inline(),
        sampling=Sampling(),
    )
    state = SessionMachine().begin(envelope(request, "session"))
    assert state.failure
    assert (state.failure.kind, state.failure.terminal) == ("unsupported", True)
    assert "simple_agent takes follow_ups" in state.failure.message
