"""How harnesses are started: what they are asked is what they declare, and what is secret is in no argument."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.harnesses.base import Activation, Harness, McpServer, SystemPrompt, ToolCommand, Unsupported, plan_for
from adapters.harnesses.claude_code import CLAUDE_CODE
from adapters.harnesses.cline import CLINE
from adapters.harnesses.codex import CODEX
from adapters.harnesses.copilot import COPILOT
from adapters.harnesses.gemini_cli import GEMINI
from adapters.harnesses.mini_swe import MINI_SWE
from adapters.harnesses.opencode import OPENCODE
from adapters.harnesses.pi import PI
from adapters.harnesses.table import HARNESSES

TOKEN = "gbt.a-token.signed"
HEADERS = {"x-gym-bus-token": 'a "secret"'}
SERVER = McpServer("tools", f"http://127.0.0.1:8089/a/{TOKEN}/mcp/g", HEADERS)
each_harness = pytest.mark.parametrize("harness", HARNESSES.values(), ids=lambda harness: harness.name)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def activation(**changes: Any) -> Activation:
    given_: dict[str, Any] = {
        "prompt": "Do it.",
        "model": "some-model",
        "base_url": f"http://127.0.0.1:8089/a/{TOKEN}",
        "home": "/tmp/agent",
        "workspace": "/box",
        "installed": "/opt/gym-bus/it",
    }
    return Activation(**given_ | changes)


@each_harness
def test_what_is_secret_is_in_no_argument(harness: Harness) -> None:
    """Everybody in a machine can read the arguments of its processes; files are for one user."""
    granted = {"mcp": (SERVER,)} if "mcp" in harness.grants else {}
    plan = plan_for(harness, activation(**granted))
    assert TOKEN not in " ".join(plan.argv)
    assert "secret" not in " ".join(plan.argv)
    assert TOKEN in "".join((*plan.files.values(), *plan.environment.values())), "it knows where the model is"
    assert plan.environment["HOME"] == "/tmp/agent"
    assert all(path.startswith("/tmp/agent/") for path in plan.files), "what it keeps outlives the launch"


@each_harness
def test_the_prompt_goes_as_it_is_declared(harness: Harness) -> None:
    plan = plan_for(harness, activation(prompt="--what?"))
    assert (plan.stdin == "--what?") == (harness.prompt_by == "stdin")
    assert "--what?" not in plan.argv, "it would be taken for an option"


@each_harness
@pytest.mark.parametrize(
    "asked",
    [
        {"withheld": ("no_such_tool",)},
        {"mcp": (McpServer("Bad Name", "http://x"),)},
        {"resume": "--dangerous"},
        {"resume": "../x"},
        {"extra_args": ("a\0b",)},
        {"extra_args": ("x" * 200_000,)},
        {"prompt": "half \ud83d"},
    ],
    ids=str,
)
def test_what_nobody_can_do_is_refused(harness: Harness, asked: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=harness.name):
        plan_for(harness, activation(**asked))


@each_harness
@pytest.mark.parametrize("mode", ["append", "replace"])
def test_system_prompts(harness: Harness, mode: Any) -> None:
    """What is declared is done, and the rest is refused."""
    asked = activation(system_prompt=SystemPrompt("Be terse.", mode))
    if mode in harness.system_prompts:
        plan = plan_for(harness, asked)
        assert "Be terse." in "".join((*plan.argv, *plan.files.values(), *plan.environment.values()))
    else:
        with pytest.raises(Unsupported, match=f"cannot {mode} its system prompt"):
            plan_for(harness, asked)


@pytest.mark.parametrize(
    ("mode", "words"),
    [("append", "Read @notes.md first."), ("append", "@./x"), ("replace", "You have ${AvailableTools}.")],
)
def test_words_that_gemini_cli_would_not_show_as_they_are(mode: Any, words: str) -> None:
    """It reads files into what is appended, and puts names into what replaces; an address with an `@` in it is no file."""
    with pytest.raises(Unsupported, match="takes that for"):
        plan_for(GEMINI, activation(system_prompt=SystemPrompt(words, mode)))
    plan = plan_for(GEMINI, activation(system_prompt=SystemPrompt("Ask me@x.test, ${HOME}.", mode)))
    assert "Ask me@x.test, ${HOME}." in plan.files.values()


@each_harness
def test_grants_and_resuming_are_declared(harness: Harness) -> None:
    if "mcp" not in harness.grants:
        with pytest.raises(Unsupported, match="MCP"):
            plan_for(harness, activation(mcp=(SERVER,)))
    if not harness.resumes:
        with pytest.raises(Unsupported, match="resume"):
            plan_for(harness, activation(resume="abc"))
    else:
        plan = plan_for(harness, activation(resume="abc"))
        assert "abc" in "".join((*plan.argv, *plan.files.values()))


@given(words=TEXT, header=TEXT)
def test_codex_reads_what_was_meant(words: str, header: str) -> None:
    """Its configuration is TOML, whatever is in it."""
    server = McpServer("tools", "http://x", {"x-token": header})
    plan = plan_for(CODEX, activation(system_prompt=SystemPrompt(words), mcp=(server,)))
    config = tomllib.loads(plan.files["/tmp/agent/.codex/config.toml"])
    assert config["developer_instructions"] == words
    assert config["mcp_servers"]["tools"]["http_headers"] == {"x-token": header}
    assert config["model_providers"]["gym_bus"]["base_url"] == f"http://127.0.0.1:8089/a/{TOKEN}/v1"


def test_mcp_servers_where_they_belong() -> None:
    claude = plan_for(CLAUDE_CODE, activation(mcp=(SERVER,)))
    told = json.loads(claude.files["/tmp/agent/.claude/mcp.json"])["mcpServers"]["tools"]
    assert told == {"type": "http", "url": SERVER.url, "headers": HEADERS}
    assert "--strict-mcp-config" in claude.argv
    opencode = plan_for(OPENCODE, activation(mcp=(SERVER,)))
    told = json.loads(opencode.files["/tmp/agent/opencode.json"])["mcp"]["tools"]
    assert (told["url"], told["headers"], told["oauth"]) == (SERVER.url, HEADERS, False)
    pi = plan_for(PI, activation(mcp=(SERVER,)))
    told = json.loads(pi.files["/tmp/agent/.pi/mcp.json"])["mcpServers"]["tools"]
    assert (told["url"], told["headers"], told["exposure"]) == (SERVER.url, HEADERS, "direct")


def test_a_client_waits_longer_than_a_call_may_take() -> None:
    """So that what the model is told of a call that took too long is the gateway's word."""
    server = McpServer("tools", "http://x", timeout_s=77)
    codex = tomllib.loads(plan_for(CODEX, activation(mcp=(server,))).files["/tmp/agent/.codex/config.toml"])
    assert codex["mcp_servers"]["tools"]["tool_timeout_sec"] > 77
    assert int(plan_for(CLAUDE_CODE, activation(mcp=(server,))).environment["MCP_TOOL_TIMEOUT"]) > 77_000
    opencode = json.loads(plan_for(OPENCODE, activation(mcp=(server,))).files["/tmp/agent/opencode.json"])
    assert opencode["mcp"]["tools"]["timeout"] > 77_000
    pi = json.loads(plan_for(PI, activation(mcp=(server,))).files["/tmp/agent/.pi/mcp.json"])
    assert pi["mcpServers"]["tools"]["timeout"] > 77


@each_harness
def test_a_command_for_tools_is_found_by_the_shell(harness: Harness) -> None:
    """Its address, with the token in it, is in a file and in no argument."""
    asked = activation(tool_command=ToolCommand("http://g/a/the-token/tools", 77))
    if "http" not in harness.grants:
        with pytest.raises(Unsupported, match="by a command of its shell"):
            plan_for(harness, asked)
        return
    plan = plan_for(harness, asked)
    assert plan.environment["PATH"].startswith("/tmp/agent/bin:")
    assert plan.programs["/tmp/agent/bin/gym-tool"].startswith("#!/usr/bin/python3\n")
    said = json.loads(plan.files["/tmp/agent/bin/gym-tool.json"])
    assert said["url"] == "http://g/a/the-token/tools"
    assert said["timeout_s"] > 77
    assert not any("the-token" in word for word in (*plan.argv, *plan.environment.values()))


@each_harness
def test_mcp_servers_are_in_files(harness: Harness) -> None:
    """Where they are, and the headers that they are to be sent."""
    if "mcp" in harness.grants:
        files = "".join(plan_for(harness, activation(mcp=(SERVER,))).files.values())
        assert SERVER.url in files
        assert "x-gym-bus-token" in files


@pytest.mark.parametrize("prompt", ["--what?", "two\nlines", "$HOME `x` $(y) \"z\" 'a' \\ *", "ends\n"])
def test_cline_is_given_the_prompt_as_it_is(prompt: str) -> None:
    """As its last argument, behind what ends its options; commands do not find it in their environment."""
    plan = plan_for(CLINE, activation(prompt=prompt))
    told = "import json, os, sys; print(json.dumps([sys.argv[-2:], 'GYM_BUS_PROMPT' in os.environ]))"
    command = [*plan.argv[:4], sys.executable, "-c", told, *plan.argv[5:]]
    done = subprocess.run(command, env=dict(plan.environment), capture_output=True, timeout=20, check=True)
    assert json.loads(done.stdout) == [["--", prompt], False]


def test_copilot_is_given_a_certificate_only_where_there_is_none() -> None:
    """The one that is brought along stands where it is said to be, and only for machines without any."""
    plan = plan_for(COPILOT, activation())
    assert "BEGIN CERTIFICATE" in plan.files["/tmp/agent/.copilot/nobody.pem"]
    script = plan.argv[2]
    assert 'SSL_CERT_FILE="$HOME/.copilot/nobody.pem" exec "$@"' in script
    shown = [*plan.argv[:2], "", "copilot", "/bin/sh", "-c", 'echo "${SSL_CERT_FILE-none}"']
    for roots, expected in (("/etc/passwd", "none"), ("/no/such", "/tmp/agent/.copilot/nobody.pem")):
        shown[2] = (
            script.replace("/etc/ssl/certs/ca-certificates.crt", roots)
            .replace("/etc/pki", "/no")
            .replace("/etc/ssl/cert.pem", "/no")
        )
        done = subprocess.run(shown, env=dict(plan.environment), capture_output=True, timeout=20, check=True)
        assert done.stdout.decode().strip() == expected


def test_tools_that_are_withheld() -> None:
    assert "--tools read,bash" in " ".join(plan_for(PI, activation(withheld=("edit", "write"))).argv)
    config = json.loads(plan_for(OPENCODE, activation(withheld=("task",))).files["/tmp/agent/opencode.json"])
    assert config["permission"] == {"*": "allow", "task": "deny"}
    assert "--disable shell_tool" in " ".join(plan_for(CODEX, activation(withheld=("exec_command",))).argv)


@given(words=TEXT)
def test_mini_swe_takes_words_for_words(words: str) -> None:
    """A system prompt is no template: it is written as a Jinja string."""
    plan = plan_for(MINI_SWE, activation(system_prompt=SystemPrompt(words, "replace")))
    template = json.loads(plan.files["/tmp/agent/.mini/extra.yaml"])["agent"]["system_template"]
    assert json.loads(template.removeprefix("{{ ").removesuffix(" }}")) == words
