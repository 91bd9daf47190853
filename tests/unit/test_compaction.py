"""What a loop of ours leaves out of its prompts, when, and that whoever folds the same events makes the same prompt."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from pydantic import ValidationError

from actors.harness import compaction
from actors.harness.context_view import ContextView
from actors.harness.recency import omissions
from actors.harness.session import SessionMachine
from actors.harness.state import SessionState
from gym_bus.runtime.machine import Effect
from schemas.base import Event
from schemas.config import ScriptedModel
from schemas.events import (
    ActivationCompleted,
    AgentNudged,
    ContextCompacted,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLost,
    ModelCallRequested,
    ProgressNoted,
    SandboxCreated,
    SandboxRequested,
    SessionRequested,
    ToolCallCompleted,
    ToolCallRequested,
)
from schemas.loops import BrowsecompAgent, CompactingAgent, HistoryPolicy, OwnLoop
from schemas.sandboxes import Inline
from schemas.tasks import TaskInput
from schemas.values import Failure, Message, Sampling, ToolCall, Usage
from tests.support.machine_case import Case, envelope

IMAGE = "data:image/png;base64,iVBORw0KGgo="
COMMAND = '{"command": "echo 1"}'


def new(agent: OwnLoop) -> Case[SessionState]:
    """Return a session that has just been asked for."""
    request = SessionRequested(
        task=TaskInput(task_id="t", messages=(Message(role="user", content="Find it."),)),
        repeat=0,
        agent=agent,  # type: ignore[arg-type]
        model=ScriptedModel(),
        sandbox=Inline(),
        sampling=Sampling(),
    )
    return Case(SessionMachine(), SessionMachine().begin(envelope(request, "session")))


def compacting(**history: Any) -> CompactingAgent:
    """Return an agent that compacts, with room for many steps."""
    return CompactingAgent.model_validate({"max_steps": 50, "context_history": history})


def rolling(**policy: Any) -> CompactingAgent:
    """Return an agent that leaves out at each call what is old."""
    off = {"images": None, "reasoning": None}
    return compacting(policy={**off, **policy}, schedule={"type": "rolling_recency"})


def summing(bound: int = 100, **summary: Any) -> CompactingAgent:
    """Return an agent that writes summaries."""
    keep = {"keep_last_rounds": 1, **summary}
    return compacting(policy={"type": "identity"}, guards={"max_total_tokens": bound}, summary=keep)


def settled(case: Case[SessionState]) -> tuple[Case[SessionState], list[Event]]:
    """Append what is decided, commands and machines left out, until nothing more is; return what was appended."""
    appended: list[Event] = []
    while decided := [d for d in case.decided if isinstance(d, ContextCompacted | AgentNudged | ProgressNoted)]:
        appended += decided
        case = case.given(*decided)
    return case, appended


def ask(case: Case[SessionState], name: str) -> Case[SessionState]:
    """State the next model call as the handler does, as the event `name`."""
    state = case.state
    told = compaction.asked(state)
    asked = ModelCallRequested(
        turn=state.turn + 1,
        tries=state.call_tries + 1,
        parent_id=state.continues,
        new_messages=told[state.sent :],
        context_digest=f"d{name}",
        purpose="summary" if compaction.wants_summary(state) else None,
    )
    return case.given((name, asked))


def answer(
    case: Case[SessionState], text: str | None, *calls: str, tokens: int = 10, tool: str = "shell", stop: str = "stop"
) -> Case[SessionState]:
    """Ask the model, and let it answer with so many tokens in all."""
    turn = case.state.turn + 1
    made = tuple(ToolCall(id=f"c{turn}{i}", name=tool, arguments=a) for i, a in enumerate(calls))
    done = ModelCallCompleted(
        request_id=f"m{turn}",
        turn=turn,
        message=Message(role="assistant", content=text, tool_calls=made),
        stop_reason="tool_calls" if calls else stop,  # type: ignore[arg-type]
        usage=Usage(input_tokens=tokens - 1, output_tokens=1),
        duration_s=0.1,
    )
    return ask(case, f"m{turn}").given(done)


def round_of(
    case: Case[SessionState], result: str = "1", text: str | None = None, tokens: int = 10
) -> Case[SessionState]:
    """Let the model run one command, with its result."""
    case = answer(case, text, COMMAND, tokens=tokens)
    turn = case.state.turn
    if case.state.box.stands == "none":
        box = SandboxRequested(sandbox=Inline())
        case = case.given(("box", box), SandboxCreated(request_id="box", place="h", provider="inline"))
    [asked] = case.decided
    assert isinstance(asked, ToolCallRequested)
    ran = ToolCallCompleted(request_id=f"t{turn}", output=result, exit_code=0, output_bytes=1, duration_s=0.1)
    return case.given((f"t{turn}", asked), ran)


def shown(case: Case[SessionState]) -> list[str]:
    """Return what the next call is told, message by message."""
    return [m.content or "" for m in compaction.asked(case.state)]


def calls(case: Case[SessionState]) -> list[Effect]:
    """Return the model calls that must be going on."""
    return [e for e in case.effects if type(e).__name__ == "CallModel"]


def searching(**changes: Any) -> BrowsecompAgent:
    """Return an agent whose context is full at 100 tokens."""
    return BrowsecompAgent(
        **{"context_reset_tokens": 100, "context_reset_keep_rounds": 1, "enable_tools": True, **changes}
    )


# -- what is old ---------------------------------------------------------------------------------------------------------------


def test_old_results_are_left_out_and_the_next_call_begins_anew() -> None:
    """Results but the last ones give way to a note; the call that follows continues none, and says all that it is told."""
    case = round_of(new(rolling(tool_results={"keep_last_results": 1, "omission_marker": "[old]"})), "first, at length")
    case, nothing = settled(case)
    assert nothing == []
    assert case.state.continues == "m1"
    case, [told] = settled(round_of(case, "second, at length", tokens=25))
    assert isinstance(told, ContextCompacted)
    assert (told.policy, told.tool_results, told.tokens_before, told.turn) == ("recency", 1, 25, 2)
    assert shown(case) == ["Find it.", "", "[old]", "", "second, at length"]
    assert (case.state.sent, case.state.continues, case.state.context_digest) == (0, None, "")
    case = ask(case, "m3")
    assert case.state.sent == 5, "all of the prompt is in the log now"
    assert case.state.messages[2].content == "first, at length", "what was said stays known"


def test_the_result_of_the_last_answer_is_always_told() -> None:
    """A result that the model has not seen is never left out."""
    case, appended = settled(
        round_of(new(rolling(tool_results={"keep_last_results": 0})), "a result of some length, unseen")
    )
    assert appended == []
    case, [told] = settled(round_of(case, "another one of some length, unseen"))
    assert isinstance(told, ContextCompacted)
    assert [edit.place for edit in told.edited] == [2]


def test_old_thoughts_are_left_out_and_words_stay() -> None:
    """Of older answers what was thought goes, whether its beginning was marked or not; the last ones keep it."""
    case = new(rolling(reasoning={"keep_last_blocks": 1}))
    for text in ("<think>a</think> one", "b</think>two", "<think>c</think>three"):
        case, appended = settled(round_of(case, text=text))
    [told] = appended
    assert isinstance(told, ContextCompacted)
    assert told.reasoning_blocks == 1
    assert shown(case)[1::2] == ["one", "two", "<think>c</think>three"]


def test_thoughts_that_never_end_are_looked_for_in_linear_time() -> None:
    """What a model writes without end costs what its length costs; an end somewhere still takes all before it."""
    for text, left in (
        ("<think>" * 200_000, "<think>" * 200_000),
        ("<think>" * 200_000 + "</think> a<think>", "a<think>"),
    ):
        messages = tuple(Message(role=r, content=c) for r, c in (("user", "x"), ("assistant", text), ("user", "y")))
        policy = HistoryPolicy.model_validate({"reasoning": {"keep_last_blocks": 0}})
        begun = time.process_time()
        found = omissions((*messages, Message(role="assistant", content="z")), ContextView(), 1, policy)
        assert time.process_time() - begun < 2
        assert [one.content for one in found.edited] == ([] if left == text else [left])


def test_old_images_are_left_out_group_by_group() -> None:
    """Images written into text go with a marker in their place, but for those of the last messages that have some."""
    case = new(rolling(images={"keep_last_groups": 1, "omission_marker": "[image]"}))
    case, _ = settled(round_of(case, f"see {IMAGE} and {IMAGE}"))
    case, _ = settled(round_of(case, "nothing to see"))
    case, [told] = settled(round_of(case, f"look: {IMAGE}"))
    assert isinstance(told, ContextCompacted)
    assert told.images == 2
    assert shown(case)[2] == "see [image] and [image]"
    assert shown(case)[6] == f"look: {IMAGE}"


def test_in_chunks_prompts_only_grow_in_between() -> None:
    """With chunks of three answers the policy is applied after the third and the sixth, and each call between them continues one."""
    agent = compacting(
        policy={"tool_results": {"keep_last_results": 1, "omission_marker": "x"}}, schedule={"actions_per_chunk": 3}
    )
    case, at = new(agent), []
    for turn in range(1, 8):
        case, appended = settled(round_of(case, f"result {turn}"))
        at += [turn for _ in appended]
        assert (case.state.continues is None) == bool(appended)
    assert at == [3, 6]


def test_identity_and_switched_off_leave_all_as_it_is() -> None:
    """Nothing is left out by a policy that is none, or is off."""
    for agent in (compacting(policy={"type": "identity"}), compacting(enabled=False)):
        case, appended = new(agent), []
        for _ in range(12):
            case, more = settled(round_of(case, IMAGE))
            appended += more
        assert appended == []
        assert compaction.asked(case.state) == case.state.messages


# -- summaries -----------------------------------------------------------------------------------------------------------------


def test_a_prompt_that_is_too_long_is_summarised_by_a_call_of_its_own() -> None:
    """The call continues the conversation and says what it is for; its answer takes the place of the past, and is no part of it."""
    case, _ = settled(round_of(new(summing()), "first", tokens=50))
    assert not compaction.wants_summary(case.state)
    case, nothing = settled(round_of(case, "second", tokens=101))
    assert nothing == []
    assert shown(case)[-1].startswith("Stop here")
    asked = ask(case, "m3")
    assert asked.state.purpose == "summary"
    assert asked.state.sent == len(asked.state.messages) + 1
    case = answer(case, "I found X.")
    assert (case.state.steps, case.state.turn) == (2, 3)
    case, [told] = settled(case)
    assert isinstance(told, ContextCompacted)
    assert (told.policy, told.summary_call, told.messages, told.start, told.tokens_before) == (
        "summary",
        "m3",
        2,
        3,
        101,
    )
    assert [re.sub(r".*\n\n", "", text) for text in shown(case)] == ["Find it.", "I found X.", "", "second"]
    assert case.state.continues is None
    assert round_of(case).state.answered_turn(4)[0].tool_calls[0].id == "c40", "each answer is found by its turn"
    done = answer(case, "It is X.").decided[0]
    assert isinstance(done, ActivationCompleted)
    assert done.evidence.answer == "It is X."


def test_a_summary_is_not_a_step() -> None:
    """An agent of two steps that writes a summary before the second still makes the second."""
    agent = summing().replaced(max_steps=3)
    case = round_of(round_of(new(agent), tokens=99), tokens=200)
    case, _ = settled(answer(case, "notes"))
    assert calls(case)
    case = answer(case, None, COMMAND)
    assert isinstance(case.decided[0], ActivationCompleted)


def test_a_model_that_writes_no_summary_leaves_a_gap() -> None:
    """The past is left out all the same, the model is told so, and the event says what is missing."""
    case = round_of(round_of(new(summing())), tokens=200)
    case, [told] = settled(answer(case, None, COMMAND))
    assert isinstance(told, ContextCompacted)
    assert told.gaps == ("compaction_summary_unavailable",)
    assert "nothing was written down" in shown(case)[1]


def test_summaries_have_a_bound_and_need_something_to_leave_out() -> None:
    """A first round cannot be summarised away, and after `max_summaries` no more is written."""
    case = round_of(new(summing(max_summaries=1)), tokens=500)
    assert not compaction.wants_summary(case.state)
    case, _ = settled(answer(round_of(case, tokens=500), "notes"))
    case = round_of(case, tokens=500)
    assert not compaction.wants_summary(case.state)
    assert len(shown(case)) == 6


def test_a_lost_try_of_a_summary_is_tried_again_as_one() -> None:
    """Whoever takes the session over asks for the summary again, and adds nothing to what was asked."""
    case = ask(round_of(round_of(new(summing())), tokens=200), "m3")
    case = case.given(ModelCallLost(request_id="m3", turn=3)).taken_over()
    assert compaction.wants_summary(case.state)
    assert compaction.asked(case.state)[case.state.sent :] == ()


def test_bounds_without_summary_are_refused() -> None:
    """A bound of which nothing follows, and a summary that nothing triggers, are errors of the configuration."""
    for history in ({"guards": {"max_total_tokens": 5}}, {"summary": {}}):
        with pytest.raises(ValidationError, match="set both, or neither"):
            compacting(**history)
    with pytest.raises(ValidationError, match="leaves nothing"):
        compacting(guards={"max_total_tokens": 5, "reserved_generation_tokens": 5}, summary={})


# -- the same for whoever folds it ---------------------------------------------------------------------------------------------


def test_a_snapshot_makes_the_same_prompt() -> None:
    """A state that was stored and read again shows what it did."""
    case, _ = settled(round_of(round_of(new(rolling(tool_results={"keep_last_results": 1})), "x" * 40), "y" * 40))
    again = SessionState.model_validate(case.state.model_dump(mode="json"))
    assert again == case.state
    assert compaction.asked(again) == compaction.asked(case.state)


def test_events_that_come_twice_change_nothing() -> None:
    """A view, a nudge and notes that are heard again are known already."""
    case = round_of(round_of(new(searching())), tokens=200)
    for _ in range(3):
        decided = [d for d in case.decided if isinstance(d, AgentNudged | ContextCompacted | ProgressNoted)]
        case = case.given(*decided)
        assert case.given(*decided).state == case.state
        if calls(case):
            case = answer(case, None, '{"progress": "a"}', tool="update_progress")


# -- a prompt that the model refuses -------------------------------------------------------------------------------------------


def refused(case: Case[SessionState], kind: str = "context_overflow") -> Case[SessionState]:
    """Ask the model, which refuses for good."""
    turn = case.state.turn + 1
    failure = Failure(kind=kind, message="too long", stage="model", terminal=True)  # type: ignore[arg-type]
    return ask(case, f"m{turn}").given(
        ModelCallFailed(request_id=f"m{turn}", turn=turn, failure=failure, retry_in_s=None, duration_s=0.1)
    )


@pytest.mark.parametrize(("agent", "policy"), [(searching(), "reset"), (summing(bound=10_000), "summary")])
def test_a_prompt_that_the_model_refuses_is_made_shorter(agent: OwnLoop, policy: str) -> None:
    """What is old is left out at once, and the same turn is tried again; refused with the last round alone, it is the end."""
    case = refused(round_of(round_of(new(agent))))
    case, [told] = settled(case)
    assert isinstance(told, ContextCompacted)
    assert (told.policy, told.messages) == (policy, 2)
    assert calls(case)
    assert case.state.failure is None
    again = ask(case, "m3b")
    assert (again.state.call_tries, again.state.sent) == (2, 4)
    assert settled(answer(case, "<answer>").given())[0].state.turn == 3
    assert refused(case).state.failure is not None


def test_a_summary_that_the_model_refuses_to_write_leaves_a_gap() -> None:
    """The past is left out without one, and the conversation goes on."""
    case, [told] = settled(refused(round_of(round_of(new(summing())), tokens=200)))
    assert isinstance(told, ContextCompacted)
    assert (told.policy, told.gaps) == ("summary", ("compaction_summary_unavailable",))
    assert not compaction.wants_summary(case.state)
    assert answer(case, "done").state.steps == 3


def test_other_refusals_and_other_agents_fail() -> None:
    """Only a prompt that is too long is made shorter, and only by an agent that may."""
    two = round_of(round_of(new(searching())))
    assert refused(two, "provider_bad_request").state.failure
    assert refused(round_of(round_of(new(rolling())))).state.failure
    assert refused(round_of(round_of(new(searching(max_reset_count=0))))).state.failure
