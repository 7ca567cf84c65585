"""What an agent is made of: the constructor's arguments (agent-core §10.1) and what each of them sets.

Names that only matter elsewhere are accepted and ignored with one line in the debug log, so that existing code still
constructs; a name that nobody knows is a ``TypeError``, because it is a slip of the pen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from hermes.agent.ports import ModelGateway, TranscriptStore
from hermes.messages import Prompt, TurnLimits

log = logging.getLogger(__name__)

Callback = Callable[..., Any]
Database = TranscriptStore | Path | str | bool | None
"""Where the conversation is kept: None or False in memory only, True in the home's own database, a path in that file,
or a store."""


class Arguments(TypedDict, total=False):
    """Every argument that has an effect."""

    base_url: str | None
    api_key: str | None
    provider: str | None
    requested_provider: str | None
    api_mode: str | None
    model: str | None
    max_tokens: int | None
    reasoning_config: Mapping[str, Any] | None
    service_tier: str | None
    request_overrides: Mapping[str, Any] | None
    fallback_model: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    prefill_messages: Sequence[Mapping[str, Any]] | None
    max_iterations: int | None
    iteration_budget: Any
    run_budget_seconds: float | None
    enabled_toolsets: Sequence[str] | None
    disabled_toolsets: Sequence[str] | None
    ephemeral_system_prompt: str | None
    skip_context_files: bool
    load_soul_identity: bool
    skip_memory: bool
    quiet_mode: bool
    verbose_logging: bool
    cwd: str | None
    platform: str | None
    pass_session_id: bool
    session_id: str | None
    session_db: Database
    parent_session_id: str | None
    tool_progress_callback: Callback | None
    tool_start_callback: Callback | None
    tool_complete_callback: Callback | None
    tool_result_metadata_callback: Callback | None
    tool_gen_callback: Callback | None
    thinking_callback: Callback | None
    reasoning_callback: Callback | None
    stream_delta_callback: Callback | None
    interim_assistant_callback: Callback | None
    step_callback: Callback | None
    status_callback: Callback | None
    clarify_callback: Callback | None
    approval_callback: Callback | None
    event_callback: Callback | None
    notice_callback: Callback | None
    notice_clear_callback: Callback | None
    home: Path | str | None
    """The home directory with ``config.yaml``, skills and memory; default: ``HERMES_HOME``, else ``~/.hermes``."""
    settings: Mapping[str, Any] | None
    """Any other setting, by dotted key."""
    models: ModelGateway | None
    """Your own models instead of the configured ones; ``hermes.testing.ScriptedModel`` is one."""


IGNORED = frozenset(
    {
        "providers_allowed", "providers_ignored", "providers_order", "provider_sort", "provider_require_parameters",
        "provider_data_collection", "save_trajectories", "log_prefix", "log_prefix_chars", "tool_progress_mode",
        "credential_pool", "acp_command", "acp_args", "command", "args", "user_id", "user_name", "thread_id",
        "gateway_session_key", "skip_background_review", "memory_manager", "side_agent", "capabilities",
        "read_terminal_callback", "reaction_callback", "connection_callback",
    }
)  # fmt: skip
IGNORED_PREFIXES = ("checkpoints_", "checkpoint_", "chat_")
CALLBACKS = frozenset(name for name in Arguments.__annotations__ if name.endswith("_callback"))
WORDS = frozenset({"model", "provider", "requested_provider", "base_url", "api_key", "api_mode", "session_id"})
SERVER_WIDE = frozenset(
    {"base_url", "api_key", "api_mode", "fallback_model", "home", "settings", "models", "session_db", "max_tokens"}
    | {"run_budget_seconds", "enabled_toolsets", "disabled_toolsets", "skip_context_files", "skip_memory"}
    | {"load_soul_identity"}
)
"""Arguments that set something for the whole server: of no use to a single agent of an ``open_server``."""


def check(given: Mapping[str, Any]) -> Arguments:
    """The arguments with an effect. Raises ``TypeError`` for a name that nobody knows, and for what cannot be meant."""
    known = Arguments()
    ignored = []
    for name, value in given.items():
        if name in WORDS and value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is a text, not {type(value).__name__}")
        if name in Arguments.__annotations__:
            known[name] = value  # type: ignore[literal-required]
        elif name in IGNORED or name.startswith(IGNORED_PREFIXES):
            ignored.append(name)
        else:
            raise TypeError(f"an agent has no argument {name!r}")
    if ignored:
        log.debug("arguments without an effect here: %s", ", ".join(sorted(ignored)))
    return known


def overrides(given: Arguments) -> dict[str, Any]:
    """The settings that the arguments stand for, by dotted key; what was not given is left out."""
    chosen: dict[str, Any] = {
        "model.base_url": given.get("base_url"),
        "model.api_key": given.get("api_key"),
        "model.api_mode": given.get("api_mode"),
        "model.provider": given.get("provider") or given.get("requested_provider"),
        "model.default": given.get("model"),
        "model.max_tokens": given.get("max_tokens"),
        "agent.max_turns": given.get("max_iterations"),
        "agent.run_budget_seconds": given.get("run_budget_seconds"),
        "agent.disabled_toolsets": _words(given.get("disabled_toolsets")),
        "toolsets": _words(given.get("enabled_toolsets")),
        "fallback_providers": _fallbacks(given.get("fallback_model")),
        "host.ignore_rules": given.get("skip_context_files") or None,
    }
    if given.get("skip_memory"):
        chosen |= {"memory.memory_enabled": False, "memory.user_profile_enabled": False}
    chosen |= dict(given.get("settings") or {})
    return {key: value for key, value in chosen.items() if value is not None}


def model_options(given: Arguments) -> dict[str, Any]:
    """What travels with each request: the reasoning effort, and whatever the endpoint takes besides."""
    options = dict(given.get("request_overrides") or {})
    if given.get("service_tier"):
        options["service_tier"] = given["service_tier"]
    reasoning = given.get("reasoning_config") or {}
    if reasoning.get("enabled") is False:
        options["reasoning_effort"] = "none"
    elif reasoning.get("effort"):
        options["reasoning_effort"] = str(reasoning["effort"])
    return options


def limits(given: Arguments) -> TurnLimits:
    """``iteration_budget``: a number, or an object with ``remaining`` or ``max_total``."""
    budget = given.get("iteration_budget")
    for name in ("remaining", "max_total"):
        if budget is not None and not isinstance(budget, int):
            budget = getattr(budget, name, budget)
    return TurnLimits(max_iterations=budget) if isinstance(budget, int) else Prompt(None).limits


def system_extra(given: Arguments, session_id: str) -> str | None:
    """Text for the system prompt of each request that is never stored."""
    lines = [given.get("ephemeral_system_prompt")]
    if given.get("pass_session_id"):
        lines.append(f"Session id: {session_id}")
    return "\n\n".join(line for line in lines if line) or None


def _words(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


def _fallbacks(given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    if given is None:
        return None
    rows = [given] if isinstance(given, Mapping) else given
    if isinstance(rows, str) or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError("fallback_model is {provider, model}, or a list of such")
    return [dict(row) for row in rows]
