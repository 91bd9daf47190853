"""Strategies for what clients of the Gemini API say: bodies of requests, read as they are by the dialect."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from providers.dialects.gemini import Gemini
from providers.dialects.gemini.thoughts import write_proof
from schemas.conversation import Reasoning, Request
from tests.support.messages_conversations import JSON, NAMES, OBJECTS, WORDS

Body = dict[str, Any]
TEXTS = WORDS.map(lambda text: {"text": text})
KINDS = st.sampled_from(["image/png", "application/pdf", "audio/wav", "video/mp4"])
INLINE = KINDS.map(lambda kind: {"inlineData": {"mimeType": kind, "data": "aGk="}})
LINKED = st.sampled_from(["image/png", "application/pdf"]).map(
    lambda kind: {"file_data": {"mime_type": kind, "file_uri": "https://x.test/a"}}
)
THOUGHT = st.text(min_size=1, max_size=9)
RESULTS = st.one_of(
    WORDS.map(lambda text: {"output": text}), WORDS.map(lambda text: {"error": text}), st.dictionaries(WORDS, JSON, max_size=2)
)  # fmt: skip
SCHEMAS = st.sampled_from(
    [
        {"type": "OBJECT", "properties": {"n": {"type": "INTEGER", "nullable": True}}, "propertyOrdering": ["n"]},
        {"type": "object", "properties": {"all": {"type": "ARRAY", "items": {"type": "STRING"}, "maxItems": "3"}}},
        {"anyOf": [{"type": "STRING", "enum": ["a"]}, {"type": "NUMBER"}]},
    ]
)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Body]:
    """Return what a model says, and what comes back; calls keep their ids or lose them."""
    names = draw(st.lists(NAMES, max_size=2))
    form = draw(st.sampled_from(["kept", "lost"]))
    calls, results = [], []
    for n, name in enumerate(names):
        id_ = {"kept": {"id": f"c{n}"}, "lost": {}}[form]
        calls.append({"functionCall": {**id_, "name": name, "args": draw(OBJECTS)}})
        results.append({"functionResponse": {**id_, "name": name, "response": draw(RESULTS)}})
    said: list[Body] = [*draw(st.lists(TEXTS, min_size=0 if calls else 1, max_size=2)), *calls]
    if draw(st.booleans()):
        proof = write_proof([Reasoning(texts=(draw(THOUGHT),), signature="c2ln")])
        said[0] = {**said[0], "thoughtSignature": proof}
    if draw(st.booleans()):
        said.insert(0, {"text": draw(THOUGHT), "thought": True})
    words = draw(st.lists(TEXTS | INLINE | LINKED, min_size=0 if calls else 1, max_size=2))
    return [{"role": "model", "parts": said}, {"role": "user", "parts": [*results, *words]}]


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    """Return a request, with what its address says."""
    contents = [{"role": "user", "parts": draw(st.lists(TEXTS | INLINE | LINKED, min_size=1, max_size=2))}]
    contents += [content for _ in range(draw(st.integers(0, 3))) for content in draw(exchanges())]
    config = {
        "temperature": draw(st.none() | st.floats(0, 1)),
        "topP": draw(st.none() | st.floats(0, 1)),
        "topK": draw(st.none() | st.integers(1, 99)),
        "maxOutputTokens": draw(st.none() | st.integers(1, 999)),
        "stopSequences": draw(st.none() | st.lists(WORDS, max_size=2)),
        "thinkingConfig": draw(st.sampled_from([None, {"thinkingBudget": 99}, {"thinkingLevel": "LOW"}, {"includeThoughts": True}])),
        **draw(st.just({}) | SCHEMAS.map(lambda it: {"responseMimeType": "application/json", "responseSchema": it})),
    }  # fmt: skip
    body: Body = {"model": "m", "stream": draw(st.booleans()), "contents": contents, "generationConfig": config}
    if draw(st.booleans()):
        body["systemInstruction"] = {"parts": draw(st.lists(TEXTS, min_size=1, max_size=2))}
    if draw(st.booleans()):
        declared = draw(st.lists(NAMES, min_size=1, max_size=2, unique=True))
        parameters = [{}, {"parametersJsonSchema": {"type": "object"}}, {"parameters": draw(SCHEMAS)}]
        tools = [{"name": name, "description": "d", **draw(st.sampled_from(parameters))} for name in declared]
        body["tools"] = [{"functionDeclarations": tools}]
        mode = draw(st.sampled_from(["AUTO", "ANY", "NONE"]))
        allowed = {"allowedFunctionNames": declared[:1]} if mode == "ANY" and draw(st.booleans()) else {}
        body["toolConfig"] = {"functionCallingConfig": {"mode": mode, **allowed}}
    return body


def requests() -> st.SearchStrategy[Request]:
    """Return what such bodies say."""
    return bodies().map(Gemini().read_request)
