"""Skills that a task brings along, for real: the model is told of one that lies in a directory of the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.harnesses.base import Harness
from adapters.harnesses.codex import CODEX
from adapters.harnesses.table import HARNESSES
from gym_bus.errors import Permanent
from tests.support.harness_place import harness_place
from tests.support.model_script import ModelScript

SKILL = "---\nname: tea-making\ndescription: How to make tea.\n---\n\nBoil water.\n"
WITH_SKILLS = [harness for harness in HARNESSES.values() if harness.finds_skills]


@pytest.mark.parametrize(
    "harness",
    [CODEX, *(pytest.param(harness, marks=pytest.mark.harness) for harness in WITH_SKILLS if harness is not CODEX)],
    ids=lambda harness: harness.name,
)
async def test_a_skill_of_the_task(harness: Harness, tmp_path: Path) -> None:
    """It is named in what the model is sent (Cline says no more of it than that); a directory that is not there lets nothing begin."""
    async with harness_place(harness, tmp_path, ModelScript(harness.dialect, ())) as at:
        directory = "/tmp/given/tea-making"
        await at.said(f"mkdir -p {directory} && cat >{directory}/SKILL.md <<'END'\n{SKILL}END")
        with pytest.raises(Permanent, match="/tmp/other cannot be copied"):
            await at.run(skills="/tmp/other")
        assert not at.place.upstream.bodies
        receipt, _ = await at.run(skills="/tmp/given")
        assert receipt.exit_code == 0
        assert "tea-making" in json.dumps(at.place.upstream.bodies)
