"""One event of every type, every field set to something that is not its default; and the bytes each is stored as (`tests/golden`)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gym_bus.codec import Head
from gym_bus.subjects import AggregateId, aggregate, event_subject, request_subject
from schemas import config, events, sandboxes
from schemas.base import Event
from schemas.cases import CaseResult, CaseRun
from schemas.conversation import CacheHint, Hosted, Reasoning, Text, Tool, ToolUse, Turn
from schemas.envelope import Envelope
from schemas.environment import BuiltIn, Environment, RemoteTool, TaskTool, ToolGrant
from schemas.events.context import EditedMessage
from schemas.harnesses import AgentPackage, Continuation, PiAgent, ToldItem
from schemas.ids import RUN_LEVEL
from schemas.readiness import GatewayDoor, Install
from schemas.tasks import DoneActivation, Evidence, McpServer, Solution, Staged, TaskInput
from schemas.tokens import CallTokens
from schemas.values import AskedAgain, BlobRef, Failure, Message, NetworkAttempt, Party, Sampling, ToolCall, Usage

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden"
AT: Final = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
LATER: Final = datetime(2026, 1, 2, 3, 5, 6, 789_000, tzinfo=UTC)
ODD_TEXT: Final = 'a "quoted" \\ line\nand a smile: 🙂, \x00 and \u2028'

_FAILURE: Final = Failure(kind="provider_rate_limited", message=ODD_TEXT, stage="model", terminal=True)
_TURN = Turn(
    role="assistant",
    parts=(
        Reasoning(texts=("hm",), signature="s1"),
        Text(text=ODD_TEXT, cache=CacheHint(ttl="5m")),
        ToolUse(id="c1", name="shell", arguments='{"command": "ls'),
        Hosted(dialect="messages", item={"type": "server_tool_use", "id": "x"}),
    ),
)
_BLOB: Final = BlobRef(sha256="ab" * 32, size=12, media_type="application/jsonl")
_EVIDENCE: Final = Evidence(answer="<answer>4</answer>", stop_reason="stop", turns=3, files=_BLOB, refused="too much")
_SERVERS: Final = (
    McpServer(name="near", transport="stdio", command="python3", args=("-c", ODD_TEXT)),
    McpServer(name="far", transport="streamable-http", url="http://127.0.0.1:8000/mcp", headers={"x-run": "r1"}),
)
_TASK: Final = TaskInput(
    task_id="sum/3",
    messages=(Message(role="user", content=ODD_TEXT),),
    follow_ups=((Message(role="user", content="And now?"),),),
    continuation=Continuation(mode="resume_harness_session", observations=("trajectory",)),
    awaits_input_s=600.0,
    hands_in="files",
    tools=(TaskTool(name="note", description=ODD_TEXT, parameters={"type": "object"}),),
    grants=(ToolGrant(name="task_tools", kind="http", required=False),),
    mcp_servers=_SERVERS,
    skills_dir="/skills",
)
_ENVIRONMENT: Final = Environment(
    tools={
        "note": BuiltIn(tool="note", data={"table": {"a": [1, ODD_TEXT]}}),
        "far": RemoteTool(url="http://tools.test/mcp", tool="near", headers={"x-run": "r1"}),
    }
)
_SAMPLING: Final = Sampling(temperature=0.7, top_p=0.9, max_output_tokens=512, seed=7)
_AGENT: Final = config.SimpleAgent(
    max_steps=5,
    system_prompt="Be brief.",
    parallel_tool_calls=False,
    enable_tools=False,
    timeout_s=60,
    tool_timeout_s=5,
)
_LIMITS: Final = sandboxes.SandboxLimits(memory_mib=64, processes=8, file_mib=2, cpu_s=5, output_bytes=1024)
_SHARED: Final = (sandboxes.SharedDirectory(source="/srv/tools", at="/opt/tools"),)
_BOX: Final = sandboxes.Bubblewrap(limits=_LIMITS, shared=_SHARED, ledger_path="/ledger")
_LAYOUT: Final = sandboxes.Layout(
    workspace="/app", is_seeded=True, scratch=("/logs/verifier",), environment={"COLOUR": "green"}
)
_STAGED: Final = Staged(at="/solution", files={"solve.sh": "ZWNobyBoaQo="})
_SCRIPTED: Final = config.ScriptedModel(
    seed=3,
    error_rate=0.5,
    malformed_rate=0.25,
    failure_rate=0.125,
    latency_s=1.5,
    latency_spread=0.5,
    max_tries=4,
    timeout_s=30,
    ledger_path="/ledger",
)
_OPENAI: Final = config.OpenAIModel(
    policy_base_url=("http://localhost:8000/v1", "http://localhost:8001/v1"),
    policy_model_name="a-model",
    policy_api_key="the-name-of-a-key",
    endpoint_file="/endpoints",
    endpoint_stale_grace_s=30,
    timeout_s=20,
    max_tries=3,
    max_concurrent_requests=6,
    sampling_overrides={"temperature": 0.5, "stop": ["END"], "seed": None},
    extra_body={"top_k": 40, "nested": {"list": [1, 2.5, None, True, "x"]}},
    prices=config.Prices(input=2.5, cached_input=0.25, output=10),
)
_BUDGETS: Final = config.Budgets(
    rollout=config.Budget(
        model_calls=9, input_tokens=8000, output_tokens=900, total_tokens=8500, cost_usd=0.5, wall_s=600
    ),
    run=config.Budget(cost_usd=20),
)
_TRIED: Final = NetworkAttempt(
    host="a.example",
    port=443,
    address="192.0.2.7",
    is_allowed=True,
    reason="cut",
    sent_bytes=3,
    received_bytes=4,
    duration_s=0.5,
    phase="agent",
)
_PARTY: Final = Party(actor="verifier", key="v2")
_CHECKPOINTS: Final = sandboxes.Checkpoints(when="never", max_restores=7, restore_in=_BOX)
_INSTALL: Final = Install(command="make ready", timeout_s=90)
_PROGRAM: Final = PiAgent(
    system_prompt="Be brief.",
    system_prompt_mode="replace",
    withheld_tools=("bash",),
    extra_args=("--verbose",),
    timeout_s=90,
    mcp_timeout_s=12,
    context_tokens=4096,
    max_output_tokens=512,
)
_TOLD: Final = (
    ToldItem(
        kind="tool_done",
        text=ODD_TEXT,
        name="bash",
        id="c1",
        exit_code=1,
        is_error=True,
        duration_s=0.5,
        is_final=True,
        is_rewritten=True,
        is_cut=True,
        input_tokens=9,
        output_tokens=8,
        cached_tokens=7,
        reasoning_tokens=6,
    ),
    ToldItem(kind="finished"),
)
_RUN: Final = config.RunConfig(
    taskset=config.ReasoningGymTaskset(
        datasets=(config.ReasoningGymDataset(name="chain_sum", size=9, seed=2, config={"min_terms": 2}),)
    ),
    agent=_AGENT,
    model=_OPENAI,
    sandbox=sandboxes.UnsafeLocal(limits=_LIMITS, ledger_path="/ledger"),
    install=_INSTALL,
    checkpoints=_CHECKPOINTS,
    warm_sandboxes=3,
    grading_sandbox=_BOX,
    responses_create_params=_SAMPLING,
    retries=config.Retries(max_attempts=5, backoff_s=0.5, backoff_max_s=9),
    budget=_BUDGETS,
    num_repeats=4,
    num_repeats_add_seed=True,
    num_samples_in_parallel=32,
    ramp_per_s=250,
    interleave_repeats=True,
    shuffle_seed=11,
    limit=8,
    shards=2,
)
_CALL: Final = ToolCall(id="c1", name="shell", arguments='{"command": "echo \\"$((2+2))\\""}')
_REDRIVEN: Final = {
    "original_subject": "gym.evt.0.r1.3-0.collector._.cmd.harness.any",
    "original_sequence": 41,
    "request_id": "q",
}

_ALL: Final[tuple[Event, ...]] = (
    events.Claimed(worker="h0.b1", nonce="0badcafe", request_id="q"),
    events.Snapshot(state={"read_after": 7, "state": {"progress": {"done": "Aw==", "counts": {"scored": 2}}}}),
    events.RequestParked(request_id="q", request_type="session_requested.v1", tries=8, failure=_FAILURE),
    events.CollectorRequestRedriven(**_REDRIVEN),
    events.HarnessRequestRedriven(**_REDRIVEN),
    events.SandboxRequestRedriven(**_REDRIVEN),
    events.VerifierRequestRedriven(**_REDRIVEN),
    events.RunRequested(config=_RUN, config_digest="d1", output_dir="/results", versions={"gym-bus": "0.1.0"}),
    events.RunCancelRequested(reason=ODD_TEXT),
    events.RunResumeRequested(config_digest="d1"),
    events.RunStarted(
        plan=_BLOB,
        tasks=2,
        planned=8,
        shards=2,
        taskset_digest="d2",
        model="a-model",
    ),
    events.RunPaused(kind="store", reason="the store is nearly full"),
    events.RunResumed(request_id="q", reason="asked for"),
    events.RunCancelled(request_id="q", reason="enough"),
    events.RunFinished(
        request_id="q", state="cancelled", planned=8, scored=4, failed=2, masked=1, missing=1, failure=_FAILURE
    ),
    events.SessionRequested(
        task=_TASK,
        repeat=1,
        agent=_AGENT,
        model=_SCRIPTED,
        sandbox=_BOX,
        sampling=_SAMPLING,
        budget=_BUDGETS,
        checkpoints=_CHECKPOINTS,
        install=_INSTALL,
        warm_sandboxes=3,
        solution=Solution(staged=_STAGED, command="sh /solution/solve.sh"),
        continuation=Continuation(mode="resume_harness_session", observations=("timing",)),
    ),
    events.VerdictRequested(
        verifier="sum", verifier_data={"answer": 4, "tolerance": 1e-9}, evidence=_EVIDENCE, sandbox=_BOX
    ),
    events.RolloutFinished(state="retryable", reward=0.25, failure=_FAILURE, retry_at=LATER),
    events.SandboxRequested(
        sandbox=sandboxes.Inline(limits=_LIMITS, ledger_path="/ledger"),
        number=2,
        restore=_BLOB,
        restore_home=_BLOB,
        seen=(AskedAgain(turn=1, index=0, tries=1),),
        again=(AskedAgain(turn=2, index=1, tries=2),),
        phase="verify",
        install=_INSTALL,
        gateway=GatewayDoor(port=9000),
        harness="codex_agent",
        package=AgentPackage(ecosystem="npm", name="a-tool", version="1.0.0"),
        warm_sandboxes=3,
        staged=_STAGED,
    ),
    events.CheckpointRequested(number=2, right=3, with_home=True),
    events.SandboxLendRequested(number=2, borrower=_PARTY),
    events.SandboxGiveBackRequested(number=2, right=3),
    events.ToolCallRequested(
        call_id="c1",
        turn=2,
        index=1,
        tool="shell",
        command='echo "$((2+2))"',
        timeout_s=2.5,
        tries=3,
        number=2,
        keeps_files=True,
        right=3,
    ),
    events.ToolCallRejected(call_id="c1", turn=2, index=1, message=ODD_TEXT),
    events.SandboxCloseRequested(number=2),
    events.ActivationAsked(activation=2, fingerprint="0f" * 32, messages=(Message(role="user", content=ODD_TEXT),)),
    events.ActivationRefused(asked_id="ev-1", activation=3, reason="activation 3 is out of order: the next one is 2"),
    events.InputEnded(by="timeout"),
    events.SessionEndAsked(),
    events.ActivationStarted(activation=2, fingerprint="0f" * 32, messages=(Message(role="user", content=ODD_TEXT),)),
    events.ContextCompacted(
        number=2,
        policy="summary",
        turn=5,
        tokens_before=900,
        start=4,
        inserted=(Message(role="user", content=ODD_TEXT),),
        edited=(EditedMessage(place=5, content="[omitted]"),),
        images=1,
        reasoning_blocks=2,
        tool_results=3,
        messages=4,
        summary_call="q",
        gaps=("compaction_summary_unavailable",),
    ),
    events.AgentNudged(number=2, reason="reset_near", turn=4, text=ODD_TEXT),
    events.ProgressNoted(call_id="c1", turn=3, index=1, progress=ODD_TEXT, message="Noted."),
    events.ActivationCompleted(activation=1, evidence=_EVIDENCE, session_id="s-1"),
    events.ActivationFailed(activation=1, failure=_FAILURE),
    events.SessionClosed(
        request_id="q",
        evidence=_EVIDENCE,
        activations=(DoneActivation(activation=2, fingerprint="0f" * 32, stop_reason="stop", turns=3),),
        cleanup_confirmed=True,
    ),
    events.SessionFailed(request_id="q", failure=_FAILURE, cleanup_confirmed=False),
    events.ModelCallRequested(
        turn=2,
        tries=3,
        parent_id="p",
        new_messages=(Message(role="tool", content="4\n", tool_call_id="c1"),),
        context_digest="d3",
        dialect="messages",
        new_turns=(_TURN,),
        tools=(Tool(name="shell", description="Runs it.", parameters={"type": "object"}),),
        tools_digest="d5",
        parameters={"temperature": 0.5},
        gaps=("parent_ambiguous",),
        overrides={"temperature": 1.0},
        backend="http://localhost:8000/v1/chat/completions",
        route="fast",
        routing_digest="d6",
        invocation="thread-id:7",
        activation=2,
        launch=3,
        purpose="summary",
    ),
    events.ModelCallCompleted(
        request_id="q",
        turn=2,
        message=Message(role="assistant", content=ODD_TEXT, tool_calls=(_CALL,)),
        stop_reason="tool_calls",
        usage=Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=8),
        duration_s=0.1,
        parts=_TURN.parts,
        reply_id="msg1",
        served_model="m-2026",
        stop_sequence="END",
        first_token_s=0.05,
        is_unread=True,
        has_usage=False,
        queue_s=0.01,
        cost_usd=0.0003,
        tokens=CallTokens(
            parent_id="p",
            shared=3,
            prompt=(4, 5),
            generated=(6, 7),
            logprobs=(-0.5, -1.25),
            logprob_kind="raw",
            digest="d7",
        ),
        untrainable="lengths_differ",
        policy_versions=("step-7", "step-8"),
    ),
    events.ModelCallFailed(
        request_id="q",
        turn=2,
        failure=_FAILURE,
        retry_in_s=1.25,
        duration_s=0.3,
        status=503,
        body="busy",
        parts=(Text(text="I was"),),
    ),
    events.ModelCallLost(request_id="q", turn=2),
    events.ModelCallLate(request_id="q", turn=2, parts=(Text(text="4"),), usage=Usage(output_tokens=1), was_shown=True),
    events.ModelCallRecalled(call_id="m", turn=2, activation=3, launch=4),
    events.BudgetExhausted(scope="run", limit="cost_usd", allowed=20, used=20.5),
    events.SandboxCreated(
        request_id="q",
        place="h0",
        provider="bubblewrap",
        capabilities=("files",),
        phase="agent",
        allow=("a.example",),
        gateway_url="http://127.0.0.1:9000",
        label="r1.warm.h0.7",
        is_warm=True,
    ),
    events.SandboxInstallStarted(number=2, phase="install", allow=("m.example",)),
    events.SandboxInstalled(
        number=2,
        phase="install",
        allow=("m.example",),
        exit_code=137,
        output=ODD_TEXT,
        output_bytes=200_000,
        truncated=True,
        ended_by="out_of_memory",
        duration_s=2.5,
        lost="out of memory",
        network=(_TRIED,),
        network_dropped=3,
    ),
    events.LaunchRequested(
        agent=_PROGRAM,
        activation=2,
        prompt=ODD_TEXT,
        system_prompt="Be brief.",
        model="a-model",
        timeout_s=9.5,
        number=2,
        right=3,
        mcp_grants=("task_tools",),
        has_tool_command=True,
        required=("task_tools",),
        mcp_servers=_SERVERS,
        skills_dir="/skills",
        resume="s-1",
    ),
    events.LaunchTold(launch_id="q", part=4, items=_TOLD),
    events.LaunchEnded(
        request_id="q",
        ended_by="stopped",
        exit_code=3,
        signal=15,
        duration_s=2.5,
        descendants_killed=2,
        is_clean=False,
        stdout_bytes=9,
        stderr_bytes=200_000,
        stderr=ODD_TEXT,
        asides=_TOLD,
        unknown={"odd": 2},
        faults=3,
        is_cut=True,
    ),
    events.LaunchFailed(request_id="q", failure=_FAILURE),
    events.LaunchLost(request_id="q", reason="gone"),
    events.LaunchSettled(
        launch_id="q", calls=4, completed=2, recalled=3, lost=1, failure=_FAILURE, budget="rollout", limit="model_calls"
    ),
    events.RemoteAsked(
        activation=2,
        url="https://agent.example/do",
        session_id="r1.3-0.1.19b0",
        idempotency_key="0e" * 32,
        model="a-model",
        timeout_s=9.5,
    ),
    events.RemoteAccepted(asked_id="q", status_url="https://agent.example/do/7", number=2),
    events.RemoteAnswered(
        asked_id="q", answer=ODD_TEXT, stop_reason="max_steps", cleanup_confirmed=False, failure=_FAILURE
    ),
    events.RemoteFailed(asked_id="q", failure=_FAILURE),
    events.SandboxFailed(request_id="q", failure=_FAILURE),
    events.SandboxLent(request_id="q", borrower=_PARTY, right=3),
    events.SandboxGivenBack(request_id="q", borrower=_PARTY, right=3, is_taken=True),
    events.SandboxRequestRefused(request_id="q", failure=_FAILURE),
    events.SandboxLost(reason="out of memory", is_replaced=True, network=(_TRIED,), network_dropped=3),
    events.CheckpointSaved(
        request_id="q",
        snapshot=_BLOB,
        home=_BLOB,
        files=2,
        bytes=9,
        stored_bytes=4,
        left_out=1,
        duration_s=0.5,
        paused_s=0.25,
    ),
    events.CheckpointFailed(request_id="q", failure=_FAILURE),
    events.GradingRequested(
        sandbox=_BOX.replaced(layout=_LAYOUT),
        files=_BLOB,
        artifacts=("out/**",),
        is_whole=True,
        services=("serve",),
        tests={"t.sh": "exit 0"},
        command="sh $TESTS/t.sh",
        timeout_s=2.5,
        cases=(CaseRun(id="adds", command="python3 add.py", stdin="2 3", timeout_s=5.0, kept_bytes=100),),
        staged=_STAGED,
        rewards_in="/logs/verifier",
    ),
    events.GradingDone(
        request_id="q",
        exit_code=1,
        output="no",
        output_bytes=3,
        truncated=True,
        ended_by="signal",
        duration_s=0.5,
        files=2,
        left_out=1,
        missing=("out.txt",),
        refused="too much",
        cases=(CaseResult(id="adds", exit_code=1, output="5", truncated=True, ended_by="timeout", duration_s=0.5),),
        rewards={"reward.json": '{"reward": 0.5}', "reward.txt": "0.5"},
        rewards_changed=True,
        network=(_TRIED,),
        network_dropped=3,
    ),
    events.GradingFailed(request_id="q", failure=_FAILURE),
    events.SandboxDestroyed(request_id="q", network=(_TRIED,), network_dropped=3),
    events.ToolCallCompleted(
        request_id="q",
        exit_code=137,
        output=ODD_TEXT,
        output_bytes=70_000,
        truncated=True,
        ended_by="out_of_memory",
        duration_s=2.0001,
    ),
    events.ToolCallFailed(request_id="q", failure=_FAILURE),
    events.ToolCallLost(request_id="q", reason="the machine died"),
    events.VerdictIssued(
        request_id="q",
        reward=0.1,
        components={"format": 0.3, "value": 1e-7},
        failure_reason="got 5",
        evidence_digest="d4",
        records_digest="d5",
        verifier_version="sum-1",
        graded="files",
    ),
    events.VerdictFailed(request_id="q", failure=_FAILURE),
    events.EnvironmentSeeded(environment=_ENVIRONMENT),
    events.TaskToolCallRequested(
        number=2,
        tool="note",
        arguments={"text": ODD_TEXT},
        timeout_s=9.5,
        grant="task_tools",
        activation=2,
        launch=3,
        client_id="m/4",
        call_id="c1",
        turn=4,
        index=1,
    ),
    events.TaskToolCallReplayed(number=2, activation=2, launch=3, client_id="m/4"),
    events.TaskToolCallCompleted(
        request_id="q",
        number=2,
        tool="note",
        text=ODD_TEXT,
        is_error=True,
        truncated=True,
        record={"a": [1, None]},
        duration_s=0.25,
    ),
    events.TaskToolCallFailed(request_id="q", number=2, failure=_FAILURE),
    events.TaskToolCallLost(request_id="q", number=2, reason=ODD_TEXT, duration_s=0.5),
)
EXAMPLES: Final[dict[str, Event]] = {data.TYPE: data for data in _ALL}
HEAD: Final = Head(event_id="0123456789abcdef", attempt=2, epoch=40, ordinal=3, causation_id="q", recorded_at=AT)


def writer_of(data: Event) -> str:
    """Return the kind of actor that writes events of this type."""
    if type(data).__name__ in {"RunRequested", "RunCancelRequested", "RunResumeRequested"}:
        return "cli"
    kind = type(data).__module__.rpartition(".")[2]
    if kind == "environment":
        by = {"EnvironmentSeeded": "collector", "TaskToolCallRequested": "model", "TaskToolCallReplayed": "model"}
        return by.get(type(data).__name__, "verifier")
    if kind == "launching":
        return "harness" if data.TO or type(data).__name__ == "LaunchSettled" else "sandbox"
    return "harness" if kind in {"aggregate", "context", "remote"} else kind


def where_of(data: Event) -> AggregateId:
    """Return an aggregate in which an event of this type may stand."""
    is_run = type(data).__name__.startswith("Run")
    return aggregate("r1", RUN_LEVEL if is_run else "3-0", writer_of(data), "_" if is_run else "s2")


def subject_of(data: Event) -> str:
    """Return the subject an event of this type may be stored under."""
    if data.TO:
        return request_subject(where_of(data), data.TO, "any")
    return event_subject(where_of(data), data.subject_kind())


def example(data: Event) -> Envelope:
    """Return `data` as it comes out of the log at sequence 42."""
    where = where_of(data)
    return Envelope(
        event_id=HEAD.event_id,
        type=data.TYPE,
        run_id=where.run_id,
        rollout_id=where.rollout_id,
        attempt=HEAD.attempt,
        actor=where.actor,
        key=where.key,
        epoch=HEAD.epoch,
        ordinal=HEAD.ordinal,
        causation_id=HEAD.causation_id,
        recorded_at=HEAD.recorded_at,
        data=data,
        place="any" if data.TO else None,
        sequence=42,
    )


def golden_of(type_: str) -> Path:
    """Return the file with the stored bytes of the example of `type_`, and a line end."""
    return GOLDEN / f"{type_}.json"
