"""Files of questions and answers are read strictly, and answers compared as mathematics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from adapters.benchmarks import load_tasks
from adapters.benchmarks.jsonl_tasks import grade
from gym_bus.errors import BadTaskset
from schemas.config import JsonlTaskset
from schemas.harnesses import RESUMED, Continuation
from schemas.readiness import Install
from schemas.tasks import Evidence, Task


def load(tmp_path: Path, content: bytes | str, **options: Any) -> list[Task]:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_tasks(JsonlTaskset(jsonl_fpath=str(path), **options))


def row(question: str = "q", answer: Any = "a", **more: Any) -> str:
    return json.dumps({"question": question, "answer": answer, **more}, ensure_ascii=False)


def test_gsm8k_rows_give_the_final_answer(tmp_path: Path) -> None:
    (task,) = load(tmp_path, row("How many?", "2 + 2 = <<2+2=4>>4\n#### 1,004") + "\n")
    assert task.verifier_data == {"answer": "1,004"}
    assert (task.verifier, task.index) == ("math_verify", 0)
    assert (task.input.messages[0].content or "").startswith("How many?\n\n")


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    tasks = load(tmp_path, row("a\u2028b\u0085c\u2029d\x1c") + "\r\n\n" + row("next"))
    assert [(task.input.messages[0].content or "")[:8] for task in tasks] == [
        "a\u2028b\u0085c\u2029d\x1c",
        "next\n\nGi",
    ]


def test_ids_depend_on_content_and_are_unique(tmp_path: Path) -> None:
    first = load(tmp_path, "\n".join([row("x"), row("y"), row("x"), row("x")]))
    ids = [task.task_id for task in first]
    assert ids[2] == f"{ids[0]}-2"
    assert ids[3] == f"{ids[0]}-3"
    assert ids[0].startswith("rows/")
    assert len(ids[0]) == len("rows/") + 12
    shuffled = load(tmp_path, "\n".join([row("y"), row("x")]))
    assert [task.task_id for task in shuffled] == [ids[1], ids[0]]
    assert load(tmp_path, row("x"), name="gsm8k")[0].task_id.startswith("gsm8k/")


def test_own_ids_are_kept(tmp_path: Path) -> None:
    tasks = load(tmp_path, row(task_id="one", id="ignored") + "\n" + row(id=2))
    assert [task.task_id for task in tasks] == ["one", "2"]


def test_other_keys_may_be_named(tmp_path: Path) -> None:
    (task,) = load(tmp_path, '{"problem": "p", "solution": 5}', question_key="problem", answer_key="solution")
    assert task.verifier_data == {"answer": "5"}


def test_further_inputs_are_text_or_messages_of_the_user(tmp_path: Path) -> None:
    more = ["And now?", [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}]]
    plain, (task,) = load(tmp_path, row()), load(tmp_path, row(follow_ups=more))
    assert [[message.content for message in messages] for messages in task.input.follow_ups] == [
        ["And now?"],
        ["One.", "Two."],
    ]
    assert plain[0].input.follow_ups == ()
    assert load(tmp_path, row(follow_ups=None))[0].input.follow_ups == ()


def test_what_a_row_asks_of_a_session_that_goes_on(tmp_path: Path) -> None:
    """Without words of its own a row with further inputs asks for no more than that the harness goes on with its session."""
    plain, more = load(tmp_path, row()), load(tmp_path, row(follow_ups=["And now?"]))
    assert (plain[0].input.continues, more[0].input.continues) == (None, RESUMED)
    said = {"mode": "resume_harness_session", "observations": ["timing"]}
    assert load(tmp_path, row(continuation=said))[0].input.continues == Continuation.model_validate(said)
    with pytest.raises(BadTaskset, match=r":1: continuation\.observations\.0: .*want \{\"mode\""):
        load(tmp_path, row(continuation=said | {"observations": ["smells"]}))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("And now?", "follow_ups: Input should be a list; want"),
        ("", "follow_ups: Input should be a list; want"),
        ([" "], "follow_ups.0: .*messages of the user"),
        ([[]], "follow_ups.0: .*messages of the user"),
        (["x", [{"role": "assistant", "content": "Hello."}]], "follow_ups.1: .*messages of the user"),
        ([3], "follow_ups.0: Input should be a list"),
        (["x"] * 101, "follow_ups: List should have at most 100 items"),
    ],
)
def test_further_inputs_that_are_none_are_refused_with_the_line(tmp_path: Path, more: Any, said: str) -> None:
    with pytest.raises(BadTaskset, match=f"rows.jsonl:1: {said}"):
        load(tmp_path, row(follow_ups=more))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("tool", "tools"),
        ("grant", "grants"),
        ("tool_dat", "tool_data"),
        ("expected_record", "expected_records"),
        ("awaits_input", "awaits_input_s"),
        ("follow_up", "follow_ups"),
        ("followups", "follow_ups"),
        ("continuations", "continuation"),
        ("instal", "install"),
        ("taskid", "task_id"),
        ("test_comand", "test_command"),
    ],
)
def test_a_key_that_nearly_is_one_of_ours_is_refused(tmp_path: Path, key: str, meant: str) -> None:
    """It would be passed over, and the task be another than its author meant; other keys are the file's own affair."""
    with pytest.raises(BadTaskset, match=f"rows.jsonl:2: unknown key '{key}'; did you mean '{meant}'"):
        load(tmp_path, row() + "\n" + row("3", **{key: ["x"]}))
    assert load(tmp_path, row(level="x", tags=["y"], answers=["2"], images=[], test="def f(): ...", index=1))


def test_a_key_of_a_row_with_tests_is_held_against_those_as_well(tmp_path: Path) -> None:
    tested = {"test_command": "true", "artifacts": ["a"]}
    with pytest.raises(BadTaskset, match="did you mean 'tests'"):
        load(tmp_path, row(**tested, test={"a": "b"}))
    assert load(tmp_path, row(**tested, tests={"a": "b"}, test="mine"))


def test_the_keys_that_hold_question_and_answer_are_no_mistake(tmp_path: Path) -> None:
    assert load(tmp_path, '{"tool": "p", "grant": 5}', question_key="tool", answer_key="grant")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no tasks"),
        ("\n \n", "no tasks"),
        (row() + "\n{broken}\n" + row(), r"rows.jsonl:2: "),
        (row() + '\n{"question": "torn', r"rows.jsonl:2: the last line is torn \(line 2\)"),
        (row() + '\n{"question": "torn\n', r"rows.jsonl:2: (?!the last)"),
        (b'{"question": "\xff', "torn"),
        ("[1]", "want a JSON object, found list"),
        ('{"question": "q"}', "no key 'answer'; there are 'question'"),
        ('{"question": "q", "answer": null}', "found NoneType"),
        ('{"question": "q", "answer": true}', "found bool"),
        ('{"question": 5, "answer": 1}', "rows.jsonl:1: 'question' must be text, found int"),
        (row(image=5), "'image' must be text, found int"),
        ('{"question": "", "answer": 1}', "is empty"),
        ('{"question": "q", "answer": NaN}', "NaN is not JSON"),
        ('{"question": "q", "question": "r", "answer": 1}', "twice"),
        ('{"question": "\\ud800", "answer": 1}', "surrogate"),
        ('{"question": "q", "answer": 1, "x": [1e999]}', "larger than any number"),
        ('{"question": "q", "answer": 1, "x": {"y": "\\ud800"}}', "rows.jsonl:1: the row cannot be recorded"),
        (
            '{"question": "q", "answer": 1, "x": ' + "[" * 150 + "]" * 150 + "}",
            "rows.jsonl:1: the row cannot be recorded: more than 128 levels",
        ),
        (row(id="x") + "\n" + row("2", id="x"), r"rows.jsonl:2: task_id 'x' was given in line 1"),
        ("[" * 100_000 + "\n", "rows.jsonl:1"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, content: bytes | str, said: str) -> None:
    with pytest.raises(BadTaskset, match=said):
        load(tmp_path, content)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTaskset, match=r"nowhere\.jsonl: cannot be read: No such file"):
        load_tasks(JsonlTaskset(jsonl_fpath=str(tmp_path / "nowhere.jsonl")))


@pytest.mark.parametrize(
    ("expected", "answer", "reward"),
    [
        ("72", "The result is 72.\n<answer>72</answer>", 1),
        ("72", "<answer>71</answer> or rather <answer>$72</answer>", 1),
        ("72", "<answer>\\$72.00</answer>", 1),
        ("72", "I think 72", 1),
        ("72", "\\boxed{72}", 1),
        ("1,004", "<answer>1004</answer>", 1),
        ("\\frac{1}{2}", "<answer>0.5</answer>", 1),
        ("x^2+1", "<answer>1 + x^2</answer>", 1),
        ("Paris", "<answer>paris.</answer>", 1),
        ("Paris", "<answer>Arips</answer>", 0),
        ("72", "<answer>73</answer>", 0),
        ("72", "<answer></answer> 72", 0),
        ("72", "", 0),
        ("72", None, 0),
        ("72", "<answer>" + "9" * 20_000 + "</answer>", 0),
    ],
)
def test_answers_are_compared_as_mathematics(expected: str, answer: str | None, reward: float) -> None:
    pytest.importorskip("math_verify")
    result = grade({"answer": expected}, Evidence(answer=answer, stop_reason="stop", turns=1))
    assert result.reward == reward
    assert (result.failure_reason is None) == (reward == 1)
    if result.failure_reason:
        assert repr(expected) in result.failure_reason
        assert len(result.failure_reason) < 600


def test_a_row_may_say_what_makes_its_machine_ready(tmp_path: Path) -> None:
    """Whatever it is graded by."""
    install = {"command": "make ready", "timeout_s": 5}
    tests = {"test_command": "true", "artifacts": ["a"]}
    plain, tested, bare = load(
        tmp_path, "\n".join((row(install=install), row("r", install={"command": "x"}, **tests), row("s", install=None)))
    )
    assert plain.install == Install(command="make ready", timeout_s=5)
    assert tested.install == Install(command="x")
    assert bare.install is None


@pytest.mark.parametrize(
    ("install", "words"),
    [
        ("make", "install: Input should be"),
        ({}, "install.command"),
        ({"command": "x", "timeout_s": 0}, "install.timeout_s"),
    ],
)
def test_an_install_that_says_something_else_is_refused(tmp_path: Path, install: Any, words: str) -> None:
    with pytest.raises(BadTaskset, match=r"rows\.jsonl:1") as caught:
        load(tmp_path, row(install=install))
    assert words in str(caught.value)


def test_a_row_names_the_image_of_its_machine(tmp_path: Path) -> None:
    named, bare = load(tmp_path, "\n".join((row(image="task:1"), row("r"))))
    assert (named.image, bare.image) == ("task:1", None)
    with pytest.raises(BadTaskset, match="'image'"):
        load(tmp_path, row(image=["task:1"]))


def test_a_row_offers_tools(tmp_path: Path) -> None:
    """What an agent sees of them, and apart from it how they are executed, with data that only the verifier sees."""
    table = {"tea": 3}
    tools = ["note", {"name": "price", "use": "lookup", "description": "What it costs."}]
    (task,) = load(tmp_path, row(tools=tools, tool_data={"price": {"table": table}}))
    assert [tool.name for tool in task.input.tools] == ["note", "price"]
    assert task.input.tools[1].description == "What it costs."
    assert task.input.tools[1].parameters["required"] == ["key"]
    assert [(grant.name, grant.kind, grant.required) for grant in task.input.grants] == [("task_tools", "mcp", True)]
    assert "tea" not in task.input.model_dump_json()
    assert task.environment is not None
    assert task.environment.tools["price"].model_dump()["data"] == {"table": table}
    assert task.verifier == "math_verify"


def test_a_row_may_be_graded_by_what_its_tools_were_left(tmp_path: Path) -> None:
    (task,) = load(tmp_path, json.dumps({"question": "q", "tools": ["note"], "expected_records": {"note": ["42"]}}))
    assert (task.verifier, task.verifier_data) == ("tool_state", {"expected": {"note": ["42"]}})


def test_a_row_names_a_tool_of_a_server(tmp_path: Path) -> None:
    far = {"name": "far", "use": "near", "url": "http://t/mcp", "description": "d", "parameters": {"type": "object"}}
    (task,) = load(tmp_path, row(tools=[far], grants=[{"name": "g", "kind": "http", "required": False}]))
    assert task.environment is not None
    assert task.environment.tools["far"].model_dump() == {
        "type": "mcp",
        "url": "http://t/mcp",
        "tool": "near",
        "headers": {},
    }
    assert task.input.grants[0].kind == "http"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"tools": ["notes"]}, "no tool is called 'notes'; there are lookup, note"),
        ({"tools": ["Note"]}, "tools.0.name"),
        ({"tools": []}, "tools"),
        ({"tools": [{"name": "shell", "use": "note"}]}, "'shell' is what agents run commands with"),
        ({"tools": ["note", "note"]}, "two tools have one name"),
        ({"tools": ["note"], "grants": [{"name": "a"}, {"name": "a", "kind": "http"}]}, "two grants have one name"),
        ({"tools": ["lookup"]}, "wants `table`"),
        ({"tools": ["note"], "tool_data": {"price": {}}}, "'price', which is no tool of the row"),
        ({"tools": ["note"], "expected_records": {"price": []}}, "'price', which is no tool of the row"),
        ({"tool_data": {}}, "tools: Field required"),
        ({"tools": [{"name": "far", "url": "http://t"}]}, "wants `description` and `parameters`"),
        (
            {"tools": [{"name": "f", "url": "http://u:p@t", "description": "d", "parameters": {}}]},
            "may hold no name and no password",
        ),
        ({"tools": [{"name": "note", "headers": {"a": "b"}}]}, "`headers` are for a tool with a `url`"),
        ({"tools": ["note"], "expected_records": {}, "test_command": "true", "artifacts": ["a"]}, "not both"),
    ],
)
def test_a_row_that_offers_what_there_is_not_is_refused(tmp_path: Path, said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadTaskset, match=re.escape(words)):
        load(tmp_path, row(**said))
