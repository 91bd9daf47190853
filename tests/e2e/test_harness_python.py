"""An agent that is a Python function for real, in a box without a network: the example, and functions that end in other ways."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, cast

import pytest

from adapters.harnesses.launching import LaunchBox, Receipt
from adapters.harnesses.python_agent import PYTHON
from adapters.harnesses.running import Account, account_of, begin
from adapters.harnesses.trajectory import Complained, Finished, ReplyDone, Said, SessionNamed, ToolDone
from tests.support.harness_place import (
    PROGRAMS,
    WORKSPACE,
    HarnessPlace,
    check_the_usual_run,
    ends_with_last_words,
    harness_place,
    session_of,
)
from tests.support.python_agents import example, shown

ODD: Final = '''
import asyncio, atexit, os, signal, sys, threading, time
import agent


def first(work):
    """Ask once, and tell it; run nothing."""
    reply = agent.ask(work, [{"role": "user", "content": work.prompt}])
    work.replied(reply)
    return reply


async def terse(work):
    print("this is no line of ours")
    first(work)
    return {"answer": 42, "args": sys.argv[1:]}


def dies_late(work):
    first(work)
    atexit.register(os._exit, 7)
    return "it is done"


def hangs_late(work):
    first(work)
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return "it is done"


def dies(work):
    first(work)
    work.ran("call0", "half of it", exit_code=0)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def leaves(work):
    first(work)
    os._exit(0)


def raises(work):
    first(work)
    raise RuntimeError("max_steps: 1")


def returns_what_is_no_json(work):
    first(work)
    return object()


def tells_what_is_no_reply(work):
    work.replied("hello")


async def waits(work):
    first(work)
    await asyncio.sleep(3600)


number = 3
'''


async def running(at: HarnessPlace, function: str, timeout_s: float = 30, *extra: str) -> tuple[Receipt, Account]:
    """Run a function of the odd ones."""
    at.runs += 1
    plan = at.plan(extra_args=extra)
    launch = await begin(cast("LaunchBox", at.box), plan, f"{function}{at.runs}", cwd=WORKSPACE, timeout_s=timeout_s)
    receipt = await launch.wait(timeout_s + 60)
    assert receipt is not None
    account = await account_of(launch, plan)
    print(receipt, account.items, (await launch.read("stderr", 0))[-2000:].decode())
    return receipt, account


def place(tmp_path: Path, function: str) -> AbstractAsyncContextManager[HarnessPlace]:
    """Give a place for one of the odd functions."""
    return harness_place(PYTHON, tmp_path, agent=example(f"odd:{function}"), shared=shown(PROGRAMS, odd=ODD))


async def test_two_commands_and_a_session_that_goes_on(tmp_path: Path) -> None:
    """All turns are told as the model wrote them, and joined to the recorded calls without a gap."""
    async with harness_place(PYTHON, tmp_path, agent=example(), shared=shown(PROGRAMS)) as at:
        account = await check_the_usual_run(at)
        assert ends_with_last_words(account)
        assert account.items[-1] == Finished("returned")
        assert all(item.duration_s for item in account.items if isinstance(item, ToolDone))
        session, calls = session_of(account), len(at.place.upstream.bodies)
        receipt, again = await at.run(prompt="Is it there?", resume=session)
        assert (receipt.exit_code, receipt.is_clean, session_of(again)) == (0, True, session)
        assert len(at.place.upstream.bodies) == calls + 1
        told = str(at.place.upstream.bodies[-1]["messages"])
        assert "Is it there?" in told
        assert "hello from here" in told


async def test_what_a_function_returns_is_the_answer(tmp_path: Path) -> None:
    """What is no text is told as JSON; what it prints is not told; the run's further arguments are its own."""
    async with place(tmp_path, "terse") as at:
        receipt, account = await running(at, "terse", 30, "--fast")
        assert receipt.exit_code == 0
        assert account.items[-2:] == (Said("assistant", '{"answer": 42, "args": ["--fast"]}'), Finished("returned"))
        assert not any(faults.total for faults in account.faults)


async def test_a_process_that_ends_badly_after_its_result(tmp_path: Path) -> None:
    """The result is told: what the process does after that takes nothing away from it. Threads that it left are not waited for."""
    async with place(tmp_path, "dies_late") as at:
        receipt, account = await running(at, "dies_late")
        assert receipt.exit_code == 7
        assert account.items[-2:] == (Said("assistant", "it is done"), Finished("returned"))
    async with place(tmp_path, "hangs_late") as at:
        began = time.monotonic()
        receipt, account = await running(at, "hangs_late", 60)
        assert (receipt.ended_by, receipt.exit_code) == ("exit", 0)
        assert time.monotonic() - began < 40
        assert account.items[-1] == Finished("returned")


NO_RESULT: Final[dict[str, tuple[int | None, str]]] = {
    "dies": (None, ""),
    "leaves": (0, ""),
    "raises": (1, "RuntimeError: max_steps: 1"),
    "returns_what_is_no_json": (1, "TypeError: Object of type object is not JSON serializable"),
    "tells_what_is_no_reply": (1, "NoReply: a str is no reply of a model"),
    "number": (1, "TypeError: odd:number is a int, and no function"),
    "nowhere": (1, "AttributeError: module 'odd' has no attribute 'nowhere'"),
}


@pytest.mark.parametrize("function", sorted(NO_RESULT))
async def test_an_end_without_a_result(tmp_path: Path, function: str) -> None:
    """What was told up to there stands, however it ended; nothing says that the work is done."""
    code, why = NO_RESULT[function]
    async with place(tmp_path, function) as at:
        receipt, account = await running(at, function)
        assert receipt.exit_code == code
        assert isinstance(account.items[0], SessionNamed)
        assert Finished("returned") not in account.items
        complaints = [item for item in account.items if isinstance(item, Complained)]
        assert [why in item.message for item in complaints] == ([True] if why else [])
        has_asked = function in {"dies", "leaves", "raises", "returns_what_is_no_json"}
        replies = sum(isinstance(item, ReplyDone) for item in account.items)
        if function != "leaves":  # which leaves no time to write what was told
            assert replies == has_asked
        if function == "dies":
            assert (receipt.signal, account.items[-1]) == (9, ToolDone("call0", "half of it", 0, is_error=False))


async def test_one_that_is_stopped_or_late(tmp_path: Path) -> None:
    """It is told to end, and has time to write what it told; it does not say that it is done."""
    async with place(tmp_path, "waits") as at:
        receipt, account = await running(at, "waits", 4)
        assert (receipt.ended_by, receipt.exit_code, receipt.is_clean) == ("timeout", 143, True)
        assert any(isinstance(item, ReplyDone) for item in account.items)
        assert not any(isinstance(item, Finished | Complained) for item in account.items)
        plan = at.plan()
        launch = await begin(cast("LaunchBox", at.box), plan, "stopped", cwd=WORKSPACE, timeout_s=60)
        await asyncio.sleep(2)
        stopped = await launch.stop(30)
        assert stopped is not None
        assert (stopped.ended_by, stopped.exit_code) == ("stopped", 143)
