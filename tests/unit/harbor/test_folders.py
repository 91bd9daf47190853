"""Folders in Harbor's format: what becomes of each key, and what is said of those that are wrong or not supported."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.benchmarks import load_tasks
from adapters.benchmarks.harbor import Found, files, found_in, why_not
from gym_bus.errors import BadTaskset
from providers.sandboxes.snapshots.limits import written
from providers.sandboxes.snapshots.selecting import Selection
from schemas.config import HarborTaskset, SimpleAgent
from schemas.harnesses import ClaudeCodeAgent, CodexAgent, MiniSweAgent, NopAgent, OracleAgent
from schemas.sandboxes import Reach
from schemas.tasks import Task

FILES: Mapping[str, str] = {
    "task.toml": "",
    "instruction.md": "Do it.\n",
    "tests/test.sh": "echo 1 >/logs/verifier/reward.txt\n",
    "solution/solve.sh": "touch it\n",
}
EXAMPLES = Path(__file__).resolve().parents[2] / "harbor_tasks"

LOCAL = """
[[environment.mcp_servers]]
name = "The Weather"
transport = "stdio"
command = "weather"
args = ["serve", "--all"]
"""


def folder(root: Path, name: str = "one", /, **changed: str | None) -> Path:
    """Write a task's folder; a name's `__` is a `/`, `_` before an ending a `.`, and None leaves a file out."""
    names = {
        "toml": "task.toml",
        "instruction": "instruction.md",
        "test": "tests/test.sh",
        "dockerfile": "environment/Dockerfile",
    }
    contents: dict[str, str | None] = {**FILES, **{names[key]: text for key, text in changed.items()}}
    for path, text in contents.items():
        if text is not None:
            (root / name / path).parent.mkdir(parents=True, exist_ok=True)
            (root / name / path).write_text(text)
    return root / name


def found(path: Path, **options: Any) -> Found:
    return found_in(HarborTaskset(path=str(path), **options))


def only(path: Path, **options: Any) -> Task:
    (task,) = found(path, **options).tasks
    return task


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(BadTaskset) as told:
        found(path, **options)
    return str(told.value)


def test_a_plain_folder_becomes_a_task(tmp_path: Path) -> None:
    """The agent is told the instruction and nothing else; tests and solution are where only the verifier and an oracle find them."""
    task = only(folder(tmp_path, instruction="<!-- canary 1 -->\n# canary 2\n\nDo it.\n"))
    assert (task.task_id, task.index, task.input.hands_in) == ("one", 0, "machine")
    assert [message.content for message in task.input.messages] == ["Do it."]
    seen = task.input.model_dump_json() + str(task.machine)
    for content in ("test.sh", "reward", "solve.sh", "touch"):
        assert content not in seen
    staged = task.verifier_data["staged"]
    assert (staged["at"], base64.b64decode(staged["files"]["test.sh"]).decode()) == ("/tests", FILES["tests/test.sh"])
    assert task.verifier_data["rewards_in"] == "/logs/verifier"
    assert task.verifier_data["timeout_s"] == 600
    assert task.machine is not None
    assert not task.machine.is_of_an_image
    assert (task.machine.layout.workspace, task.machine.layout.is_seeded) == ("/app", False)


def test_every_key_has_its_place(tmp_path: Path) -> None:
    toml = """
        artifacts = ["out/a.txt", "/srv/app/b"]
        [agent]
        timeout_sec = 12
        user = 1234
        [environment]
        workdir = "/srv/app"
        build_timeout_sec = 77
        cpus = 1.5
        memory = "2G"
        env = {COLOUR = "red", PLACE = "${PLACE:-home}"}
        network_mode = "allowlist"
        allowed_hosts = ["docs.example"]
        [verifier]
        timeout_sec = 34
        environment_mode = "separate"
        env = {COLOUR = "blue"}
        user = "77"
        network_mode = "no-network"
        [solution]
        env = {HOW = "a b"}
    """
    task = only(folder(tmp_path, toml=toml, dockerfile="FROM some\nWORKDIR /elsewhere\n"))
    machine, grading = task.machine, task.grading
    assert machine is not None
    assert grading is not None
    assert (task.timeout_s, task.user, machine.user, grading.user) == (12, "1234", "1234", "77")
    assert (machine.cpus, machine.memory_mib, machine.image_timeout_s) == (1.5, 2048, 77)
    assert machine.dockerfile == str(tmp_path / "one/environment/Dockerfile")
    assert machine.layout.environment == {"COLOUR": "red", "PLACE": "home"}
    assert grading.layout.environment == {"COLOUR": "blue", "PLACE": "home"}
    assert machine.agent == Reach(allow=("docs.example:443", "docs.example:80"))
    assert grading.verify == Reach()
    assert machine.layout.workspace == grading.layout.workspace == "/srv/app"
    assert task.verifier_data["artifacts"] == ["out/a.txt", "b"]
    assert (task.verifier_data["timeout_s"], task.input.hands_in) == (34, "files")
    assert task.solution is not None
    assert task.solution.command.startswith("export HOW='a b'; ")


def test_a_separate_verifier_may_have_an_image_of_its_own(tmp_path: Path) -> None:
    separate = "[verifier]\nenvironment_mode = 'separate'\n"
    path = folder(tmp_path, "a", toml=separate, dockerfile="FROM some\n")
    (path / "tests/Dockerfile").write_text("FROM other\n")
    named = "[environment]\ndocker_image = 'agents:1'\n[verifier.environment]\ndocker_image = 'tests:1'\n"
    folder(tmp_path, "b", toml=named)
    folder(tmp_path, "c", toml=separate + "[environment]\ndocker_image = 'agents:1'\n")
    gradings = [task.grading for task in found(tmp_path).tasks]
    assert [(one.image, one.dockerfile) for one in gradings if one] == [
        (None, str(path / "tests/Dockerfile")),
        ("tests:1", None),
        ("agents:1", None),
    ]
    assert {tuple(task.verifier_data["artifacts"]) for task in found(tmp_path).tasks} == {("**",)}


def test_an_unknown_key_is_noted_and_no_error(tmp_path: Path) -> None:
    """A format that goes on growing does not break runs; what it says is told."""
    got = found(folder(tmp_path, toml="novelty = 1\n[environment]\nholodeck = true\n"))
    assert [note.partition(": ")[2] for note in got.notes] == [
        "unknown key 'novelty', which is passed over",
        "unknown key 'environment.holodeck', which is passed over",
    ]


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[agent]\ntimout_sec = 5", "'agent.timout_sec', which is passed over; did you mean 'agent.timeout_sec'?"),
        ("artefacts = ['a']", "'artefacts', which is passed over; did you mean 'artifacts'?"),
        ("[enviroment]\ncpus = 1", "'enviroment', which is passed over; did you mean 'environment'?"),
        ("workdir = '/app'", "'workdir', which is passed over; did you mean 'environment.workdir'?"),
        ("timeout_sec = 3", "passed over; did you mean 'agent.timeout_sec' or 'verifier.timeout_sec'?"),
        ("[agent]\nartifacts = ['a']", "'agent.artifacts', which is passed over; did you mean 'artifacts'?"),
    ],
)
def test_what_was_perhaps_meant_is_told(tmp_path: Path, toml: str, words: str) -> None:
    """A key that nearly is one of ours, or is one of another table, is still no error."""
    (note,) = found(folder(tmp_path, toml=toml)).notes
    assert note.endswith(words)


def test_all_tasks_that_are_wrong_are_named(tmp_path: Path) -> None:
    """Twenty at most, each by its own mistake; those that are only not supported come after."""
    for number in range(23):
        folder(tmp_path, f"t{number:02}", **({"toml": "[agent\n"} if number % 2 else {"instruction": None}))
    folder(tmp_path, "fine")
    lines = refusal(tmp_path, skip_unsupported=True).splitlines()
    assert len(lines) == 21
    assert all(f"/t{number:02}/" in line for number, line in enumerate(lines[:20]))
    assert "instruction.md: no such file" in lines[0]
    assert "task.toml: Expected" in lines[1]
    assert lines[-1] == "and 3 more tasks"


def test_artifacts_are_looked_for_where_the_whole_workspace_is_handed_in_too(tmp_path: Path) -> None:
    """Those that are in it; what else is named there is no mistake."""
    toml = "artifacts = ['/app/out.txt', 'a[1].txt', '/elsewhere/x']"
    data = only(folder(tmp_path, toml=toml)).verifier_data
    assert (data["is_whole"], data["artifacts"]) == (True, ["out.txt", "a[[]1].txt"])


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[agent\n", "task.toml: Expected"),
        ("[agent]\ntimeout_sec = 'soon'", "task.toml: agent.timeout_sec: Input should be a valid number"),
        ("[agent]\ntimeout_sec = 0", "task.toml: agent.timeout_sec"),
        ("[environment]\nmemory = 'much'", "task.toml: environment: 'much' is no size"),
        ("[environment]\nworkdir = '/usr/lib'", "task.toml: environment.workdir: /usr/lib cannot be"),
        ("[environment]\nworkdir = '/tmp/../etc'", "cannot be a directory of a task's own"),
        (
            "[[environment.mcp_servers]]\nname = 'a'",
            "environment.mcp_servers.0: a server of transport 'sse' needs 'url'",
        ),
        ("[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]\ncpus = 1", "verifier: environment_mode"),
        ("[environment]\nenv = {'A=B' = 'c'}", "environment.env"),
        ("[agent]\nuser = 'a b'", "agent.user"),
        ("[environment]\nworkdir = '/tests'", "/tests cannot be the workspace"),
        ("[environment]\nworkdir = '/logs'", "/logs cannot be the workspace: /logs/agent is another place"),
        ("[environment]\nworkdir = '/logs/verifier/x'", "/logs/verifier/x cannot be the workspace"),
        ('[environment]\nenv = {A = "b\\u0000c"}', "the variable A holds a NUL"),
        (f"[environment]\nenv = {{A = '{'b' * 70_000}'}}", "variables are longer than 65,536 bytes together"),
        ('[solution.env]\nA = "x\\u0000y"', "task.toml: solution.env: the variable A holds a NUL"),
        ('[verifier.env]\nA = "x\\u0000y"', "task.toml: verifier.env: the variable A holds a NUL"),
        ("[environment]\nworkdir = '/'", "task.toml: environment.workdir: / cannot be the workspace"),
        ("[environment]\nworkdir = '//'", "task.toml: environment.workdir: // cannot be the workspace"),
        ("environment = 5", "task.toml: environment: Input should be a valid dictionary"),
    ],
)
def test_a_wrong_value_is_named_with_its_file_and_key(tmp_path: Path, toml: str, words: str) -> None:
    assert words in refusal(folder(tmp_path, toml=toml))


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[environment]\nallow_internet = true", "wants the whole internet"),
        ("[agent]\nnetwork_mode = 'public'", "wants the whole internet"),
        ("[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['10.0.0.0/8']", "'10.0.0.0/8' is an address"),
        ("[environment]\ngpus = 1", "no graphics"),
        ("[environment]\nos = 'windows'", "Linux"),
        ("[environment.healthcheck]\ncommand = 'true'", "healthcheck"),
        ("[environment]\nenv = {KEY = '${SECRET}'}", "${SECRET} is a variable of this host"),
        ("[[steps]]\nname = 'a'", "several steps"),
        ("[verifier]\nuser = 'root'", "verifier.user: 'root'"),
        ("[verifier]\nuser = 0", "verifier.user: '0'"),
        ("[verifier]\nuser = '00'", "verifier.user: '0'"),
        (
            "[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a b']",
            "allowed_hosts: 'a b' is no host's name",
        ),
        ("artifacts = ['/etc/x']\n[verifier]\nenvironment_mode = 'separate'", "'/etc/x' is not in /app"),
    ],
)
def test_what_is_not_supported_is_refused_or_left_out(tmp_path: Path, toml: str, words: str) -> None:
    folder(tmp_path, "good")
    folder(tmp_path, "other", toml=toml)
    assert words in refusal(tmp_path)
    assert "taskset.skip_unsupported=true" in refusal(tmp_path)
    got = found(tmp_path, skip_unsupported=True)
    assert [(task.task_id, task.index) for task in got.tasks] == [("good", 0)]
    assert words in got.skipped["other"]


def test_a_dataset_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, "other", toml="[[steps]]\nname = 'a'")
    words = refusal(tmp_path, skip_unsupported=True)
    assert words.startswith("other: ")
    assert "skip_unsupported" not in words


def test_artifacts_are_paths_and_no_patterns(tmp_path: Path) -> None:
    """What is named is handed in, with all that is in it, and nothing that a pattern would find."""
    named = ["out[1].txt", "a*", "**", "[!a]/b?", "[", "100%"]
    toml = f"artifacts = {named}\n[verifier]\nenvironment_mode = 'separate'"
    patterns = only(folder(tmp_path, toml=toml)).verifier_data["artifacts"]
    wanted = Selection(patterns)
    assert all(wanted.wants(written(path.encode())) for path in (*named, "a*/below/it", "[!a]/b?/c"))
    assert not any(wanted.wants(path) for path in ("out1.txt", "ab", "other", "b/bc", "out[1].txt2", "out[1]/x"))
    assert tuple(patterns) != ("**",)


def test_an_empty_workdir_is_the_usual_one(tmp_path: Path) -> None:
    machine = only(folder(tmp_path, toml="[environment]\nworkdir = ''")).machine
    assert machine is not None
    assert machine.layout.workspace == "/app"


def test_the_internet_is_done_without_if_that_is_said(tmp_path: Path) -> None:
    path = folder(tmp_path, toml="[environment]\nallow_internet = true")
    machine = only(path, without_internet=True).machine
    assert machine is not None
    assert machine.agent == Reach()


def test_missing_files_are_named(tmp_path: Path) -> None:
    assert "instruction.md: no such file" in refusal(folder(tmp_path, "a", instruction=None))
    assert "tests/test.sh: no such file" in refusal(folder(tmp_path, "b", test=None))
    assert "it says nothing" in refusal(folder(tmp_path, "c", instruction="# canary\n\n"))
    assert "no such folder" in refusal(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no task.toml in it" in refusal(tmp_path / "empty")


def test_links_are_not_followed_out_of_a_folder(tmp_path: Path) -> None:
    """Neither tests nor an image's context take in what lies elsewhere on this host."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    linked = folder(tmp_path, "a")
    (linked / "tests/data").symlink_to(secret)
    assert "tests/data: a link, which is not followed" in refusal(linked)
    context = folder(tmp_path, "b", dockerfile="FROM some\n")
    (context / "environment/inside").symlink_to("Dockerfile")
    assert only(context).machine is not None
    (context / "environment/data").symlink_to("../../secret")
    assert "environment/data: a link that leads out of" in refusal(context)
    whole = folder(tmp_path, "c", test=None)
    (linked / "tests/data").unlink()
    (whole / "tests").symlink_to(linked / "tests")
    assert "c/tests: a link, which is not followed" in refusal(whole)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """And a directory where a file belongs is told by its name."""
    path = folder(tmp_path)
    os.mkfifo(path / "tests/pipe")
    assert "tests/pipe: no regular file" in refusal(path)
    (folder(tmp_path, "a", instruction=None) / "instruction.md").mkdir()
    assert "a/instruction.md: no regular file" in refusal(tmp_path / "a")
    (folder(tmp_path, "b", toml=None) / "task.toml").mkdir()
    assert "b/task.toml: no regular file" in refusal(tmp_path / "b")
    (folder(tmp_path, "c") / "environment/Dockerfile").mkdir(parents=True)
    assert "environment/Dockerfile: no regular file" in refusal(tmp_path / "c")


def test_a_dockerfile_that_is_not_there_is_not_done_without(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "environment").mkdir()
    (path / "environment/Dockerfile").symlink_to("nowhere")
    assert "environment/Dockerfile: no regular file" in refusal(path)


def test_a_task_behind_a_link_is_not_left_out_without_a_word(tmp_path: Path) -> None:
    folder(tmp_path, "elsewhere/far")
    folder(tmp_path, "tasks/near")
    (tmp_path / "tasks/far").symlink_to("../elsewhere/far")
    assert "tasks/far: a link to a task, which is not followed" in refusal(tmp_path / "tasks")


def test_a_name_that_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    """What the log says is text; the error itself can be printed."""
    path = folder(tmp_path, "a")
    (path / "tests" / os.fsdecode(b"\xff")).touch()
    assert "a name that is no UTF-8" in refusal(path)
    (path / "tests" / os.fsdecode(b"\xff")).unlink()
    path.rename(tmp_path / os.fsdecode(b"a\xff"))
    folder(tmp_path, "b")
    refusal(tmp_path).encode()


def test_a_mark_of_byte_order_is_not_part_of_a_text(tmp_path: Path) -> None:
    path = folder(tmp_path, instruction="\ufeffDo it.", toml="\ufeff[agent]\ntimeout_sec = 5\n")
    task = only(path)
    assert (task.input.messages[0].content, task.timeout_s) == ("Do it.", 5)


@pytest.mark.parametrize("user", ["0", "00", "root"])
def test_root_has_many_names(tmp_path: Path, user: str) -> None:
    task = only(folder(tmp_path, toml=f"[agent]\nuser = '{user}'"))
    assert "is to be root" in (why_not(task, SimpleAgent()) or "")
    assert task.machine is not None
    assert task.machine.user is None


def test_huge_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, "a")
    with (path / "tests/large").open("wb") as file:
        file.truncate(files.FOLDER_MAX_BYTES + 1)
    assert "more than 8,388,608 bytes in all" in refusal(path)
    with (folder(tmp_path, "b") / "instruction.md").open("wb") as file:
        file.truncate(files.TEXT_MAX_BYTES + 1)
    assert "instruction.md: more than 1,048,576 bytes" in refusal(tmp_path / "b")
    monkeypatch.setattr(files, "FOLDER_MAX_FILES", 2)
    for name in "abc":
        (folder(tmp_path, "c") / "solution" / name).write_text("x")
    assert "more than 2 files" in refusal(tmp_path / "c")


def test_a_dataset_says_what_holds_for_its_tasks(tmp_path: Path) -> None:
    toml = "[agent]\ntimeout_sec = 10\n[environment]\ncpus = 1\nmemory_mb = 100\nenv = {A = '1', B = '2'}\n"
    folder(tmp_path, "deep/er/two", toml=toml)
    folder(tmp_path, "one", toml=toml)
    (tmp_path / "dataset.toml").write_text(
        "[dataset]\nname = 'x'\n[gym]\nallowed_agents = ['codex', 'pi_agent']\nlicense = 'MIT'\nsurprise = 1\n"
        "[gym.defaults]\ntimeout_multiplier = 2.0\nresource_multiplier = 1.5\n"
        "[gym.tasks.one.environment]\nmemory_mb = 200\nenv = {B = '3'}\n"
    )
    got = found(tmp_path)
    two, one = got.tasks
    assert [two.task_id, one.task_id] == ["two", "one"]
    assert one.machine is not None
    assert two.machine is not None
    assert (two.timeout_s, two.verifier_data["timeout_s"], two.machine.cpus, two.machine.memory_mib) == (
        20,
        1200,
        2,
        150,
    )
    assert (one.machine.memory_mib, one.machine.layout.environment) == (300, {"A": "1", "B": "3"})
    assert [note.partition(": ")[2] for note in got.notes] == ["unknown key 'gym.surprise', which is passed over"]
    assert why_not(one, CodexAgent()) is None
    assert "allows codex, pi_agent, and not claude_code_agent" in str(why_not(one, ClaudeCodeAgent()))
    assert why_not(one, OracleAgent()) is None
    (tmp_path / "dataset.toml").write_text("[gym.tasks.one.environment]\nmemery_mb = 200\n")
    assert "gym.tasks.one.environment: unknown key 'memery_mb'" in refusal(tmp_path)


def test_a_dataset_that_says_what_is_no_table_is_told_so(tmp_path: Path) -> None:
    folder(tmp_path, "one", toml="environment = 5")
    (tmp_path / "dataset.toml").write_text('[gym.tasks.one]\nenvironment = {env = {A = "1"}}')
    assert "one/task.toml: environment: Input should be" in refusal(tmp_path)
    (tmp_path / "one/task.toml").write_text("")
    (tmp_path / "dataset.toml").write_text("[gym.tasks.one]\nenvironment = {env = 5}")
    assert "environment.env: Input should be a valid dictionary" in refusal(tmp_path)


def test_two_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, "a/one")
    folder(tmp_path, "b/one")
    assert "two tasks are called one" in refusal(tmp_path)


def test_an_agent_that_cannot_do_a_task_is_told_who_can(tmp_path: Path) -> None:
    served = only(folder(tmp_path, "a", toml=LOCAL))
    assert [server.args for server in served.input.mcp_servers] == [("serve", "--all")]
    assert why_not(served, CodexAgent()) is why_not(served, OracleAgent()) is why_not(served, NopAgent()) is None
    for agent in (MiniSweAgent(), SimpleAgent()):
        said = str(why_not(served, agent))
        assert (
            f"tools by MCP (The Weather), which {agent.type} cannot be given; those that can: claude_code_agent" in said
        )
        assert "mini_swe_agent" not in said.split("those that can")[1]
    named = only(folder(tmp_path, "c", toml="[agent]\nuser = 'someone'\n"))
    assert named.machine is not None
    assert (named.machine.user, why_not(named, CodexAgent())) == ("someone", None)
    rooted = only(folder(tmp_path, "b", toml="[agent]\nuser = 'root'\n"))
    for agent in (CodexAgent(), SimpleAgent(), OracleAgent()):
        assert "nop_agent" in str(why_not(rooted, agent))
    assert why_not(rooted, NopAgent()) is None
    (tmp_path / "b/solution/solve.sh").unlink()
    (tmp_path / "b/task.toml").write_text("[environment]\nskills_dir = '/skills'\n")
    bare = only(tmp_path / "b")
    assert "no solution/solve.sh" in str(why_not(bare, OracleAgent()))
    assert why_not(bare, CodexAgent()) is None
    said = str(why_not(bare, MiniSweAgent()))
    assert "skills in /skills, which mini_swe_agent cannot be given; those that can: cline_agent, codex_agent" in said


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("name = 'w'\nurl = 'http://127.0.0.1:8000/sse'", "'w' is of the older transport 'sse'"),
        (
            "name = 'w'\ntransport = 'http'\nurl = 'http://tools.test/mcp'",
            "at http://tools.test/mcp, which is no HTTP address in the sandbox",
        ),
        ("name = 'w'\ntransport = 'http'\nurl = 'http://[::1/mcp'", "at http://[::1/mcp, which is no HTTP address"),
        ("name = 'w'\ntransport = 'http'\nurl = 'http://localhost:x/'", "at http://localhost:x/, which is no HTTP"),
        ("name = 'w'\ntransport = 'http'\nurl = 'gopher://127.0.0.1/'", "at gopher://127.0.0.1/, which is no HTTP"),
        ("name = 'w'\ntransport = 'http'\nurl = 'http://a.test\\@[::1]/'", "@[::1]/, which is no HTTP"),
        ("name = '1'\ntransport = 'stdio'\ncommand = 'x'", "'1' needs a name that begins with a letter"),
        (
            "name='a.b'\ntransport='stdio'\ncommand='x'\n[[environment.mcp_servers]]\nname='A-b'\ntransport='stdio'\ncommand='y'",
            "'A-b' is called like the MCP server 'a.b': a_b",
        ),
    ],
)
def test_servers_that_no_agent_can_be_given_are_refused(tmp_path: Path, servers: str, words: str) -> None:
    """Before anything is made; the oracle, which needs none, may still show that the task can be done."""
    task = only(folder(tmp_path, "a", toml=f"[[environment.mcp_servers]]\n{servers}\n"))
    assert words in str(why_not(task, CodexAgent()))
    assert why_not(task, OracleAgent()) is None


def test_a_server_in_the_sandbox_is_reached_by_its_loopback(tmp_path: Path) -> None:
    server = "[[environment.mcp_servers]]\nname = 'w'\ntransport = 'http'\nurl = 'http://localhost:8000/mcp'\n"
    assert why_not(only(folder(tmp_path, "a", toml=server)), CodexAgent()) is None


def test_a_workdir_with_a_variable_is_asked_for(tmp_path: Path) -> None:
    assert "say workdir" in refusal(folder(tmp_path, dockerfile="FROM a\nWORKDIR $HOME/x\n"))


def test_the_examples_can_be_read() -> None:
    """And the loader of tasksets finds them too."""
    tasks = load_tasks(HarborTaskset(path=str(EXAMPLES)))
    assert [task.task_id for task in tasks] == ["dockerfile", "hacked", "mcp", "plain", "separate"]
