"""Integer arithmetic as a shell does it: found in text, and worked out without evaluating anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Final

MAX_LENGTH: Final = 512
"""Longest expression in characters; it also bounds how deep one can nest."""

MAX_MAGNITUDE: Final = 2**63
"""Numbers of this size or more are refused, where a shell would silently wrap around."""

ALLOWED: Final = re.compile(r"[0-9+\-*/%() \t]+")
_SPELLINGS: Final = str.maketrans("\u00d7\u00b7\u22c5\u00f7\u2212\u2013", "***/--")  # signs of typesetters
_NUMBER: Final = r"(?<![\w.])\d{1,19}(?!\w|[.,]\d)"
_EXPRESSION: Final = re.compile(
    rf"(?:[-(][-(\s]{{0,32}})?{_NUMBER}[)\s]{{0,32}}(?:[-+*/%][-(\s]{{0,32}}{_NUMBER}[)\s]{{0,32}})+"
)


class BadExpression(ValueError):
    """The text is no integer expression within the bounds."""


class DividedByZero(ValueError):
    """The expression divides by zero."""


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise DividedByZero("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: _divide,
    ast.Mod: lambda left, right: left - right * _divide(left, right),
}


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp) and (operation := _OPERATIONS.get(type(node.op))):
        result = operation(_value(node.left), _value(node.right))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        result = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        result = -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
    else:
        raise BadExpression("only integers, + - * / %, minus signs and parentheses are understood")
    if not -MAX_MAGNITUDE < result < MAX_MAGNITUDE:
        raise BadExpression("a number is larger than 63 bits")
    return result


def evaluate(expression: str) -> int:
    """Return the value of an integer expression; division truncates towards zero.

    Raises `BadExpression` for anything else, `DividedByZero` where a shell would stop too.
    """
    if len(expression) > MAX_LENGTH:
        raise BadExpression(f"the expression is longer than {MAX_LENGTH} characters")
    if not ALLOWED.fullmatch(expression):
        raise BadExpression("only integers, + - * / %, minus signs and parentheses are understood")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise BadExpression("the expression is not well formed") from error


def _balanced(text: str) -> str:
    """Return `text` without the brackets that have no partner in it."""
    opened, dropped = list[int](), set[int]()
    for place, character in enumerate(text):
        if character == "(":
            opened.append(place)
        elif character == ")":
            if opened:
                opened.pop()
            else:
                dropped.add(place)
    dropped.update(opened)
    return "".join(character for place, character in enumerate(text) if place not in dropped)


def find_expression(text: str) -> str | None:
    """Return the longest integer expression in `text`, in a shell's spelling; None if none has an operator."""
    candidates = (_balanced(found[0]) for found in _EXPRESSION.finditer(text.translate(_SPELLINGS)))
    for candidate in sorted((" ".join(text.split()) for text in candidates), key=len, reverse=True):
        try:
            evaluate(candidate)
        except (BadExpression, DividedByZero):
            continue
        return candidate
    return None
