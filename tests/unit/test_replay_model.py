"""The model of a recording by itself: what it gives back, and how it says where things differ."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from providers.models import make_model
from providers.models.base import ModelCall, ModelError, context_digest
from providers.models.replay_difference import first_difference, first_turn_difference
from schemas.base import Event
from schemas.config import (
    LocalModel,
    ModelConfig,
    ReasoningGymTaskset,
    ReplayModel,
    RunConfig,
    ScriptedModel,
    SimpleAgent,
)
from schemas.conversation import Text, Turn
from schemas.envelope import Envelope
from schemas.events import ModelCallCompleted, ModelCallFailed, ModelCallLost, ModelCallRequested, SessionRequested
from schemas.sandboxes import Inline
from schemas.tasks import TaskInput
from schemas.tokens import CallTokens
from schemas.values import Failure, Message, Sampling, ToolCall, Usage
from tests.support.recording import write

ASKED = Message(role="user", content="What is 2 + 2?")
SAID = Message(role="assistant", content="Hm.")
MORE = Message(role="user", content="Well?")
DONE = Message(role="assistant", content="4")


def envelope(place: int, data: Event, event_id: str = "", attempt: int = 1) -> Envelope:
    return Envelope(
        event_id=event_id or f"e{place}",
        type=data.TYPE,
        run_id="r1",
        rollout_id="0-0",
        attempt=attempt,
        actor="model",
        key="s1",
        epoch=1,
        ordinal=place,
        causation_id=None,
        recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
        data=data,
    )


def tokens(*, parent: str | None, shared: int, prompt: tuple[int, ...], generated: tuple[int, ...]) -> CallTokens:
    return CallTokens(
        parent_id=parent,
        shared=shared,
        prompt=prompt,
        generated=generated,
        logprobs=(-0.5,) * len(generated),
        logprob_kind="processed",
        digest="d",
    )


def session(attempt: int = 1, first: str = "Hm.") -> list[Envelope]:
    """Return a conversation of two calls, the first of which was lost once and failed once."""
    one = context_digest("", (ASKED,))
    two = context_digest(one, (MORE,))
    failure = Failure(kind="provider_unavailable", message="busy", stage="model")
    opened = SessionRequested(
        task=TaskInput(task_id="sum/0", messages=(ASKED,)),
        repeat=0,
        agent=SimpleAgent(),
        model=ScriptedModel(),
        sandbox=Inline(),
        sampling=Sampling(),
    )

    def asked(turn: int, tries: int, parent: str | None, new: tuple[Message, ...], digest: str) -> ModelCallRequested:
        return ModelCallRequested(turn=turn, tries=tries, parent_id=parent, new_messages=new, context_digest=digest)

    def done(request_id: str, turn: int, message: Message, told: CallTokens) -> ModelCallCompleted:
        return ModelCallCompleted(
            request_id=request_id,
            turn=turn,
            message=message,
            stop_reason="stop",
            usage=Usage(input_tokens=3),
            duration_s=1,
            tokens=told,
            policy_versions=("v7",),
            untrainable="because",
        )

    a = f"a{attempt}-"
    told_first = tokens(parent=None, shared=0, prompt=(1, 2, 3), generated=(4, 5))
    events: list[tuple[Event, str]] = [
        (opened, ""),
        (asked(1, 1, None, (ASKED,), one), f"{a}1"),
        (ModelCallLost(request_id=f"{a}1", turn=1), ""),
        (asked(1, 2, None, (), one), f"{a}2"),
        (ModelCallFailed(request_id=f"{a}2", turn=1, failure=failure, retry_in_s=0.5, duration_s=1), ""),
        (asked(1, 3, None, (), one), f"{a}3"),
        (done(f"{a}3", 1, SAID.model_copy(update={"content": first}), told_first), ""),
        (asked(2, 1, f"{a}3", (MORE,), two), f"{a}4"),
        (done(f"{a}4", 2, DONE, tokens(parent=f"{a}3", shared=4, prompt=(9,), generated=(6,))), ""),
    ]
    return [envelope(n, data, id_ or f"{a}x{n}", attempt) for n, (data, id_) in enumerate(events)]


def call(turn: int, tries: int, *messages: Message) -> ModelCall:
    return ModelCall(
        call_id="c",
        task_id="sum/0",
        repeat=0,
        turn=turn,
        tries=tries,
        messages=messages,
        tools=(),
        sampling=Sampling(),
    )


async def test_outcomes_come_in_their_order_and_a_lost_try_is_none(tmp_path: Path) -> None:
    """The last one stands for all tries beyond it."""
    model = make_model(write(tmp_path / "run.jsonl", session()), None, 1)
    with pytest.raises(ModelError, match="busy") as caught:
        await model.complete(call(1, 1, ASKED))
    assert (caught.value.failure.kind, caught.value.retry_after_s) == ("provider_unavailable", 0.5)
    for tries in (2, 3):
        answer = await model.complete(call(1, tries, ASKED))
        assert (answer.message, answer.usage.input_tokens) == (SAID, 3)


async def test_tokens_come_whole_again(tmp_path: Path) -> None:
    """What the log has as a difference to the call before is put together."""
    model = make_model(write(tmp_path / "run.jsonl", session()), None, 1)
    told = (await model.complete(call(2, 1, ASKED, SAID, MORE))).tokens
    assert told is not None
    assert (told.prompt, told.generated, told.logprobs) == ((1, 2, 3, 4, 9), (6,), (-0.5,))
    assert (told.logprob_kind, told.policy_versions, told.problem) == ("processed", ("v7",), "because")


async def test_of_several_attempts_the_last_one_counts(tmp_path: Path) -> None:
    """It is the one that was graded."""
    model = make_model(write(tmp_path / "run.jsonl", [*session(1, "Oh."), *session(2)]), None, 1)
    assert (await model.complete(call(1, 2, ASKED))).message == SAID


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ((ASKED, SAID), "message 3 (user): recorded 'Well?', now nothing"),
        ((ASKED, SAID, MORE, MORE), "message 4 (user): recorded nothing, now 'Well?'"),
        ((ASKED, DONE, MORE), "message 2 (assistant): recorded 'Hm.', now '4'"),
        ((ASKED, MORE, MORE), "message 2 (assistant / user): recorded 'Hm.', now 'Well?'"),
    ],
)
async def test_the_first_difference_of_a_call_is_named(
    messages: tuple[Message, ...], said: str, tmp_path: Path
) -> None:
    """With the task, the repeat and the call."""
    model = make_model(write(tmp_path / "run.jsonl", session()), None, 1)
    with pytest.raises(ModelError) as caught:
        await model.complete(call(2, 1, *messages))
    assert caught.value.failure.kind == "replay_diverged"
    assert caught.value.failure.message == f"task sum/0, repeat 0: call 2, {said}"


async def test_other_sampling_is_another_call(tmp_path: Path) -> None:
    """The log-probabilities of a recording are of its own temperature: asked at another one, it does not answer."""
    model = make_model(write(tmp_path / "run.jsonl", session()), None, 1)
    warmer = replace(call(1, 2, ASKED), sampling=Sampling(temperature=0.1))
    with pytest.raises(ModelError, match=r"call 1, temperature: recorded None, now 0\.1"):
        await model.complete(warmer)


async def test_a_call_beyond_the_recording_is_told_as_that(tmp_path: Path) -> None:
    """There is nothing to compare it with."""
    model = make_model(write(tmp_path / "run.jsonl", session()), None, 1)
    with pytest.raises(ModelError, match="call 3 is not in the recording, which has 2"):
        await model.complete(call(3, 1, ASKED, SAID, MORE, DONE, MORE))


def test_a_difference_far_into_long_messages_is_shown() -> None:
    """What both begin with is left out."""
    one, other = (Message(role="tool", content="x" * 500 + end, tool_call_id="c1") for end in ("left", "right"))
    assert first_difference([one], [other]) == (f"message 1 (tool): recorded …'{'x' * 20}left', now …'{'x' * 20}right'")
    calls = [Message(role="assistant", tool_calls=(ToolCall(id="c1", name="shell", arguments=text),)) for text in "ab"]
    assert first_difference(calls[:1], calls[1:]) == (
        "message 1 (assistant): recorded '[c1 shell(a)]', now '[c1 shell(b)]'"
    )


def test_what_clients_change_is_no_difference() -> None:
    """Words are compared, not how they are cut."""
    whole = Turn(role="user", parts=(Text(text="ab"),), is_plain=True)
    cut = Turn(role="user", parts=(Text(text="a"), Text(text="b")))
    assert first_turn_difference([whole], [cut]) is None


@pytest.mark.parametrize(
    "model",
    [
        LocalModel(threads=3, context_tokens=512, max_output_tokens=9, timeout_s=5, max_tries=2),
        ReplayModel(recording="/a/run.jsonl", api="messages", max_tries=4),
    ],
)
def test_a_configuration_comes_back_from_the_log_as_it_was(model: ModelConfig) -> None:
    """By its type."""
    config = RunConfig(taskset=ReasoningGymTaskset(datasets=()), model=model)
    assert RunConfig.model_validate_json(config.model_dump_json(exclude_defaults=True)) == config
