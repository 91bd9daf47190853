"""Programs that are graded by their output: what they do to themselves makes nothing right (attacks 5 and 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.events import GradingDone, GradingRequested
from tests.security.test_grading_boxes import graded
from tests.support.boxes import DOCKER

SECRET = "4242424242"
PLACES = "/box /tmp /run /etc /dev/shm /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
ADDS: list[dict[str, Any]] = [
    {"id": "small", "command": "sh add.sh", "stdin": "2 3\n", "output": "5"},
    {"id": "large", "command": "sh add.sh", "stdin": "4242424241 1\n", "output": SECRET},
    {"id": "json", "command": "sh add.sh; echo", "stdin": "1 1\n", "output_json": 2},
]
ROW: dict[str, Any] = {"cases": ADDS, "artifacts": ["*.sh", "*.py"]}
RIGHT = "read a b; echo $((a + b))"


def wrote(program: str, name: str = "add.sh") -> str:
    return f"cat >{name} <<'END'\n{program}\nEND"


@pytest.mark.parametrize("kind", ["bubblewrap", DOCKER])
async def test_a_right_program_is_full_reward_and_each_case_is_told(tmp_path: Path, kind: str) -> None:
    """Time and output are taken outside of the machine; what is expected was never told to it."""
    verdict, world = await graded(tmp_path, kind, ROW, wrote(RIGHT))
    assert (verdict.reward, verdict.failure_reason) == (1.0, None)
    assert verdict.components == {"small": 1.0, "large": 1.0, "json": 1.0}
    [asked] = [e.data for e in world.events() if isinstance(e.data, GradingRequested)]
    assert SECRET not in asked.model_dump_json()
    [done] = [e.data for e in world.events() if isinstance(e.data, GradingDone)]
    assert [case.output for case in done.cases] == ["5\n", f"{SECRET}\n", "2\n\n"]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("exit 0", "3 of 3 cases failed: small: wrote ''"),
        ("echo '3 passed in 0.01s'; exit 0", "wrote '3 passed"),
        (f"w={SECRET[:5]}; grep -rhoF $w$w {PLACES} 2>/dev/null | head -n 1; exit 0", "large: wrote ''"),
        ("read a b; echo $((a + b)); exit 3", "ended with 3"),
        ("read a b; echo $((a + b)); kill -9 $$", "small: "),
        ("read a b; head -c 100000 /dev/zero | tr '\\0' 5", "wrote more than is kept"),
        ("kill -9 -1; exit 0", "small: "),
    ],
)
async def test_no_way_out_of_a_process_is_a_right_output(tmp_path: Path, program: str, reason: str) -> None:
    verdict, _ = await graded(tmp_path, "bubblewrap", ROW, wrote(program))
    assert verdict.reward == 0.0
    assert reason in (verdict.failure_reason or "")


async def test_a_program_that_changes_equality_and_clocks_of_itself_changes_nothing(tmp_path: Path) -> None:
    """And one that waits is out of time by our clock, not by its own."""
    program = (
        "import builtins, os, time\n"
        "class Same(str):\n    __eq__ = lambda s, o: True\n    __hash__ = str.__hash__\n"
        "time.time = time.monotonic = time.perf_counter = lambda: 0.0\n"
        "builtins.print(Same('anything'))\n"
        "time.sleep(30) if input() == 'wait' else os._exit(0)\n"
    )
    cases = [
        {"id": "equal", "command": "python3 add.py", "stdin": "go\n", "output": "5"},
        {"id": "slow", "command": "python3 add.py", "stdin": "wait\n", "output": "anything", "timeout_s": 1.0},
    ]
    verdict, world = await graded(tmp_path, "bubblewrap", {**ROW, "cases": cases}, wrote(program, "add.py"))
    assert verdict.reward == 0.0
    assert verdict.components == {"equal": 0.0, "slow": 0.0}
    assert "slow: out of time" in (verdict.failure_reason or "")
    [done] = [e.data for e in world.events() if isinstance(e.data, GradingDone)]
    assert 1.0 <= done.cases[1].duration_s < 20


async def test_a_part_of_the_cases_is_a_part_of_the_reward_only_if_the_task_says_so(tmp_path: Path) -> None:
    half = wrote("read a b; echo $((a + b)) | cut -c 1")
    verdict, _ = await graded(tmp_path / "all", "bubblewrap", ROW, half)
    assert verdict.reward == 0.0
    verdict, _ = await graded(tmp_path / "part", "bubblewrap", {**ROW, "partial": True}, half)
    assert verdict.reward == pytest.approx(2 / 3)


async def test_tests_that_fail_are_no_reward_whatever_the_cases_say(tmp_path: Path) -> None:
    verdict, _ = await graded(tmp_path, "bubblewrap", {**ROW, "test_command": "exit 1"}, wrote(RIGHT))
    assert verdict.reward == 0.0


@pytest.mark.parametrize("kind", ["bubblewrap", DOCKER])
async def test_a_right_output_is_right_however_little_of_a_commands_output_an_agent_is_shown(
    tmp_path: Path, kind: str
) -> None:
    """`limits.output_bytes` is the agent's bound; an expected output has room in the machine of the tests."""
    long = "a" * 131_072
    cases = [{"id": "long", "command": "sh add.sh", "output": long}]
    row = {**ROW, "cases": cases}
    verdict, _ = await graded(tmp_path / "right", kind, row, wrote(f"head -c {len(long)} /dev/zero | tr '\\0' a"))
    assert (verdict.reward, verdict.failure_reason) == (1.0, None)
    verdict, _ = await graded(tmp_path / "long", kind, row, wrote("head -c 300000 /dev/zero | tr '\\0' a"))
    assert (verdict.reward, verdict.failure_reason) == (0.0, "1 of 1 cases failed: long: wrote more than is kept")
