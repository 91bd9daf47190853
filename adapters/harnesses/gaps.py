"""What each harness is known not to tell: the kinds of gaps that joining finds in a run that went well, and why."""

from __future__ import annotations

from typing import Final

from adapters.harnesses.joining import GapKind

KNOWN_GAPS: Final[dict[str, dict[GapKind, str]]] = {
    "aider": {},
    "acp_agent": {
        "calls_differ": "OpenCode, by which it is shown, adds the directory to a command's arguments",
        "matched_by_order": "the protocol has no ids of replies",
        "usage_differs": "the protocol tells the usage of a whole turn at most",
    },
    "codex_agent": {},
    "pi_agent": {"arguments_rewritten": "it keeps arguments as parsed JSON"},
    "mini_swe_agent": {
        "duration_unknown": "its trajectory has no times of commands",
        "end_unknown": "the command that hands in its work is not told as run",
    },
    "claude_code_agent": {
        "arguments_rewritten": "its dialect has arguments as parsed JSON",
        "duration_unknown": "it does not say how long a tool took",
        "prompt_missing": "it does not repeat what it was asked",
        "usage_differs": "it prints a reply's parts before it knows the reply's usage",
    },
    "opencode_agent": {
        "arguments_rewritten": "it keeps arguments as parsed JSON",
        "matched_by_order": "it does not keep the backend's id of a reply",
        "prompt_missing": "it does not repeat what it was asked",
        "thoughts_missing": "it prints no thoughts",
    },
    "copilot_agent": {"arguments_rewritten": "it keeps arguments as parsed JSON"},
    "kilocode_agent": {
        "arguments_rewritten": "it keeps arguments as parsed JSON",
        "matched_by_order": "it does not keep the backend's id of a reply",
        "prompt_missing": "it does not repeat what it was asked",
        "thoughts_missing": "it prints no thoughts",
    },
    "qwen_code": {
        "arguments_rewritten": "it keeps arguments as parsed JSON",
        "duration_unknown": "it does not say how long a tool took",
        "matched_by_order": "it does not keep the backend's id of a reply",
        "prompt_missing": "it does not repeat what it was asked",
    },
    "gemini_cli": {
        "arguments_rewritten": "its dialect has arguments as parsed JSON",
        "duration_unknown": "it does not say how long a tool took",
        "matched_by_order": "it does not keep the backend's id of a reply",
    },
    "prime_agent": {"arguments_rewritten": "it keeps arguments as parsed JSON"},
    "python_agent": {},
    "openhands": {},
    "openclaw_agent": {"arguments_rewritten": "it keeps arguments as parsed JSON"},
    "hermes_agent": {
        "duration_unknown": "it does not say how long a tool took",
        "matched_by_order": "it does not keep the backend's id of a reply",
        "usage_differs": "it keeps the usage of its whole session only",
    },
    "cline_agent": {
        "arguments_rewritten": "it keeps arguments as parsed JSON",
        "matched_by_order": "it does not keep the backend's id of a reply",
        "prompt_missing": "it does not repeat what it was asked",
    },
    "terminus_2_agent": {
        "calls_differ": "the model says in words what is to be typed, and is offered no tools",
        "end_unknown": "what is typed into a terminal has no exit code",
    },
    "simple_strands_agent": {
        "arguments_rewritten": "it keeps arguments as parsed JSON",
        "matched_by_order": "it does not keep the backend's id of a reply",
    },
}
"""By harness: kinds of gaps, and why."""

GAPS_OF_SERVERS: Final[dict[str, dict[GapKind, str]]] = {
    "acp_agent": {"arguments_rewritten": "the protocol has arguments as parsed JSON"},
    "openclaw_agent": {"duration_unknown": "it does not say how long a tool of a server took"},
}
"""The same, beside those, where it calls tools of MCP servers."""
