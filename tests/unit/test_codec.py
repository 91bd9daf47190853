"""The stored form: every type there and back, byte for byte; what is no event is said to be none; secrets never get in."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_bus.blobs import DirectoryBlobs, MemoryBlobs
from gym_bus.codec import INLINE_MAX_BYTES, Codec, Undecodable
from gym_bus.errors import Corrupt
from gym_bus.redaction import Redactor
from schemas.base import Event
from schemas.events import Claimed, SandboxLost, Snapshot, ToolCallCompleted
from schemas.registry import EVENT_TYPES, UPCASTERS
from schemas.values import BlobRef
from tests.support.examples import EXAMPLES, GOLDEN, HEAD, ODD_TEXT, example, golden_of, subject_of

TYPES = sorted(EXAMPLES)
CLAIM = EXAMPLES["claim.v1"]
CODEC = Codec(MemoryBlobs())


def stored_claim(data: bytes = b'{"worker":"w","nonce":"n"}', **changes: bytes) -> bytes:
    """Return the bytes of a claim with raw JSON in place of its data or of fields of its head."""
    body = CODEC.encode(HEAD, Claimed(worker="w", nonce="n")).replace(b'{"worker":"w","nonce":"n"}', data)
    for name, value in changes.items():
        head, _, rest = body.partition(b'"%b":' % name.encode())
        body = head + b'"%b":%b' % (name.encode(), value) + rest[rest.index(b',"') :]
    return body


def with_text(text: str) -> ToolCallCompleted:
    """Return an event that holds `text`."""
    return ToolCallCompleted(request_id="q", exit_code=0, output=text, output_bytes=len(text), duration_s=0.1)


# -- there and back ------------------------------------------------------------------------------------------------------------


def test_every_type_has_an_example_and_a_golden_file() -> None:
    """A type without an example or golden file, or a golden file without a type, cannot be forgotten."""
    assert set(EXAMPLES) == set(EVENT_TYPES)
    assert {path.name for path in GOLDEN.glob("*.json")} == {golden_of(t).name for t in {*EVENT_TYPES, *UPCASTERS}}


OLDER = sorted((GOLDEN / "older").iterdir())


@pytest.mark.parametrize("path", OLDER, ids=[path.name for path in OLDER])
def test_what_an_earlier_release_wrote_is_read_for_ever(path: Path) -> None:
    """Fields that were added since have their defaults, which are not written: the same bytes come out again."""
    stored = path.read_bytes().removesuffix(b"\n")
    now = EXAMPLES[path.name.partition(".v1.")[0] + ".v1"]
    found = CODEC.decode(subject_of(now), stored, 42).data
    assert CODEC.encode(HEAD, found) == stored
    assert found != now


@pytest.mark.parametrize("type_", TYPES)
def test_an_example_leaves_no_field_at_its_default(type_: str) -> None:
    """Each example sets all fields, so that its golden file holds all of them."""
    data = EXAMPLES[type_]
    assert set(data.model_dump(exclude_defaults=True)) == set(type(data).model_fields)


@pytest.mark.parametrize("type_", TYPES)
def test_stored_bytes_never_change(type_: str) -> None:
    """Encoding the example gives the golden file byte for byte, and decoding the file gives the example."""
    golden = golden_of(type_).read_bytes().removesuffix(b"\n")
    data = EXAMPLES[type_]
    assert CODEC.encode(HEAD, data) == golden
    assert CODEC.decode(subject_of(data), golden, 42) == example(data)


@pytest.mark.parametrize("type_", TYPES)
def test_both_ways_of_decoding_agree(type_: str) -> None:
    """The short way and the long way, which says what is wrong, give the same event."""
    data = EXAMPLES[type_]
    body = CODEC.encode(HEAD, data)
    assert CODEC._decode_slowly(subject_of(data), body, 42) == CODEC.decode(subject_of(data), body, 42)
    raw = CODEC.raw(body)
    assert type(data).model_validate(raw["data"]) == data


def test_a_cause_may_be_missing() -> None:
    """What nothing led to has no cause, and says so by leaving it out."""
    body = CODEC.encode(replace(HEAD, causation_id=None), CLAIM)
    assert b"causation_id" not in body
    assert CODEC.decode(subject_of(CLAIM), body, 1).causation_id is None


def test_a_request_is_decoded_with_its_place() -> None:
    """Where a request was addressed comes from its subject."""
    data = EXAMPLES["tool_call_requested.v1"]
    subject = "gym.evt.0.r1.3-0.harness.s2.cmd.sandbox.h7"
    assert CODEC.decode(subject, CODEC.encode(HEAD, data), 1).place == "h7"


# -- old versions --------------------------------------------------------------------------------------------------------------


def _to_two(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "sandbox_lost.v0b", {"because": data["why"]}


def _to_current(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "sandbox_lost.v1", {"reason": data["because"].upper()}


LIFTING = Codec(MemoryBlobs(), upcasters={"sandbox_lost.v0a": _to_two, "sandbox_lost.v0b": _to_current})


def old_version(type_: bytes, data: bytes) -> bytes:
    body = CODEC.encode(HEAD, EXAMPLES["sandbox_lost.v1"])
    head, _, _ = body.partition(b',"data":')
    return head.replace(b"sandbox_lost.v1", type_) + b',"data":' + data + b"}"


def test_old_versions_are_lifted_step_by_step() -> None:
    """An event two versions old is read as a current one; its bytes stay as they are."""
    found = LIFTING.decode(subject_of(EXAMPLES["sandbox_lost.v1"]), old_version(b"sandbox_lost.v0a", b'{"why":"x"}'), 9)
    assert found.type == "sandbox_lost.v1"
    assert found.data == SandboxLost(reason="X")
    assert (found.event_id, found.epoch, found.sequence) == (HEAD.event_id, HEAD.epoch, 9)


@pytest.mark.parametrize("data", [b"{}", b'{"why":5}', b'{"why":null}', b'{"other":"x"}'])
def test_an_old_version_that_does_not_fit_is_undecodable(data: bytes) -> None:
    """An upcaster that stumbles over odd data does not bring the reader down."""
    with pytest.raises(Undecodable):
        LIFTING.decode(subject_of(EXAMPLES["sandbox_lost.v1"]), old_version(b"sandbox_lost.v0a", data), 9)


# -- what is no event ----------------------------------------------------------------------------------------------------------

DEEP = b"[" * 10_000 + b"]" * 10_000
BAD: dict[str, bytes] = {
    "empty": b"",
    "torn": stored_claim()[:-9],
    "the last byte is another": stored_claim()[:-1] + b"x",
    "two of them": stored_claim() * 2,
    "not UTF-8": stored_claim(b'{"worker":"\xff","nonce":"n"}'),
    "a raw surrogate": stored_claim(b'{"worker":"\xed\xa0\x80","nonce":"n"}'),
    "a lone surrogate": stored_claim(b'{"worker":"\\ud800","nonce":"n"}'),
    "an unknown type": stored_claim(type=b'"claim.v99"'),
    "a type that is a list": stored_claim(type=b"[]"),
    "no type": stored_claim().replace(b'"type":"claim.v1",', b""),
    "an extra field": stored_claim(b'{"worker":"w","nonce":"n","more":1}'),
    "an extra field in the head": stored_claim(epoch=b'1,"more":2'),
    "a field that the subject gives": stored_claim(epoch=b'1,"run_id":"r2"'),
    "a missing field": stored_claim(b'{"worker":"w"}'),
    "a wrong field": stored_claim(b'{"worker":5,"nonce":"n"}'),
    "data that is a list": stored_claim(b"[]"),
    "data that is null": stored_claim(b"null"),
    "an epoch that is NaN": stored_claim(epoch=b"NaN"),
    "an epoch of 1e400": stored_claim(epoch=b"1e400"),
    "an epoch of 6,000 digits": stored_claim(epoch=b"9" * 6000),
    "a month 13": stored_claim(recorded_at=b'"2026-13-01T00:00:00.000Z"'),
    "depth 10,000": stored_claim(b'{"worker":"w","nonce":' + DEEP + b"}"),
    "a blob that is a number": stored_claim(b'{"$blob":5}'),
    "a blob with more fields": stored_claim(b'{"$blob":{"sha256":"a","size":1,"more":2}}'),
    "a list": b"[1]",
    "a number": b"1",
}
BAD_IN_OPEN_FIELDS: dict[str, bytes] = {
    "NaN": b"NaN",
    "minus infinity": b"-Infinity",
    "1e400": b"1e400",
    "deeper": b'{"x":[-1E+999]}',
    "a lone surrogate": b'"\\udc00"',
    "depth 10,000": DEEP,
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_what_is_no_event_is_undecodable(name: str) -> None:
    """Whatever is wrong with stored bytes, the reader gets one kind of error."""
    with pytest.raises(Undecodable):
        CODEC.decode(subject_of(CLAIM), BAD[name], 7)


@pytest.mark.parametrize("name", sorted(BAD_IN_OPEN_FIELDS))
def test_odd_values_are_refused_where_any_json_may_stand(name: str) -> None:
    """A field that takes any JSON does not take what no other reader understands."""
    snapshot = Snapshot(state={"x": "here"})
    body = CODEC.encode(HEAD, snapshot).replace(b'"here"', BAD_IN_OPEN_FIELDS[name])
    with pytest.raises(Undecodable):
        CODEC.decode(subject_of(snapshot), body, 7)


def test_text_that_only_looks_odd_is_fine() -> None:
    """Words like NaN and 1e400 inside of text are text."""
    snapshot = Snapshot(state={"x": "NaN, -Infinity and 1e400", "y": 1e300})
    assert CODEC.decode(subject_of(snapshot), CODEC.encode(HEAD, snapshot), 7).data == snapshot


@pytest.mark.parametrize("subject", ["", "gym", "gym.evt.x.r.1-0.harness.s1.claim", "gym.cmd.harness.any.0.r.1-0.c._"])
def test_a_subject_that_is_none_is_undecodable(subject: str) -> None:
    """A good body under a subject that is no event's is no event."""
    with pytest.raises(Undecodable):
        CODEC.decode(subject, stored_claim(), 7)


def decodes_or_says_so(subject: str, body: bytes) -> None:
    """Decode; only `Undecodable` and, for blobs, `Corrupt` may come out of it."""
    with contextlib.suppress(Undecodable, Corrupt):
        CODEC.decode(subject, body, 7)


@given(st.binary(max_size=200))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_any_bytes_decode_or_are_undecodable(body: bytes) -> None:
    """No bytes bring a reader down."""
    decodes_or_says_so(subject_of(CLAIM), body)


@given(st.sampled_from(TYPES), st.data())
@settings(derandomize=True, max_examples=400, deadline=None)
def test_any_damage_decodes_or_is_undecodable(type_: str, data: st.DataObject) -> None:
    """Stored bytes with a piece cut out or replaced are an event or are said to be none."""
    body = CODEC.encode(HEAD, EXAMPLES[type_])
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 12)))
    piece = data.draw(st.sampled_from([b"", b"}", b"{", b'"', b"NaN", b"1e400", b"[", b"null", b"\\", b"\xff", b"-1"]))
    decodes_or_says_so(subject_of(EXAMPLES[type_]), body[:start] + piece + body[end:])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(TYPES), st.data())
@settings(derandomize=True, max_examples=400, deadline=None)
def test_any_json_decodes_or_is_undecodable(type_: str, data: st.DataObject) -> None:
    """Any JSON value in the place of a field of the head or the data is accepted by the schema or undecodable."""
    raw = json.loads(CODEC.encode(HEAD, EXAMPLES[type_]))
    within = data.draw(st.sampled_from([raw, raw["data"]]))
    within[data.draw(st.sampled_from([*within, "more", "$blob"]))] = data.draw(JSON)
    decodes_or_says_so(subject_of(EXAMPLES[type_]), json.dumps(raw, separators=(",", ":")).encode())


# -- blobs ---------------------------------------------------------------------------------------------------------------------


def test_large_data_goes_to_the_blob_store_and_comes_back(tmp_path: Path) -> None:
    """Data over 64 KiB is stored beside the log, durably, and is part of the event again when it is read."""
    codec = Codec(DirectoryBlobs(tmp_path))
    large = with_text(ODD_TEXT * 3000)
    body = codec.encode(HEAD, large)
    assert len(body) < 1000
    assert len(list(tmp_path.rglob("*"))) == 2
    assert codec.decode(subject_of(large), body, 42) == example(large)


def test_the_bound_is_exact(tmp_path: Path) -> None:
    """As much as fits is inline; one byte more is not."""
    codec = Codec(DirectoryBlobs(tmp_path))
    spare = INLINE_MAX_BYTES - len(with_text("x" * 50_000).model_dump_json(exclude_defaults=True)) + 50_000
    assert b"$blob" not in codec.encode(HEAD, with_text("x" * spare))
    assert b"$blob" in codec.encode(HEAD, with_text("x" * (spare + 1)))


@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_a_blob_that_is_missing_or_changed_is_corrupt(tmp_path: Path, damage: bytes | None) -> None:
    """The log names what was written; anything else under that name is a contradiction, not an event."""
    codec = Codec(DirectoryBlobs(tmp_path))
    large = with_text("x" * 100_000)
    body = codec.encode(HEAD, large)
    file = next(path for path in tmp_path.rglob("*") if path.is_file())
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    with pytest.raises(Corrupt, match=file.name):
        codec.decode(subject_of(large), body, 7)


@pytest.mark.parametrize("content", [b"not JSON", b"[1]", b'{"reason": NaN}', b'{"reason": 1, "more": 2}'])
def test_a_blob_that_holds_no_event_is_undecodable(content: bytes) -> None:
    """Content that is what its name says and no event's data is no event."""
    blobs = MemoryBlobs()
    body = stored_claim(b'{"$blob":' + blobs.put(content).model_dump_json().encode() + b"}")
    with pytest.raises(Undecodable):
        Codec(blobs).decode(subject_of(CLAIM), body, 7)


@pytest.mark.parametrize("name", ["", "..", "../../outside", "/dev/zero"])
def test_a_blob_name_from_the_log_is_never_a_path(name: str) -> None:
    """A name that is no SHA-256 is refused before a file is opened because of it."""
    with pytest.raises(ValueError, match="sha256"):
        BlobRef(sha256=name, size=1)


# -- secrets -------------------------------------------------------------------------------------------------------------------

SHAPED = (
    "sk-" + "abcDEF0123456789_-",
    "sk-proj-" + "a" * 40,
    "nvapi-" + "Zz09" * 6,
    "ghp_" + "A1" * 15,
    "AKIA" + "ABCDEFGH12345678",
    "hf_" + "abcd" * 6,
    "xoxb-" + "123456-abcdef",
    "gbt." + "MC9yMS8wLTAvczEvMS8x" + "." + "aB3-_" * 5,
)
KNOWN = ("hunter2-hunter2", 'with "quotes" 22', "back\\slash\\33", 'ümläut "44"', "line\nend 55", 'ends in a quote 66"')


def nested(text: str, *, is_ascii: bool) -> str:
    """Return `text` as it stands in a tool call's arguments, which are JSON in a string."""
    return json.dumps({"command": f"echo {text}"}, ensure_ascii=is_ascii)


@pytest.mark.parametrize("text", SHAPED)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    """Keys of well-known shapes never get into the bytes, known or not."""
    for given_text in (f"before {text} after", f'{{"key": "{text}"}}', f"line\n{text}\nline"):
        body = CODEC.encode(HEAD, with_text(given_text))
        assert text.encode() not in body
        assert b"[redacted]" in body
        assert CODEC.decode(subject_of(with_text("")), body, 1)
    bearer = CODEC.encode(HEAD, with_text("Authorization: Bearer eyJhbGciOi.JIUzI1NiJ9-x=="))
    assert b"eyJhbGciOi" not in bearer


@pytest.mark.parametrize("secret", KNOWN)
def test_a_known_secret_is_masked_in_every_form(secret: str) -> None:
    """Plain, escaped, and within JSON that is itself a string: the value is gone and the event is still one."""
    codec = Codec(MemoryBlobs(), Redactor([secret]))
    for text in (secret, f"a{secret}b", nested(secret, is_ascii=True), nested(secret, is_ascii=False)):
        data = with_text(text)
        found = codec.decode(subject_of(data), codec.encode(HEAD, data), 1).data
        assert isinstance(found, ToolCallCompleted)
        assert "[redacted]" in found.output
        assert secret not in found.output
        if text.startswith("{"):
            assert secret not in json.loads(found.output)["command"]


def test_a_secret_is_masked_in_blobs_too(tmp_path: Path) -> None:
    """What is too large for the log is masked before it is written beside it."""
    codec = Codec(DirectoryBlobs(tmp_path), Redactor(KNOWN))
    codec.encode(HEAD, with_text("x" * 70_000 + " ".join((*KNOWN, *SHAPED))))
    content = next(path for path in tmp_path.rglob("*") if path.is_file()).read_bytes()
    assert not [s for s in (*KNOWN, *SHAPED) if s.encode() in content or json.dumps(s)[1:-1].encode() in content]


@pytest.mark.parametrize("type_", TYPES)
def test_a_secret_learnt_late_is_masked_from_then_on(type_: str) -> None:
    """Masking leaves every other event as it is."""
    redactor = Redactor()
    codec = Codec(MemoryBlobs(), redactor)
    for secret in KNOWN:
        redactor.learn(secret)
    assert codec.encode(HEAD, EXAMPLES[type_]) == golden_of(type_).read_bytes().removesuffix(b"\n")


SECRETS = st.text(st.sampled_from('ab7"\\\n/ü🙂{}:,'), min_size=6, max_size=14)


@given(SECRETS, st.text(st.sampled_from('ab7"\\\n/ü🙂{}:,'), max_size=10), st.booleans())
@settings(derandomize=True, max_examples=300, deadline=None)
def test_masking_never_breaks_an_event(secret: str, around: str, is_nested: bool) -> None:
    """Whatever characters a secret has, the event decodes and the secret is not in it."""
    codec = Codec(MemoryBlobs(), Redactor([secret]))
    text = around + secret + around
    data: Event = with_text(nested(text, is_ascii=False) if is_nested else text)
    found = codec.decode(subject_of(data), codec.encode(HEAD, data), 1).data
    assert isinstance(found, ToolCallCompleted)
    assert secret not in found.output
