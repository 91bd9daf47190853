"""What is JSON to a backend and to nobody else is no answer: numbers without a word, and other encodings than UTF-8."""

from __future__ import annotations

import pytest

from providers.dialects import Malformed
from providers.dialects.catalog import DIALECTS
from providers.models.backends import object_of
from schemas.conversation import DialectName


@pytest.mark.parametrize(
    "body", [b'{"a": NaN}', b'{"a": [-Infinity]}', b'{"a": 1e999}', '{"a": 1}'.encode("utf-16"), b'{"a": "\xff"}']
)
def test_a_body_that_others_cannot_read_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        object_of(body)
    assert object_of('\ufeff{"a": 1.5}'.encode()) == {"a": 1.5}


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_an_event_that_others_cannot_read_is_malformed(name: DialectName, number: str) -> None:
    with pytest.raises(Malformed):
        DIALECTS[name].stream_reader().feed(None, f'{{"x": {number}}}')
