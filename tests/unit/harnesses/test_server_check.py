"""What is looked at before a program begins: a server that lists its tools lets it begin, any other one does not, and is named."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from adapters.harnesses import server_check
from tests.support.mcp_double import McpDouble
from tests.support.stdio_server import SCRIPT
from tests.support.upstream import served

BEGUN = ("/bin/sh", "-c", "echo begun; grep SigIgn /proc/$$/status >&2")
PYTHON = {"name": "near", "command": sys.executable}
Answer = Callable[[Request], Awaitable[Response]]


async def checked(tmp_path: Path, *servers: dict[str, Any], within_s: float = 5.0) -> tuple[int, str, str]:
    """Return the exit code of a program behind the check, and what was written; one that begins is deaf to no signal."""
    said = tmp_path / "servers.json"
    said.write_text(json.dumps({"servers": servers, "within_s": within_s}))
    command = (sys.executable, "-I", "-S", server_check.__file__, str(said), *BEGUN)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    told = err.decode()
    if process.returncode == 0:
        assert not int(told.split()[-1], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)
    return process.returncode, out.decode(), told


def at(url: str) -> dict[str, Any]:
    return {"name": "far", "url": f"{url}/mcp", "headers": {"x-token": "secret"}}


def app_of(answer: Answer) -> Starlette:
    return Starlette(routes=[Route("/mcp", answer, methods=["POST", "GET", "DELETE"])])


async def test_the_program_begins_when_every_server_has_listed_its_tools(tmp_path: Path) -> None:
    """It becomes the program, with its arguments; the servers' headers are sent."""
    double = McpDouble()
    async with served(double.app) as url:
        code, out, _ = await checked(tmp_path, at(url), {**PYTHON, "args": ["-c", SCRIPT]})
    assert (code, out) == (0, "begun\n")
    assert {headers["x-token"] for headers in double.headers} == {"secret"}


async def test_a_server_that_answers_in_a_stream_is_understood(tmp_path: Path) -> None:
    """Its session goes with each message, and is ended."""
    seen: list[tuple[str, str | None]] = []

    async def answer(request: Request) -> Response:
        seen.append((request.method, request.headers.get("mcp-session-id")))
        asked = json.loads(await request.body() or b"{}")
        if "id" not in asked:
            return Response(status_code=202)
        result = {"tools": []} if asked["method"] == "tools/list" else {"protocolVersion": "2025-06-18"}
        event = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        words = f'event: message\ndata: {{"jsonrpc":"2.0","method":"notifications/x"}}\n\ndata: {event}\n\n'
        return Response(words, media_type="text/event-stream", headers={"mcp-session-id": "s1"})

    async with served(app_of(answer)) as url:
        code, out, _ = await checked(tmp_path, at(url))
    assert (code, out) == (0, "begun\n")
    assert seen == [("POST", None), ("POST", "s1"), ("POST", "s1"), ("DELETE", "s1")]


def _in_lines(text: str) -> Response:
    return Response(text.replace("{", "{\r\n ").replace(",", ",\r\n "), media_type="application/json")


def _in_a_stream(text: str) -> Response:
    """It says something else first, in whose words an answer's could be seen; its own takes several lines."""
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "result": "id"}}
    data = text.replace(",", ",\ndata: ")
    return Response(f"data: {json.dumps(note)}\n\nid: 7\ndata:{data}\n\n: and on\n", media_type="text/event-stream")


@pytest.mark.parametrize("written", [_in_lines, _in_a_stream, lambda text: Response("\ufeff" + text)])
async def test_an_answer_is_json_however_it_is_written(tmp_path: Path, written: Callable[[str], Response]) -> None:
    """In lines as of Windows, with characters in its texts at which lines are broken elsewhere, or after other events."""

    async def answer(request: Request) -> Response:
        asked = json.loads(await request.body() or b"{}")
        if "id" not in asked:
            return Response(status_code=202)
        tools = [{"name": "far", "description": "One\u2028two\x85three", "inputSchema": {}}]
        result = {"tools": tools} if asked["method"] == "tools/list" else {"protocolVersion": "2025-06-18"}
        return written(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}, ensure_ascii=False))

    async with served(app_of(answer)) as url:
        code, out, err = await checked(tmp_path, at(url))
    assert (code, out) == (0, "begun\n"), err


async def test_a_server_that_is_not_up_yet_is_waited_for(tmp_path: Path) -> None:
    double, away = McpDouble(), 3

    async def answer(request: Request) -> Response:
        nonlocal away
        away -= 1
        return Response(status_code=503) if away >= 0 else await double._answer(request)

    async with served(app_of(answer)) as url:
        code, out, _ = await checked(tmp_path, at(url))
    assert (code, out, away) == (0, "begun\n", -3)


async def test_a_server_whose_door_is_shut_is_asked_again(tmp_path: Path) -> None:
    """As by a gateway that is being started anew, behind a way out that is there."""
    tries = 0

    def shut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.close()

    async with await asyncio.start_server(shut, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        code, out, err = await checked(tmp_path, at(f"http://127.0.0.1:{port}"), within_s=1.5)
    assert (code, out) == (server_check.UNREACHED, "")
    assert "far: " in err
    assert tries > 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Response(status_code=503), "HTTP 503"),
        (Response("no entry", status_code=401), "HTTP 401: no entry"),
        (Response("<html>\nhello</html>"), "none of MCP's"),
        (JSONResponse({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}}), '"message": "no"'),
    ],
    ids=["down", "no entry", "a page", "refused"],
)
async def test_a_server_that_lists_nothing_lets_nothing_begin(tmp_path: Path, answer: Response, words: str) -> None:
    async def answered(_: Request) -> Response:
        return answer

    async with served(app_of(answered)) as url:
        code, out, err = await checked(tmp_path, at(url), within_s=0.6)
    assert (code, out) == (server_check.UNREACHED, "")
    assert err.startswith(f"{server_check.SAID} is not to be used: far: ")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-c", "import sys; sys.exit('no licence')"], "no licence"),
        (["-c", "import time; time.sleep(60)"], "it did not answer in time"),
        (["-c", "input(); print('{}'); input()"], "it did not answer in time"),
        (["-c", "while True: print('{}')"], "it did not answer in time"),
        (["-c", "input(); print('[' * 100_000); input()"], "it did not answer in time"),
    ],
)
async def test_a_command_that_is_no_server_lets_nothing_begin(tmp_path: Path, args: list[str], words: str) -> None:
    code, out, err = await checked(tmp_path, {**PYTHON, "args": args}, within_s=0.6)
    assert (code, out) == (server_check.UNREACHED, "")
    assert "near" in err
    assert words in err


@pytest.mark.parametrize(
    "begins", [b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", b"HTTP/1.1 401 no\r\n\r\n", b"HTTP/1.1 200 O"]
)
@pytest.mark.alone
async def test_a_server_that_answers_a_byte_at_a_time_is_not_waited_for(tmp_path: Path, begins: bytes) -> None:
    """The time that a server has is for all of it, however often something comes in."""
    is_over = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begins)
        with suppress(ConnectionError):
            for _ in range(200):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        is_over.set()

    begun = time.monotonic()
    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        code, _, err = await checked(tmp_path, at(f"http://127.0.0.1:{port}"), within_s=0.6)
        assert (code, "did not answer in time" in err) == (server_check.UNREACHED, True)
        assert time.monotonic() - begun < 5
        await asyncio.wait_for(is_over.wait(), 5)


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize(
    "body", ["[" * 100_000, "[1]", '{"jsonrpc":"2.0","id":1,"error":' + "[" * 900 + "]" * 900 + "}"]
)
async def test_an_answer_that_is_odd_json_is_none(tmp_path: Path, body: str, is_plain: bool) -> None:
    async def answer(_: Request) -> Response:
        return Response(body, media_type="application/json")

    async with served(app_of(answer)) as url:
        code, _, err = await checked(tmp_path, {**at(url), "is_plain": is_plain}, within_s=0.6)
    assert code == server_check.UNREACHED
    assert err.startswith(f"{server_check.SAID} is not to be used: far: ")


async def test_a_command_finds_its_variables(tmp_path: Path) -> None:
    args = ["-c", "import os, sys; sys.exit('no licence in ' + os.environ['CITY'])"]
    _, _, err = await checked(tmp_path, {**PYTHON, "args": args, "env": {"CITY": "Oslo"}})
    assert "no licence in Oslo" in err


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, _, err = await checked(tmp_path, {"name": "near", "command": "/no/such/server", "args": []})
    assert code == server_check.UNREACHED
    assert "/no/such/server" in err


async def test_the_tools_behind_the_command_are_listed(tmp_path: Path) -> None:
    async def answer(request: Request) -> Response:
        return JSONResponse({"tools": []}) if request.method == "GET" else Response(status_code=405)

    async with served(app_of(answer)) as url:
        code, out, _ = await checked(tmp_path, {"name": "gym-tool", "url": f"{url}/mcp", "is_plain": True})
        assert (code, out) == (0, "begun\n")
    code, _, err = await checked(tmp_path, {"name": "gym-tool", "url": f"{url}/mcp", "is_plain": True}, within_s=0.5)
    assert code == server_check.UNREACHED
    assert "refused" in err
