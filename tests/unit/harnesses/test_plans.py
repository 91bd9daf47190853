"""How harnesses are started: what they are asked is what they declare, and what is secret is in no argument."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.harnesses.asking import check_continues
from adapters.harnesses.base import Activation, Harness, SystemPrompt, ToolCommand, Unsupported, plan_for
from adapters.harnesses.claude_code import CLAUDE_CODE
from adapters.harnesses.cline import CLINE
from adapters.harnesses.codex import CODEX
from adapters.harnesses.copilot import COPILOT
from adapters.harnesses.gemini_cli import GEMINI
from adapters.harnesses.hermes import HERMES
from adapters.harnesses.kilo import KILO
from adapters.harnesses.mini_swe import MINI_SWE
from adapters.harnesses.opencode import OPENCODE
from adapters.harnesses.pi import PI
from adapters.harnesses.servers import LocalServer, McpServer
from adapters.harnesses.table import HARNESSES, harness_of
from schemas.harnesses import (
    RESUMED,
    AcpAgent,
    AgentPackage,
    CodexAgent,
    Continuation,
    HermesAgent,
    PrimeAgent,
    Program,
    PythonAgent,
)
from tests.support.acp_agents import small

TOKEN = "gbt.a-token.signed"
HEADERS = {"x-gym-bus-token": 'a "secret"'}
SERVER = McpServer("tools", f"http://127.0.0.1:8089/a/{TOKEN}/mcp/g", HEADERS)
each_harness = pytest.mark.parametrize(
    "harness", [*HARNESSES.values(), harness_of(small())], ids=lambda harness: harness.name
)
SURROGATE = re.compile(r"\\ud[89a-f]")
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


@pytest.mark.parametrize("name", ["claude_code_agent", "gemini_cli", "qwen_code"])
def test_no_prompt_is_a_command_of_the_program(name: str) -> None:
    """What begins like one stands behind a line feed; `test_harness_words.py` shows that the programs then leave it alone."""
    plan = plan_for(HARNESSES[name], activation(prompt="/init"))
    assert plan.stdin == "\n/init"
    assert plan_for(HARNESSES[name], activation(prompt="do /init")).stdin == "do /init"


@pytest.mark.parametrize("prompt", ["/compact", "\n /compact it all"])
def test_copilot_is_refused_its_own_command(prompt: str) -> None:
    """It heeds that wherever a prompt begins."""
    with pytest.raises(Unsupported, match="/compact"):
        plan_for(COPILOT, activation(prompt=prompt))
    assert plan_for(COPILOT, activation(prompt="/compacted?")).stdin == "/compacted?"


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


def configured(harness: Harness, asked: Activation) -> str:
    """Return all that a harness is configured with, but for what its servers are checked with."""
    files = plan_for(harness, asked).files
    return "".join(content for path, content in files.items() if not path.endswith("/servers.json"))


@each_harness
def test_a_server_that_it_starts_itself_is_in_its_configuration(harness: Harness) -> None:
    """Its command and its arguments, and how long a call may take where the harness can be told that."""
    if "mcp" not in harness.grants:
        return
    local = LocalServer("near", "serve-tools", ("--all", 'a "b"'), timeout_s=77, variables={"CITY": "Oslo"})
    words = configured(harness, activation(mcp=(local,)))
    assert re.search(r'"CITY"( =|:) "Oslo"', words)
    assert '"serve-tools"' in words
    assert '"--all"' in words
    assert json.dumps('a "b"') in words
    assert "http" not in words.split("serve-tools")[1].split("--all")[0]


@each_harness
def test_variables_of_the_task_are_found_by_commands(harness: Harness) -> None:
    """They do not take the place of what the harness needs itself."""
    environment = plan_for(harness, activation(variables={"CITY": "Oslo", "HOME": "/nowhere"})).environment
    assert (environment["CITY"], environment["HOME"]) == ("Oslo", "/tmp/agent")


@pytest.mark.parametrize(
    "harness", [one for one in HARNESSES.values() if one.grants & {"mcp", "http"}], ids=lambda harness: harness.name
)
def test_a_required_server_is_looked_at_before_the_program(harness: Harness) -> None:
    """In the same process, which then becomes the program; one that is not required is not looked at."""
    asked = {"mcp": (SERVER, LocalServer("near", "serve-tools"))} if "mcp" in harness.grants else {}
    tool_command = None if asked else ToolCommand("http://g/a/the-token/tools", required=True)
    plan = plan_for(harness, activation(**asked, tool_command=tool_command))
    checked, servers, *program = plan.argv[4:]
    assert plan.argv[:4] == ("/usr/bin/env", "python3", "-I", "-S")
    assert "Carried into the machine" in plan.files[checked]
    names = [server["name"] for server in json.loads(plan.files[servers])["servers"]]
    assert names == (["tools", "near"] if asked else ["gym-tool"])
    bare = {"mcp": tuple(replace(server, required=False) for server in asked.get("mcp", ()))} if asked else {}
    free = plan_for(harness, activation(**bare, tool_command=tool_command and replace(tool_command, required=False)))
    assert list(free.argv) == program
    assert servers not in free.files


@each_harness
def test_skills_are_copied_to_where_it_looks_for_them(harness: Harness) -> None:
    if not harness.finds_skills:
        with pytest.raises(Unsupported, match="be given skills"):
            plan_for(harness, activation(skills="/skills"))
    else:
        assert plan_for(harness, activation(skills="/skills")).copied == {"/skills": "/tmp/agent/.agents/skills"}
    assert not plan_for(harness, activation()).copied


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


@pytest.mark.parametrize("prompt", ["--what?\n", "two\nlines", "$HOME `x` $(y) \"z\" 'a' \\ *", "ends\n", "/help"])
def test_cline_is_given_the_prompt_as_it_is(prompt: str) -> None:
    """As its last argument, behind what ends its options; commands do not find it in their environment.

    A single word, which it would take for the name of a command of its own, has a line feed behind it.
    """
    plan = plan_for(CLINE, activation(prompt=prompt))
    told = "import json, os, sys; print(json.dumps([sys.argv[-2:], 'GYM_BUS_PROMPT' in os.environ]))"
    command = [*plan.argv[:4], sys.executable, "-c", told, *plan.argv[5:]]
    done = subprocess.run(command, env=dict(plan.environment), capture_output=True, timeout=20, check=True)
    assert json.loads(done.stdout) == [["--", prompt if prompt != "/help" else "/help\n"], False]


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
    template = yaml.safe_load(plan.files["/tmp/agent/.mini/extra.yaml"])["agent"]["system_template"]
    assert not SURROGATE.search(template), "Jinja would make two halves of one character of it"
    assert json.loads(template.removeprefix("{{ ").removesuffix(" }}")) == words


@given(words=TEXT.filter(lambda text: "${" not in text))
def test_hermes_reads_what_was_meant(words: str) -> None:
    """Its configuration is YAML, which knows other escapes than JSON."""
    server = LocalServer("near", words, (words,), variables={"A": words})
    config = yaml.safe_load(plan_for(HERMES, activation(mcp=(server,))).files["/tmp/agent/.hermes/config.yaml"])
    assert config["mcp_servers"]["near"] == {"command": words, "args": [words], "env": {"A": words}}


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (LocalServer("terminal", "x"), "an MCP server called 'terminal'"),
        (replace(SERVER, name="web"), "an MCP server called 'web'"),
        (LocalServer("near", "x", ("${HOME}",)), r"in what its servers"),
        (replace(SERVER, headers={"x-a": "a${A}"}), r"in what its servers"),
    ],
)
def test_servers_that_hermes_would_take_for_something_else(server: Any, words: str) -> None:
    """One of the name of its own tools would give those, and never be started; what looks like a variable would be one."""
    with pytest.raises(Unsupported, match=words):
        plan_for(HERMES, activation(mcp=(server,)))


@pytest.mark.parametrize("harness", [OPENCODE, KILO], ids=lambda harness: harness.name)
@given(words=TEXT.map(lambda text: f"{text}{{env:HOME}}{text}{{file:/etc/passwd}}{{{text}"))
def test_what_opencode_would_replace_is_no_reference(harness: Harness, words: str) -> None:
    """It replaces `{env:X}` and `{file:P}` in its configuration before it reads it as JSON, in texts and names alike."""
    asked = activation(
        mcp=(LocalServer("near", words, (words,), variables={words: words}),),
        system_prompt=SystemPrompt(words, "replace"),
    )
    [told] = [
        text for name, text in plan_for(harness, asked).files.items() if name.endswith(("/opencode.json", "/kilo.json"))
    ]
    assert not re.search(r"\{\w+:", told)
    config = json.loads(told)
    assert config["mcp"]["near"]["command"] == [words, words]
    assert config["mcp"]["near"]["environment"] == {words: words}
    assert next(iter(config["agent"].values()))["prompt"] == words


def test_what_a_configured_agent_is_given() -> None:
    """What stands for something is filled in, and all other braces are left as they are; the driver's Python is not the agent's."""
    said = '{"url": "{base_url}/v1", "key": "{token}", "model": "{model}", "other": "{other}", "in": "{workspace} {home} {program}"}'
    agent = small(
        command=("{python}", "x"), env={"A_URL": "{base_url}", "PYTHONPATH": "/mine"}, files={"a/b.json": said}
    )
    plan = plan_for(harness_of(agent), activation(extra_args=("--model={model}",)))
    assert json.loads(plan.files["/tmp/agent/a/b.json"]) == {
        "url": f"http://127.0.0.1:8089/a/{TOKEN}/v1",
        "key": TOKEN,
        "model": "some-model",
        "other": "{other}",
        "in": "/box /tmp/agent /opt/gym-bus/program",
    }
    assert plan.environment["A_URL"] == f"http://127.0.0.1:8089/a/{TOKEN}"
    assert "/mine" not in plan.environment["PYTHONPATH"]
    told = json.loads(plan.files["/tmp/agent/.acp/said.json"])
    assert (told["argv"], told["environment"]) == (
        ["/usr/bin/python3", "x", "--model=some-model"],
        {"PYTHONPATH": "/mine"},
    )


@pytest.mark.parametrize(
    ("package", "found"),
    [
        (AgentPackage(ecosystem="npm", name="@a/tool", version="1.0.0"), "/opt/gym-bus/program/node_modules/.bin:"),
        (AgentPackage(ecosystem="pypi", name="a-tool", version="1.0.0"), "/opt/gym-bus/program/site"),
    ],
    ids=["npm", "pypi"],
)
def test_where_a_configured_agents_package_is_found(package: AgentPackage, found: str) -> None:
    plan = plan_for(harness_of(AcpAgent(command=("a-tool",), package=package)), activation())
    own = json.loads(plan.files["/tmp/agent/.acp/said.json"])["environment"]
    assert plan.environment["PATH"].startswith(found) == (package.ecosystem == "npm")
    assert own == ({"PYTHONPATH": found} if package.ecosystem == "pypi" else {})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"command": ()}, "command"),
        ({"command": ("a", "--url={base_url}")}, "hold a secret"),
        ({"extra_args": ("{token}",)}, "hold a secret"),
        ({"files": {"../x": ""}}, "below the agent's home"),
        ({"files": {"/etc/x": ""}}, "below the agent's home"),
        ({"package": {"ecosystem": "npm", "name": "a", "version": "latest"}}, "version"),
        ({"package": {"ecosystem": "npm", "name": "--global", "version": "1.0.0"}}, "name"),
        ({"package": {"ecosystem": "pypi", "name": "a @ file:///x", "version": "1.0.0"}}, "name"),
    ],
)
def test_configurations_of_agents_that_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        AcpAgent.model_validate({"command": ["agent"]} | wrong)


def test_whether_a_configured_agent_goes_on_is_said_by_whoever_configures_it() -> None:
    """Before a sandbox is made nobody else knows."""
    check_continues(small(), RESUMED)
    for agent in (small(resumes=False), PythonAgent(function="agent:solve")):
        with pytest.raises(Unsupported, match=r"set agent\.resumes=true if the agent can go on with its session"):
            check_continues(agent, RESUMED)


@pytest.mark.parametrize(
    ("agent", "asked_for", "words"),
    [
        (CodexAgent(), ("trajectory", "timing", "harness_tool_calls", "reasoning", "compaction"), None),
        (HermesAgent(), ("trajectory", "reasoning"), None),
        (HermesAgent(), ("trajectory", "timing"), "hermes_agent does not tell timing, .* those that do: .*codex_agent"),
        (HermesAgent(), ("timing", "compaction"), "does not tell compaction, timing"),
    ],
)
def test_what_is_not_told_is_refused_before_a_sandbox_is_made(
    agent: Program, asked_for: Any, words: str | None
) -> None:
    """A harness that is known to leave something out (docs/harnesses.md) is not given a task that asks for it."""
    wanted = Continuation(mode="resume_harness_session", observations=asked_for)
    with pytest.raises(Unsupported, match=words) if words else nullcontext():
        check_continues(agent, wanted)


def test_prime_agent_is_started_as_its_user_says() -> None:
    """By its command, with the Python of its kernel if one is named, and a daemon of its own below its home."""
    prime = PrimeAgent(command=("/opt/prime/run", "--fast"), kernel_python="/opt/prime/kernel/bin/python")
    plan = plan_for(harness_of(prime), activation(resume="abc", extra_args=("--thinking", "low")))
    words = " ".join(plan.argv)
    assert (
        "/opt/prime/run --fast --print --daemon-socket /tmp/agent/prime.sock --provider gym_bus --model some-model"
        in words
    )
    assert words.endswith("--resume abc --thinking low")
    assert plan.environment["PRIME_AGENT_KERNEL_PYTHON"] == "/opt/prime/kernel/bin/python"
    model = json.loads(plan.files["/tmp/agent/.prime/agent/models.json"])["providers"]["gym_bus"]["models"][0]
    assert (model["input"], model["compat"]) == (["text"], {"supportsDeveloperRole": False})
    assert "PRIME_AGENT_KERNEL_PYTHON" not in plan_for(harness_of(PrimeAgent()), activation()).environment
