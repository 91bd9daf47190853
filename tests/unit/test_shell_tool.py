"""What a model wrote is executed literally or not at all."""

from __future__ import annotations

import json

import pytest

from schemas.values import ToolCall
from tools import SHELL, BadArguments, parse_call


def parsed(arguments: str, name: str = "shell") -> str | BadArguments:
    return parse_call(ToolCall(id="c", name=name, arguments=arguments), [SHELL])


@pytest.mark.parametrize("command", ["ls", "  ls\n", "echo 'é\u2028'", "x" * 32_768])
def test_a_good_call_gives_the_command_unchanged(command: str) -> None:
    assert parsed(json.dumps({"command": command})) == command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "not valid JSON"),
        ('{"command": "ls', "not valid JSON"),
        ('{"command": "ls"} trailing', "not valid JSON"),
        ("{'command': 'ls'}", "not valid JSON"),
        ('{"command": "ls", "command": "rm"}', "twice"),
        ('{"command": NaN}', "NaN"),
        ("[" * 100_000, "not valid JSON"),
        ('{"command": ' + "[" * 200 + "]" * 200 + "}", "more than 128 levels"),
        ('"ls"', "JSON object"),
        ('["ls"]', "JSON object"),
        ("null", "JSON object"),
        ("{}", "exactly one key"),
        ('{"cmd": "ls"}', "exactly one key"),
        ('{"command": "ls", "timeout": 5}', "exactly one key"),
        ('{"command": 5}', "string"),
        ('{"command": null}', "string"),
        ('{"command": ["ls"]}', "string"),
        ('{"command": ""}', "not empty"),
        ('{"command": " \\n"}', "not empty"),
        ('{"command": "a\\u0000b"}', "NUL"),
        ('{"command": "\\ud800"}', "surrogate"),
        (json.dumps({"command": "x" * 32_769}), "32769"),
        (json.dumps({"command": "é" * 20_000}), "40000"),
    ],
)
def test_anything_else_is_told_to_the_model(arguments: str, said: str) -> None:
    result = parsed(arguments)
    assert isinstance(result, BadArguments)
    assert said in result.message
    result.message.encode()


def test_an_unknown_tool_is_named_with_those_there_are() -> None:
    result = parsed("{}", name="python\ud800")
    assert isinstance(result, BadArguments)
    assert "python" in result.message
    assert "shell" in result.message
    result.message.encode()
    none = parse_call(ToolCall(id="c", name="shell", arguments="{}"), [])
    assert isinstance(none, BadArguments)
