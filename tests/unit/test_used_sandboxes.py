"""Where a host looks for what its last life left behind: in every place that it ever used, whatever tasks asked of their machines."""

from __future__ import annotations

from pathlib import Path

from actors.used_sandboxes import KEPT, UsedSandboxes
from schemas.sandboxes import Apptainer, Bubblewrap, Docker, Layout, SandboxConfig, SandboxLimits


def test_what_tasks_say_of_their_machines_pushes_no_place_out(tmp_path: Path) -> None:
    """A set of tasks has as many configurations as tasks."""
    used = UsedSandboxes(tmp_path / "sandboxes.jsonl")
    first: list[SandboxConfig] = [
        Docker(image="first:1", socket="/run/other.sock"),
        Apptainer(image="a.sif"),
        Docker(dockerfile="/srv/one/Dockerfile"),
    ]
    for config in first:
        used.add(config)
    for number in range(KEPT + 1):
        used.add(Bubblewrap(layout=Layout(workspace=f"/app{number}")))
        used.add(Docker(image=f"task:{number}", limits=SandboxLimits(memory_mib=100 + number)))
    found = UsedSandboxes(tmp_path / "sandboxes.jsonl").all()
    assert [config.type for config in found] == ["docker", "apptainer", "docker", "bubblewrap"]
    assert [getattr(config, "socket", None) for config in found] == ["/run/other.sock", None, None, None]
