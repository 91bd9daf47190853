"""What is nested deep: it is counted as the parser counts it, and what could not be read again is never stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.collector import plan
from gym_bus.blobs import MemoryBlobs
from gym_bus.codec import Codec
from gym_bus.errors import BadTaskset, TooDeep
from gym_bus.nesting import GIVEN_MAX_LEVELS, STORED_MAX_LEVELS, is_deeper
from schemas.config import JsonlTaskset, RunConfig
from schemas.events import TaskToolCallRequested
from schemas.tasks import Task, TaskInput
from tests.support.examples import EXAMPLES, HEAD, subject_of
from tests.support.nested import nested

VALUES = st.recursive(
    st.none() | st.text('[]{}"\\,:a'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('[]{}"\\a', max_size=4), inner, max_size=4),
    max_leaves=20,
)
ASKED = EXAMPLES["task_tool_call_requested.v1"]


def levels_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels_of, inner), default=0)


@given(VALUES, st.booleans())
def test_levels_are_counted_whatever_strings_hold(value: Any, spaced: bool) -> None:
    text = json.dumps(value, indent=1 if spaced else None).encode()
    levels = levels_of(value)
    assert not is_deeper(text, levels)
    assert levels == 0 or is_deeper(text, levels - 1)


@pytest.mark.parametrize("inline_max_bytes", [64 * 1024, 64], ids=["inline", "as a blob"])
@pytest.mark.parametrize("levels", [1, 100, GIVEN_MAX_LEVELS, STORED_MAX_LEVELS - 1, STORED_MAX_LEVELS, 199, 220, 250])
def test_what_is_stored_can_be_read_again(levels: int, inline_max_bytes: int) -> None:
    """Either an event is refused, or it is the same when it is read."""
    codec = Codec(MemoryBlobs(), inline_max_bytes=inline_max_bytes)
    assert isinstance(ASKED, TaskToolCallRequested)
    data = ASKED.replaced(arguments=nested(levels))
    if levels >= STORED_MAX_LEVELS:
        with pytest.raises(TooDeep, match=f"task_tool_call_requested.v1 has more than {STORED_MAX_LEVELS} levels"):
            codec.encode(HEAD, data)
        return
    body = codec.encode(HEAD, data)
    assert codec.decode(subject_of(data), body, 1).data == data
    assert codec.raw(body)["data"]["arguments"] == data.arguments


def test_a_task_that_is_too_deep_is_refused_before_anything_starts() -> None:
    """Wherever it comes from; the message names it and the bound."""
    given_ = TaskInput(task_id="odd/7", messages=())
    config = RunConfig(taskset=JsonlTaskset(jsonl_fpath="rows.jsonl"))
    fits = Task(index=0, input=given_, verifier="v", verifier_data=nested(GIVEN_MAX_LEVELS - 1))
    plan.check([fits], config)
    deep = fits.replaced(verifier_data=nested(GIVEN_MAX_LEVELS))
    with pytest.raises(BadTaskset, match=f"odd/7: .* more than {GIVEN_MAX_LEVELS} levels"):
        plan.check([fits, deep], config)
