"""Unknown fields with a dot in their names are what they are: fields with such names, and no fields of fields."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from providers.dialects import Unexpressible
from providers.dialects.catalog import CLIENTS, DIALECTS
from schemas.conversation import DialectName
from tests.unit.dialects.test_odd_types import MESSAGE, REQUESTS, RESPONSE

DOTTED = {"x.y": 1, "tools.namespaces": {}, "usage.a": 2, "a~1.b": [3], "text.verbosity": "x", "messages.0.content": 4}
INNER: dict[DialectName, tuple[Any, ...]] = {
    "chat": ("messages", 0),
    "messages": ("messages", 0, "content", 0),
    "responses": ("text",),
}


@pytest.mark.parametrize("name", INNER)
def test_they_go_through_in_their_own_dialect(name: DialectName) -> None:
    body = copy.deepcopy(REQUESTS[name]) | DOTTED
    inner: Any = body
    for step in INNER[name]:
        inner = inner[step]
    inner |= {"p.q": 5, "~": 6}
    written: Any = DIALECTS[name].write_request(DIALECTS[name].read_request(body)).body
    assert {key: written[key] for key in DOTTED} == DOTTED
    for step in INNER[name]:
        written = written[step]
    assert written["p.q"] == 5
    assert written["~"] == 6


@pytest.mark.parametrize("name", CLIENTS)
def test_they_are_refused_elsewhere_whatever_their_ends_are_called(name: DialectName) -> None:
    plain = {"model": "m", "messages": [], "input": "hi", "contents": [{"parts": [{"text": "hi"}]}]}
    own = {"chat": "messages", "messages": "messages", "responses": "input", "gemini": "contents"}[name]
    request = CLIENTS[name].read_request({"model": "m", own: plain[own], "x.metadata": 1})
    for other in DIALECTS.keys() - {name}:
        with pytest.raises(Unexpressible, match="x~1metadata"):
            DIALECTS[other].write_request(request)


@pytest.mark.parametrize(("name", "body"), [("messages", MESSAGE), ("responses", RESPONSE)])
def test_they_go_through_in_an_answer(name: DialectName, body: dict[str, Any]) -> None:
    dialect = DIALECTS[name]
    asked = dialect.read_request(REQUESTS[name])
    said = body | {"x.y": 1, "usage": body["usage"] | {"p.q": 2}}
    written = dialect.write_reply(dialect.read_reply(said), asked)
    assert written["x.y"] == 1
    assert written["usage"]["p.q"] == 2
