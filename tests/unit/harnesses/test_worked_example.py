"""The example of docs/harnesses.md is code that does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from adapters.harnesses.base import Harness, plan_for
from adapters.harnesses.trajectory import Complained, Finished, ReplyDone, Said, SessionNamed, ToolAsked, ToolDone
from tests.unit.harnesses.test_plans import TOKEN, activation

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "harnesses.md"


def example() -> tuple[dict[str, Any], str]:
    """Return what the example defines, and the lines that its program prints."""
    part = PAGE.read_text().rpartition("### A worked example")[2]
    code = next(block for block in re.findall(r"```python\n(.*?)```", part, re.DOTALL) if "Harness(" in block)
    names: dict[str, Any] = {"__name__": "tiny"}
    exec(compile(code, "tiny.py", "exec"), names)
    return names, "".join(f"{line}\n" for line in re.findall(r'^    (\{"type".*\})$', part, re.MULTILINE))


def test_the_worked_example() -> None:
    """It is launched without its token in an argument, and reads what it prints."""
    names, printed = example()
    harness: Harness = names["TINY"]
    plan = plan_for(harness, activation(resume="s1"))
    assert plan.argv[-2:] == ("--session", "s1")
    assert TOKEN not in " ".join(plan.argv)
    assert plan.environment["TINY_URL"].endswith("/v1")
    reader = plan.traces[0].reader()
    assert reader.feed(printed.encode()) == [
        SessionNamed("s1"),
        Said("assistant", "I look."),
        ToolAsked("c1", "sh", '{"command": "ls"}'),
        ReplyDone("chatcmpl-1", 100, 10),
        ToolDone("c1", "hello.txt", 0, is_error=False, duration_s=0.01),
        Finished("done"),
    ]
    reader.feed(b'{"type": "ran", "call": "c1", "output": "", "code": "no", "seconds": 0}\n{"type": "new"}\n')
    assert (reader.faults.unexpected, reader.unknown) == (1, {"new": 1})
    [failed] = reader.feed(b'{"type": "end", "error": "429 too many requests"}\n')
    assert isinstance(failed, Complained)
    assert (failed.problem, failed.is_final) == ("rate_limit", True)
