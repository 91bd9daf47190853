"""What real agents send is understood by backends of another dialect: nothing that changes no answer stands in their way."""

from __future__ import annotations

import pytest

from providers.dialects.catalog import CLIENTS, DIALECTS
from schemas.conversation import DialectName

CLAUDE_CODE = {
    "model": "some-model",
    "max_tokens": 32000,
    "stream": True,
    "metadata": {"user_id": "user_1_session_2"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "system": [
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral", "scope": "global"}},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ],
    "tools": [
        {"name": "Bash", "description": "Runs it.", "eager_input_streaming": True, "input_schema": {"type": "object"}}
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": "A reminder."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I should look.", "signature": "c2ln"},
                {"type": "tool_use", "id": "toolu1", "name": "Bash", "input": {"command": "ls"}, "caller": {"type": "direct"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu1", "content": "a.txt"}]},
    ],
}  # fmt: skip
CODEX = {
    "model": "some-model",
    "instructions": "You are an agent.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandboxed."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "call1"},
        {"type": "function_call_output", "call_id": "call1", "output": "a.txt"},
    ],
    "tools": [
        {"type": "function", "name": "shell", "description": "Runs it.", "strict": False, "parameters": {"type": "object"}},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": None,
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "abc",
    "client_metadata": {"x-codex-installation-id": "1"},
}  # fmt: skip
GEMINI_CLI = {
    "model": "some-model",
    "stream": True,
    "contents": [
        {"role": "user", "parts": [{"text": "<session_context>…</session_context>"}, {"text": "Look."}]},
        {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {
                    "functionCall": {"id": "call0", "args": {"command": "ls"}, "name": "run_shell_command"},
                    "thoughtSignature": "skip_thought_signature_validator",
                },
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "call0", "name": "run_shell_command", "response": {"output": "a.txt"}}}] * 2,
        },
    ],
    "systemInstruction": {"role": "user", "parts": [{"text": "You are an agent."}]},
    "tools": [
        {"functionDeclarations": [{"name": "run_shell_command", "description": "R.", "parametersJsonSchema": {"type": "object"}}]},
    ],
    "generationConfig": {"maxOutputTokens": 8192, "thinkingConfig": {"includeThoughts": True}},
}  # fmt: skip


@pytest.mark.parametrize("backend", ["chat", "responses"])
def test_claude_code_reaches_backends_of_other_dialects(backend: DialectName) -> None:
    """All that it says arrives; hints of caching and who asks are left out by name."""
    request = DIALECTS["messages"].read_request(CLAUDE_CODE)
    written = DIALECTS[backend].write_request(request)
    there = DIALECTS[backend].read_request(written.body)
    assert [t.role for t in there.turns] == ["system", "user", "system", "assistant", "tool"]
    assert {"metadata", "context_management"} <= set(written.dropped)
    assert any("cache_control" in name for name in written.dropped)


@pytest.mark.parametrize("backend", ["chat", "messages"])
def test_codex_reaches_backends_of_other_dialects(backend: DialectName) -> None:
    request = DIALECTS["responses"].read_request(CODEX)
    written = DIALECTS[backend].write_request(request)
    there = DIALECTS[backend].read_request(written.body)
    assert [t.role for t in there.turns][-3:] == ["user", "assistant", "tool"]
    assert {"store", "prompt_cache_key", "client_metadata"} <= set(written.dropped)


@pytest.mark.parametrize("backend", ["chat", "responses", "messages"])
def test_gemini_cli_reaches_every_backend(backend: DialectName) -> None:
    """A session that goes on too, in which it gives each result twice and a signature that it made up."""
    request = CLIENTS["gemini"].read_request(GEMINI_CLI)
    written = DIALECTS[backend].write_request(request)
    there = DIALECTS[backend].read_request(written.body)
    assert [t.role for t in there.turns] == ["system", "user", "assistant", "tool"]
    assert [len(t.parts) for t in there.turns] == [1, 2, 2, 1]
    assert {"contents.1.parts.1.thoughtSignature", "contents.2.parts.1.repeatedResponse"} <= set(written.dropped)
