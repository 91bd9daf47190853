"""Serves a double from a thread with a loop of its own: a test may block, and so may the process that it starts."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.support.upstream import _Quiet


@contextmanager
def served_apart(app: Any) -> Iterator[str]:
    """Serve an ASGI application on a free port of this machine; give its address."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # connections that a test drops
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = _Quiet(config)

    async def serve() -> None:
        await server.serve()
        if left := asyncio.all_tasks() - {asyncio.current_task()}:  # of processes whose machine was killed just now
            await asyncio.wait(left, timeout=5)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise AssertionError("the double did not start")
        thread.join(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
