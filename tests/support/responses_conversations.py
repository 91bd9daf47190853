"""Conversations as OpenAI Responses can say them, made up by Hypothesis: requests, replies, and streams of replies."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from schemas.conversation import (
    Audio,
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
)

WORDS = st.text(max_size=12)
NAMES = st.text("abcdefgh_-0123456789", min_size=1, max_size=8)
BASE64 = st.text("ABCDabcd0123+/", max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(WORDS, JSON, max_size=3)
CACHES = st.none() | st.builds(CacheHint, ttl=st.sampled_from([None, "30m", "12h"]))
CITATION = {"type": "url_citation", "start_index": 0, "end_index": 2, "url": "http://a.example", "title": "A"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
SCREENSHOT = {"type": "computer_screenshot", "file_id": "file_1"}


def data(media_types: st.SearchStrategy[str | None]) -> st.SearchStrategy[Data]:
    return st.builds(Data, media_type=media_types, base64=BASE64)


FILE_IDS = st.builds(FileId, dialect=st.just("responses"), id=NAMES)
URLS = st.builds(Url, url=NAMES.map("https://a.example/{}".format))
TEXTS = st.builds(Text, text=WORDS, cache=CACHES)
IMAGES = st.builds(
    Image,
    source=URLS | FILE_IDS | data(st.sampled_from([None, "image/png", "image/svg+xml;charset=utf-8"])),
    detail=st.sampled_from([None, "low", "high", "auto", "original"]),
    cache=CACHES,
)
FILES = st.builds(
    File,
    source=URLS | FILE_IDS | data(st.sampled_from([None, "application/pdf"])),
    filename=st.none() | NAMES,
    cache=CACHES,
)
AUDIO = st.builds(Audio, base64=BASE64, format=st.sampled_from(["wav", "mp3"]))
SPOKEN = st.builds(Text, text=WORDS, citations=st.sampled_from([(), (CITATION,), (CITATION, CITATION)]))
REFUSALS = st.builds(Refusal, text=WORDS)


@st.composite
def reasoning(draw: st.DrawFn, ids: st.SearchStrategy[str | None] = st.none() | NAMES) -> Reasoning:  # noqa: B008
    words = st.lists(WORDS, max_size=2).map(tuple)
    return Reasoning(texts=draw(words), summaries=draw(words), encrypted=draw(st.none() | WORDS), id=draw(ids))


@st.composite
def call(draw: st.DrawFn, id_: str, item_ids: st.SearchStrategy[str | None] = st.none() | NAMES) -> ToolUse:  # noqa: B008
    return ToolUse(
        id=id_,
        name=draw(NAMES),
        arguments=draw(st.sampled_from(['{"a": 1}', '{"cut', "", "é\u2028"])),
        kind=draw(st.sampled_from(["function", "custom"])),
        namespace=draw(st.none() | NAMES),
        item_id=draw(item_ids),
    )


@st.composite
def result(draw: st.DrawFn, use: ToolUse) -> ToolResult:
    if draw(st.booleans()):
        return ToolResult(call_id=use.id, parts=(Text(text=draw(WORDS)),), kind=use.kind)
    parts = tuple(draw(st.lists(TEXTS | IMAGES | FILES, max_size=3)))
    return ToolResult(call_id=use.id, parts=parts, is_plain=False, kind=use.kind)


@st.composite
def given_turn(draw: st.DrawFn) -> Turn:
    """Draw what somebody says who is no assistant, or an item that is kept whole."""
    role = draw(st.sampled_from(["user", "system", "developer"]))
    match draw(st.sampled_from(["plain", "parts", "hosted"])):
        case "plain":
            return Turn(role=role, parts=(Text(text=draw(WORDS)),), is_plain=True)
        case "parts":
            return Turn(role=role, parts=tuple(draw(st.lists(TEXTS | IMAGES | FILES | AUDIO, max_size=3))))
        case _:
            item = {"type": "message", "role": role, "content": [SCREENSHOT]}
            return Turn(role=role, parts=(Hosted(dialect="responses", item=item),))


@st.composite
def assistant_turn(draw: st.DrawFn, first_call: int) -> Turn:
    parts: list[Part] = []
    messages = 0
    for section in range(draw(st.integers(1, 2))):
        if section:
            parts.append(Hosted(dialect="responses", item=SEARCH))
        parts += draw(st.lists(reasoning(), max_size=2))
        words = draw(st.lists(SPOKEN | REFUSALS, max_size=2))
        messages += bool(words)
        parts += words
        parts += [draw(call(f"call_{first_call + len(parts) + n}")) for n in range(draw(st.integers(0, 2)))]
    spoken = [part for part in parts if isinstance(part, Text | Refusal)]
    can_be_plain = len(spoken) == 1 and isinstance(spoken[0], Text) and not spoken[0].citations
    return Turn(role="assistant", parts=tuple(parts), is_plain=can_be_plain and draw(st.booleans()))


@st.composite
def turns(draw: st.DrawFn) -> tuple[Turn, ...]:
    said: list[Turn] = []
    for n in range(draw(st.integers(0, 4))):
        said += draw(st.lists(given_turn(), min_size=1, max_size=2))
        turn = draw(assistant_turn(n * 100))
        said.append(turn)
        uses = [part for part in turn.parts if isinstance(part, ToolUse)]
        if uses:
            results: list[Part] = [draw(result(use)) for use in draw(st.permutations(uses))]
            if draw(st.booleans()):
                results.insert(0, Hosted(dialect="responses", item={"type": "shell_call_output", "call_id": "c"}))
            said.append(Turn(role="tool", parts=tuple(results)))
    if draw(st.booleans()):
        said.insert(0, Turn(role="system", parts=(Text(text=draw(WORDS)),), is_plain=True))
    return tuple(said)


@st.composite
def tool(draw: st.DrawFn) -> Tool | HostedTool:
    kind = draw(st.sampled_from(["function", "custom", "hosted"]))
    if kind == "hosted":
        return HostedTool(dialect="responses", tool={"type": "web_search", "search_context_size": "low"})
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}
    is_function = kind == "function"
    return Tool(
        name=draw(NAMES),
        description=draw(st.none() | WORDS),
        kind="function" if is_function else "custom",
        parameters=draw(st.none() | OBJECTS) if is_function else None,
        format=None if is_function else draw(st.sampled_from([None, {"type": "text"}, grammar])),
        strict=draw(st.none() | st.booleans()) if is_function else None,
        namespace=draw(st.sampled_from([None, None, "one", "two"])),
    )


OUTPUTS = st.sampled_from([None, OutputFormat(mode="text"), OutputFormat(mode="json_object")]) | st.builds(
    OutputFormat,
    mode=st.just("json_schema"),
    name=NAMES,
    description=st.none() | WORDS,
    schema_=OBJECTS,
    strict=st.none() | st.booleans(),
)
THINKING = st.none() | st.builds(
    Thinking,
    effort=st.sampled_from([None, "none", "minimal", "low", "medium", "high", "xhigh", "max"]),
    summary=st.sampled_from([None, "auto", "detailed"]),
)
ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}]}
OTHERS: dict[str, Any] = {
    "store": False,
    "metadata": {"a": "b"},
    "previous_response_id": "resp_0",
    "truncation": "auto",
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "background": True,
    "client_metadata": {"x": "y"},
    "text.surprise": {"deep": 1},
}


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a request that is canonical and that this dialect can say."""
    tools = draw(st.none() | st.lists(tool(), max_size=4).map(tuple))
    others = {name: OTHERS[name] for name in draw(st.sets(st.sampled_from(sorted(OTHERS))))}
    namespaces = sorted({each.namespace for each in tools or () if isinstance(each, Tool) and each.namespace})
    if namespaces and draw(st.booleans()):
        others["tools.namespaces"] = {name: draw(WORDS) for name in namespaces}
    choices = st.sampled_from([None, *map(ToolChoice.model_validate, ({"mode": "auto"}, {"mode": "required"}))])
    named = st.builds(ToolChoice, mode=st.just("named"), name=NAMES, kind=st.sampled_from(["function", "custom"]))
    choice = draw(choices | named) if tools else None
    if choice is None and draw(st.booleans()):
        others["tool_choice"] = ALLOWED
    thinking = draw(THINKING)
    if thinking is not None and draw(st.booleans()):
        others["reasoning.context"] = "auto"
    is_streamed = draw(st.booleans())
    return Request(
        dialect="responses",
        model=draw(NAMES),
        turns=draw(turns()),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=draw(st.none() | st.booleans()),
        max_output_tokens=draw(st.none() | st.integers(1, 9999)),
        temperature=draw(st.none() | st.floats(0, 2)),
        top_p=draw(st.none() | st.floats(0, 1)),
        logprobs=draw(st.sampled_from([None, True])),
        top_logprobs=draw(st.none() | st.integers(0, 20)),
        output=draw(OUTPUTS),
        verbosity=draw(st.sampled_from([None, "low", "medium", "high"])),
        thinking=thinking,
        is_streamed=is_streamed,
        wants_usage=is_streamed,
        others=others,
    )


NUMBERS = st.floats(-20, 0)
LOGPROBS = st.builds(
    TokenLogprob,
    token=WORDS,
    logprob=NUMBERS,
    top=st.lists(st.tuples(WORDS, NUMBERS), max_size=2).map(tuple),
)
USAGES = st.builds(
    TokenUsage,
    input_tokens=st.integers(0, 99),
    output_tokens=st.integers(0, 99),
    cached_tokens=st.integers(0, 9),
    cache_written_tokens=st.integers(0, 9),
    reasoning_tokens=st.integers(0, 9),
)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """Draw a reply that is canonical and that this dialect can say."""
    parts: list[Part] = []
    for n in range(draw(st.integers(0, 5))):
        hosted = Hosted(dialect="responses", item=SEARCH | {"id": f"ws_{n}"})
        own = call(f"call_{n}", item_ids=st.just(f"fc_{n}"))
        parts.append(draw(SPOKEN | SPOKEN | REFUSALS | reasoning(ids=st.just(f"rs_{n}")) | own | st.just(hosted)))
    kinds = {type(part) for part in parts}
    whole = "tool_calls" if ToolUse in kinds else "refusal" if Refusal in kinds else "stop"
    usage = draw(st.none() | USAGES)
    others: dict[str, Any] = draw(st.sampled_from([{}, {"service_tier": "default", "completed_at": 5}]))
    return Reply(
        dialect="responses",
        id=draw(NAMES),
        model=draw(NAMES),
        parts=tuple(parts),
        stop_reason=draw(st.sampled_from([whole, "length", "content_filter"])),
        usage=usage,
        logprobs=draw(st.none() | st.lists(LOGPROBS, min_size=1, max_size=2).map(tuple)) if Text in kinds else None,
        created=draw(st.none() | st.integers(1, 2**31)),
        others=others | ({"usage.cost": 1} if usage and others else {}),
    )


@st.composite
def streams(draw: st.DrawFn) -> list[Delta]:
    """Draw a streamed reply: its parts begin in their order, and grow and end in any."""
    reply = draw(replies())
    waiting = [draw(part_deltas(index, part)) for index, part in enumerate(reply.parts)]
    said: list[Delta] = [ReplyBegan(id=reply.id, model=reply.model, created=reply.created)]
    telling: list[list[Delta]] = []
    while waiting or telling:
        if not telling or (waiting and draw(st.booleans())):
            telling.append(waiting.pop(0))
        chosen = draw(st.sampled_from(telling)) if len(telling) > 1 else telling[0]
        said.append(chosen.pop(0))
        telling = [each for each in telling if each]
    said.append(ReplyEnded(stop_reason=reply.stop_reason, usage=reply.usage))
    return _in_order_of_beginning(said)


def _in_order_of_beginning(said: list[Delta]) -> list[Delta]:
    """Return the same deltas with the parts numbered as they began."""
    began = [delta.index for delta in said if isinstance(delta, PartBegan)]
    new = {index: n for n, index in enumerate(began)}
    return [
        delta.model_copy(update={"index": new[delta.index]})
        if isinstance(delta, PartBegan | PartGrew | PartEnded)
        else delta
        for delta in said
    ]


@st.composite
def part_deltas(draw: st.DrawFn, index: int, part: Part) -> list[Delta]:
    """Draw how one part is told: from nothing of it or from all of it on, in pieces, with or without an end of its own."""
    if isinstance(part, Hosted) or draw(st.booleans()):
        return [PartBegan(index=index, part=part), PartEnded(index=index, part=part)]
    said: list[Delta] = []
    match part:
        case Text() | Refusal():
            empty: Part = part.model_copy(update={"text": ""})
            grown = [("text" if isinstance(part, Text) else "refusal", 0, part.text)]
        case ToolUse():
            empty = part.model_copy(update={"arguments": ""})
            grown = [("arguments", 0, part.arguments)]
        case Reasoning():
            empty = Reasoning(id=part.id)
            grown = [("summary", n, words) for n, words in enumerate(part.summaries)]
            grown += [("reasoning", n, words) for n, words in enumerate(part.texts)]
        case _:
            raise TypeError(part)
    for field, nth, words in grown:
        cut = draw(st.integers(0, len(words)))
        for more in (words[:cut], words[cut:]):
            logprobs = tuple(draw(st.lists(LOGPROBS, max_size=1))) if field == "text" else ()
            said.append(PartGrew(index=index, field=field, more=more, nth=nth, logprobs=logprobs))
    has_end = isinstance(part, Reasoning) or draw(st.booleans())
    ended = [PartEnded(index=index, part=part)] if has_end or getattr(part, "citations", ()) else []
    return [PartBegan(index=index, part=empty), *said, *ended]
