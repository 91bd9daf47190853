"""What of a model's last message is its answer, and the line that tells the model how to give one."""

from __future__ import annotations

import re
from typing import Final

INSTRUCTION: Final = "Give your final answer between <answer> and </answer> tags."
SHOWN_CHARACTERS: Final = 200
_ANSWER: Final = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def tagged_answer(text: str | None) -> str | None:
    """Return the text in the last pair of answer tags, stripped; None without (as Reasoning Gym's)."""
    found = _ANSWER.findall(text or "")
    return found[-1].strip() if found else None


def shown(value: object) -> str:
    """Return the beginning of an answer for a failure's reason, fit to be stored."""
    text = str(value).encode(errors="replace").decode()
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")
