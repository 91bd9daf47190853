"""Where a harness is run for real in tests: a bubblewrap box without a network, and its way out to a real gateway."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, cast

import pytest
from pydantic import Field, TypeAdapter

from actors.gateway.serve import listening, server_for
from adapters.harnesses.asking import FILE_MIB
from adapters.harnesses.base import Activation, Harness, Plan, plan_for
from adapters.harnesses.gaps import KNOWN_GAPS
from adapters.harnesses.installing import installs_of, node_binary, shared_with
from adapters.harnesses.joining import GapKind, Joined, join, recorded_calls
from adapters.harnesses.launching import LaunchBox, Receipt
from adapters.harnesses.running import Account, Following, account_of, begin
from adapters.harnesses.table import harness_of
from adapters.harnesses.trajectory import Item, Said, SessionNamed, Thought, ToolAsked, ToolDone
from gym_bus.settings import Settings
from providers.sandboxes import SandboxProvider
from providers.sandboxes.bubblewrap import BubblewrapBox
from providers.sandboxes.way_out import PORT
from schemas.conversation import DialectName
from schemas.harnesses import AcpAgent, AgentPackage, Program
from schemas.sandboxes import Bubblewrap, SandboxLimits, SharedDirectory
from tests.support.boxes import provider_with
from tests.support.gateway_place import GatewayPlace, gateway_place
from tests.support.model_script import FAILING, LAST_WORDS, MAKING, THOUGHT, backend_for, script_for
from tests.support.node import npm_in
from tests.support.upstream import Answer

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = Path(os.environ.get("GYM_BUS_PROGRAMS_DIR") or ROOT / ".gym-bus")
"""Where programs are installed, once for all tests of this checkout, or of several that name the same directory."""
HOME: Final = "/tmp/agent"
WORKSPACE: Final = "/box"
PROMPT: Final = "--Please-- make hello.txt, in two steps."
ENDED_WITHIN_S: Final = 240.0
AGENTS: Final[TypeAdapter[Program]] = TypeAdapter(Annotated[Program, Field(discriminator="type")])


@asynccontextmanager
async def gateway_with(
    tmp_path: Path, harness: Harness, answer: Answer, backend: DialectName, agent: Program | None = None
) -> AsyncIterator[tuple[GatewayPlace, Path]]:
    """Give a gateway with a session of a harness, whose model speaks `backend` and answers so, and the gateway's unix socket."""
    agent = agent or AGENTS.validate_python({"type": harness.name})
    async with gateway_place(backend, timeout_s=60, agent=agent) as place:
        place.upstream.answers = [answer]
        with listening(Settings(data_dir=tmp_path), tmp_path / "gw") as (sockets, where):
            server = server_for(place.gateway)
            serving = asyncio.create_task(server.serve(sockets=sockets))
            try:
                yield place, Path(where["socket"])
            finally:
                server.should_exit = True
                await serving


async def installed(
    harness: Harness, tmp_path: Path, package: AgentPackage | None = None
) -> tuple[SharedDirectory, ...]:
    """Install a harness, once for all tests of this checkout, with the npm that comes as a wheel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(npm_in(tmp_path / "npm")), prepend=os.pathsep)
        return await shared_with(harness, installs_of(PROGRAMS), package=package)


@dataclass
class HarnessPlace:
    """A harness that is ready to run in a box, and the gateway it talks to."""

    harness: Harness
    place: GatewayPlace
    box: BubblewrapBox
    base_url: str
    runs: int = 0

    def plan(self, **changes: Any) -> Plan:
        """Return how an activation is run."""
        given: dict[str, Any] = {
            "prompt": PROMPT,
            "model": "some-model",
            "base_url": self.base_url,
            "home": HOME,
            "workspace": WORKSPACE,
            "installed": f"/opt/gym-bus/{self.harness.name}",
            "node": node_binary("/opt/gym-bus/node"),
        }
        return plan_for(self.harness, Activation(**given | changes))

    async def run(self, **changes: Any) -> tuple[Receipt, Account]:
        """Run an activation to its end."""
        self.runs += 1
        plan = self.plan(**changes)
        box = cast("LaunchBox", self.box)
        launch = await begin(box, plan, f"l{self.runs}", cwd=WORKSPACE, timeout_s=ENDED_WITHIN_S - 30)
        following, seen, receipt = Following(launch, plan.traces[0]), list[Item](), None
        async with asyncio.timeout(ENDED_WITHIN_S):
            while receipt is None:
                receipt = await launch.wait(0.1)
                seen += await following.more()
        account = await account_of(launch, plan)
        assert tuple(seen) == account.items[: len(seen)], "what is read as it grows is what is read at the end"
        print(receipt, (await launch.read("stderr", 0))[-3000:].decode(errors="replace"))
        await launch.close()
        return receipt, account

    def joined(self, account: Account) -> Joined:
        """Return the harness's account beside the gateway's."""
        return join(account.items, recorded_calls(self.place.events()))

    async def said(self, command: str) -> str:
        """Return what a command prints in the box."""
        return (await self.box.exec(command, key="k", timeout_s=20)).output


@asynccontextmanager
async def harness_place(
    harness: Harness,
    tmp_path: Path,
    answer: Answer | None = None,
    agent: Program | None = None,
    backend: DialectName | None = None,
    shared: tuple[SharedDirectory, ...] = (),
    package: AgentPackage | None = None,
) -> AsyncIterator[HarnessPlace]:
    """Give a place for a harness, or for one that runs `agent`; the model says the usual script if nothing else is given.

    The box is shown what is installed for it, a `package` in place of what is pinned, and `shared`.

    The model's server speaks `backend`, by default the harness's own dialect where servers do.
    """
    harness = harness_of(agent) if agent else harness
    backend = backend or backend_for(harness.dialect)
    limits = SandboxLimits(memory_mib=harness.memory_mib, processes=harness.processes, file_mib=FILE_MIB, cpu_s=600)
    package = agent.package if isinstance(agent, AcpAgent) else package
    config = Bubblewrap(limits=limits, shared=(*shared, *await installed(harness, tmp_path, package)))
    provider: SandboxProvider = await provider_with(config, tmp_path / "boxes")
    try:
        model = answer or script_for(harness.name, backend)
        async with gateway_with(tmp_path, harness, model, backend, agent) as (place, socket):
            box = cast("BubblewrapBox", await provider.create(f"harness.{harness.name}.b1"))
            url = await box.open_way_out(socket, PORT)
            yield HarnessPlace(harness, place, box, f"{url}/a/{place.token}")
    finally:
        await provider.aclose()


async def check_the_usual_run(
    at: HarnessPlace, gaps: Collection[GapKind] | None = None, *, has_exit_codes: bool = True
) -> Account:
    """Run the usual script, and check all that every harness has to show: two calls of a tool, one of which fails, then the end.

    There are the gaps that the harness is known to have, or `gaps`. Not every harness knows of commands how they ended.
    """
    receipt, account = await at.run()
    assert (receipt.ended_by, receipt.exit_code, receipt.is_clean) == ("exit", 0, True)
    assert await at.said("cat hello.txt") == "hello from here\n"
    asked = [item for item in account.items if isinstance(item, ToolAsked)]
    assert [FAILING in asked[0].arguments, MAKING in asked[1].arguments] == [True, True]
    done = {item.call_id: item for item in account.items if isinstance(item, ToolDone)}
    failed, made = (done[item.call_id] for item in asked[:2])
    ends = (failed.exit_code, failed.is_error, made.exit_code, made.is_error)
    assert ends == ((1, True, 0, False) if has_exit_codes else (None, None, None, None))
    assert "No such file" in failed.text
    assert "hello from here" in made.text
    words = "".join(item.text for item in account.items if isinstance(item, Said) and item.role == "assistant")
    assert "Step 1." in words
    known = KNOWN_GAPS[at.harness.name] if gaps is None else gaps
    if "prompt_missing" not in known:
        assert any(PROMPT in item.text for item in account.items if isinstance(item, Said) and item.role == "user")
    assert PROMPT in json.dumps(at.place.upstream.bodies[0])
    if "thoughts_missing" not in known:
        assert [item.text for item in account.items if isinstance(item, Thought) and item.text] == [THOUGHT]
    assert not account.unknown, "a kind of record that nobody here knows"
    assert not any(faults.total for faults in account.faults), account.faults
    assert account.failure is None
    joined = at.joined(account)
    print(joined.gaps)
    assert joined.kinds == frozenset(known)
    assert len(joined.pairs) == len(recorded_calls(at.place.events())) == len(at.place.upstream.bodies)
    return account


def session_of(account: Account) -> str:
    """Return the id of the harness's session."""
    return next(i.session_id for i in (*account.items, *account.asides) if isinstance(i, SessionNamed))


def ends_with_last_words(account: Account) -> bool:
    """Say whether the last that the model said is what the script ends with."""
    said = [item.text for item in account.items if isinstance(item, Said) and item.role == "assistant"]
    return said[-1] == LAST_WORDS
