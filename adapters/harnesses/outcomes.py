"""What a launch comes to: evidence that may be graded, or a failure of the machinery, which never is."""

from __future__ import annotations

from typing import Final

from adapters.harnesses import server_check
from adapters.harnesses.launching.order import STDOUT_MAX_BYTES
from schemas.base import Frozen
from schemas.events import LaunchEnded, LaunchSettled
from schemas.harnesses import ToldItem
from schemas.tasks import Evidence
from schemas.values import Failure

STDERR_SHOWN: Final = 600
NEVER_HEARD: Final = "the agent's program ended well, and the model was never heard"
NO_RESULT: Final = "the agent's program ended well, and has told no result"
UNCLEAN: Final = "something that the agent's program started could not be ended: what would be graded may still change"


class Seen(Frozen):
    """What has been told of a launch so far: replies, the model's last words, the last complaint, the program's own session and end."""

    replies: int = 0
    answer: str | None = None
    complaint: ToldItem | None = None
    session_id: str | None = None
    is_finished: bool = False

    def with_items(self, items: tuple[ToldItem, ...]) -> Seen:
        """Return what is known after `items`."""
        seen = self
        for item in items:
            match item.kind:
                case "reply_done":  # whatever it complained of before, it got over that
                    seen = seen.replaced(replies=seen.replies + 1, complaint=None)
                case "said" if item.name == "assistant":
                    seen = seen.replaced(answer=item.text)
                case "tool_asked":
                    seen = seen.replaced(answer=None)
                case "complained" if item.is_final or seen.complaint is None or not seen.complaint.is_final:
                    seen = seen.replaced(complaint=item)
                case "session":
                    seen = seen.replaced(session_id=item.id)
                case "finished":
                    seen = seen.replaced(is_finished=True)
                case _:
                    pass
        return seen


def outcome(  # noqa: PLR0911  one return a case
    ended: LaunchEnded, seen: Seen, settled: LaunchSettled, *, is_worker: bool = False
) -> Evidence | Failure:
    """Return what a session is to be closed with; see `Harness.is_worker`.

    What the program tells of itself lies in files that the agent can write: it can make an end a failure, and never one of the model's,
    nor an outage an end. A worker's result that it forged ends it with what there is then, as the model could by saying so. Whether the
    model answered is the gateway's word (`settled`).
    """
    seen, answered = seen.with_items(ended.asides), settled.completed + settled.recalled
    if not ended.is_clean:
        return Failure(kind="agent_failed", message=UNCLEAN, stage="agent")
    if settled.budget == "rollout":
        return Evidence(answer=seen.answer, stop_reason=f"budget:{settled.limit}", turns=answered)
    if settled.failure is not None and settled.failure.kind == "replay_diverged":
        return settled.failure
    if ended.ended_by == "timeout" and not (is_worker and seen.is_finished):
        message = f"the agent's program was not finished after {ended.duration_s:.0f} s"
        return Failure(kind="agent_timeout", message=message)
    if settled.failure is not None:
        return settled.failure
    if unreached := _unreached(ended, settled):
        return Failure(kind="tool_unreachable", message=unreached, stage="seed")
    complaint = seen.complaint if seen.complaint and seen.complaint.is_final else None
    if complaint is not None and complaint.name == "steps" and answered:
        return Evidence(answer=seen.answer, stop_reason="max_steps", turns=answered)
    if complaint is not None:
        return Failure(kind="agent_failed", message=f"the agent gave up: {complaint.text}")
    if (wrong := _end_of(ended, seen, is_worker=is_worker)) or answered == 0:
        return Failure(kind="agent_failed", message=wrong or NEVER_HEARD)
    return Evidence(answer=seen.answer, stop_reason="stop", turns=answered)


def _unreached(ended: LaunchEnded, settled: LaunchSettled) -> str | None:
    """Return which required server was not reached, if that is why the program was never begun."""
    if ended.exit_code != server_check.UNREACHED or settled.calls:
        return None
    return next((line[:STDERR_SHOWN] for line in ended.stderr.splitlines() if line.startswith(server_check.SAID)), None)


def _end_of(ended: LaunchEnded, seen: Seen, *, is_worker: bool) -> str | None:
    """Return what is wrong with how its process ended; a result that a worker of ours has told whole counts before that."""
    if is_worker and seen.is_finished:
        return None
    if ended.ended_by == "exit" and ended.exit_code == 0:
        return NO_RESULT if is_worker and ended.stdout_bytes <= STDOUT_MAX_BYTES else None
    how = f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"
    how = "a wish to stop" if ended.ended_by == "stopped" else how
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    complaint = [seen.complaint.text or ""] if seen.complaint else []
    said = "; ".join(complaint or telling or lines[-1:])[:STDERR_SHOWN]
    return f"the agent's program ended by {how}" + (f"; it said: {said}" if said else "")
