"""What runs an agent that is a Python function: it tells without holding the agent up, and knows a reply in every dialect."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import ValidationError

from adapters.harnesses.base import Activation, Unsupported, plan_for
from adapters.harnesses.python_agent import PYTHON, reader
from adapters.harnesses.python_worker.replies import NoReply, told_reply
from adapters.harnesses.python_worker.telling import TEXT_MAX_CHARS, TOLD_MAX_BYTES, Telling
from adapters.harnesses.table import harness_of
from adapters.harnesses.trajectory import Complained, Finished, ReplyDone, Said, Thought, ToolAsked, ToolDone
from schemas.harnesses import PythonAgent

USAGE = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
CHAT = {
    "id": "r1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
}
RESPONSES = {
    "id": "r1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {"type": "function_call", "id": "f", "call_id": "c1", "name": "bash", "arguments": '{"command":"ls"}'},
    ],
    "usage": {
        **USAGE,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}
MESSAGES = {
    "id": "r1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "I look.", "citations": None},
        {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
    ],
    "usage": {"input_tokens": 100, "output_tokens": 10},
}


@pytest.mark.parametrize(
    ("kind", "plain"),
    [(ChatCompletion, CHAT), (Response, RESPONSES), (Message, MESSAGES)],
)
def test_a_reply_is_told_in_the_same_words_in_every_dialect(kind: Any, plain: dict[str, Any]) -> None:
    """Whether it is what the client's library returns, or JSON; what is read of it is what the log keeps."""
    made = kind.model_validate(plain)
    assert told_reply(made) == told_reply(plain)
    is_text = plain is not MESSAGES
    arguments: Any = '{"command":"ls"}' if is_text else {"command": "ls"}
    assert told_reply(plain) == {
        "reply": "r1",
        "texts": ["I look."],
        "thoughts": ["hm"],
        "calls": [{"id": "c1", "name": "bash", "arguments": arguments}],
        "input_tokens": 100,
        "output_tokens": 10,
    }
    items = list(reader().feed(json.dumps({"type": "reply", **told_reply(plain)}).encode() + b"\n"))
    written = arguments if is_text else json.dumps(arguments)
    assert items == [
        Thought("hm"),
        Said("assistant", "I look."),
        ToolAsked("c1", "bash", written, is_rewritten=not is_text),
        ReplyDone("r1", 100, 10),
    ]


PART = {"type": "text", "text": "I look."}
CALL = {"id": "c1", "name": "bash", "arguments": "ls"}
ODD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"choices": []}, {}),
    ({"choices": [None, 3]}, {}),
    ({"choices": [{"message": None}]}, {}),
    ({"choices": [{"message": {"content": [PART, {"type": "image_url"}, 3]}}]}, {"texts": ["I look."]}),
    ({"choices": [{"message": {"content": None, "refusal": "No."}}]}, {"texts": ["No."]}),
    ({"choices": [{"message": {"tool_calls": [None, {"function": None}, {}]}}]}, {}),
    (
        {"choices": [{"message": {"tool_calls": [{"id": "c1", "custom": {"name": "bash", "input": "ls"}}]}}]},
        {"calls": [CALL]},
    ),
    (
        {"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}, {"type": "reasoning"}]},
        {"texts": ["No."]},
    ),
    ({"output": [{"type": "message", "content": "I look."}, {"type": "hm"}, None, {}]}, {"texts": ["I look."]}),
    ({"output": [{"type": "reasoning", "summary": [{}], "content": [None]}]}, {}),
    (
        {"output": [{"type": "custom_tool_call", "call_id": "c1", "name": "bash", "input": "ls"}]},
        {"calls": [CALL]},
    ),
    ({"output": [{"type": "function_call"}]}, {"calls": [{"id": None, "name": None, "arguments": None}]}),
    ({"content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text"}, {"type": "thinking"}, PART]},
     {"texts": ["I look."]}),
    ({"content": [], "usage": 3}, {}),
    ({"choices": [], "usage": {"prompt_tokens": -1, "completion_tokens": "x"}}, {}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(ODD)))
def test_a_reply_of_odd_parts_is_told_as_far_as_it_goes(case: int) -> None:
    """Telling one raises nothing, for what it is is the model's doing; nothing that is said or called is left out."""
    plain, want = ODD[case]
    told = told_reply(plain)
    assert {name: told[name] for name in ("texts", "thoughts", "calls")} == {
        **{name: [] for name in ("texts", "thoughts", "calls")},
        **want,
    }
    read = reader()
    assert isinstance(read.feed(json.dumps({"type": "reply", **told}).encode() + b"\n")[-1], ReplyDone)
    assert not read.faults.total


@pytest.mark.parametrize("bad", [None, "hello", {}, {"choices": "no"}, [], 3, {"output": None}])
def test_what_is_no_reply_is_refused(bad: Any) -> None:
    with pytest.raises(NoReply):
        told_reply(bad)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reads, writes = os.pipe()
    yield reads, writes
    os.close(writes)  # a thread that still reads hears of it
    os.close(reads)  # one that still writes as well


def all_of(reads: int, until: bytes) -> list[dict[str, Any]]:
    """Return the lines that come, up to one that holds `until`, behind which none follows at once."""
    content = bytearray()
    while not content.endswith(b"\n") or content.find(until, content.rfind(b"\n", 0, -1) + 1) < 0:
        piece = os.read(reads, 65536)
        assert piece, f"it ends without {until!r}: {bytes(content[-200:])!r}"
        content += piece
    return [json.loads(line) for line in content.splitlines()]


def reading_all(reads: int, until: bytes) -> tuple[threading.Thread, list[dict[str, Any]]]:
    """Return a thread that reads, and what becomes the lines; a test that fails does not wait for it."""
    found: list[dict[str, Any]] = []
    reading = threading.Thread(target=lambda: found.extend(all_of(reads, until)), daemon=True)
    reading.start()
    return reading, found


def test_nobody_waits_for_what_is_told(pipe: tuple[int, int]) -> None:
    """A pipe that nobody reads holds nothing up; what was told arrives in its order once somebody does."""
    reads, writes = pipe
    telling, began = Telling(writes), time.monotonic()
    for number in range(2000):
        telling.tell("done", id=str(number), text="x" * 1000)
    assert time.monotonic() - began < 1.0, "two megabytes, of which a pipe holds 64 kB"
    assert not telling.end(0.2), "it is not written yet, and says so"
    reading, found = reading_all(reads, b'"1999"')
    reading.join(20)
    assert [line["id"] for line in found] == [str(number) for number in range(2000)]


def test_the_result_comes_last_and_whole(pipe: tuple[int, int]) -> None:
    """Nothing is told after it, whatever a thread of the agent's goes on with; a text that is too long is cut."""
    reads, writes = pipe
    telling = Telling(writes)
    telling.tell("done", text="y" * (TEXT_MAX_CHARS + 5))
    reading, found = reading_all(reads, b"finished")
    assert telling.end(10, "finished", answer="it")
    telling.tell("done", text="late")
    reading.join(10)
    assert [line["type"] for line in found] == ["done", "finished"]
    assert found[0]["text"].endswith("\n[5 more characters]")


def test_what_is_too_much_is_left_out_and_counted(pipe: tuple[int, int]) -> None:
    """The result has its place, whatever was told before: a launch keeps 32 MiB of what is printed."""
    reads, writes = pipe
    telling = Telling(writes)
    reading, found = reading_all(reads, b"finished")
    for _ in range(TOLD_MAX_BYTES // TEXT_MAX_CHARS + 3):
        telling.tell("done", text="z" * TEXT_MAX_CHARS)
    assert telling.end(30, "finished", answer=None)
    reading.join(30)
    assert found[-2:] == [{"type": "left_out", "count": 4}, {"type": "finished", "answer": None}]
    items = list(reader().feed(b"".join(json.dumps(line).encode() + b"\n" for line in found[-2:])))
    assert isinstance(items[0], Complained)
    assert not items[0].is_final
    assert items[1:] == [Finished("returned")]


def test_fifty_threads_at_once(pipe: tuple[int, int]) -> None:
    """No line is torn, and each thread's stand in its order."""
    reads, writes = pipe
    telling = Telling(writes)
    reading, found = reading_all(reads, b"finished")

    def many(thread: int) -> None:
        for number in range(100):
            telling.tell("done", id=thread, text=str(number) + "x" * 4000)

    threads = [threading.Thread(target=many, args=(thread,), daemon=True) for thread in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert telling.end(30, "finished")
    reading.join(30)
    assert len(found) == 5001
    for thread in range(50):
        told = [int(line["text"].rstrip("x")) for line in found if line.get("id") == thread]
        assert told == sorted(told)


def test_there_is_one_end(pipe: tuple[int, int]) -> None:
    """Whoever ends it again adds nothing."""
    reads, writes = pipe
    telling = Telling(writes)
    assert telling.end(10, "finished", answer="it")
    assert telling.end(10, "failed", message="late")
    assert [line["type"] for line in all_of(reads, b"finished")] == ["finished"]


def test_what_is_no_json_is_told_all_the_same(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    telling = Telling(writes)
    telling.tell("done", id=b"c1", text={1, 2})
    assert telling.end(10)
    assert all_of(reads, b"\n") == [{"type": "done", "id": "b'c1'", "text": "{1, 2}"}]


def test_words_that_the_model_said_last_are_not_told_twice() -> None:
    lines = [
        {"type": "reply", "reply": "r", "texts": ["Done."], "thoughts": [], "calls": []},
        {"type": "finished", "answer": "Done."},
    ]
    items = reader().feed("".join(json.dumps(line) + "\n" for line in lines).encode())
    assert items == [Said("assistant", "Done."), ReplyDone("r"), Finished("returned")]


def test_what_a_command_came_to() -> None:
    line = {"type": "done", "id": "c", "text": "out", "exit_code": 2, "is_error": True, "duration_s": 1}
    assert reader().feed(json.dumps(line).encode() + b"\n") == [ToolDone("c", "out", 2, is_error=True, duration_s=1.0)]


@pytest.mark.parametrize(
    "function", ["solve", "a b:c", ":solve", "agent:", "os.system('x'):y", "agent:solve()", "a:b\n"]
)
def test_a_function_has_a_module_and_a_name(function: str) -> None:
    with pytest.raises(ValidationError):
        PythonAgent(function=function)


@pytest.mark.parametrize("path", ["mine", "./mine", "/opt/a:/opt/b", ""])
def test_where_it_is_found_is_absolute(path: str) -> None:
    with pytest.raises(ValidationError, match="no absolute path"):
        PythonAgent(function="a:b", python_path=(path,))


def test_what_is_ours_is_not_in_the_way_of_the_agents_own() -> None:
    """A user's packages may be called `adapters`; without a function there is nothing to run."""
    at = Activation(
        prompt="p", model="m", base_url="http://h/a/t", home="/tmp/agent", workspace="/box", installed="/opt/gym-bus/x"
    )
    plan = plan_for(
        harness_of(PythonAgent(function="a.b:C.solve", python_path=("/opt/mine",), python="/opt/venv/bin/python")), at
    )
    assert plan.argv[0] == "/opt/venv/bin/python"
    assert plan.environment["PYTHONPATH"] == "/opt/mine"
    modules = {path.rpartition(".python/")[2] for path in plan.files}
    assert modules >= {f"gym_bus_worker/{name}.py" for name in ("__init__", "replies", "runner", "telling", "work")}
    assert not any("adapters" in text for text in plan.files.values())
    with pytest.raises(Unsupported, match=r"without agent\.function"):
        plan_for(PYTHON, at)
