"""`gym-bus eval`: the commands and their options; what they do is in `eval_run`, `eval_runs` and `attach`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gym_bus.cli import completion
from gym_bus.cli.completion import maybe_run_argument, run_argument
from gym_bus.cli.lazy import CONTEXT, Group
from gym_bus.cli.setup import data_dir_option, json_option


@click.group(cls=Group, context_settings=CONTEXT)
def group() -> None:
    """Run agents on tasks; watch, list, cancel and resume runs."""


MODEL_TYPES = ("openai", "anthropic", "azure", "vllm", "litellm", "switchyard")
config_option = click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A YAML file; later ones win.",
)
key_option = click.option(
    "--model-api-key",
    help="The model's API key, or env:NAME (default: OPENAI_API_KEY, or its type's own). Never logged.",
)

sandbox_key_option = click.option(
    "--sandbox-api-key",
    help="The API key of a remote sandbox's maker, or env:NAME (default: the maker's own variable). Never logged.",
)


@group.command()
@config_option
@click.argument("overrides", nargs=-1, metavar="[FOLDER] [KEY=VALUE]...", shell_complete=completion.overrides)
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=completion.agents,
    help="Who does the tasks: codex, pi, …, or oracle and nop, which check them.",
)
@click.option(
    "--run-id",
    shell_complete=completion.runs,
    help="The run's name (default: made from the configuration and the time).",
)
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Default: results/<run>.")
@click.option("-m", "--model", help="The model's name at the backend (default: a scripted stand-in).")
@click.option(
    "--model-url",
    multiple=True,
    help="The backend's base URL, such as http://127.0.0.1:8000/v1; several times if it is at several.",
)
@click.option(
    "--model-type",
    type=click.Choice(MODEL_TYPES),
    help="What kind of server it is (default: openai, and what speaks like it).",
)
@key_option
@sandbox_key_option
@click.option("--num-repeats", type=int, help="Rollouts of each task.")
@click.option("--concurrency", type=int, help="Rollouts under way at a time.")
@click.option("--limit", type=int, help="Only the first N tasks.")
@click.option("--temperature", type=float)
@click.option("--top-p", type=float)
@click.option("--max-output-tokens", type=int)
@click.option(
    "--reasoning-gym", multiple=True, metavar="NAME", help="Tasks of a Reasoning Gym generator; may be repeated."
)
@click.option(
    "-i",
    "--input",
    "input_path",
    shell_complete=completion.files,
    help="Tasks of a JSON-lines file: questions and answers, or tests.",
)
@click.option(
    "--unsafe-local", is_flag=True, help="Run tools as bare processes with your rights. Only for tasks you trust."
)
@click.option("--detach", is_flag=True, help="Start the run and return.")
@click.option("--resume", is_flag=True, help="Go on with the run of --run-id or --output; start it if there is none.")
@click.option("--overwrite", is_flag=True, help="Move results that are in the way aside.")
@json_option
@data_dir_option
def run(**options: Any) -> int:
    """Start a run and watch it.

    Without --model and --model-url, or a model in the configuration, a scripted stand-in answers, whose scores mean nothing.
    FOLDER is a task in Harbor's format, or a folder of such tasks; docs/harbor.md tells what of it is supported.
    Every key of the configuration can be given as KEY=VALUE, with dots for what is nested; docs/cli.md lists them.

    Exit codes: 0 all rollouts scored or masked, 1 some failed or are missing, 2 wrong use or configuration,
    3 paused, 130 detached.

    \b
    gym-bus eval run --config examples/quickstart.yaml
    gym-bus eval run --config examples/quickstart.yaml num_repeats=1 agent.max_steps=4
    gym-bus eval run --reasoning-gym chain_sum --model-url http://127.0.0.1:8000/v1 --model my-model
    gym-bus eval run --input gsm8k.jsonl --model-url http://127.0.0.1:8000/v1 --model my-model --limit 50
    gym-bus eval run --reasoning-gym chain_sum --model-type vllm --model-url http://127.0.0.1:8000 --model my-model
    gym-bus eval run --reasoning-gym chain_sum --model-type azure --model-url https://me.openai.azure.com --model my-deployment
    gym-bus eval run --reasoning-gym chain_sum model.type=local agent.enable_tools=false --limit 4
    gym-bus eval run tasks/ --agent codex --model-url http://127.0.0.1:8000/v1 --model my-model
    gym-bus eval run tasks/hello --agent oracle
    gym-bus eval run --input tasks.jsonl agent.type=codex_agent --model-url http://127.0.0.1:8000/v1 --model my-model
    gym-bus eval run --config examples/quickstart.yaml model.type=replay model.recording=run.jsonl
    gym-bus eval run --config examples/quickstart.yaml budget.rollout.model_calls=3 budget.run.total_tokens=50000
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.eval_run import start_run  # noqa: PLC0415  not needed for --help

    return start_run(options)


@group.command()
@run_argument
@json_option
@data_dir_option
def attach(run_id: str, as_json: bool, data_dir: Path | None) -> int:
    """Watch a run. Ctrl-C detaches; twice cancels the run.

    \b
    gym-bus eval attach quickstart-0801-101500-3f
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.eval_runs import attach_run  # noqa: PLC0415  not needed for --help

    return attach_run(run_id, as_json=as_json, data_dir=data_dir)


@group.command()
@maybe_run_argument
@json_option
@data_dir_option
def status(run_id: str | None, as_json: bool, data_dir: Path | None) -> int:
    """Show all runs, or one: what is done, what is under way and who has it, what failed and why.

    \b
    gym-bus eval status
    gym-bus eval status quickstart-0801-101500-3f --json
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.eval_status import show_status  # noqa: PLC0415  not needed for --help

    return show_status(run_id, as_json=as_json, data_dir=data_dir)


@group.command()
@run_argument
@click.option("--reason", default="asked for on the command line", help="Kept in the log.")
@json_option
@data_dir_option
def cancel(run_id: str, reason: str, as_json: bool, data_dir: Path | None) -> int:
    """End a run early: nothing new starts, what is under way winds up; what was graded stays.

    \b
    gym-bus eval cancel quickstart-0801-101500-3f --reason "wrong model"
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.eval_runs import cancel_run  # noqa: PLC0415  not needed for --help

    return cancel_run(run_id, reason, as_json=as_json, data_dir=data_dir)


@group.command()
@run_argument
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=completion.overrides)
@config_option
@key_option
@sandbox_key_option
@click.option("--detach", is_flag=True, help="Make the run go on and return.")
@json_option
@data_dir_option
def resume(run_id: str, **options: Any) -> int:
    """Go on with a run: bring everything up again, end its pause, watch it. A run that is over gets its results again.

    The configuration is the logged one. If files or overrides are given they must say the same; else the differences
    are shown and nothing happens. A new --model-api-key or --sandbox-api-key takes the place of the old one.

    \b
    gym-bus eval resume quickstart-0801-101500-3f
    gym-bus eval resume quickstart-0801-101500-3f --config examples/quickstart.yaml
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.eval_runs import resume_run  # noqa: PLC0415  not needed for --help

    return resume_run(run_id, options)


@group.command()
@run_argument
@click.option("--rollout", "rollout_id", metavar="ID", help="Only this rollout, such as 0-0.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the rows there: FILE.jsonl (one row a line) or FILE.parquet. A file that is there is replaced.",
)
@json_option
@data_dir_option
def samples(run_id: str, rollout_id: str | None, out: Path | None, as_json: bool, data_dir: Path | None) -> int:
    """Make training rows of a run's model calls, also while it is going on.

    A row is one chain of calls with its token ids, a loss mask and logarithmic probabilities as the backend gave them, and the
    reward of its rollout if that was scored. Every generated token is in exactly one row, or counted under the reason why it is not.
    Exit code 1 if that is found not to hold. docs/samples.md tells what is in a row.

    \b
    gym-bus eval samples quickstart-0801-101500-3f
    gym-bus eval samples quickstart-0801-101500-3f --out rows.jsonl
    gym-bus eval samples quickstart-0801-101500-3f --out rows.parquet --json
    gym-bus eval samples quickstart-0801-101500-3f --rollout 0-0
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.eval_samples import show_samples  # noqa: PLC0415  not needed for --help

    return show_samples(run_id, rollout_id, out, as_json=as_json, data_dir=data_dir)
