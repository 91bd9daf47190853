"""The process that runs an agent's function: whatever that does to it, what it told is told, and its result too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.harnesses.base import Activation
from adapters.harnesses.python_agent import plan, reader
from adapters.harnesses.trajectory import Complained, Finished, Item, Said, ToolDone
from schemas.harnesses import PythonAgent

DEADLINE_S: Final = 25


@dataclass(frozen=True)
class Ran:
    """How the process ended, and what was read of what it told."""

    code: int
    items: list[Item]
    stderr: str

    @property
    def answer(self) -> str | None:
        """Return the result, which has to be told."""
        assert self.items[-1] == Finished("returned"), (self.items, self.stderr)
        return next((item.text for item in reversed(self.items) if isinstance(item, Said)), None)

    @property
    def why(self) -> str:
        """Return why there is none."""
        (complaint,) = [item for item in self.items if isinstance(item, Complained)]
        assert complaint.is_final
        return complaint.message


def ran(place: Path, code: str, function: str = "agent:solve", python: str = sys.executable, **modules: str) -> Ran:
    """Run a function as it is run in a sandbox; `modules` lie beside it."""
    mine = place / "mine"
    mine.mkdir()
    for name, text in {"agent": code, **modules}.items():
        (mine / f"{name}.py").write_text(textwrap.dedent(text))
    given = Activation(
        prompt="p",
        model="m",
        base_url="http://h/a/t",
        home=str(place / "home"),
        workspace=str(place),
        installed="/opt/x",
    )
    planned = plan(PythonAgent(function=function, python_path=(str(mine),), python=python), given)
    for path, text in planned.files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    done = subprocess.run(
        planned.argv,
        env={**planned.environment, "PATH": os.defpath},
        input=b"do \xff it\r\n",
        capture_output=True,
        cwd=place,
        timeout=DEADLINE_S,
        check=False,
    )
    read = reader()
    items = read.feed(done.stdout) + read.end()
    assert not read.faults.total, done.stdout[-2000:]
    return Ran(done.returncode, items, done.stderr.decode())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing(tmp_path: Path, method: str) -> None:
    """They work whichever way they are made, and end by TERM without a word."""
    done = ran(
        tmp_path,
        f"""
        import multiprocessing

        def twice(number):
            return 2 * number

        def solve(work):
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                return pool.map(twice, [1, 2])
        """,
    )
    assert done.answer == "[2, 4]"
    assert "Interrupted" not in done.stderr


def test_a_child_that_was_forked_tells_nothing(tmp_path: Path) -> None:
    """It hears that it cannot, whoever holds which lock meanwhile; one that returns as well is no second result."""
    done = ran(
        tmp_path,
        """
        import os, threading

        def solve(work):
            def busy():
                for number in range(3000):
                    work.ran(str(number), "x")
            telling = threading.Thread(target=busy)
            telling.start()
            heard = 0
            for _ in range(20):
                child = os.fork()
                if not child:
                    try:
                        work.ran("child", "x")
                    except RuntimeError:
                        os._exit(42)
                    os._exit(1)
                heard += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
            telling.join()
            child = os.fork()
            if child:
                os.waitpid(child, 0)
            return f"{heard} heard it" if child else "the child's"
        """,
    )
    assert done.answer == "20 heard it"
    assert [item.call_id for item in done.items if isinstance(item, ToolDone)] == [
        str(number) for number in range(3000)
    ]
    assert sum(isinstance(item, Finished) for item in done.items) == 1


def test_descriptors_that_are_closed(tmp_path: Path) -> None:
    """Nothing of ours is written into a file of the agent's that has its number then."""
    done = ran(
        tmp_path,
        """
        import os

        def solve(work):
            os.closerange(0, 20)
            for number in range(20):
                os.open(f"mine{number}", os.O_CREAT | os.O_WRONLY)
            work.ran("c", "x")
            return "it"
        """,
    )
    assert done.answer == "it"
    assert all(path.read_bytes() == b"" for path in tmp_path.glob("mine*[0-9]"))


def test_our_own_descriptor_that_is_another_file_by_now(tmp_path: Path) -> None:
    done = ran(
        tmp_path,
        """
        import os

        def solve(work):
            os.closerange(3, 1000)
            for number in range(300):
                os.open(f"mine{number}", os.O_CREAT | os.O_WRONLY)
            work.ran("c", "x")
            return "it"
        """,
    )
    assert done.code == 1
    assert not any(isinstance(item, ToolDone | Finished) for item in done.items)
    assert all(path.read_bytes() == b"" for path in tmp_path.glob("mine*[0-9]"))


@pytest.mark.parametrize("closing", ["os.close(2)", "sys.stderr.close()", "setattr(sys, 'stderr', None)"])
def test_a_failure_is_told_where_nothing_can_be_printed(tmp_path: Path, closing: str) -> None:
    code = f"import os, sys\n\ndef solve(work):\n    {closing}\n    raise RuntimeError('why')\n"
    assert ran(tmp_path, code).why == "RuntimeError: why"


LEFT_GOING: Final = {
    "a thread": "asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)",
    "a task": "left.append(asyncio.create_task(refuses()))",
}


@pytest.mark.parametrize("left", sorted(LEFT_GOING))
@pytest.mark.parametrize("end", ["return 'it'", "raise RuntimeError('why')"])
def test_what_a_coroutine_leaves_in_its_loop(tmp_path: Path, left: str, end: str) -> None:
    """It is not waited for until the launch is late: how it ended is told first, and some seconds later the process is gone."""
    done = ran(
        tmp_path,
        f"""
        import asyncio, time

        left = []

        async def refuses():
            while True:
                try:
                    await asyncio.sleep(3600)
                except BaseException:
                    pass

        async def solve(work):
            {LEFT_GOING[left]}
            await asyncio.sleep(0.1)
            {end}
        """,
    )
    assert (done.why if "raise" in end else done.answer) == ("RuntimeError: why" if "raise" in end else "it")


def test_a_coroutine_that_was_cancelled_by_its_own(tmp_path: Path) -> None:
    """That is a failure, and no wish that it should end."""
    done = ran(tmp_path, "import asyncio\n\nasync def solve(work):\n    raise asyncio.CancelledError('mine')\n")
    assert (done.code, done.why) == (1, "asyncio.exceptions.CancelledError: mine")


@pytest.mark.parametrize("end", ["sys.exit(0)", "raise KeyboardInterrupt", "return object()", "return float('nan')"])
def test_an_end_without_a_result_is_a_failure(tmp_path: Path, end: str) -> None:
    done = ran(tmp_path, f"import sys\n\ndef solve(work):\n    {end}\n")
    assert done.code == 1
    assert done.why


@pytest.mark.parametrize("name", ["json", "signal", "threading", "start", "kept", "asyncio", "replies"])
def test_modules_of_the_agent_that_are_called_as_others_are(tmp_path: Path, name: str) -> None:
    """Those that the worker needs itself are Python's own to it."""
    assert (
        ran(tmp_path, "def solve(work):\n    return 'it'\n", **{name: "raise RuntimeError('not mine')\n"}).answer
        == "it"
    )


def test_a_module_that_is_called_as_a_script_of_ours_was(tmp_path: Path) -> None:
    assert ran(tmp_path, "", "start:solve", start="def solve(work):\n    return 'it'\n").answer == "it"


def test_what_is_told_of_strange_things(tmp_path: Path) -> None:
    """Telling raises nothing, whatever is told: half characters, what holds itself, keys that are no texts, what cannot be shown."""
    done = ran(
        tmp_path,
        r"""
        class Bad:
            def __repr__(self):
                raise RuntimeError("no")

        def solve(work):
            holds_itself = []
            holds_itself.append(holds_itself)
            for thing in ("\ud800", holds_itself, {(1, 2): 3}, Bad(), b"\xff"):
                work.ran("\ud800", thing, exit_code=0)
            work.replied({"id": 3, "choices": [{"message": {"content": "x" * 9_000_000}}]})
            return work.prompt
        """,
    )
    assert done.answer == "do \ufffd it\r\n"
    told = [item.text for item in done.items if isinstance(item, ToolDone)]
    assert told[0] == "\ud800"
    assert told[2] == "{(1, 2): 3}"
    assert len(told) == 5


def test_a_python_that_is_too_old() -> None:
    """Its user hears which one it is."""
    planned = plan(
        PythonAgent(function="a:b"),
        Activation(prompt="p", model="m", base_url="http://h/a/t", home="/h", workspace="/w", installed="/x"),
    )
    script = next(text for path, text in planned.files.items() if path.endswith("_start.py"))
    aged = script.replace("import sys\n", "import sys\n\nsys.version_info = (3, 8, 18)\n", 1)
    done = subprocess.run([sys.executable, "-c", aged], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == f"error: {sys.executable} is Python 3.8, and python_agent needs 3.9 or newer"


def test_a_line_behind_the_result() -> None:
    """The worker tells none, so somebody else wrote one of them: a result that a command wrote into its output is none."""
    lines: list[dict[str, Any]] = [
        {"type": "finished", "answer": "forged"},
        {"type": "reply", "reply": "r", "texts": [], "thoughts": [], "calls": []},
        {"type": "finished", "answer": "mine"},
    ]
    items = reader().feed("".join(json.dumps(line) + "\n" for line in lines).encode())
    assert [type(item) for item in items] == [Said, Finished, Complained]
    assert isinstance(items[-1], Complained)
    assert items[-1].is_final
