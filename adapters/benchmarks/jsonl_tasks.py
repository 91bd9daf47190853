"""Tasks from a file of JSON lines: a question and an answer, GSM8K's form included, graded by math-verify; or a question and tests."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import pydantic_core
from pydantic import Field, Strict, TypeAdapter, ValidationError

from adapters.benchmarks import tested_tasks, tool_tasks
from adapters.benchmarks.answers import INSTRUCTION, shown, tagged_answer
from adapters.benchmarks.base import Grade
from adapters.benchmarks.row_keys import check_keys
from gym_bus.errors import BadTaskset
from gym_bus.nesting import GIVEN_MAX_LEVELS, is_deeper
from gym_bus.plain_words import plainly
from schemas.base import Frozen
from schemas.config import JsonlTaskset
from schemas.harnesses import Continuation
from schemas.readiness import Install
from schemas.tasks import FOLLOW_UPS_MAX, Evidence, FollowUp, Task, TaskInput
from schemas.values import Message, Seconds

VERIFIER: Final = "math_verify"
FINAL_ANSWER: Final = "####"
"""What stands before the final answer in GSM8K's worked solutions."""

ANSWER_MAX_CHARACTERS: Final = 10_000
"""A longer answer is wrong: parsing it would take longer than it is worth."""

FOLLOW_UPS: Final = TypeAdapter(Annotated[tuple[FollowUp, ...], Field(max_length=FOLLOW_UPS_MAX)])
AWAITS: Final = TypeAdapter(Annotated[Seconds | None, Strict()])
WANTED: Final = {
    "install": '{"command": …, "timeout_s": …}',
    "continuation": '{"mode": "resume_harness_session", "observations": […]}',
}
Said = TypeVar("Said", bound=Frozen)
_WORDS: Final = re.compile(r"[A-Za-z][A-Za-z .,'-]+")


def load(config: JsonlTaskset) -> list[Task]:
    """Return one task a line; raises `BadTaskset` with the file and the line."""
    path = Path(config.jsonl_fpath).expanduser()
    name = config.name or path.stem
    tasks: list[Task] = []
    lines: dict[str, int] = {}
    for number, row in _rows(path):
        _check_keys(row, config, path, number)
        question = _text(row, config.question_key, path, number, may_be_number=False)
        with_tests, offer = _tested(row, path, number), _offer(row, path, number)
        by_records = offer is not None and offer.expected_records is not None
        own: dict[str, Any] = {
            "install": _said(Install, "install", row, path, number),
            "image": _image(row, path, number),
        }
        more: dict[str, Any] = {
            "follow_ups": _follow_ups(row, path, number),
            "awaits_input_s": _awaits(row, path, number),
            "continuation": _said(Continuation, "continuation", row, path, number),
        }
        if offer:
            own["environment"] = offer.environment()
            more |= {"tools": offer.task_tools(), "grants": offer.grants}
        answer = "" if with_tests or by_records else _text(row, config.answer_key, path, number)
        task_id = _own_id(row, path, number)
        if task_id is None:
            task_id = _made_id(name, question, answer, lines)
        elif task_id in lines:
            raise BadTaskset(f"{path}:{number}: task_id {task_id!r} was given in line {lines[task_id]} already")
        lines[task_id] = number
        _check_can_be_recorded(row, path, number)
        if with_tests:
            messages = (Message(role="user", content=question),)
            given = TaskInput(task_id=task_id, messages=messages, hands_in=with_tests.hands_in, **more)
            data = with_tests.verifier_data()
            verifier = tested_tasks.VERIFIER
            tasks.append(Task(index=len(tasks), input=given, verifier=verifier, verifier_data=data, **own))
            continue
        if offer and by_records:
            given = TaskInput(task_id=task_id, messages=(Message(role="user", content=question),), **more)
            data = {"expected": offer.expected_records}
            tasks.append(Task(index=len(tasks), input=given, verifier=tool_tasks.VERIFIER, verifier_data=data, **own))
            continue
        messages = (Message(role="user", content=f"{question}\n\n{INSTRUCTION}"),)
        given = TaskInput(task_id=task_id, messages=messages, **more)
        data = {"answer": answer.rpartition(FINAL_ANSWER)[2].strip()}
        tasks.append(Task(index=len(tasks), input=given, verifier=VERIFIER, verifier_data=data, **own))
    if not tasks:
        raise BadTaskset(f"{path}: no tasks in it")
    return tasks


def grade(verifier_data: Mapping[str, Any], evidence: Evidence) -> Grade:
    """Return 1 if the answer equals the expected one, as text or as mathematics, else 0.

    The answer is what stands in the last answer tags, else what math-verify finds in the whole text.
    """
    expected = str(verifier_data["answer"])
    tagged = tagged_answer(evidence.answer)
    got = tagged if tagged is not None else (evidence.answer or "").strip()
    if not got:
        return Grade(0.0, failure_reason=f"expected {shown(expected)}, got no answer")
    if len(got) <= ANSWER_MAX_CHARACTERS and _are_equal(expected, got):
        return Grade(1.0)
    return Grade(0.0, failure_reason=f"expected {shown(expected)}, got {shown(got)}")


def _are_equal(expected: str, got: str) -> bool:
    from math_verify import parse, verify  # noqa: PLC0415  half a second

    if _plain(expected) == _plain(got):
        return True
    if _WORDS.fullmatch(expected):  # mathematics would read a product of letters in it
        return False
    gold, target = parse(expected), parse(got)
    if not gold or not target:  # bare LaTeX, `\$72`: what a \boxed{} is understood for
        gold, target = parse(f"\\boxed{{{expected}}}"), parse(f"\\boxed{{{got}}}")
    return bool(gold and target and verify(gold, target))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold().rstrip(".")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, row). Lines end at a line feed only: U+0085 and U+2028 occur inside strings."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadTaskset(f"{path}: cannot be read: {error.strerror or error}") from error
    pieces = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, piece in enumerate(pieces, 1):
        if piece.strip():
            yield number, _row(piece, path, number, is_open=number == len(pieces))


def _row(piece: bytes, path: Path, number: int, *, is_open: bool) -> dict[str, Any]:
    try:
        row = json.loads(piece.decode(), object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        if is_open and not isinstance(error, _BadRow):
            raise BadTaskset(
                f"{path}:{number}: the last line is torn (line {number}): the file was cut off; {error}"
            ) from error
        raise BadTaskset(f"{path}:{number}: {error}") from error
    if not isinstance(row, dict):
        raise BadTaskset(f"{path}:{number}: want a JSON object, found {type(row).__name__}")
    return row


class _BadRow(ValueError):
    """A whole line that says something it should not."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise _BadRow("a key is given twice")
    return row


def _refuse(constant: str) -> None:
    raise _BadRow(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _BadRow(f"{text} is larger than any number that can be recorded")
    return number


def _check_can_be_recorded(row: Mapping[str, Any], path: Path, number: int) -> None:
    """Refuse a row that no event could hold: with half of a surrogate pair in it, or one that is nested too deep."""
    try:
        text = pydantic_core.to_json(row)
    except ValueError as error:
        raise BadTaskset(f"{path}:{number}: the row cannot be recorded: {error}") from error
    if is_deeper(text, GIVEN_MAX_LEVELS):
        raise BadTaskset(f"{path}:{number}: the row cannot be recorded: more than {GIVEN_MAX_LEVELS} levels")


def _check_keys(row: Mapping[str, Any], config: JsonlTaskset, path: Path, number: int) -> None:
    try:
        check_keys(row, frozenset({config.question_key, config.answer_key}))
    except ValueError as error:
        raise BadTaskset(f"{path}:{number}: {error}") from error


def _text(row: Mapping[str, Any], key: str, path: Path, number: int, *, may_be_number: bool = True) -> str:
    if key not in row:
        raise BadTaskset(
            f"{path}:{number}: no key {key!r}; there are {', '.join(map(repr, sorted(row)[:10])) or 'none'}"
        )
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, str | int | float if may_be_number else str):
        wanted = "text or a number" if may_be_number else "text"
        raise BadTaskset(f"{path}:{number}: {key!r} must be {wanted}, found {type(value).__name__}")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadTaskset(f"{path}:{number}: {key!r} holds half of a surrogate pair") from error
    if not text.strip():
        raise BadTaskset(f"{path}:{number}: {key!r} is empty")
    return text


def _tested(row: Mapping[str, Any], path: Path, number: int) -> tested_tasks.Tested | None:
    """Return what the row says of tests, None if it has none."""
    if not tested_tasks.is_tested(row):
        return None
    try:
        return tested_tasks.tested(row)
    except ValueError as error:
        raise BadTaskset(f"{path}:{number}: {error}") from error


def _offer(row: Mapping[str, Any], path: Path, number: int) -> tool_tasks.Offer | None:
    """Return what the row says of tools, None if it offers none."""
    try:
        offer = tool_tasks.offer(row)
    except ValueError as error:
        raise BadTaskset(f"{path}:{number}: {error}") from error
    if offer and offer.expected_records is not None and tested_tasks.is_tested(row):
        raise BadTaskset(f"{path}:{number}: want either `expected_records` or tests, not both")
    return offer


def _follow_ups(row: Mapping[str, Any], path: Path, number: int) -> tuple[FollowUp, ...]:
    """Return the row's further inputs: each is text, or a list of messages of the user."""
    found = row.get("follow_ups")
    if found is None:
        return ()
    inputs = (
        [[{"role": "user", "content": i}] if isinstance(i, str) else i for i in found]
        if isinstance(found, list)
        else found
    )
    try:
        return FOLLOW_UPS.validate_python(inputs)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(("follow_ups", *map(str, first["loc"])))
        msg = f'{path}:{number}: {where}: {plainly(first["msg"])}; want ["And now …", …], or lists of messages of the user'
        raise BadTaskset(msg) from error


def _said(kind: type[Said], key: str, row: Mapping[str, Any], path: Path, number: int) -> Said | None:
    """Return what the row says by `key`, None if it says nothing."""
    if row.get(key) is None:
        return None
    try:
        return kind.model_validate(row[key])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join((key, *map(str, first["loc"])))
        raise BadTaskset(f"{path}:{number}: {where}: {plainly(first['msg'])}; want {WANTED[key]}") from error


def _awaits(row: Mapping[str, Any], path: Path, number: int) -> float | None:
    """Return how long the row's session waits for inputs from outside, None if it does not."""
    try:
        return AWAITS.validate_python(row.get("awaits_input_s"))
    except ValidationError as error:
        msg = f"{path}:{number}: awaits_input_s: {error.errors()[0]['msg']}; want seconds, such as 600"
        raise BadTaskset(msg) from error


def _image(row: Mapping[str, Any], path: Path, number: int) -> str | None:
    """Return the image of the row's machine, None if it says nothing of that."""
    return None if row.get("image") is None else _text(row, "image", path, number, may_be_number=False)


def _own_id(row: Mapping[str, Any], path: Path, number: int) -> str | None:
    """Return the row's own id, None if it has none."""
    key = next((key for key in ("task_id", "id") if row.get(key) is not None), None)
    return None if key is None else _text(row, key, path, number)


def _made_id(name: str, question: str, answer: str, taken: Mapping[str, int]) -> str:
    """Return an id that depends on the content only; equal rows are numbered from the second on."""
    base = f"{name}/{hashlib.sha256((question + answer).encode()).hexdigest()[:12]}"
    task_id, count = base, 1
    while task_id in taken:
        count += 1
        task_id = f"{base}-{count}"
    return task_id
