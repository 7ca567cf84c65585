"""What this agent offers an editor: capabilities, sign-in methods, modes, config options, models, commands. Pure.

Modes and models are announced twice, as config options and in the older form, and both say the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes.agent.commands import resolve_command
from hermes.agent.ports import StoredSession
from hermes.events import SessionInfo
from hermes.protocols.acp.schemas import ClientCapabilities

MODES: Final = (
    ("default", "Ask before edits", "Every edit of a file is shown and asked for."),
    ("accept_edits", "Accept edits", "Edits in the workspace and the temporary directory pass; sensitive files ask."),
    ("dont_ask", "Don't ask", "Edits pass for this session; sensitive files ask."),
)
MODE_OPTION: Final = "mode"
MODEL_OPTION: Final = "model"
POLICY_OPTION: Final = "edit_approval_policy"
"""The mode under an older name, accepted but not announced: two options for one thing would confuse."""
POLICY_MODES: Final[Mapping[str, str]] = {
    "ask": "default",
    "workspace_session": "accept_edits",
    "session": "dont_ask",
}
ProviderRows = Sequence[Mapping[str, Any]]
"""Rows of the model picker: ``slug``, ``models``, ``authenticated`` (gateway ``model.options``)."""

SETUP_METHOD: Final = "hermes-setup"
SETUP_HINT: Final = "Run `hermes acp --setup` in a terminal, or put the key of a provider into the home's .env."

COMMANDS: Final[tuple[tuple[str, str, str | None], ...]] = (
    ("help", "Show the commands", None),
    ("model", "Show or switch the model of this session", "model name, or provider:model"),
    ("tools", "List the tools the agent has", None),
    ("context", "Show how much of the context window is used", None),
    ("reset", "Forget the conversation so far", None),
    ("compress", "Summarise the conversation to make room", None),
    ("steer", "Guide the running turn", "what to do differently"),
    ("queue", "Run a prompt after the current turn", "the prompt"),
    ("version", "Show the version", None),
)
SHARED_COMMANDS: Final = ("title", "status", "usage", "reasoning", "agents", "stop")
"""Commands of every host that are of use in an editor; described and run where all hosts share them."""


def agent_capabilities(*, mcp: bool) -> dict[str, Any]:
    """``mcp``: servers over HTTP and SSE can be connected."""
    return {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
        "mcpCapabilities": {"http": mcp, "sse": mcp},
        "sessionCapabilities": {"list": {}, "resume": {}, "fork": {}, "close": {}, "delete": {}},
    }


def auth_methods(provider: str | None, client: ClientCapabilities) -> list[dict[str, Any]]:
    """``provider``: the one whose credentials would be used, None without any."""
    methods: list[dict[str, Any]] = []
    if provider is not None:
        name = "Demonstration" if provider == "demo" else provider
        text = (
            "No provider is configured: a scripted demonstration answers."
            if provider == "demo"
            else f"Uses the credentials for {provider} that this agent already has."
        )
        methods.append({"id": provider.lower(), "name": name, "description": text})
    if client.auth_terminal:
        methods.append(
            {
                "type": "terminal",
                "id": SETUP_METHOD,
                "name": "Set up Hermes",
                "description": "Choose a provider and a model in a terminal.",
                "args": ["--setup"],
            }
        )
    elif provider is None:
        methods.append({"id": SETUP_METHOD, "name": "Set up Hermes", "description": SETUP_HINT})
    return methods


def command_rows() -> tuple[tuple[str, str, str | None], ...]:
    """(name, description, hint) of every command."""
    shared = (resolve_command(name) for name in SHARED_COMMANDS)
    return (*COMMANDS, *((command.name, command.description, command.args or None) for command in shared))


def commands() -> list[dict[str, Any]]:
    return [
        {"name": name, "description": text} | ({"input": {"hint": hint}} if hint else {})
        for name, text, hint in command_rows()
    ]


def modes(current: str) -> dict[str, Any]:
    return {
        "currentModeId": current,
        "availableModes": [{"id": mode, "name": name, "description": text} for mode, name, text in MODES],
    }


def model_id(provider: str, model: str) -> str:
    return f"{provider}:{model}" if provider else model


def models(info: SessionInfo, providers: ProviderRows) -> dict[str, Any] | None:
    """The present model first, then what the usable providers serve; None while there is no model."""
    if not info.model:
        return None
    current = model_id(info.provider, info.model)
    names = {current: info.model}
    for provider in sorted(providers, key=lambda row: row.get("slug") != info.provider):
        if provider.get("authenticated", True):
            names |= {model_id(str(provider["slug"]), model): model for model in provider.get("models", ())}
    return {
        "currentModelId": current,
        "availableModels": [
            {
                "modelId": key,
                "name": name,
                "description": f"Provider: {key.removesuffix(name).rstrip(':') or 'default'}",
            }
            for key, name in names.items()
        ],
    }


def config_options(info: SessionInfo, providers: ProviderRows) -> list[dict[str, Any]]:
    """The complete list, as every answer and update about options carries it."""
    found: list[dict[str, Any]] = [
        {
            "id": MODE_OPTION,
            "name": "Edit approval",
            "description": "Which edits pass without a question.",
            "category": "mode",
            "type": "select",
            "currentValue": info.mode,
            "options": [{"value": mode, "name": name, "description": text} for mode, name, text in MODES],
        }
    ]
    offered = models(info, providers)
    if offered is not None:
        found.append(
            {
                "id": MODEL_OPTION,
                "name": "Model",
                "category": "model",
                "type": "select",
                "currentValue": offered["currentModelId"],
                "options": [
                    {"value": entry["modelId"], "name": entry["name"], "description": entry["description"]}
                    for entry in offered["availableModels"]
                ],
            }
        )
    return found


def session_answer(info: SessionInfo, providers: ProviderRows, session_id: str | None = None) -> dict[str, Any]:
    """What new, load, resume and fork answer; ``session_id`` where the client does not know it yet."""
    answer: dict[str, Any] = {"sessionId": session_id} if session_id is not None else {}
    answer |= {"modes": modes(info.mode), "configOptions": config_options(info, providers)}
    offered = models(info, providers)
    return answer if offered is None else {**answer, "models": offered}


def provenance(stored: StoredSession, ancestors: Sequence[str]) -> dict[str, Any]:
    """Where a session comes from. Compaction works in place: the public id is the internal one, and never changes.

    Parameters: ``ancestors``, the keys above it, nearest first."""
    origin: dict[str, Any] = {
        "sessionId": stored.key,
        "currentSessionId": stored.key,
        "rootSessionId": ancestors[-1] if ancestors else stored.key,
        "kind": "fork" if ancestors else "root",
        "compactionDepth": stored.compression_count,
    }
    return {**origin, "parentSessionId": ancestors[0]} if ancestors else origin


def list_title(title: str | None, preview: str, cwd: str) -> str:
    """How a session is called in a list: its title, else what the user said first, else its directory."""
    first = next((line.strip() for line in preview.splitlines() if line.strip()), "")
    return title or first[:80] or os.path.basename(cwd.rstrip("/")) or cwd
