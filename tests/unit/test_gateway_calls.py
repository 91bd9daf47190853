"""Calls through the gateway by the vendors' own SDKs, or as they would: every dialect of a client against each of a backend."""

from __future__ import annotations

import json

import anthropic
import httpx
import openai
import pytest

from schemas.conversation import DialectName, Part, Reply, Text, TokenUsage, ToolUse
from schemas.events import ModelCallCompleted, ModelCallRequested
from tests.support.gateway_calls import BACKENDS, NAMES
from tests.support.gateway_place import GatewayPlace, gateway_place
from tests.support.gemini_client import reply_of
from tests.support.upstream import events_of

USAGE = TokenUsage(input_tokens=12, output_tokens=5, cached_tokens=2)
CALL = ToolUse(id="call0Ab", name="shell", arguments='{"command": "ls -l"}')
TOOL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def reply(*parts: Part, dialect: DialectName = "chat", n: int = 0) -> Reply:
    stop = "tool_calls" if any(isinstance(p, ToolUse) for p in parts) else "stop"
    return Reply(dialect=dialect, id=f"reply{n}", model="upstream-model", parts=parts, stop_reason=stop, usage=USAGE)


async def say_chat(place: GatewayPlace, *, streamed: bool) -> tuple[str, list[tuple[str, str, str]]]:
    async with openai.AsyncOpenAI(base_url=f"{place.url}/v1", api_key=place.token, max_retries=0) as client:
        tools = [{"type": "function", "function": {"name": "shell", "parameters": TOOL}}]
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "List it."}]
        if not streamed:
            answer = await client.chat.completions.create(model="any", messages=messages, tools=tools)  # type: ignore[call-overload]
            message = answer.choices[0].message
            calls = [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or ()]
            assert answer.usage.prompt_tokens == USAGE.input_tokens
            return message.content or "", calls
        text, calls = "", {}
        stream = await client.chat.completions.create(  # type: ignore[call-overload]
            model="any", messages=messages, tools=tools, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for call in choice.delta.tool_calls or ():
                    known = calls.setdefault(call.index, ["", "", ""])
                    known[0] = call.id or known[0]
                    known[1] = call.function.name or known[1]
                    known[2] += call.function.arguments or ""
            if chunk.usage:
                assert chunk.usage.completion_tokens == USAGE.output_tokens
        return text, [(a, b, c) for a, b, c in calls.values()]


async def say_responses(place: GatewayPlace, *, streamed: bool) -> tuple[str, list[tuple[str, str, str]]]:
    async with openai.AsyncOpenAI(
        base_url=f"{place.url}/a/{place.token}/v1", api_key="unused", max_retries=0
    ) as client:
        tools = [{"type": "function", "name": "shell", "parameters": TOOL, "strict": False}]
        asked = {"model": "any", "instructions": "Be brief.", "input": "List it.", "tools": tools, "store": False}
        if streamed:
            async with client.responses.stream(**asked) as stream:  # type: ignore[arg-type]
                answer = await stream.get_final_response()
        else:
            answer = await client.responses.create(**asked)  # type: ignore[call-overload]
        assert answer.usage.output_tokens == USAGE.output_tokens
        calls = [(i.call_id, i.name, i.arguments) for i in answer.output if i.type == "function_call"]
        return answer.output_text, calls


async def say_messages(place: GatewayPlace, *, streamed: bool) -> tuple[str, list[tuple[str, str, str]]]:
    async with anthropic.AsyncAnthropic(base_url=place.url, api_key=place.token, max_retries=0) as client:
        asked = {
            "model": "any",
            "max_tokens": 100,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "List it."}],
            "tools": [{"name": "shell", "input_schema": TOOL}],
        }
        if streamed:
            async with client.messages.stream(**asked) as stream:  # type: ignore[arg-type]
                answer = await stream.get_final_message()
        else:
            answer = await client.messages.create(**asked)  # type: ignore[call-overload]
        usage = answer.usage
        assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == USAGE.input_tokens
        text = "".join(b.text for b in answer.content if b.type == "text")
        return text, [(b.id, b.name, json.dumps(b.input)) for b in answer.content if b.type == "tool_use"]


async def say_gemini(place: GatewayPlace, *, streamed: bool) -> tuple[str, list[tuple[str, str, str]]]:
    asked = {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "List it."}]}],
        "tools": [{"functionDeclarations": [{"name": "shell", "parametersJsonSchema": TOOL}]}],
    }
    verb = "streamGenerateContent?alt=sse" if streamed else "generateContent"
    async with httpx.AsyncClient(timeout=20, headers={"x-goog-api-key": place.token}) as http:
        answer = await http.post(f"{place.url}/v1beta/models/any:{verb}", json=asked)
    assert answer.status_code == 200, answer.text
    told = reply_of(events_of(answer.text) if streamed else [answer.json()])
    assert told.usage == USAGE
    text = "".join(part.text for part in told.parts if isinstance(part, Text))
    return text, [(p.id, p.name, p.arguments) for p in told.parts if isinstance(p, ToolUse)]


SAY = {"gemini": say_gemini, "chat": say_chat, "responses": say_responses, "messages": say_messages}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("client", NAMES)
async def test_every_client_gets_words_and_calls_from_every_backend(
    client: DialectName, backend: DialectName, streamed: bool
) -> None:
    """The client gets what the backend said, and the log holds it: asked once, answered once."""
    async with gateway_place(backend) as place:
        place.upstream.answers = [reply(Text(text="Here: "), CALL, dialect=backend)]
        text, calls = await SAY[client](place, streamed=streamed)
        assert text == "Here: "
        [(call_id, name, arguments)] = calls
        assert (call_id, name) == (CALL.id, CALL.name)
        assert arguments.replace(" ", "") == CALL.arguments.replace(" ", "")
        [asked] = place.events(ModelCallRequested)
        [answered] = place.events(ModelCallCompleted)
        assert isinstance(asked.data, ModelCallRequested)
        assert isinstance(answered.data, ModelCallCompleted)
        assert asked.data.dialect == client
        assert [t.role for t in asked.data.new_turns] == ["system", "user"]
        assert asked.data.tools is not None
        assert answered.data.request_id == asked.event_id
        assert answered.data.message.content == "Here: "
        assert answered.data.message.tool_calls[0].name == "shell"
        assert answered.data.usage.input_tokens == USAGE.input_tokens
        assert (answered.data.first_token_s is not None) == streamed
        assert place.upstream.bodies[0]["model"] == "upstream-model"
        sent = place.upstream.headers[0]
        assert sent.get("x-api-key") == "the-key" or sent.get("authorization") == "Bearer the-key"
        assert place.token not in str(place.upstream.headers)
