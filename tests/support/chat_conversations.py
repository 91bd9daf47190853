"""Requests and answers in canonical form, as Chat Completions can say them, and answers as streams of deltas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, get_args

from hypothesis import strategies as st

from schemas.conversation import (
    Audio,
    CacheHint,
    Data,
    Delta,
    Effort,
    File,
    FileId,
    Hosted,
    HostedTool,
    Image,
    OutputFormat,
    Part,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Refusal,
    Reply,
    ReplyBegan,
    ReplyEnded,
    Request,
    Text,
    Thinking,
    TokenLogprob,
    TokenUsage,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
    Turn,
    Url,
    Video,
)

ANNOTATION = {
    "type": "url_citation",
    "url_citation": {"url": "https://a.example", "title": "a", "start_index": 0, "end_index": 3},
}

texts = st.text(max_size=12)
words = st.text(min_size=1, max_size=12)
names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
numbers = st.one_of(st.integers(-3, 3), st.floats(-3, 3))
objects = st.dictionaries(
    names, st.one_of(st.none(), st.booleans(), st.integers(), texts, st.lists(texts, max_size=2)), max_size=2
)
caches = st.none() | st.builds(CacheHint, ttl=st.sampled_from([None, "5m", "1h"]))

urls = st.builds(Url, url=words.map(lambda text: f"https://{text}"))
data = st.builds(
    Data, media_type=st.sampled_from([None, "image/png", "video/mp4"]), base64=st.sampled_from(["", "aGk=", "AAAA"])
)
text_parts = st.builds(Text, text=texts, cache=caches)
images = st.builds(
    Image, source=urls | data, detail=st.sampled_from([None, "low", "high", "auto", "original"]), cache=caches
)
videos = st.builds(Video, source=urls | data)
audios = st.builds(Audio, base64=st.just("aGk="), format=st.sampled_from(["wav", "mp3"]))
file_ids = st.builds(FileId, dialect=st.just("chat"), id=words)
files = st.builds(File, source=urls | data | file_ids, filename=st.none() | words, cache=caches)
hosted = st.builds(Hosted, dialect=st.just("chat"), item=objects.map(lambda more: {**more, "type": "audio_url"}))
media = st.one_of(text_parts, images, videos, audios, files)


def _plain(make: Callable[..., Any], **fields: Any) -> st.SearchStrategy[Any]:
    """Return something whose content is a bare string, perhaps an empty one."""
    only = st.builds(Text, text=words, cache=caches if make is Turn else st.none())
    content = st.just(()) | st.tuples(only)
    return st.builds(make, parts=content, is_plain=st.just(value=True), **fields)


def _listed(make: Callable[..., Any], part: st.SearchStrategy[Any], **fields: Any) -> st.SearchStrategy[Any]:
    """Return something whose content is a list of parts."""
    return st.builds(make, parts=st.lists(part, max_size=3).map(tuple), is_plain=st.just(value=False), **fields)


def _said_to() -> st.SearchStrategy[Turn]:
    fields = {"name": st.none() | names}
    told = {"role": st.sampled_from(["system", "developer"]), **fields}
    asked = {"role": st.just("user"), **fields}
    return st.one_of(
        _plain(Turn, **told),
        _listed(Turn, text_parts, **told),
        _plain(Turn, **asked),
        _listed(Turn, media | hosted, **asked),
    )


refusals = st.builds(Refusal, text=words)
cited = st.builds(Text, text=words, citations=st.sampled_from([(), (ANNOTATION,)]), cache=caches)


@st.composite
def _assistants_words(draw: st.DrawFn) -> tuple[list[Part], bool]:
    """Return what an assistant said, and whether it was a bare string."""
    is_plain = draw(st.booleans())
    if draw(st.booleans()) and not is_plain:
        return draw(st.lists(text_parts | refusals | hosted, min_size=2, max_size=3)), False
    said: list[Part] = [*draw(st.lists(cited, max_size=1)), *draw(st.lists(refusals, max_size=1))]
    return said, is_plain


def _calls(max_size: int) -> st.SearchStrategy[list[ToolUse]]:
    arguments = st.sampled_from(["", "{}", '{"a": 1}', '{"a":', "ls -l\n", "\u2028\\"])
    kinds = st.sampled_from(["function", "custom"])
    call = st.builds(ToolUse, id=names, name=names, arguments=arguments, kind=kinds, cache=caches)
    return st.lists(call, max_size=max_size, unique_by=lambda one: one.id)


@st.composite
def _exchanges(draw: st.DrawFn) -> list[Turn]:
    """Return what an assistant said, and the results if it called."""
    said, is_plain = draw(_assistants_words())
    thoughts = draw(st.lists(words.map(lambda text: Reasoning(texts=(text,))), max_size=1))
    calls = draw(_calls(3))
    parts = (*thoughts, *said, *calls)
    turns = [Turn(role="assistant", parts=parts, name=draw(st.none() | names), is_plain=is_plain)]
    results: list[Part] = []
    for call in calls:
        fields = {"call_id": st.just(call.id), "kind": st.just(call.kind), "cache": caches}
        results.append(draw(_plain(ToolResult, **fields) | _listed(ToolResult, media, **fields)))
    return [*turns, Turn(role="tool", parts=tuple(results))] if results else turns


@st.composite
def _conversations(draw: st.DrawFn) -> tuple[Turn, ...]:
    """Return turns in which nobody speaks twice in a row but who may."""
    turns: list[Turn] = []
    for more in draw(st.lists(st.one_of(_said_to().map(lambda turn: [turn]), _exchanges()), max_size=5)):
        if turns and turns[-1].role == more[0].role == "assistant":
            turns.append(Turn(role="user", parts=(Text(text="go on"),), is_plain=True))
        turns += more
    return tuple(turns)


grammars = st.sampled_from([None, {"type": "text"}, {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}])
functions = st.builds(
    Tool,
    name=names,
    description=st.none() | texts,
    parameters=st.none() | objects,
    strict=st.none() | st.booleans(),
    cache=caches,
)
customs = st.builds(
    Tool, name=names, description=st.none() | texts, kind=st.just("custom"), format=grammars, cache=caches
)
hosted_tools = st.builds(HostedTool, dialect=st.just("chat"), tool=st.just({"type": "$web_search", "depth": 2}))
choices = st.sampled_from(
    [
        None,
        *(ToolChoice(mode=mode) for mode in ("auto", "none", "required")),
        *(ToolChoice(mode="named", name="f", kind=kind) for kind in ("function", "custom")),
    ]
)


def _tools() -> st.SearchStrategy[dict[str, Any]]:
    some = st.fixed_dictionaries(
        {
            "tools": st.lists(functions | customs | hosted_tools, min_size=1, max_size=3).map(tuple),
            "tool_choice": choices,
            "parallel_tool_calls": st.none() | st.booleans(),
        }
    )
    return st.sampled_from([{"tools": None}, {"tools": ()}]) | some


outputs = st.one_of(
    st.none(),
    st.sampled_from([OutputFormat(mode="text"), OutputFormat(mode="json_object")]),
    st.builds(
        OutputFormat,
        mode=st.just("json_schema"),
        name=st.none() | names,
        description=st.none() | texts,
        schema_=st.none() | objects,
        strict=st.none() | st.booleans(),
    ),
)
efforts = st.sampled_from([None, *get_args(Effort)])
thinkings = st.one_of(
    st.none(),
    st.builds(Thinking, effort=efforts.filter(bool)),
    st.builds(Thinking, effort=efforts, budget_tokens=st.integers(0, 9)),
    st.builds(Thinking, effort=efforts, is_off=st.just(value=True)),
    st.builds(Thinking, effort=efforts, is_adaptive=st.just(value=True)),
)
others = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.just({"a": "b"}),
        "min_p": st.just(0.1),
        "chat_template_kwargs": st.just({"enable_thinking": False}),
        "stream_options": st.just({"continuous_usage_stats": True}),
        "thinking~1odd~0name": st.just([1]),
    },
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Return a canonical request in all that this dialect can say, with fields that nobody knows."""
    turns = draw(_conversations())
    unknown = draw(others)
    if turns:
        unknown |= draw(st.sampled_from([{}, {"messages.0.extra": {"x": [1]}}]))
    is_streamed = draw(st.booleans())
    whole = st.none() | st.integers(0, 9)
    fields: dict[str, Any] = {
        **draw(_tools()),
        **{
            name: draw(st.none() | numbers)
            for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty")
        },
        **{name: draw(whole) for name in ("top_k", "seed", "max_output_tokens", "top_logprobs")},
    }
    return Request(
        dialect="chat",
        model=draw(words),
        turns=turns,
        stop=draw(st.none() | st.lists(texts, max_size=2).map(tuple)),
        logprobs=draw(st.none() | st.booleans()),
        output=draw(outputs),
        verbosity=draw(st.sampled_from([None, "low", "medium", "high"])),
        thinking=draw(thinkings),
        is_streamed=is_streamed,
        wants_usage=is_streamed and draw(st.booleans()),
        others=unknown,
        **fields,
    )


usages = st.none() | st.builds(TokenUsage, **{name: st.integers(0, 99) for name in TokenUsage.model_fields})
likely = st.tuples(texts, st.floats(-9, 0))
tokens = st.builds(TokenLogprob, token=texts, logprob=st.floats(-9, 0), top=st.lists(likely, max_size=2).map(tuple))


@st.composite
def replies(draw: st.DrawFn, *, is_streamed: bool = False) -> Reply:
    """Return a canonical answer; one that `is_streamed` has nothing that streams do not tell."""
    uncached = [text.model_copy(update={"cache": None}) for text in draw(st.lists(cited, max_size=1))]
    calls = [call.model_copy(update={"cache": None}) for call in draw(_calls(3))]
    thoughts = draw(st.lists(words.map(lambda text: Reasoning(texts=(text,))), max_size=1))
    parts = (*thoughts, *uncached, *draw(st.lists(refusals, max_size=1)), *calls)
    ends = ("stop", "tool_calls", "length", "content_filter")
    stop_sequence = draw(st.none() | texts)
    known = st.fixed_dictionaries(
        {}, optional={"system_fingerprint": st.just("fp"), "choices.0.message.audio": st.just({"id": "a"})}
    )
    return Reply(
        dialect="chat",
        id=draw(words),
        model=draw(words),
        parts=parts,
        stop_reason=draw(st.sampled_from(ends)) if stop_sequence is None else "stop_sequence",
        stop_sequence=stop_sequence,
        usage=draw(usages),
        logprobs=(tuple(draw(st.lists(tokens, max_size=3))) or None) if parts else None,
        created=draw(st.none() | st.integers(1, 9)),
        others={} if is_streamed else draw(known),
    )


GrownField: TypeAlias = Literal["text", "refusal", "arguments", "reasoning", "summary"]


# -- streams ------------------------------------------------------------------------------------------------------------------


def _pieces(text: str, size: int) -> list[str]:
    return [text[n : n + size] for n in range(0, len(text), size)] or [""]


def _growth(index: int, part: Part, size: int) -> list[PartGrew]:
    told: list[tuple[GrownField, int, str]]
    match part:
        case Text():
            told = [("text", 0, part.text)]
        case Refusal():
            told = [("refusal", 0, part.text)]
        case ToolUse():
            told = [("arguments", 0, part.arguments)]
        case Reasoning():
            summaries: list[tuple[GrownField, int, str]] = [("summary", *one) for one in enumerate(part.summaries)]
            told = [*summaries, *(("reasoning", *one) for one in enumerate(part.texts))]
        case _:
            raise AssertionError(part)
    return [
        PartGrew(index=index, field=field, more=more, nth=nth)
        for field, nth, text in told
        for more in _pieces(text, size)
    ]


def _beginning(part: Part) -> Part:
    match part:
        case Text() | Refusal():
            return type(part)(text="")
        case ToolUse():
            return part.model_copy(update={"arguments": ""})
        case _:
            return Reasoning()


def deltas(reply: Reply, size: int = 4, *, are_calls_mixed: bool = False) -> list[Delta]:
    """Return an answer as a stream in pieces of `size`; calls that are mixed grow by turns."""
    parts = list(enumerate(reply.parts))
    mixed = [(n, part) for n, part in parts if are_calls_mixed and isinstance(part, ToolUse)]
    told: list[Delta] = [ReplyBegan(id=reply.id, model=reply.model, created=reply.created)]
    for n, part in parts[: len(parts) - len(mixed)]:
        told += [PartBegan(index=n, part=_beginning(part)), *_growth(n, part, size), PartEnded(index=n, part=part)]
    told += [PartBegan(index=n, part=_beginning(part)) for n, part in mixed]
    told += _by_turns([_growth(n, part, size) for n, part in mixed])
    told += [PartEnded(index=n, part=part) for n, part in mixed]
    if reply.logprobs:
        at = next(n for n, delta in enumerate(told) if isinstance(delta, PartGrew))
        told[at] = told[at].model_copy(update={"logprobs": reply.logprobs})
    ended = ReplyEnded(stop_reason=reply.stop_reason, stop_sequence=reply.stop_sequence, usage=reply.usage)
    return [*told, ended]


def _by_turns(rows: Iterable[list[PartGrew]]) -> list[PartGrew]:
    numbered = [(place, n, delta) for n, row in enumerate(rows) for place, delta in enumerate(row)]
    return [delta for _, _, delta in sorted(numbered, key=lambda one: one[:2])]
