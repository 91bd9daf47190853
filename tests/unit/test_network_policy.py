"""What a configuration says about the network: per phase, by name, and never more than sandboxes can be held to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gym_bus.cli.eval_run import resolve
from gym_bus.errors import BadConfig, Permanent
from providers.sandboxes import PROVIDERS, make_provider
from providers.sandboxes.phases import PHASES, PhaseChanged, enter, reach_in
from schemas.sandboxes import Apptainer, Bubblewrap, Docker, Enroot, Inline, NetworkPolicy, Reach, UnsafeLocal

POLICY = NetworkPolicy(install=Reach(allow=("mirror.example:8080",)), agent=Reach(allow=("a.example", "*.b.example")))


def test_nothing_is_allowed_unless_it_is_said() -> None:
    for sandbox in (Bubblewrap(), Docker(image="i")):
        assert [reach_in(sandbox.network, phase).allow for phase in (None, *PHASES)] == [()] * 4
        assert sandbox.network.private == ()


def test_a_phase_is_entered_with_its_list_and_never_again() -> None:
    first = enter(POLICY, None, "install")
    assert first == PhaseChanged("install", ("mirror.example:8080",))
    assert enter(POLICY, first.phase, "agent") == PhaseChanged("agent", ("a.example", "*.b.example"))
    assert enter(POLICY, None, "verify") == enter(POLICY, "agent", "verify") == PhaseChanged("verify", ())
    for now, phase in (("agent", "install"), ("agent", "agent"), ("verify", "agent")):
        with pytest.raises(Permanent, match="none comes back"):
            enter(POLICY, now, phase)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ({"agent": {"allow": ["10.0.0.0/8"]}}, "no range"),
        ({"agent": {"allow": ["1.1.1.1"]}}, "never numbered"),
        ({"agent": {"allow": ["*"]}}, "beginning"),
        ({"verify": {"allow": ["https://a.example"]}}, "name:port"),
        ({"private": ["127.0.0.1:80"]}, "never numbered"),
        ({"install": {"allow": ["a.example"] * 300}}, "at most 256"),
        ({"agnet": {}}, "agnet"),
    ],
)
def test_a_bad_list_is_refused_with_its_place(network: dict[str, Any], words: str, tmp_path: Path) -> None:
    written = {"taskset": {"type": "jsonl", "jsonl_fpath": "x"}, "sandbox": {"type": "bubblewrap", "network": network}}
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(written))
    with pytest.raises(BadConfig) as caught:
        resolve({"configs": [path]}, {})
    assert words in str(caught.value)
    assert "network" in str(caught.value)


@pytest.mark.parametrize("kind", ["inline", "unsafe_local", "apptainer, image: i", "enroot, image: i"])
def test_a_sandbox_that_cannot_be_held_to_a_list_has_none(kind: str) -> None:
    """Said before the run starts, naming the key."""
    overrides = [
        "taskset={type: jsonl, jsonl_fpath: x}",
        f"sandbox={{type: {kind}, network: {{agent: {{allow: [a.example]}}}}}}",
    ]
    with pytest.raises(BadConfig, match=r"network"):
        resolve({"overrides": overrides}, {})


async def test_a_sandbox_that_has_lists_is_held_to_them(tmp_path: Path) -> None:
    """Whose configuration knows `network`, whose provider has the capability, and its machines the method."""
    sandboxes = (Bubblewrap(), Docker(image="i"), Apptainer(image="i"), Enroot(image="i"), Inline(), UnsafeLocal())
    remote = {"e2b", "opensandbox", "daytona"}  # told by `allow_hosts`; see the contract suite
    assert {one.type for one in sandboxes} | remote == set(PROVIDERS)
    for sandbox in sandboxes:
        provider = make_provider(sandbox, tmp_path / sandbox.type)
        assert ("egress" in provider.capabilities) == isinstance(getattr(sandbox, "network", None), NetworkPolicy)
        await provider.aclose()
