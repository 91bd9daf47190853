"""The Gemini API as clients speak it: what is read, what is refused by name, and how answers are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import Problem, Unexpressible
from providers.dialects.catalog import DIALECTS
from providers.dialects.sse import EventSplitter
from providers.dialects.unfolding import unfold
from schemas.conversation import (
    Audio,
    Data,
    File,
    FileId,
    Image,
    OutputFormat,
    PartBegan,
    PartGrew,
    Reasoning,
    Reply,
    ReplyBegan,
    ReplyBroke,
    Request,
    StopReason,
    Text,
    Thinking,
    TokenLogprob,
    TokenUsage,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
    Url,
    Video,
)
from tests.support.gemini_client import GeminiClient, thoughts_of

GEMINI = GeminiClient()
DECLARED = [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}]
CALL = ToolUse(id="c0", name="look", arguments='{"at": [1]}')
PROVEN = Reasoning(texts=("I look.",), signature="c2ln")


def said(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def read(*contents: dict[str, Any], **more: Any) -> Request:
    return GEMINI.read_request({"model": "m", "contents": list(contents) or [said({"text": "hi"})], **more})


def answer(*parts: Any, stop: StopReason = "stop", **more: Any) -> Reply:
    return Reply(dialect="chat", id="r0", model="up", parts=parts, stop_reason=stop, **more)


def chunks(reply: Reply, request: Request) -> list[dict[str, Any]]:
    writer, splitter = GEMINI.stream_writer(request), EventSplitter()
    return [json.loads(event.data) for delta in unfold(reply) for event in splitter.feed(writer.write(delta))]


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"text": "hi"}, Text(text="hi")),
        ({"inlineData": {"mimeType": "image/png", "data": "-_aG"}}, Image(source=Data(media_type="image/png", base64="+/aG"))),
        ({"inline_data": {"mime_type": "audio/mpeg", "data": "aG"}}, Audio(base64="aG", format="mp3")),
        ({"inlineData": {"mimeType": "video/mp4", "data": "aG"}}, Video(source=Data(media_type="video/mp4", base64="aG"))),
        ({"fileData": {"fileUri": "https://x.test/a.pdf"}}, File(source=Url(url="https://x.test/a.pdf"))),
        ({"fileData": {"fileUri": "gs://b/a", "mimeType": "text/csv"}}, File(source=FileId(dialect="gemini", id="gs://b/a"))),
    ],
    ids=str,
)  # fmt: skip
def test_parts(part: dict[str, Any], found: Any) -> None:
    """Each kind of content, in both spellings, with base64 as others read it."""
    assert read(said(part)).turns[0].parts == (found,)


def test_settings() -> None:
    """All that can be said about an answer, whole numbers of JavaScript and strings in capitals too."""
    schema = {
        "type": "OBJECT",
        "properties": {"n": {"type": "STRING", "nullable": True, "enum": ["x"]}},
        "required": ["n"],
    }
    config = {
        "temperature": 0, "topP": 0.5, "top_k": 64.0, "maxOutputTokens": 9, "stopSequences": ["END"], "seed": 3,
        "presencePenalty": 0.1, "frequencyPenalty": 0.2, "responseLogprobs": True, "logprobs": 2, "candidateCount": 1,
        "responseMimeType": "application/json", "responseSchema": schema, "responseModalities": ["TEXT"],
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 100, "thinkingLevel": "HIGH"},
    }  # fmt: skip
    asked = read(generationConfig=config, tools=DECLARED, stream=True)
    assert asked.output is not None
    assert asked.output.schema_ == {
        "type": "object",
        "properties": {"n": {"type": ["string", "null"], "enum": ["x", None]}},
        "required": ["n"],
    }
    assert asked.model_dump(exclude_defaults=True, exclude={"turns", "tools", "output"}) == {
        "dialect": "gemini", "model": "m", "max_output_tokens": 9, "temperature": 0, "top_p": 0.5, "top_k": 64,
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "seed": 3, "stop": ("END",), "logprobs": True, "top_logprobs": 2,
        "thinking": {"effort": "high", "budget_tokens": 100, "summary": "auto"}, "is_streamed": True, "wants_usage": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("config", "thinking"),
    [({"thinkingBudget": 0}, Thinking(is_off=True)), ({"thinking_budget": -1}, Thinking(is_adaptive=True)), ({}, None)],
    ids=str,
)
def test_how_much_to_think(config: dict[str, Any], thinking: Thinking | None) -> None:
    assert read(generationConfig={"thinkingConfig": config}).thinking == thinking


@pytest.mark.parametrize(
    ("calling", "choice"),
    [
        ({"mode": "AUTO"}, ToolChoice(mode="auto")),
        ({"mode": "NONE"}, ToolChoice(mode="none")),
        ({"mode": "ANY"}, ToolChoice(mode="required")),
        ({"mode": "ANY", "allowedFunctionNames": ["b"]}, ToolChoice(mode="named", name="b")),
        ({"mode": "ANY", "allowedFunctionNames": ["b", "a"]}, ToolChoice(mode="required")),
        ({}, None),
    ],
    ids=str,
)
def test_which_function_must_be_called(calling: dict[str, Any], choice: ToolChoice | None) -> None:
    assert read(tools=DECLARED, toolConfig={"functionCallingConfig": calling}).tool_choice == choice


def test_functions_and_schemas() -> None:
    """A schema in either form is one of JSON Schema."""
    own = {
        "type": "ARRAY",
        "items": {"anyOf": [{"type": "NUMBER"}], "nullable": True},
        "minItems": "1",
        "propertyOrdering": ["x"],
    }
    declared = [
        {"name": "a", "parameters": own},
        {"name": "b", "description": "B.", "parametersJsonSchema": {"type": "object"}},
    ]
    assert read(tools=[{"functionDeclarations": declared}]).tools == (
        Tool(
            name="a",
            parameters={"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "minItems": 1},
        ),
        Tool(name="b", description="B.", parameters={"type": "object"}),
    )


@pytest.mark.parametrize("ids", [("c0", "c1"), (None, None)], ids=str)
def test_results_find_their_calls(ids: tuple[str | None, str | None]) -> None:
    """By id; without ids in order."""
    named = [{} if id_ is None else {"id": id_} for id_ in ids]
    calls = [{"functionCall": {**id_, "name": "look", "args": {"n": n}}} for n, id_ in enumerate(named)]
    results = [
        {"functionResponse": {**id_, "name": "look", "response": {"output": str(n)}}} for n, id_ in enumerate(named)
    ]
    request = read(
        said({"text": "go"}), said(*calls, role="model"), said(results[0]), said(results[1], {"text": "and?"})
    )
    assert [turn.role for turn in request.turns] == ["user", "assistant", "tool", "user"]
    uses = [part for part in request.turns[1].parts if isinstance(part, ToolUse)]
    done = [part for part in request.turns[2].parts if isinstance(part, ToolResult)]
    assert (
        [use.id for use in uses]
        == [part.call_id for part in done]
        == (["g1x0", "g1x1"] if ids[0] is None else ["c0", "c1"])
    )
    assert [part.parts for part in done] == [(Text(text="0"),), (Text(text="1"),)]


def test_a_result_that_is_given_twice_counts_once() -> None:
    """As Gemini CLI does when its session goes on; it is left out by name. Another one to the same call is refused."""
    one, other = ({"functionResponse": {"id": "c0", "name": "a", "response": {"output": text}}} for text in "xy")
    call = {"functionCall": {"id": "c0", "name": "a"}}
    request = read(said(call, role="model"), said(one, one))
    assert [part.type for part in request.turns[1].parts] == ["tool_result"]
    assert DIALECTS["chat"].write_request(request).dropped == ("contents.1.parts.1.repeatedResponse",)
    with pytest.raises(Unexpressible, match=r"contents\.1\.parts\.1"):
        read(said(call, role="model"), said(one, other))


@pytest.mark.parametrize(
    ("response", "words", "is_error"),
    [
        ({"output": "o"}, "o", None), ({"error": "e"}, "e", True),
        ({"output": "o", "n": 1}, '{"output":"o","n":1}', None), ({}, "{}", None),
    ],
)  # fmt: skip
def test_what_a_result_says(response: dict[str, Any], words: str, is_error: bool | None) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    call, done = {"functionCall": {"name": "a"}}, {"name": "a", "response": response}
    turns = [
        read(said(call, role="model"), said({"functionResponse": d})).turns
        for d in (done, {**done, "parts": [picture]})
    ]
    plain, shown = (turn[1].parts[0] for turn in turns)
    assert isinstance(plain, ToolResult)
    assert (plain.parts, plain.is_plain, plain.is_error) == ((Text(text=words),), True, is_error)
    assert isinstance(shown, ToolResult)
    assert [part.type for part in shown.parts] == ["text", "image"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"contents": []}, "contents"),
        ({"contents": 5}, "contents"),
        ({"contents": [{"role": "system", "parts": []}]}, "contents.0.role"),
        ({"contents": [said({})]}, "contents.0.parts.0"),
        ({"contents": [said({"text": 5})]}, "contents.0.parts.0.text"),
        ({"contents": [said({"text": "x", "thought": True})]}, "contents.0.parts.0"),
        ({"contents": [said({"functionCall": {"name": "a"}})]}, "contents.0.parts.0"),
        ({"contents": [said({"functionResponse": {"name": "a", "response": {}}})]}, "contents.0.parts.0"),
        ({"contents": [said({"text": "x", "inline_data": {}, "inlineData": {}})]}, "contents.0.parts.0.inlineData"),
        ({"generationConfig": {"candidateCount": 2}}, "generationConfig.candidateCount"),
        ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "generationConfig.responseModalities"),
        ({"generationConfig": {"responseMimeType": "text/x.enum"}}, "generationConfig.responseMimeType"),
        ({"generationConfig": {"topK": 0.5}}, "generationConfig.topK"),
        ({"generationConfig": {"thinkingConfig": {"thinkingLevel": "SOME"}}}, "generationConfig.thinkingConfig.thinkingLevel"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}}}, "toolConfig.functionCallingConfig.mode"),
        ({"tools": [{"functionDeclarations": [{"name": "a", "parameters": {"type": "DATE"}}]}]},
         "tools.0.functionDeclarations.0.parameters.type"),
        ({"tools": DECLARED, "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a", "c"]}}},
         "toolConfig.functionCallingConfig.allowedFunctionNames"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_request_is_refused_by_its_field(body: dict[str, Any], field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        GEMINI.read_request({"model": "m", "contents": [said({"text": "hi"})], **body})
    assert refused.value.field == field


@pytest.mark.parametrize("backend", DIALECTS.values(), ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"cachedContent": "cachedContents/x"}, "cachedContent"),
        ({"tools": [{"googleSearch": {}}]}, "tools.0"),
        ({"safetySettings": [{"category": "X", "threshold": "BLOCK_LOW_AND_ABOVE"}]}, "safetySettings"),
        ({"safetySettings": [{"category": "X", "threshold": ["OFF"]}]}, "safetySettings"),
        ({"generationConfig": {"mediaResolution": "HIGH"}}, "generationConfig.mediaResolution"),
        ({"contents": [said({"text": "x", "videoMetadata": {"fps": 1}})]}, "contents.0.parts.0.videoMetadata"),
        ({"contents": [said({"executableCode": {"code": "1"}}, role="model")]}, "0"),
    ],
    ids=str,
)
def test_what_only_google_can_do_is_refused_by_every_backend(backend: Any, more: dict[str, Any], field: str) -> None:
    request = GEMINI.read_request({"model": "m", "contents": [said({"text": "hi"})], **more})
    with pytest.raises(Unexpressible) as refused:
        backend.write_request(request)
    assert field in refused.value.field


@pytest.mark.parametrize("backend", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_what_changes_no_answer_is_left_out_by_name(backend: Any) -> None:
    """Filters that are off, and a signature that somebody else made."""
    off = [{"category": "X", "threshold": "BLOCK_NONE"}]
    model = said({"text": "Yes.", "thoughtSignature": "skip_thought_signature_validator"}, role="model")
    request = read(said({"text": "hi"}), model, said({"text": "go"}), safetySettings=off)
    assert {"safetySettings", "contents.1.parts.0.thoughtSignature"} <= set(backend.write_request(request).dropped)


@pytest.mark.parametrize("shows", [False, True])
def test_an_answer_whole_and_streamed(shows: bool) -> None:
    """Words, a call in one piece, what it cost; thoughts for a client that asked for them, and always their proof."""
    request = read(generationConfig={"thinkingConfig": {"includeThoughts": shows}})
    usage = TokenUsage(input_tokens=9, output_tokens=5, cached_tokens=4, reasoning_tokens=2)
    reply = answer(PROVEN, Text(text="Here: "), CALL, stop="tool_calls", usage=usage)
    whole = GEMINI.write_reply(reply, request)
    told = whole["candidates"][0]["content"]["parts"]
    assert [part.get("thought", False) for part in told] == ([True, False, False] if shows else [False, False])
    assert told[-1] == {"functionCall": {"id": "c0", "name": "look", "args": {"at": [1]}}}
    assert whole["candidates"][0]["finishReason"] == "STOP"
    assert whole["usageMetadata"] == {
        "promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 14, "cachedContentTokenCount": 4, "thoughtsTokenCount": 2,
    }  # fmt: skip
    pieces = chunks(reply, request)
    assert [part for chunk in pieces for part in chunk["candidates"][0]["content"]["parts"]] == told
    assert [("finishReason" in chunk["candidates"][0], "usageMetadata" in chunk) for chunk in pieces][-1] == (
        True,
        True,
    )
    assert not any("finishReason" in chunk["candidates"][0] for chunk in pieces[:-1])


@pytest.mark.parametrize("rest", [(Text(text="So."), CALL), (CALL,), ()], ids=str)
def test_thoughts_come_back_as_they_were(rest: tuple[Any, ...]) -> None:
    """Though the client drops them: the signature that it keeps holds them, written anew for addresses too."""
    request = read()
    told = GEMINI.write_reply(answer(PROVEN, Reasoning(redacted="xx?>"), *rest), request)["candidates"][0]["content"][
        "parts"
    ]
    kept = [
        {**part, "thoughtSignature": part["thoughtSignature"].replace("+", "-").replace("/", "_")}
        if "thoughtSignature" in part
        else part
        for part in told
    ]
    results = [said({"functionResponse": {"id": "c0", "name": "look", "response": {}}})] if CALL in rest else []
    again = read(said({"text": "hi"}), {"role": "model", "parts": kept}, *results)
    expected = [part.replaced(arguments='{"at":[1]}') if isinstance(part, ToolUse) else part for part in rest]
    assert list(again.turns[1].parts) == [PROVEN, Reasoning(redacted="xx?>"), *expected]


def test_thoughts_that_are_retold_count_where_no_signature_holds_them() -> None:
    model = said(
        {"text": "I ", "thought": True},
        {"text": "see.", "thought": True, "thoughtSignature": "Z29vZ2xl"},
        {"text": "So."},
        role="model",
    )
    assert read(said({"text": "hi"}), model).turns[1].parts == (Reasoning(texts=("I see.",)), Text(text="So."))


def test_a_summary_is_told_once_with_gaps_between() -> None:
    request = read(generationConfig={"thinkingConfig": {"includeThoughts": True}})
    reply = answer(Reasoning(summaries=("one", "two"), encrypted="e", id="rs1"), Text(text="x"))
    for told in (GEMINI.write_reply(reply, request), *[{"candidates": [c]} for c in [{"content": {"parts": [
        part for chunk in chunks(reply, request) for part in chunk["candidates"][0]["content"]["parts"]]}}]]):  # fmt: skip
        thoughts = [part["text"] for part in told["candidates"][0]["content"]["parts"] if part.get("thought")]
        assert "".join(thoughts) == "one\n\ntwo"
    assert thoughts_of(GEMINI.read_reply(GEMINI.write_reply(reply, request))) == ("one", "two")


def test_a_call_without_arguments_is_told_also_before_others_that_were_cut_off() -> None:
    bare = ToolUse(id="c0", name="look", arguments="")
    request = read()
    for reply in (answer(bare, stop="tool_calls"), answer(bare, bare.replaced(id="c1"), stop="length")):
        for told in ([GEMINI.write_reply(reply, request)], chunks(reply, request)):
            parts = [part for one in told for part in one["candidates"][0]["content"]["parts"]]
            assert parts == [{"functionCall": {"id": "c0", "name": "look", "args": {}}}]


def test_a_call_that_was_cut_off_is_nothing_to_run() -> None:
    """It is left out where the answer was cut off, and refused where it says that it is whole."""
    cut = ToolUse(id="c0", name="look", arguments='{"at": [')
    request = read()
    for call in (cut, cut.replaced(arguments="")):
        reply = answer(Text(text="x"), call, stop="length")
        for told in ([GEMINI.write_reply(reply, request)], chunks(reply, request)):
            assert told[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"
            assert "functionCall" not in json.dumps(told)
    for say in (GEMINI.write_reply, chunks):
        with pytest.raises(Unexpressible, match=r"parts\.0\.arguments"):
            say(answer(cut, stop="tool_calls"), request)


@pytest.mark.parametrize(
    "part",
    [
        Image(source=Url(url="http://x")),
        ToolUse(id="c", name="n", arguments="x", kind="custom"),
        ToolUse(id="c", name="n", arguments="{}", namespace="s"),
    ],
    ids=lambda part: part.type,
)  # fmt: skip
def test_what_no_answer_holds(part: Any) -> None:
    for say in (GEMINI.write_reply, chunks):
        with pytest.raises(Unexpressible, match=r"parts\.0"):
            say(answer(part), read())


def test_a_pause_is_no_end() -> None:
    for say in (GEMINI.write_reply, chunks):
        with pytest.raises(Unexpressible, match="finishReason"):
            say(answer(Text(text="x"), stop="pause"), read())


def test_log_probabilities() -> None:
    one = TokenLogprob(token="x", logprob=-0.5, top=(("x", -0.5), ("y", -1.0)))
    told = {
        "chosenCandidates": [{"token": "x", "logProbability": -0.5}],
        "topCandidates": [
            {"candidates": [{"token": "x", "logProbability": -0.5}, {"token": "y", "logProbability": -1.0}]}
        ],
    }
    assert (
        GEMINI.write_reply(answer(Text(text="x"), logprobs=(one,)), read())["candidates"][0]["logprobsResult"] == told
    )
    writer = GEMINI.stream_writer(read())
    writer.write(ReplyBegan(id="r", model="m"))
    writer.write(PartBegan(index=0, part=Text(text="")))
    chunk = writer.write(PartGrew(index=0, field="text", more="x", logprobs=(one,)))
    assert json.loads(chunk.decode().removeprefix("data: "))["candidates"][0]["logprobsResult"] == told


def test_errors_in_googles_shape() -> None:
    """A status in words, the stable code as a reason, and the field; the same in mid-stream."""
    error = GEMINI.write_problem(Problem(400, "invalid_request_error", "contents: is missing", "contents"))["error"]
    assert (error["code"], error["status"], error["message"]) == (400, "INVALID_ARGUMENT", "contents: is missing")
    assert error["details"][0]["reason"] == "invalid_request_error"
    assert error["details"][1]["fieldViolations"][0]["field"] == "contents"
    broke = GEMINI.stream_writer(read()).write(ReplyBroke(message="it fell over", code="x"))
    assert json.loads(broke.decode().removeprefix("data: "))["error"]["message"] == "it fell over"


def test_json_without_a_schema() -> None:
    assert read(generationConfig={"responseMimeType": "application/json"}).output == OutputFormat(mode="json_object")
