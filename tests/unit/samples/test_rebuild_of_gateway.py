"""What a real gateway writes down of a real client's calls becomes the rows that the engine's own ids say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from starlette.responses import JSONResponse

from actors.gateway.grants import mint
from projections.samples import Rebuilt, Sample, check, rebuild
from schemas.events import ModelCallCompleted
from tests.support.gateway_calls import post
from tests.support.gateway_place import KEY, GatewayPlace, gateway_place

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
Turns = list[tuple[str, str]]


class Engine:
    """An engine with one id a word, that keeps what it read and wrote; `thoughts` are ids that its answers' text does not show."""

    def __init__(self, thoughts: str = "") -> None:
        self.words: dict[str, int] = {}
        self.thoughts = thoughts
        self.seen: list[tuple[list[int], list[int]]] = []

    def ids(self, text: str) -> list[int]:
        """Return a text's ids."""
        return [self.words.setdefault(word, len(self.words)) for word in text.split()]

    def __call__(self, body: dict[str, Any]) -> JSONResponse:
        """Answer a call."""
        messages = [f"<{m['role']}> {m['content']} <end>" for m in body["messages"]]
        prompt = self.ids(" ".join([*messages, "<assistant>"]))
        said = f"answer {len(self.seen)}"
        ids = self.ids(f"{self.thoughts} {said} <end>")
        self.seen.append((prompt, ids))
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": said},
            "finish_reason": "stop",
            "token_ids": ids,
            "logprobs": {"content": [{"token": "", "logprob": -0.5, "bytes": None, "top_logprobs": []} for _ in ids]},
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
        head = {"id": f"c{len(self.seen)}", "object": "chat.completion", "model": "engine", "created": 1}
        return JSONResponse({**head, "prompt_token_ids": prompt, "choices": [choice], "usage": usage})


async def say(place: GatewayPlace, turns: Turns, **more: Any) -> Turns:
    """Ask for an answer; return the conversation with it."""
    body = {"messages": [{"role": role, "content": text} for role, text in turns], **more}
    answer = await post(place, "chat", stream=False, **body)
    assert answer.status_code == 200
    return [*turns, ("assistant", answer.json()["choices"][0]["message"]["content"])]


def rebuilt(place: GatewayPlace) -> Rebuilt:
    made = rebuild(place.events())
    assert check(made) == ()
    return made


def wholes(samples: tuple[Sample, ...]) -> list[list[int]]:
    return [list(sample.token_ids) for sample in samples]


async def test_a_session_of_every_kind_of_call_becomes_its_rows() -> None:
    """Turns, a rollback, a sub-agent, a compaction, an answer asked for twice: rows hold the engine's ids, every token once."""
    engine = Engine()
    async with gateway_place() as place:
        place.backend.logprob_kind = "raw"  # type: ignore[misc]
        place.upstream.answers = [engine]
        first = await say(place, [("system", "help"), ("user", "hello")], temperature=0.5)
        await say(place, [*first, ("user", "go left")])
        right = await say(place, [*first, ("user", "go right")])
        await say(place, [*first, ("user", "go right")])
        await say(place, [("system", "look"), ("user", "around")], tools=[TOOL])
        await say(place, [*right, ("user", "on")])
        await say(place, [("system", "help"), ("user", "summary")])
        made = rebuilt(place)
    main, branch, sub_agent, restart = made.samples
    relations = [sample.relation for sample in made.samples]
    assert relations == ["main", "branch", "sub_agent", "restart"]
    ends = [5, 1, 4, 6]
    assert wholes(made.samples) == [[*engine.seen[n][0], *engine.seen[n][1]] for n in ends]
    assert (restart.follows, branch.parent, sub_agent.during) == (main.sample_id, main.sample_id, (main.sample_id,))
    assert [(one.reason, one.tokens) for one in made.excluded] == [("abandoned_try", 3)]
    assert made.trained == 6 * 3
    assert main.spans[0].temperature == 0.5
    assert main.task_id == "sum/0"


async def test_thoughts_that_leave_the_history_make_rewritten_rows() -> None:
    """The template drops them: no prompt begins with what was generated before, so each call is a row with its own whole prompt."""
    engine = Engine(thoughts="well hm")
    async with gateway_place() as place:
        place.backend.logprob_kind = "raw"  # type: ignore[misc]
        place.upstream.answers = [engine]
        turns: Turns = [("user", "hello")]
        for n in range(3):
            turns = [*await say(place, turns), ("user", f"next {n}")]
        made = rebuilt(place)
        done = [event.data for event in place.events(ModelCallCompleted)]
    assert [sample.relation for sample in made.samples] == ["main", "rewritten", "rewritten"]
    assert wholes(made.samples) == [[*prompt, *generated] for prompt, generated in engine.seen]
    assert [sample.prompt_length for sample in made.samples] == [len(prompt) for prompt, _ in engine.seen]
    assert made.samples[2].parent == made.samples[1].sample_id
    assert made.trained == sum(
        len(data.tokens.generated) for data in done if isinstance(data, ModelCallCompleted) and data.tokens
    )


@pytest.mark.parametrize("changed", [False, True], ids=["the same", "another result"])
async def test_an_answer_that_is_given_again_is_trained_once(changed: bool) -> None:
    """A launch that follows a lost one makes one row with it, or another from where it is told something else: no token twice."""
    engine = Engine()
    async with gateway_place() as place:
        place.backend.logprob_kind = "raw"  # type: ignore[misc]
        place.upstream.answers = [engine]
        first = await say(place, [("system", "help"), ("user", "hello")])
        await say(place, [*first, ("user", "it took 1 s")])
        again = mint(KEY, replace(place.grant, launch=2))
        first = await say(place, [("system", "help"), ("user", "hello")], token=again)
        second = await say(place, [*first, ("user", "it took 2 s" if changed else "it took 1 s")], token=again)
        await say(place, [*second, ("user", "on")], token=again)
        made = rebuilt(place)
    assert len(engine.seen) == (4 if changed else 3)
    assert made.trained == sum(len(generated) for _, generated in engine.seen)
    assert made.excluded == ()
    main, *others = made.samples
    assert list(main.token_ids) == [*engine.seen[-1][0], *engine.seen[-1][1]]
    assert [sample.relation for sample in others] == (["branch"] if changed else [])
