"""A configuration means what files, overrides and flags say together, and a mistake is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from gym_bus.cli.eval_run import resolve
from gym_bus.config import config_digest, difference, gather, key_of_model, make_paths_absolute, validate
from gym_bus.config_text import Sourced, parse
from gym_bus.errors import BadConfig
from schemas.base import Frozen
from schemas.config import Budget, JsonlTaskset, OpenAIModel, ReasoningGymTaskset, RunConfig, ScriptedModel, VllmModel
from schemas.harnesses import CodexAgent
from schemas.loops import BrowsecompAgent, HistoryGuards
from schemas.readiness import Install

TASKS = "taskset:\n  type: reasoning_gym\n  datasets: [{name: chain_sum}, {name: products}]\n"


def write(tmp_path: Path, text: str, name: str = "run.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def resolved(files: list[Path], *overrides: str, **flags: object) -> RunConfig:
    return validate(gather(files, overrides, flags))


def complaint(files: list[Path], *overrides: str) -> str:
    with pytest.raises(BadConfig) as caught:
        validate(gather(files, overrides))
    return str(caught.value)


def test_later_files_win_and_mappings_are_merged(tmp_path: Path) -> None:
    """What a later file does not mention stays; lists are replaced as a whole."""
    first = write(tmp_path, TASKS + "agent: {max_steps: 3, timeout_s: 9}\nnum_repeats: 2\n", "a.yaml")
    second = write(tmp_path, "agent: {max_steps: 5}\ntaskset: {datasets: [{name: basic_arithmetic}]}\n", "b.yaml")
    config = resolved([first, second])
    assert (config.agent.max_steps, config.agent.timeout_s, config.num_repeats) == (5, 9, 2)
    assert isinstance(config.taskset, ReasoningGymTaskset)
    assert [d.name for d in config.taskset.datasets] == ["basic_arithmetic"]


def test_overrides_win_over_files_and_flags_over_overrides(tmp_path: Path) -> None:
    """Flags are what is typed last in mind, whatever their place on the line."""
    path = write(tmp_path, TASKS + "num_repeats: 2\n")
    assert resolved([path], "num_repeats=3").num_repeats == 3
    assert resolved([path], "num_repeats=3", num_repeats=4).num_repeats == 4


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_override_prefixes_mean_the_same(tmp_path: Path, prefix: str) -> None:
    """Users of Hydra type + and ++; here there is nothing to tell apart."""
    config = resolved(
        [write(tmp_path, TASKS)], f"{prefix}model.error_rate=0.5", f"{prefix}agent.system_prompt='a: b=c'"
    )
    assert isinstance(config.model, ScriptedModel)
    assert config.model.error_rate == 0.5
    assert config.agent.system_prompt == "a: b=c"


def test_a_mapping_of_another_type_is_replaced(tmp_path: Path) -> None:
    """Keys of one taskset mean nothing in another."""
    config = resolved([write(tmp_path, TASKS)], "taskset={type: jsonl, jsonl_fpath: x.jsonl}")
    assert config.taskset == JsonlTaskset(jsonl_fpath="x.jsonl")


def test_a_missing_type_is_told_by_the_keys(tmp_path: Path) -> None:
    """Setting one key of a part does not need its type; the default is the first that fits."""
    path = write(tmp_path, "taskset: {jsonl_fpath: x.jsonl}\n")
    config = resolved(
        [path], "model.policy_base_url=http://h/v1", "model.policy_model_name=m", "sandbox.limits.cpu_s=5"
    )
    assert (config.taskset.type, config.model.type, config.sandbox.type) == ("jsonl", "openai", "bubblewrap")


def test_an_unknown_key_is_named_with_its_place_and_a_guess(tmp_path: Path) -> None:
    """The line says where the key stands, and what was perhaps meant."""
    path = write(tmp_path, TASKS + "num_repeat: 3\nmodel:\n  type: scripted\n  eror_rate: 1\n")
    text = complaint([path])
    assert f"{path}:4: num_repeat: unknown key; did you mean num_repeats?" in text
    assert f"{path}:7: model.eror_rate: unknown key; did you mean error_rate?" in text
    assert "did you mean model.error_rate?" in complaint([write(tmp_path, TASKS)], "error_rate=1")


def test_what_is_misspelt_is_said_before_what_is_missing_for_it(tmp_path: Path) -> None:
    parts = ("model.type=vllm", "model.policy_model_name=m", "model.policy_base_url=http://h")
    lines = complaint([write(tmp_path, TASKS)], *parts, "model.prices.inptu=1").splitlines()
    assert "model.prices.inptu: unknown key; did you mean input?" in lines[0]
    assert [line.partition(": has")[0] for line in lines[1:]] == ["model.prices.input", "model.prices.output"]


def test_a_key_of_another_type_is_said_to_be_one(tmp_path: Path) -> None:
    """It is spelt rightly, so the same word again would help nobody."""
    flags = {"model": {"type": "openai", "policy_base_url": "http://h/v1", "policy_model_name": "m"}}
    with pytest.raises(BadConfig) as caught:
        validate(gather([write(tmp_path, TASKS)], ["model.error_rate=0.1"], flags))
    text = str(caught.value)
    assert "model.error_rate: unknown key: type openai has none of this name, type scripted has" in text
    assert "did you mean" not in text
    text = complaint([write(tmp_path, TASKS)], "agent.type=codex_agent", "agent.models_config={}")
    assert text.endswith("type pi_agent and prime_agent have")


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        (
            "agent.version=1.20",
            """agent.version: should be a valid string, found 1.2: quote it, 'agent.version="1.20"'""",
        ),
        ("agent.system_prompt=yes", """found True: quote it, 'agent.system_prompt="yes"'"""),
        ("+agent.version=2026-01-02", """found datetime.date(2026, 1, 2): quote it, '+agent.version="2026-01-02"'"""),
        ("agent={version: 1.20}", "agent.version: should be a valid string, found 1.2: quote it"),
        ("agent.version=null", ""),
        ("agent.version=[1]", "found [1]"),
        ("agent.version=latest", "agent.version: want an exact version such as 1.2.3, found 'latest'"),
        (
            "agent={type: python_agent, function: own}",
            "agent.function: want module:function, such as agent:solve, found 'own'",
        ),
    ],
)
def test_a_text_that_is_not_written_as_one_is_said_to_be_quoted(tmp_path: Path, override: str, wanted: str) -> None:
    """A version looks like a number; what is no version, or no function, is said in words."""
    given = ["agent.type=codex_agent", override]
    if wanted:
        assert complaint([write(tmp_path, TASKS)], *given).endswith(wanted)
    else:
        validate(gather([write(tmp_path, TASKS)], given))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: [1\nb: }\n", ":2:"),
        ("a: 1\nb: 2\na: 3\n", ":3: key 'a' was given at"),
        ("- 1\n", "want keys and values at the top, found list"),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("? [1, 2]\n: 3\n", "a key must be text"),
        ("a: &a {b: *a}\n", "nested too deeply"),
    ],
)
def test_bad_yaml_is_refused_with_its_line(tmp_path: Path, text: str, wanted: str) -> None:
    """Whatever is wrong with a file, the message names it and the line."""
    path = write(tmp_path, text)
    message = complaint([path])
    assert str(path) in message
    assert wanted in message


def test_aliases_of_aliases_do_not_explode(tmp_path: Path) -> None:
    """A few hundred bytes that stand for a billion values are refused at once."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert "too many values" in complaint([write(tmp_path, "\n".join(lines))])


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("model.error_rate=7", "model.error_rate: should be less than or equal to 1, found 7"),
        ("agent.max_steps=many", "agent.max_steps: should be a valid integer"),
        ("taskset.datasets=x", "taskset.datasets: should be a list, found 'x'"),
        ("sandbox=3", "sandbox: want keys and values, found 3"),
        ("model.type=scriptd", "no such type 'scriptd'"),
        ("taskset.datasets=[{nam: x}]", "taskset.datasets.0.nam: unknown key; did you mean name?"),
    ],
)
def test_a_wrong_value_is_said_in_plain_words(tmp_path: Path, override: str, wanted: str) -> None:
    """No class names, no tags of unions: the dotted key, and what it may be."""
    text = complaint([write(tmp_path, TASKS)], override)
    assert wanted in text
    assert f"override {override!r}: " in text


def test_a_mistake_is_blamed_on_whoever_said_it_last(tmp_path: Path) -> None:
    """What a flag or an override lays over a file is not the file's, nor what is in it."""
    path = write(tmp_path, TASKS + "num_samples_in_parallel: 3\nagent: {max_steps: 3, timeout_s: 0}\n")
    with pytest.raises(BadConfig) as caught:
        validate(gather([path], ["agent={max_steps: 0}"], {"num_samples_in_parallel": 0}))
    lines = sorted(str(caught.value).splitlines())
    assert [line.partition(": should")[0] for line in lines] == [
        f"{path}:5: agent.timeout_s",
        "command line: num_samples_in_parallel",
        "override 'agent={max_steps: 0}': agent.max_steps",
    ]
    model = {"type": "openai", "policy_base_url": ["http://h", "http://h:0"], "policy_model_name": "m"}
    with pytest.raises(BadConfig, match=r"^command line: model\.policy_base_url: "):
        validate(gather([path], ["agent.timeout_s=1"], {"model": model}))


SERVED = ("model.type=vllm", "model.policy_model_name=m")
E2B = ("sandbox.type=e2b",)


@pytest.mark.parametrize(
    ("parts", "key", "address"),
    [
        (SERVED, "model.policy_base_url", "http://u:hidden@h/v1"),
        (SERVED, "model.policy_base_url", "u:hidden@h:8000/v1"),
        (SERVED, "model.policy_base_url", "http://h/v1?key=hidden"),
        (SERVED, "model.policy_base_url", "http://h/v1#hidden"),
        (SERVED, "model.policy_base_url", "[http://h/v1, http://hidden@h/v1]"),
        (("model.type=azure", *SERVED[1:]), "model.policy_base_url", "http://h/?api-version=hidden"),
        (("model.type=anthropic", *SERVED[1:]), "model.policy_base_url", "http://u:hidden@h"),
        (E2B, "sandbox.domain", "u:hidden@h"),
        (E2B, "sandbox.api_url", "http://u:hidden@h"),
        (E2B, "sandbox.sandbox_url", "http://h/?key=hidden"),
        (("sandbox.type=opensandbox", "sandbox.image=i"), "sandbox.domain", "u:hidden@h:8080"),
        (("sandbox.type=daytona",), "sandbox.api_url", "http://u:hidden@h"),
        (("agent.type=remote_agent",), "agent.url", "http://u:hidden@h/do"),
    ],
)
def test_an_address_with_what_may_be_a_secret_is_refused(
    tmp_path: Path, parts: tuple[str, ...], key: str, address: str
) -> None:
    """It would stand in the log and in the results; the error does not show it either."""
    text = complaint([write(tmp_path, TASKS)], *parts, f"{key}={address}")
    assert f"{key}: an address with a name, a query or a fragment may hold a secret" in text
    assert "hidden" not in text


@pytest.mark.parametrize("address", ["http://h:99999/v1", "http://h:0/v1", "http://h:http/v1"])
def test_a_port_that_is_none_is_said_to_be_none(tmp_path: Path, address: str) -> None:
    text = complaint([write(tmp_path, TASKS)], *SERVED, f"model.policy_base_url={address}")
    assert f"'{address}' has no port from 1 to 65535" in text


def test_an_address_may_hold_an_at_sign_in_its_path(tmp_path: Path) -> None:
    config = resolved([write(tmp_path, TASKS)], *SERVED, "model.policy_base_url=http://h:8000/a@b/v1")
    assert isinstance(config.model, VllmModel)


@pytest.mark.parametrize("text", ["num_repeats", "a b=1", "=1", "--x=1", "a..b=1"])
def test_what_is_no_override_is_refused(text: str) -> None:
    """A forgotten value is not taken for a null."""
    with pytest.raises(BadConfig, match="is no override"):
        gather([], [text])


@pytest.mark.parametrize("second", ["num_repeats=2", "num_repeats=1", "+num_repeats=2"])
def test_a_key_is_overridden_once(second: str) -> None:
    """As in a file; a part and a key of it are two keys."""
    with pytest.raises(BadConfig, match="num_repeats was given already, as 'num_repeats=1'"):
        gather([], ["num_repeats=1", "limit=3", second])
    assert gather([], ["agent={max_steps: 3}", "agent.timeout_s=4"]).values["agent"] == {"max_steps": 3, "timeout_s": 4}


def test_merge_keys_are_those_of_safe_load() -> None:
    """`<<` works as everywhere; the mapping's own keys win."""
    assert parse("base: &b {x: 1, y: 2}\nmade: {<<: *b, y: 3}\n", "here")["made"] == {"x": 1, "y": 3}


def test_equal_configurations_have_equal_digests(tmp_path: Path) -> None:
    """Writing a default out changes nothing; changing a value does."""
    path = write(tmp_path, TASKS)
    plain = resolved([path])
    assert config_digest(plain) == config_digest(resolved([path], "num_repeats=1", "model={type: scripted}"))
    assert config_digest(plain) != config_digest(resolved([path], "num_repeats=2"))
    assert len(config_digest(plain)) == 16


def test_the_difference_names_keys_and_both_values(tmp_path: Path) -> None:
    """A refused resume shows what was logged and what was given."""
    path = write(tmp_path, TASKS)
    old, new = resolved([path]), resolved([path], "num_repeats=2", "limit=5", "taskset.datasets=[{name: chain_sum}]")
    lines = difference(old, new)
    assert "num_repeats: 1 -> 2" in lines
    assert "limit: null -> 5" in lines
    assert 'taskset.datasets.1.name: "products" -> (not set)' in lines
    assert difference(old, old) == []


def test_paths_of_tasks_are_made_absolute(tmp_path: Path) -> None:
    """Hosts have another working directory than whoever types."""
    sourced = gather([], ["taskset={type: jsonl, jsonl_fpath: t.jsonl}"])
    make_paths_absolute(sourced, tmp_path)
    assert validate(sourced).taskset == JsonlTaskset(jsonl_fpath=str(tmp_path / "t.jsonl"))


@pytest.mark.parametrize(
    ("written", "given", "environ", "wanted"),
    [
        ("env:MY_KEY", None, {"MY_KEY": "k1"}, "k1"),
        ("k2", None, {"OPENAI_API_KEY": "no"}, "k2"),
        (None, "k3", {"OPENAI_API_KEY": "no"}, "k3"),
        (None, None, {"OPENAI_API_KEY": "k4"}, "k4"),
        (None, None, {}, None),
    ],
)
def test_the_key_is_taken_out_of_the_values(
    written: str | None, given: str | None, environ: dict[str, str], wanted: str | None
) -> None:
    """Flag, then file, then OPENAI_API_KEY; what goes on to the log has no key in it."""
    model = {"type": "openai", **({"policy_api_key": written} if written else {})}
    sourced = Sourced({"model": model})
    assert key_of_model(sourced, given, environ, is_default_wanted=True) == wanted
    assert "policy_api_key" not in sourced.values["model"]


def test_a_missing_environment_variable_is_an_error() -> None:
    """A run without its key would only fail later."""
    with pytest.raises(BadConfig, match="MY_KEY"):
        key_of_model(Sourced({"model": {"policy_api_key": "env:MY_KEY"}}), None, {}, is_default_wanted=True)


def test_the_example_is_valid() -> None:
    """What the README shows can be run."""
    path = Path(__file__).resolve().parents[2] / "examples" / "quickstart.yaml"
    assert resolved([path]).num_repeats == 3


def test_model_flags_make_an_openai_model(tmp_path: Path) -> None:
    """--model and --model-url take the stand-in's place."""
    options = {
        "configs": [write(tmp_path, TASKS + "model: {type: scripted, seed: 3}\n")],
        "model": "m",
        "model_url": "http://h/v1",
    }
    config, key = resolve(options, {"OPENAI_API_KEY": "k"})
    assert config.model == OpenAIModel(policy_base_url="http://h/v1", policy_model_name="m")
    assert key == "k"


def test_overrides_hold_for_the_part_that_a_flag_chose() -> None:
    """A flag that changes a part's type replaces what files say of it, and not what overrides say."""
    flags = {"model": {"type": "openai", "policy_base_url": "http://x/v1", "policy_model_name": "m"}}
    sourced = gather([], ["model.timeout_s=6", "model.max_tries=2", "model.policy_model_name=other"], flags)
    assert sourced.values["model"] == {**flags["model"], "timeout_s": 6, "max_tries": 2}


def test_half_a_surrogate_pair_is_refused() -> None:
    """It could not be written down: no log, no request to a model."""
    with pytest.raises(BadConfig, match="surrogate"):
        validate(gather([], ['agent.system_prompt="\\uDC80"', "taskset.datasets=[{name: chain_sum}]"]))


def test_a_budget_of_money_needs_somebody_who_counts(tmp_path: Path) -> None:
    """Without prices, and from a backend that says nothing, it would never end anything."""
    file = write(tmp_path, TASKS)
    assert "budget.run.cost_usd needs model.prices" in complaint([file], "budget.run.cost_usd=3")
    served = ("model.type=vllm", "model.policy_base_url=http://a:1", "model.policy_model_name=m")
    assert "budget.rollout.cost_usd" in complaint([file], *served, "budget.rollout.cost_usd=3")
    priced = resolved([file], *served, "budget.run.cost_usd=3", "model.prices={input: 1, output: 2}")
    assert priced.budget.run.cost_usd == 3


def test_an_install_is_written_where_the_run_is(tmp_path: Path) -> None:
    """In a file and on the command line; without a command there is none."""
    path = write(tmp_path, TASKS + "install: {command: make ready, timeout_s: 90}\n")
    assert resolved([path]).install == Install(command="make ready", timeout_s=90)
    assert resolved([path], "install.timeout_s=5").install == Install(command="make ready", timeout_s=5)
    assert resolved([write(tmp_path, TASKS)]).install is None
    assert "install.command" in complaint([path], "install.command=")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (BrowsecompAgent, "max_context_tokens"),
        (BrowsecompAgent, "context_reset_tokens"),
        (HistoryGuards, "max_total_tokens"),
        (HistoryGuards, "reserved_generation_tokens"),
        (CodexAgent, "context_tokens"),
        (CodexAgent, "max_output_tokens"),
        (Budget, "model_calls"),
        (Budget, "input_tokens"),
        (Budget, "output_tokens"),
        (Budget, "total_tokens"),
    ],
)
def test_numbers_that_no_model_has_are_refused(kind: type[Frozen], name: str) -> None:
    """They would be told to programs, and are more than what can be counted with."""
    with pytest.raises(ValidationError, match=name):
        kind.model_validate({name: 10**400})
    assert kind.model_validate({name: 10**9})
