"""`gym-tool`, as a process of its own, against a gateway."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
from pathlib import Path

import pytest

from adapters.harnesses.base import TOOL_COMMAND
from schemas.events import TaskToolCallCompleted, TaskToolCallRequested
from tests.support.tool_place import Far, ToolPlace, tool_place
from tests.support.upstream import served


async def run(directory: Path, url: str, *words: str) -> tuple[int, str, str]:
    """Return the exit code and what it prints."""
    command = directory / "gym-tool"
    shutil.copy(TOOL_COMMAND, command)
    (directory / "gym-tool.json").write_text(json.dumps({"url": url, "timeout_s": 30}))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, str(command), *words, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 40)
    return process.returncode or 0, out.decode(), err.decode()


def tools_at(at: ToolPlace) -> str:
    return f"{at.place.url}/a/{at.place.token}/tools"


async def test_it_calls_and_lists(tmp_path: Path) -> None:
    """What the tool says is printed; the exit code says whether it refused."""
    async with tool_place(Far()) as at:
        assert await run(tmp_path, tools_at(at), "note", '{"text": "42"}') == (0, "Noted.\n", "")
        assert await run(tmp_path, tools_at(at), "lookup", '{"key": "z"}') == (1, "There is no entry 'z'.\n", "")
        code, out, _ = await run(tmp_path, tools_at(at), "notes", "{}")
        assert (code, out) == (1, "There is no tool 'notes'. There are: note, lookup, far.\n")
        code, out, _ = await run(tmp_path, tools_at(at))
        assert code == 0
        assert [line.split(" ")[0] for line in out.splitlines()] == ["note", "lookup", "far"]


@pytest.mark.parametrize("name", ["my note", "wéather", "note?x=1", "..", "%6eote", "note#"])
async def test_a_name_that_no_tool_has_is_answered_at_once(name: str, tmp_path: Path) -> None:
    """Whatever it is, it is a name and no part of an address; the address, in which the token is, is not shown."""
    async with tool_place(Far()) as at:
        code, out, err = await run(tmp_path, tools_at(at), name, '{"text": "42"}')
        assert (code, err) == (1, "")
        assert out == f"There is no tool {name!r}. There are: note, lookup, far.\n"
        assert not at.place.events(TaskToolCallRequested)


async def test_an_answer_that_breaks_off_is_asked_for_again(tmp_path: Path) -> None:
    """As of a gateway that is killed while it says what the tool said, or that says nothing that is HTTP."""
    says = [b"SSH-2.0-no\r\n", b'HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{"te']

    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b'{"text": "42"}')
        said = b'{"text": "Noted.", "is_error": false}'
        whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said)
        writer.write(says.pop() if says else whole)
        writer.close()

    async with await asyncio.start_server(breaking, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        told = await run(tmp_path, f"http://127.0.0.1:{port}/tools", "note", '{"text": "42"}')
    assert told == (0, "Noted.\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("note", "text"),
        ("note", "[1]"),
        ("note", "{}", "more"),
        ("", "{}"),
        ("note\n", '{"text": "42"}'),
        ("note/../note", '{"text": "42"}'),
        ("note", '{"text": "\udcff"}'),
        ("note", '{"text":' + "[" * 60_000 + "]" * 60_000 + "}"),
    ],
)
async def test_what_is_no_call_is_not_made(words: tuple[str, ...], tmp_path: Path) -> None:
    async with tool_place(Far()) as at:
        code, out, err = await run(tmp_path, tools_at(at), *words)
        assert (code, out) == (2, "")
        assert "usage: gym-tool NAME" in err
        assert not at.place.events(TaskToolCallRequested)


async def test_a_token_that_is_over_is_said(tmp_path: Path) -> None:
    async with tool_place(Far()) as at:
        code, out, _ = await run(tmp_path, f"{at.place.url}/a/nonsense/tools", "note", '{"text": "42"}')
        assert (code, out) == (1, "no token of this gateway\n")


async def test_a_gateway_that_is_away_is_asked_again_for_the_same_call(tmp_path: Path) -> None:
    """It is not there, then it breaks the connection off with the call made, then it answers: the note is there once."""
    async with tool_place(Far()) as at:
        with socket.create_server(("127.0.0.1", 0)) as breaking:
            port = breaking.getsockname()[1]
            breaking.setblocking(False)  # noqa: FBT003
            called = asyncio.create_task(
                run(tmp_path, f"http://127.0.0.1:{port}/a/{at.place.token}/tools", "note", '{"text": "42"}')
            )
            loop = asyncio.get_running_loop()
            connection, _ = await loop.sock_accept(breaking)
            asked = b""
            while b'{"text": "42"}' not in asked:
                asked += await loop.sock_recv(connection, 65536)
            mark = next(line for line in asked.split(b"\r\n") if line.lower().startswith(b"x-gym-bus-call:"))
            headers = {"x-gym-bus-call": mark.partition(b":")[2].strip().decode()}
            first = await at.http.post(f"{tools_at(at)}/note", json={"text": "42"}, headers=headers)
            assert first.json()["text"] == "Noted."
            connection.close()
        async with served(at.place.gateway.app, port=port):
            assert await called == (0, "Noted.\n", "")
        assert len(at.place.events(TaskToolCallCompleted)) == 1
