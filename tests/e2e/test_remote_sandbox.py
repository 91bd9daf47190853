"""A whole run whose machines are at somebody else's: the key is given by the environment and is in no file but its own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.real_run import RealRun
from tests.support.sandbox_doubles.e2b import e2b_double
from tests.support.sandbox_doubles.faults import KEY


def test_a_run_uses_remote_machines_and_tells_nobody_the_key(tmp_path: Path) -> None:
    with e2b_double(tmp_path / "machines") as (url, double):
        run = RealRun(tmp_path, {"E2B_API_KEY": KEY})
        try:
            done = run.cli(
                *("eval", "run", "--reasoning-gym", "basic_arithmetic", "--run-id", "r1"),
                *("limit=3", "model.type=scripted", "sandbox.type=e2b"),
                *(f"sandbox.api_url={url}", f"sandbox.sandbox_url={url}", "--output", str(tmp_path / "out")),
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert double.faults.seen.count("POST /v2/sandboxes") >= 3
            assert not double.kept
            assert KEY not in done.stdout + done.stderr
            assert [path for path in tmp_path.rglob("remote_runs.jsonl") if '"run_id":"r1"' in path.read_text()]
            exported = run.cli("log", "export", "r1", "--out", str(tmp_path / "log.jsonl"))
            assert exported.returncode == 0, exported.stderr
        finally:
            run.stop()
        rows = [json.loads(line) for line in (tmp_path / "out/rollouts.jsonl").read_text().splitlines()]
        assert len(rows) == 3
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 10
    holding = {path.parent.name for path in files if KEY.encode() in path.read_bytes()}
    assert holding == {"secrets"}


def test_a_run_that_was_paused_for_a_wrong_key_goes_on_with_the_right_one(tmp_path: Path) -> None:
    with e2b_double(tmp_path / "machines") as (url, double):
        run = RealRun(tmp_path, {"E2B_API_KEY": "e2b_wrong", "RIGHT": KEY})
        try:
            done = run.cli(
                *("eval", "run", "--reasoning-gym", "basic_arithmetic", "--run-id", "r1"),
                *("limit=3", "model.type=scripted", "sandbox.type=e2b"),
                *(f"sandbox.api_url={url}", f"sandbox.sandbox_url={url}", "--output", str(tmp_path / "out")),
            )
            assert done.returncode != 0
            assert "paused" in done.stdout + done.stderr
            assert not double.kept
            done = run.cli("eval", "resume", "r1", "--sandbox-api-key", "env:RIGHT")
            assert done.returncode == 0, done.stdout + done.stderr
            assert "3 planned = 3 scored" in done.stdout
        finally:
            run.stop()
