"""Strategies for all that Anthropic Messages can say: canonical requests and answers, and the streams of such answers."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from schemas.conversation import (
    CacheHint,
    Data,
    Delta,
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
    Reply,
    ReplyBegan,
    ReplyEnded,
    Request,
    Text,
    Thinking,
    TokenUsage,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
    Turn,
    Url,
)

WORDS = st.text(max_size=12)
NAMES = st.text(alphabet="abcXYZ019_-", min_size=1, max_size=10)
COUNTS = st.integers(0, 100_000)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2), max_leaves=4
)
OBJECTS = st.dictionaries(WORDS, JSON, max_size=3)
CACHES = st.none() | st.builds(CacheHint, ttl=st.sampled_from([None, "5m", "1h"]))
SOURCES = st.one_of(
    st.builds(Url, url=WORDS),
    st.builds(Data, media_type=st.sampled_from(["image/png", "application/pdf"]), base64=st.sampled_from(["", "aGk="])),
    st.builds(FileId, dialect=st.just("messages"), id=NAMES),
)
CITATIONS = st.lists(OBJECTS.map(lambda said: {"type": "char_location", **said}), max_size=2).map(tuple)
TEXTS = st.builds(Text, text=WORDS, cache=CACHES)
CITED = st.builds(Text, text=WORDS, citations=CITATIONS)
IMAGES = st.builds(Image, source=SOURCES, cache=CACHES)
ABOUT_FILES: dict[str, Any] = {
    "filename": st.none() | WORDS,
    "context": st.none() | WORDS,
    "has_citations": st.none() | st.booleans(),
    "cache": CACHES,
}
FILES = st.builds(File, source=SOURCES, **ABOUT_FILES) | st.builds(File, text=WORDS, **ABOUT_FILES)
THOUGHTS = st.one_of(
    st.builds(
        Reasoning,
        texts=st.lists(st.text(min_size=1, max_size=9), max_size=1).map(tuple),
        signature=st.none() | st.text(min_size=1, max_size=9),
    ),
    st.builds(Reasoning, redacted=NAMES),
)
HOSTED = st.one_of(
    st.builds(
        lambda given: {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": given}, OBJECTS
    ),
    st.builds(
        lambda content: {"type": "web_search_tool_result", "tool_use_id": "s", "content": content}, st.lists(OBJECTS)
    ),
    st.builds(lambda content: {"type": "compaction", "content": content}, WORDS | st.none()),
).map(lambda item: Hosted(dialect="messages", item=item))
RESULT_PARTS = st.lists(TEXTS | IMAGES | FILES, max_size=3).map(tuple)


def calls(id_: str) -> st.SearchStrategy[ToolUse]:
    """Return calls of that id, whose arguments are an object as text."""
    arguments = OBJECTS.map(lambda given: json.dumps(given, ensure_ascii=False, separators=(",", ":")))
    return st.builds(ToolUse, id=st.just(id_), name=NAMES, arguments=arguments, cache=CACHES)


@st.composite
def results(draw: st.DrawFn, call_id: str) -> ToolResult:
    """Return a result: absent content, a bare string, or a list."""
    parts, is_plain = draw(
        st.one_of(
            st.just(((), True)),
            WORDS.map(lambda text: ((Text(text=text),), True)),
            RESULT_PARTS.map(lambda parts: (parts, False)),
        )
    )
    is_error = draw(st.none() | st.booleans())
    return ToolResult(call_id=call_id, parts=parts, is_plain=is_plain, is_error=is_error, cache=draw(CACHES))


def plain(role: Any) -> st.SearchStrategy[Turn]:
    """Return turns of one bare string."""
    return WORDS.map(lambda text: Turn(role=role, parts=(Text(text=text),), is_plain=True))


def listed(role: Any, parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Turn]:
    """Return turns of a list of parts."""
    return st.lists(parts, max_size=3).map(lambda held: Turn(role=role, parts=tuple(held)))


SYSTEM = plain("system") | listed("system", TEXTS)
USER = plain("user") | listed("user", TEXTS | IMAGES | FILES | HOSTED)


@st.composite
def exchanges(draw: st.DrawFn, n: int) -> list[Turn]:
    """Return what an assistant says, and what comes back: results if it calls, and words."""
    ids = [f"toolu_{n}_{i}" for i in range(draw(st.integers(0, 2)))]
    called: list[Part] = [draw(calls(id_)) for id_ in ids]
    said: list[Part] = [*draw(st.lists(THOUGHTS, max_size=2)), *draw(st.lists(TEXTS | CITED, max_size=2)), *called]
    hosted = draw(st.lists(HOSTED, max_size=1))
    if hosted:  # such a turn keeps the order in which it came
        said = draw(st.permutations([*said, *hosted]))
    assistant = (
        draw(plain("assistant")) if draw(st.booleans()) and not ids else Turn(role="assistant", parts=tuple(said))
    )
    answers = [Turn(role="tool", parts=tuple(draw(results(id_)) for id_ in ids))] if ids else []
    between = draw(st.lists(SYSTEM | USER, min_size=0 if ids else 1, max_size=2))
    return [assistant, *answers, *between]


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Turn, ...]:
    """Return canonical turns in which every call has its result."""
    opening = [*draw(st.lists(SYSTEM, max_size=2)), *draw(st.lists(USER, max_size=2))]
    rest = [turn for n in range(draw(st.integers(0, 3))) for turn in draw(exchanges(n))]
    return (*opening, *rest)


TOOLS = st.one_of(
    st.builds(
        Tool,
        name=NAMES,
        description=st.none() | WORDS,
        parameters=st.none() | OBJECTS,
        strict=st.none() | st.booleans(),
        cache=CACHES,
    ),
    st.builds(
        HostedTool,
        dialect=st.just("messages"),
        tool=st.builds(lambda more: {**more, "type": "web_search_20250305", "name": "web_search"}, OBJECTS),
    ),
)
CHOICES = st.sampled_from(["auto", "none", "required"]).map(lambda mode: ToolChoice(mode=mode)) | NAMES.map(
    lambda name: ToolChoice(mode="named", name=name)
)
EFFORTS = st.sampled_from([None, "low", "medium", "high", "xhigh", "max"])
DISPLAYS = st.sampled_from([None, "summarized", "omitted"])
THINKING = st.one_of(
    st.none(),
    st.builds(Thinking, effort=EFFORTS, budget_tokens=COUNTS, summary=DISPLAYS),
    st.builds(Thinking, effort=EFFORTS, is_adaptive=st.just(True), summary=DISPLAYS),  # noqa: FBT003
    st.builds(Thinking, effort=EFFORTS, is_off=st.just(True)),  # noqa: FBT003
    EFFORTS.filter(bool).map(lambda effort: Thinking(effort=effort)),
)
OTHERS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.just({"user_id": "u"}),
        "service_tier": st.just("auto"),
        "context_management": st.just({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
        "mcp_servers": st.lists(OBJECTS, max_size=1),
        "output_config.task_budget": st.just({"type": "tokens", "total": 5}),
    },
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Return a canonical request that this dialect can say."""
    tools = draw(st.none() | st.lists(TOOLS, max_size=3).map(tuple))
    choice = draw(st.none() | CHOICES) if tools else None
    is_parallel = draw(st.none() | st.booleans()) if choice and choice.mode != "none" else None
    is_streamed = draw(st.booleans())
    turns = draw(conversations())
    others = draw(OTHERS)
    lists = [
        n for n, turn in enumerate(turns) if turn.parts and not turn.is_plain and not isinstance(turn.parts[0], Hosted)
    ]
    if lists and draw(st.booleans()):
        others[f"turns.{lists[-1]}.parts.0.caller"] = {"type": "direct"}
    return Request(
        dialect="messages",
        model=draw(NAMES),
        turns=turns,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=is_parallel,
        max_output_tokens=draw(COUNTS),
        temperature=draw(st.none() | st.floats(0, 1)),
        top_p=draw(st.none() | st.floats(0, 1)),
        top_k=draw(st.none() | COUNTS),
        stop=draw(st.none() | st.lists(WORDS, max_size=2).map(tuple)),
        output=draw(st.none() | OBJECTS.map(lambda schema: OutputFormat(mode="json_schema", schema_=schema))),
        thinking=draw(THINKING),
        is_streamed=is_streamed,
        wants_usage=is_streamed,
        others=others,
    )


@st.composite
def usages(draw: st.DrawFn) -> TokenUsage:
    """Return counts that fit each other."""
    read, cached, written, output = (draw(COUNTS) for _ in range(4))
    return TokenUsage(
        input_tokens=read + cached + written,
        output_tokens=output,
        cached_tokens=cached,
        cache_written_tokens=written,
        reasoning_tokens=draw(st.integers(0, output)),
    )


@st.composite
def replies(draw: st.DrawFn, *, with_others: bool = True) -> Reply:
    """Return a canonical answer that this dialect can say; a stream of it has no place for unknown fields."""
    kinds = draw(st.lists(st.sampled_from(["text", "thought", "call", "hosted"]), max_size=5))
    made = {"text": CITED, "thought": THOUGHTS, "hosted": HOSTED}
    parts = [draw(made[kind] if kind in made else calls(f"toolu_{n}")) for n, kind in enumerate(kinds)]
    bare = [part.replaced(cache=None) if isinstance(part, ToolUse) else part for part in parts]
    others: dict[str, Any] = {}
    if with_others and draw(st.booleans()):
        others = {"container": {"id": "container_1"}, "usage.service_tier": "standard"}
        others |= {f"parts.{n}.caller": {"type": "direct"} for n, kind in enumerate(kinds) if kind == "call"}
    return Reply(
        dialect="messages",
        id=draw(NAMES),
        model=draw(NAMES),
        parts=tuple(bare),
        stop_reason=draw(st.sampled_from(["stop", "stop_sequence", "tool_calls", "length", "refusal", "pause"])),
        stop_sequence=draw(st.none() | st.text(min_size=1, max_size=3)),
        usage=draw(usages()),
        others=others,
    )


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """Cut a text into pieces."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _steps(draw: st.DrawFn, index: int, part: Part) -> list[Delta]:
    """Return the deltas of one part, with more or less of it known at the beginning."""

    def grown(field: Any, text: str) -> list[Delta]:
        return [PartGrew(index=index, field=field, more=more) for more in pieces(draw, text)]

    end = PartEnded(index=index, part=part)
    is_known_at_once = draw(st.booleans())
    match part:
        case Text() if not is_known_at_once:
            head = draw(st.integers(0, len(part.text)))
            began: Part = Text(text=part.text[:head])
            growth = grown("text", part.text[head:])
        case ToolUse() if not is_known_at_once:
            began, growth = part.replaced(arguments=""), grown("arguments", part.arguments)
        case Reasoning(redacted=None) if not is_known_at_once:
            began = Reasoning()
            growth = grown("reasoning", "".join(part.texts)) if part.texts else []
            growth += grown("signature", part.signature) if part.signature else []
        case _:
            began, growth = part, []
    return [PartBegan(index=index, part=began), *growth, end]


@st.composite
def streams(draw: st.DrawFn) -> tuple[Reply, list[Delta]]:
    """Return an answer, and deltas that tell it, whose parts grow one after the other or at the same time."""
    reply = draw(replies(with_others=False))
    waiting = [_steps(draw, index, part) for index, part in enumerate(reply.parts)]
    is_interleaved = draw(st.booleans())
    deltas: list[Delta] = [
        ReplyBegan(
            id=reply.id, model=reply.model, usage=draw(st.none() | st.just(reply.usage.replaced(reasoning_tokens=0)))
        )
    ]
    growing: list[list[Delta]] = []
    while waiting or growing:
        may_begin = bool(waiting) and (not growing or (is_interleaved and draw(st.booleans())))
        if may_begin:
            growing.append(waiting.pop(0))
        steps = growing[-1] if may_begin else growing[draw(st.integers(0, len(growing) - 1))]
        deltas.append(steps.pop(0))
        growing = [left for left in growing if left]
    deltas.append(ReplyEnded(stop_reason=reply.stop_reason, stop_sequence=reply.stop_sequence, usage=reply.usage))
    return reply, deltas
