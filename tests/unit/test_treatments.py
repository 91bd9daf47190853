"""What a run does to its agent's program is a table, a row for each thing."""

from __future__ import annotations

import json

from projections import memory_store
from projections.store import Connection


def asked(connection: Connection, run_id: str, **agent: object) -> None:
    connection.execute(
        "insert into run_requested by name select 0 as shard, ? as seq, ? as run_id, ?::json as config, 'd' as config_digest,"
        " 'out' as output_dir",
        [len(run_id), run_id, json.dumps({"agent": agent})],
    )


def test_prompts_withheld_tools_and_arguments_are_rows() -> None:
    """In the order of the configuration, and a program that is run as it is has none."""
    connection = memory_store()
    asked(
        connection,
        "treated",
        type="codex_agent",
        system_prompt="Be brief.",
        system_prompt_mode="replace",
        withheld_tools=["web", "todo"],
        extra_args=["--a", "--a"],
    )
    asked(connection, "appended", type="pi_agent", system_prompt="Be kind.", withheld_tools=[], extra_args=[])
    asked(connection, "plain", type="pi_agent", system_prompt=None, withheld_tools=[], extra_args=[])
    asked(connection, "loop", type="simple_agent", enable_tools=False)
    rows = connection.execute("select * from treatments order by run_id, treatment, place").fetchall()
    assert rows == [
        ("appended", "pi_agent", "system_prompt_append", 0, "Be kind."),
        ("treated", "codex_agent", "extra_arg", 0, "--a"),
        ("treated", "codex_agent", "extra_arg", 1, "--a"),
        ("treated", "codex_agent", "system_prompt_replace", 0, "Be brief."),
        ("treated", "codex_agent", "withheld_tool", 0, "web"),
        ("treated", "codex_agent", "withheld_tool", 1, "todo"),
    ]


def test_another_version_or_configuration_and_no_tools_are_rows() -> None:
    """What is added to a configuration is a row as JSON, as it was given."""
    connection = memory_store()
    more = {"enable_tools": False, "version": "1.2.3"}
    asked(connection, "one", type="opencode_agent", opencode_config={"permission": {"task": "deny"}}, **more)
    asked(connection, "other", type="pi_agent", models_config={}, withheld_tools=[], enable_tools=True, version=None)
    rows = connection.execute("select * from treatments order by run_id, treatment, place").fetchall()
    assert rows == [
        ("one", "opencode_agent", "no_tools", 0, "enable_tools=false"),
        ("one", "opencode_agent", "opencode_config", 0, '{"permission":{"task":"deny"}}'),
        ("one", "opencode_agent", "version", 0, "1.2.3"),
    ]
