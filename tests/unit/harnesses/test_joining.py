"""A harness's account beside the gateway's: what fits, and what is told where something does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.harnesses.gaps import KNOWN_GAPS
from adapters.harnesses.joining import GapKind, RecordedCall, join
from adapters.harnesses.table import BROUGHT, HARNESSES
from adapters.harnesses.trajectory import Item, ReplyDone, Said, Thought, ToolAsked, ToolDone

CALLS = (
    RecordedCall("q0", "r0", "Step 1.", (("call_0", "bash", '{"a": 1}'),), 100, 10, has_thoughts=True),
    RecordedCall("q1", "r1", "Done.", (), 100, 10),
)
ITEMS: tuple[Item, ...] = (
    Said("user", "Do it."),
    Thought("Hm."),
    Said("assistant", "Step 1."),
    ToolAsked("call0", "bash", '{"a": 1}'),
    ReplyDone("r0", 100, 10),
    ToolDone("call0", "1", exit_code=0, is_error=False, duration_s=0.1),
    Said("assistant", "Done."),
    ReplyDone("r1", 100, 10),
)


def test_what_fits() -> None:
    """Punctuation in ids is nobody's: some clients strip it."""
    joined = join(ITEMS, CALLS)
    assert [request for request, _ in joined.pairs] == ["q0", "q1"]
    assert joined.gaps == ()


def changed(place: int, **changes: object) -> list[Item]:
    return [replace(item, **changes) if n == place else item for n, item in enumerate(ITEMS)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("items", "kind", "where"),
    [
        (changed(2, text="Step 2."), "text_differs", "q0"),
        (changed(3, name="Bash"), "calls_differ", "q0"),
        (changed(3, arguments='{"a": 2}'), "calls_differ", "call0"),
        (changed(3, arguments='{"a":1}'), "arguments_rewritten", "call0"),
        (changed(3, is_rewritten=True), "arguments_rewritten", "call0"),
        (changed(4, input_tokens=99), "usage_differs", "q0"),
        (changed(5, exit_code=None, is_error=None), "end_unknown", "call0"),
        (changed(5, duration_s=None), "duration_unknown", "call0"),
        ([*ITEMS[:5], *ITEMS[6:]], "result_missing", "call0"),
        ([ITEMS[0], *ITEMS[2:]], "thoughts_missing", "q0"),
        (ITEMS[1:], "prompt_missing", ""),
        (ITEMS[:6], "call_not_told", "q1"),
        ([*ITEMS, Said("assistant", "More."), ReplyDone("r2", 100, 10)], "reply_not_recorded", "2"),
        (changed(4, reply_id=None), "matched_by_order", "q0"),
        (changed(7, reply_id=None), "matched_by_order", "q1"),
    ],
)
def test_what_does_not_fit(items: list[Item], kind: GapKind, where: str) -> None:
    assert [(gap.kind, gap.where) for gap in join(items, CALLS).gaps] == [(kind, where)]


def test_a_reply_that_was_made_up() -> None:
    """What the log does not have fits nothing, whatever it says."""
    joined = join([Said("user", "Do it."), Said("assistant", "Done."), ReplyDone("r9", 100, 10)], CALLS)
    assert joined.pairs == ()
    assert joined.kinds == {"reply_not_recorded", "call_not_told"}


def test_every_harness_says_what_it_does_not_tell() -> None:
    assert set(KNOWN_GAPS) == {*HARNESSES, *BROUGHT}
