"""What of a session's messages its prompts show: all of them, until something is left out or shown changed."""

from __future__ import annotations

from pydantic import Field

from schemas.base import Frozen
from schemas.events import ContextCompacted
from schemas.values import Message


class ContextView(Frozen):
    """The `number`-th way to show a session's messages, in force since `steps` answers.

    Those after the task are shown from `start` on, with `inserted` before them; `edited` has by place what is shown in place of a
    message's content. Of the views before this one `summaries` and `resets` were by that.
    """

    number: int = 0
    steps: int = 0
    start: int = 0
    inserted: tuple[Message, ...] = ()
    edited: dict[int, str] = Field(default_factory=dict)
    summaries: int = 0
    resets: int = 0

    def shown(self, messages: tuple[Message, ...], given: int) -> tuple[Message, ...]:
        """Return the prompt that is made of `messages`, of which the first `given` are the task's."""
        if not self.number:
            return messages
        start = max(self.start, given)
        rest = (
            m if (content := self.edited.get(n)) is None else m.replaced(content=content)
            for n, m in enumerate(messages[start:], start)
        )
        return (*messages[:given], *self.inserted, *rest)

    def compacted(self, data: ContextCompacted, steps: int) -> ContextView:
        """Return the view that follows."""
        start = self.start if data.start is None else data.start
        edited = {**self.edited, **{edit.place: edit.content for edit in data.edited}}
        return ContextView(
            number=data.number,
            steps=steps,
            start=start,
            inserted=self.inserted if data.start is None else data.inserted,
            edited={place: content for place, content in edited.items() if place >= start},
            summaries=self.summaries + (data.policy == "summary"),
            resets=self.resets + (data.policy == "reset"),
        )
