"""What is shown of a run while it goes on: a bar on a terminal, a line now and then elsewhere, or JSON lines."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from rich.console import RenderableType

LINE_EVERY_S: Final = 5.0
RATE_WINDOW_S: Final = 30.0
BAR_WIDTH: Final = 40


@dataclass
class Progress:
    """One look at a run: planned = scored + failed + masked + missing, and `open` of the missing are under way.

    Of these, `waiting_for_input` wait for somebody to say something.
    """

    run_id: str
    state: str
    planned: int = 0
    scored: int = 0
    failed: int = 0
    masked: int = 0
    open: int = 0
    waiting_for_input: int = 0
    mean_reward: float | None = None
    rate_per_s: float | None = None
    left_s: float | None = None
    problem: str | None = None
    note: str | None = None

    @property
    def done(self) -> int:
        """Return how many rollouts are over."""
        return self.scored + self.failed + self.masked

    def line(self) -> str:
        """Return it in one line."""
        share = f"{self.done / self.planned:4.0%}" if self.planned else "   -"
        to_come = max(0, self.planned - self.done - self.open)
        counts = (
            f"{self.scored} scored, {self.failed} failed, {self.masked} masked, {self.open} running, {to_come} to come"
        )
        parts = [f"{share} {self.done}/{self.planned} done", counts]
        if self.waiting_for_input:
            parts.append(waiting_words(self.waiting_for_input))
        if self.mean_reward is not None:
            parts.append(f"mean reward {self.mean_reward:.3f}")
        if self.rate_per_s:
            parts.append(f"{self.rate_per_s:.1f} rollouts/s")
        if self.left_s is not None:
            parts.append(f"{_duration(self.left_s)} left")
        if self.state not in {"running", "requested"}:
            parts.append(self.state)
        return " | ".join(parts)


def waiting_words(count: int) -> str:
    """Return how many of what runs wait for `gym-bus session say`."""
    return f"{count} {'waits' if count == 1 else 'wait'} for an input"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


@dataclass
class Rate:
    """Rollouts per second over the last half minute."""

    _seen: list[tuple[float, int]] = field(default_factory=list)

    def note(self, done: int, now: float) -> float | None:
        """Take in a count; return the rate, None as long as there is none."""
        self._seen = [(at, n) for at, n in self._seen if now - at <= RATE_WINDOW_S] + [(now, done)]
        at, before = self._seen[0]
        return (done - before) / (now - at) if now - at > 0.5 and done > before else None  # noqa: PLR2004  half a second


class View(Protocol):
    """Where progress is shown."""

    def show(self, progress: Progress) -> None:
        """Show the newest look."""
        ...

    def say(self, text: str) -> None:
        """Print a line that stays."""
        ...

    def close(self) -> None:
        """Stop showing."""
        ...


class JsonView:
    """JSON lines on standard output; what is said goes to standard error."""

    def __init__(self) -> None:
        """Start with nothing shown."""
        self._last: dict[str, Any] | None = None

    def show(self, progress: Progress) -> None:
        """Print a line if something has changed."""
        now = asdict(progress)
        key = {k: v for k, v in now.items() if k not in {"rate_per_s", "left_s"}}
        if key != self._last:
            self._last = key
            print(json.dumps({"type": "progress", **now}), flush=True)

    def say(self, text: str) -> None:
        """Print to standard error."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is left on the screen."""


class LineView:
    """A line every few seconds, and when the state changes or a problem appears."""

    def __init__(self) -> None:
        """Start with nothing shown."""
        self._shown_at = 0.0
        self._before: tuple[str, str | None, str | None, bool] | None = None

    def show(self, progress: Progress) -> None:
        """Print a line if it is time."""
        now, key = time.monotonic(), (progress.state, progress.problem, progress.note, progress.waiting_for_input > 0)
        before = self._before
        if before == key and now - self._shown_at < LINE_EVERY_S:
            return
        if progress.problem and (before is None or before[1] != progress.problem):
            print(f"problem: {progress.problem}", flush=True)
        if progress.note and (before is None or before[2] != progress.note):
            print(f"note: {progress.note}", flush=True)
        self._shown_at, self._before = now, key
        if progress.planned:
            print(progress.line(), flush=True)

    def say(self, text: str) -> None:
        """Print the line."""
        print(text, flush=True)

    def close(self) -> None:
        """Nothing is left on the screen."""


class TerminalView:
    """A bar and a few lines that are drawn over."""

    def __init__(self) -> None:
        """Draw as soon as there is something to show."""
        from rich.console import Console  # noqa: PLC0415  only on a terminal
        from rich.live import Live  # noqa: PLC0415  the same

        self._live = Live(console=Console(highlight=False), auto_refresh=False, transient=True)
        self._live.start()

    def show(self, progress: Progress) -> None:
        """Draw it."""
        self._live.update(self._drawn(progress), refresh=True)

    def _drawn(self, progress: Progress) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415  only on a terminal
        from rich.text import Text  # noqa: PLC0415  the same

        filled = int(BAR_WIDTH * progress.done / progress.planned) if progress.planned else 0
        bar = Text("━" * filled, style="green") + Text("━" * (BAR_WIDTH - filled), style="dim")
        rows = [bar, Text(progress.line() if progress.planned else "planning the run")]
        if progress.problem:
            rows.append(Text(f"problem: {progress.problem}", style="yellow", overflow="fold"))
        if progress.note:
            rows.append(Text(progress.note, style="dim", overflow="fold"))
        rows.append(Text("Ctrl-C detaches; twice cancels the run", style="dim"))
        return Group(*rows)

    def say(self, text: str) -> None:
        """Print above the bar."""
        self._live.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        self._live.stop()


def view_for(*, as_json: bool) -> View:
    """Return the view that suits standard output."""
    if as_json:
        return JsonView()
    return TerminalView() if sys.stdout.isatty() else LineView()
