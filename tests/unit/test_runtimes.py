"""What Apptainer and Enroot are told: only what is documented, nothing secret in an argument, nothing of the host's in the box.

A stand-in takes their place: it refuses options that are not documented, and records what it was started with.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from gym_bus.cli.eval_run import resolve
from gym_bus.errors import BadConfig
from providers.sandboxes import CreateFailed, SandboxUnavailable, make_provider
from providers.sandboxes.runtime_provider import RuntimeProvider
from schemas.sandboxes import Apptainer, Enroot, SandboxConfig, SandboxLimits
from tests.support.boxes import STAND_INS, config_of, processes_with

RUNTIMES = ["apptainer", "enroot"]
CANARY = "canary-8c1f"


def recorded(command: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in Path(STAND_INS["record"]).read_text().splitlines()]
    return [line for line in lines if command in line["arguments"]]


async def said(provider: RuntimeProvider, command: str, label: str = "r.1.b1") -> str:
    box = await provider.create(label)
    try:
        return (await box.exec(command, key="k", timeout_s=20)).output
    finally:
        await box.destroy()


def provider_of(config: SandboxConfig, path: Path) -> RuntimeProvider:
    Path(STAND_INS["record"]).unlink(missing_ok=True)
    provider = make_provider(config, path / "boxes")
    assert isinstance(provider, RuntimeProvider)
    return provider


async def test_apptainer_is_told_to_contain(tmp_path: Path) -> None:
    provider = provider_of(config_of("apptainer"), tmp_path)
    await said(provider, "true")
    await provider.aclose()
    [call] = recorded("exec")
    arguments = call["arguments"]
    assert arguments[:2] == ["--quiet", "exec"]
    for flag in ("--containall", "--cleanenv", "--no-home", "--no-init", "--no-privs", "--no-eval", "--writable-tmpfs"):
        assert flag in arguments
    assert arguments[arguments.index("--net") :][:3] == ["--net", "--network", "none"]
    assert arguments[-2:] == [STAND_INS["image"], "/bin/sh"]
    assert "--memory" not in arguments


async def test_apptainer_can_be_told_less_and_more(tmp_path: Path) -> None:
    config = Apptainer(
        image=STAND_INS["image"],
        binary=STAND_INS["apptainer"],
        network="host",
        writable_tmpfs=False,
        cgroups=True,
        limits=SandboxLimits(memory_mib=200, processes=20),
    )
    provider = provider_of(config, tmp_path)
    assert "Read-only" in await said(provider, "ulimit -v; touch /new")
    await provider.aclose()
    [call] = recorded("exec")
    assert "--net" not in call["arguments"]
    for pair in (["--memory", "200M"], ["--pids-limit", "20"]):
        at = call["arguments"].index(pair[0])
        assert call["arguments"][at : at + 2] == pair


async def test_enroot_makes_one_container_for_all_that_only_read(tmp_path: Path) -> None:
    provider = provider_of(config_of("enroot"), tmp_path)
    first, second = await provider.create("r.1.b1"), await provider.create("r.2.b1")
    assert (await first.exec("echo x >file; touch /new 2>&1", key="k", timeout_s=10)).exit_code != 0
    assert (await second.exec("ls /box", key="k", timeout_s=10)).output == ""
    await provider.aclose()
    assert len(recorded("create")) == 1
    assert len(recorded("start")) == 2
    assert not list((tmp_path / "boxes").iterdir())


async def test_enroot_makes_and_removes_a_container_for_each_that_writes(tmp_path: Path) -> None:
    config = Enroot(image=STAND_INS["image"], binary=STAND_INS["enroot"], writable=True)
    provider = provider_of(config, tmp_path)
    for n in range(2):
        assert await said(provider, "echo x >/new; cat /new; ls / | grep -c new", f"r.{n}.b1") == "x\n1\n"
    await provider.aclose()
    assert [len(recorded(command)) for command in ("create", "start", "remove")] == [2, 2, 2]
    assert all(call["arguments"][:2] == ["remove", "--force"] for call in recorded("remove"))
    assert not list((tmp_path / "boxes").iterdir())


@pytest.mark.parametrize("kind", RUNTIMES)
async def test_what_is_secret_is_in_no_argument(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the runtime's arguments nor those of any process; variables arrive whatever is in them, and none of the host's do."""
    monkeypatch.setenv("HOST_SECRET", "host-canary-77")
    values = {"TOKEN": f'{CANARY} it\'s $HOME ${{X}} \\ "q" \n two', "EMPTY": "", "_N1": "ü"}
    provider = provider_of(config_of(kind).model_copy(update={"environment": values}), tmp_path)
    box = await provider.create("r.1.b1")
    got = await box.exec('printf %s "$TOKEN"; echo; echo "[$EMPTY]" "$_N1" "$HOME"', key="k", timeout_s=10)
    assert got.output == f"{values['TOKEN']}\n[] ü /box\n"
    assert not processes_with(CANARY)
    everything = await box.exec("env; cat /proc/[0-9]*/environ", key="k", timeout_s=10)
    assert "host-canary-77" not in everything.output
    await provider.aclose()
    for call in [*recorded("exec"), *recorded("start")]:
        assert CANARY not in json.dumps(call["arguments"])
        assert "HOST_SECRET" not in call["environment"]


@pytest.mark.parametrize("kind", RUNTIMES)
async def test_the_host_is_not_there(kind: str, tmp_path: Path) -> None:
    provider = provider_of(config_of(kind), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        looked = (
            f"bash -c 'echo >/dev/tcp/127.0.0.1/{port}' 2>&1; tail -n +3 /proc/net/dev | cut -d: -f1; "
            "echo $(ls -d /proc/[0-9]* | wc -l); ls /root /home 2>/dev/null; cat /proc/1/comm; pwd"
        )
        refused, *rest = (await said(provider, looked)).splitlines()
    await provider.aclose()
    assert "refused" in refused or "unreachable" in refused
    text = "\n".join(rest)
    assert "lo" in text
    assert "eth0" not in text
    assert rest[-2:] == ["sh", "/box"], "the shell is the first process of its namespace"


@pytest.mark.parametrize("kind", RUNTIMES)
async def test_what_is_missing_is_named(kind: str, tmp_path: Path) -> None:
    """The program, the image; and what the runtime itself says, in its own words."""
    config = config_of(kind)
    for change, match in (
        ({"binary": str(tmp_path / "none")}, "not installed"),
        ({"image": str(tmp_path / "none.sif")}, "there is no image at"),
    ):
        provider = provider_of(config.model_copy(update=change), tmp_path)
        with pytest.raises(SandboxUnavailable, match=match):
            await provider.check()
        await provider.aclose()
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'FATAL: no such right' >&2\nexit 255\n")
    broken.chmod(0o755)
    provider = provider_of(config.model_copy(update={"binary": str(broken)}), tmp_path)
    with pytest.raises(CreateFailed, match="no such right"):
        await provider.create("r.1.b1")
    with pytest.raises(SandboxUnavailable, match="no such right"):
        await provider.check()
    await provider.aclose()
    assert not processes_with(str(broken))
    assert not list((tmp_path / "boxes").glob("*/*"))


async def test_a_runtime_without_a_namespace_of_processes_is_refused(tmp_path: Path) -> None:
    """`kill -9 -1` clears a box at a deadline: it must never be said outside of one."""
    outside = tmp_path / "apptainer"
    outside.write_text("#!/bin/sh\nexec /bin/sh\n")
    outside.chmod(0o755)
    provider = provider_of(Apptainer(image=STAND_INS["image"], binary=str(outside)), tmp_path)
    with pytest.raises(CreateFailed, match="no process namespace of its own"):
        await provider.create("r.1.b1")
    await provider.aclose()


def test_paths_in_a_configuration_are_those_of_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts have another working directory; a program's bare name stays one."""
    monkeypatch.chdir(tmp_path)
    tasks = "taskset={type: jsonl, jsonl_fpath: t}"

    def sandbox_of(text: str) -> Any:
        return resolve({"overrides": [tasks, f"sandbox={text}"]}, dict(os.environ))[0].sandbox

    found = sandbox_of("{type: apptainer, image: a.sif}")
    assert (found.image, found.binary) == (str(tmp_path / "a.sif"), "apptainer")
    found = sandbox_of("{type: enroot, image: /b.sqsh, binary: bin/enroot}")
    assert (found.image, found.binary) == ("/b.sqsh", str(tmp_path / "bin" / "enroot"))
    assert sandbox_of("{type: docker, image: a/b}").image == "a/b"
    with pytest.raises(BadConfig, match="environment"):
        sandbox_of("{type: apptainer, image: a.sif, environment: {'a b': c}}")


@pytest.mark.parametrize("name", ["docker", *RUNTIMES])
def test_the_examples_say_what_is_known(name: str) -> None:
    config, _ = resolve({"configs": (Path(__file__).parents[2] / "examples" / f"{name}.yaml",)}, {})
    assert config.sandbox.type == name
