"""What the files of a reward say: `reward.txt` is one number, `reward.json` an object of numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from adapters.benchmarks.base import Grade
from gym_bus.errors import Permanent

JSON: Final = "reward.json"
TEXT: Final = "reward.txt"
KEY: Final = "reward"
NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
COMPONENTS_MAX: Final = 256


class BadReward(Permanent):
    """There is no reward, or none that can be read."""


def reward_of(files: Mapping[str, str]) -> Grade:
    """Return the reward of `files`, by name; raises `BadReward` also if two of them say different things."""
    found = [_of_json(files[JSON])] if JSON in files else []
    if TEXT in files:
        found.append(Grade(_number(files[TEXT].strip(), TEXT)))
    if not found:
        raise BadReward(f"the tests have written neither {TEXT} nor {JSON}")
    if len({grade.reward for grade in found}) > 1:
        raise BadReward(f"{JSON} says {found[0].reward:g}, and {TEXT} says {found[1].reward:g}")
    return found[0]


def _of_json(text: str) -> Grade:
    """Return the number under `reward`, or under the only key; all of them are components."""
    try:
        said: Any = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadReward(f"{JSON} is no JSON: {error}") from error
    if not isinstance(said, dict) or not 1 <= len(said) <= COMPONENTS_MAX:
        raise BadReward(f"{JSON} has to be an object of 1 to {COMPONENTS_MAX} numbers")
    if key := next((key for key in said if not _is_storable(key)), None):
        raise BadReward(f"{JSON}: a key holds half of a surrogate pair, or a NUL: {key[:80]!a}")
    if key := next((key for key, value in said.items() if isinstance(value, str)), None):
        raise BadReward(f"{JSON}: {key}: {said[key][:80]!r} is a text, and no number")
    components = {str(key): _number(value, f"{JSON}: {key}") for key, value in said.items()}
    if KEY in components:
        return Grade(components[KEY], components)
    if len(components) > 1:
        raise BadReward(f"{JSON} has {len(components)} numbers, and none of them is called {KEY!r}")
    return Grade(next(iter(components.values())), components)


def _is_storable(key: str) -> bool:
    return "\0" not in key and not any("\ud800" <= letter <= "\udfff" for letter in key)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    said = dict(pairs)
    if len(said) < len(pairs):
        raise BadReward(f"{JSON} gives a key twice")
    return said


def _number(value: Any, where: str) -> float:
    number = math.nan
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    with suppress(OverflowError):
        if is_number or (isinstance(value, str) and NUMBER.fullmatch(value)):
            number = float(value)
    if not math.isfinite(number):
        raise BadReward(f"{where}: {str(value)[:80]!r} is no number")
    return number
