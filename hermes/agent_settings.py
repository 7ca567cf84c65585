"""Settings of the agent: models, turns, tools, approvals, what hosts show.

Pure data, one frozen model per area, every value with a type, a default and a description; the server's own areas and
the whole are in ``settings.py``. The models defer their validators (``defer_build``): an area nobody configured is
made from its defaults and never costs the time to build one, which keeps ``hermes acp`` quick to start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Seconds = float
AutoBool = Literal["auto", "on", "off"]
Effort = Literal["", "none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"]


def setting(default: Any, description: str, *, env: str = "", secret: bool = False, **bounds: Any) -> Any:
    """One value. ``env`` names the variable that overrides it, ``secret`` hides it in every listing."""
    return Field(default, description=description, json_schema_extra={"env": env, "secret": secret}, **bounds)


A = TypeVar("A", bound=BaseModel)


def area(kind: type[A]) -> A:
    """A nested area, made from its defaults without building its validator."""
    made: A = Field(default_factory=kind.model_construct, description=(kind.__doc__ or "").strip())
    return made


def _words(value: Any) -> Any:
    """Accept ``a, b`` where a list is meant: environment variables and hurried people write that."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


def _switch_word(value: Any) -> Any:
    """YAML reads a bare ``on`` or ``off`` as a boolean in some writers: give the word back."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _effort(value: Any) -> Any:
    return "none" if value is False else value.lower() if isinstance(value, str) else value


def _approval_mode(value: Any) -> Any:
    """A bare ``off`` is a boolean to some YAML writers. Anything unknown is refused: the default asks."""
    return "off" if value is False else value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Switch = Annotated[AutoBool, BeforeValidator(_switch_word)]
EffortWord = Annotated[Effort, BeforeValidator(_effort)]


class Area(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", defer_build=True, coerce_numbers_to_str=True, allow_inf_nan=False
    )


class ModelSettings(Area):
    """The model a session starts with."""

    default: str = setting(
        "", "Model id. Empty: the first one the endpoint lists, or the demo model.", env="HERMES_MODEL"
    )
    provider: str = setting(
        "", "Provider id. Empty: chosen from the keys that are set. `none` switches the demo model off."
    )
    base_url: str = setting("", "Endpoint of a custom provider.")
    api_key: str = setting("", "Key for this provider; sent to its own host only.", secret=True)
    api_mode: str = setting(
        "", "Wire form: chat_completions, anthropic_messages, codex_responses. Empty: the provider's."
    )
    context_length: int | None = setting(None, "Context window in tokens, if the catalogue does not know it.", gt=0)
    max_tokens: int | None = setting(None, "Limit for one answer in tokens.", gt=0)
    persist_switch_by_default: bool = setting(
        False, "Whether a model switch is also written to the configuration file."
    )
    switch_context_confirm_tokens: int = setting(
        100_000, "A switch asks first when the conversation is longer than this.", ge=0
    )


class TurnLiveness(Area):
    """When a silent turn counts as stuck."""

    timeout_s: Seconds = setting(600.0, "Silence after which a parked turn is given up.", ge=0)


class AgentSettings(Area):
    """How a turn is run."""

    system_prompt: str = setting("", "Text that replaces the built-in identity in the system prompt.")
    max_turns: int | None = setting(500, "Model calls per turn. None: no limit.", gt=0)
    api_max_retries: int = setting(3, "Tries of one model call.", ge=0)
    auto_recovery_cycles: int = setting(5, "Longer waits after the tries, for an overloaded provider.", ge=0)
    run_budget_seconds: Seconds | None = setting(None, "Wall-clock budget of a turn.", gt=0)
    budget_warning_ratio: float | None = setting(None, "Share of the budget at which the model is told.", gt=0, lt=1)
    reasoning_effort: EffortWord = setting("", "Reasoning effort; empty sends nothing.")
    reasoning_overrides: Mapping[str, str] = setting({}, "Reasoning effort by model id.")
    service_tier: str = setting("", "Service tier sent with each request, where the provider has tiers.")
    disabled_toolsets: Words = setting((), "Toolsets that are never offered.")
    clarify_timeout: Seconds = setting(3600, "How long a clarifying question waits; 0 or less: without end.")
    turn_liveness: TurnLiveness = area(TurnLiveness)
    gateway_turn_lease_timeout: Seconds = setting(5, "Wait for a turn lease another process holds.", ge=0)
    local_stream_stale_timeout: Seconds = setting(900, "Silence allowed from a model on a private address.", gt=0)
    environment_probe: bool = setting(True, "Describe the machine and the project in the system prompt.")
    parallel_tool_call_guidance: Switch = setting("auto", "Tell the model that it may call tools side by side.")
    task_completion_guidance: Switch = setting("auto", "Tell the model to finish what it began.")
    tool_use_enforcement: Switch = setting(
        "auto", "Tell the model to act instead of describing; auto: families of models that need it."
    )
    coding_context: Switch = setting("auto", "Add the coding brief to the system prompt; auto: in a repository.")
    image_input_mode: Literal["auto", "native", "text"] = setting(
        "auto", "native: every model gets images; text: none does; auto: those that are known to see."
    )


class ToolTimeouts(Area):
    """Deadlines of tool calls."""

    concurrent_batch: Seconds = setting(
        420, "Deadline of calls that run side by side; 0: none.", env="HERMES_CONCURRENT_TOOL_TIMEOUT_S", ge=0
    )


class ProviderTimeouts(Area):
    """Deadlines of model requests."""

    connect: Seconds = setting(30, "Opening a connection.", gt=0)
    request: Seconds = setting(1800, "One whole request.", env="HERMES_API_TIMEOUT", gt=0)
    stream_read: Seconds = setting(120, "Between two pieces of a stream.", env="HERMES_STREAM_READ_TIMEOUT", gt=0)
    stream_retries: int = setting(
        2, "Reopenings of a stream that broke before text.", env="HERMES_STREAM_RETRIES", ge=0
    )
    stream_stale: Seconds | None = setting(
        None, "Overrides the silence allowed in a stream.", env="HERMES_STREAM_STALE_TIMEOUT", gt=0
    )
    call_stale: Seconds | None = setting(
        None, "Overrides the silence allowed without streaming.", env="HERMES_API_CALL_STALE_TIMEOUT", gt=0
    )


class TimeoutSettings(Area):
    """Deadlines of work outside the server."""

    tools: ToolTimeouts = area(ToolTimeouts)
    provider: ProviderTimeouts = area(ProviderTimeouts)


class TerminalSettings(Area):
    """The shell tool."""

    backend: Literal["local"] = setting("local", "Where commands run.", env="TERMINAL_ENV")
    cwd: str = setting(".", "Working directory of new sessions.", env="TERMINAL_CWD")
    timeout: Seconds = setting(180, "Default limit of a command.", env="TERMINAL_TIMEOUT", gt=0)
    max_foreground_timeout: Seconds = setting(
        600, "Longest limit a call may ask for in the foreground.", env="TERMINAL_MAX_FOREGROUND_TIMEOUT", gt=0
    )
    persistent_shell: bool = setting(True, "Keep directory and exported variables between commands.")
    env_passthrough: Words = setting((), "Variables that reach commands although they hold secrets.")
    shell_init_files: Words = setting((), "Files sourced before each command.")


class ToolOutputSettings(Area):
    """How much of a tool's output the model sees."""

    max_bytes: int = setting(50_000, "Characters of one result.", gt=0)
    max_lines: int = setting(2000, "Lines of one result.", gt=0)
    max_line_length: int = setting(2000, "Characters of one line.", gt=0)


class WarnAfter(Area):
    """Repetitions before the model is warned."""

    same_failure: int = setting(2, "The same failing call.", gt=0)
    same_tool_failure: int = setting(3, "Failures of one tool.", gt=0)
    no_progress: int = setting(2, "The same call with the same result.", gt=0)


class HardStopAfter(Area):
    """Repetitions before a call is refused."""

    same_failure: int = setting(5, "The same failing call.", gt=0)
    same_tool_failure: int = setting(8, "Failures of one tool.", gt=0)
    no_progress: int = setting(5, "The same call with the same result.", gt=0)


class LoopCaps(Area):
    """Absolute caps per turn."""

    web_searches: int = setting(50, "Web searches.", gt=0)
    subagents: int = setting(50, "Child agents.", gt=0)


class GuardrailSettings(Area):
    """Loops of the model that are noticed."""

    warnings_enabled: bool = setting(True, "Warn the model.")
    hard_stop_enabled: bool = setting(False, "Refuse further repetitions.")
    non_interactive_hard_stop_enabled: bool = setting(True, "Refuse them where no human is watching.")
    warn_after: WarnAfter = area(WarnAfter)
    hard_stop_after: HardStopAfter = area(HardStopAfter)
    loop_caps: LoopCaps = area(LoopCaps)


class CompressionSettings(Area):
    """Compression of long conversations."""

    enabled: bool = setting(True, "Compress at all.")
    threshold: float = setting(0.5, "Share of the window that starts it.", gt=0, le=1)
    threshold_tokens: int | None = setting(None, "Upper bound of the threshold in tokens.", gt=0)
    model_thresholds: Mapping[str, float] = setting({}, "Thresholds by model id.")
    protect_first_n: int = setting(3, "Rows kept at the beginning.", ge=0)
    protect_last_n: int = setting(20, "Rows kept at the end.", ge=0)
    max_attempts: int = setting(3, "Attempts per turn.", gt=0)
    abort_on_summary_failure: bool = setting(False, "Fail instead of cutting without a summary.")
    context_timeout_seconds: Seconds = setting(120, "Limit of one summary call.", gt=0)


class AuxiliaryModel(Area):
    """The side model: titles, summaries, clear approvals. Empty: the provider's small one, else the session's own."""

    provider: str = setting("auto", "Provider id; auto: the session's.")
    model: str = setting("", "Model id.")


class AuxiliarySettings(Area):
    """Side models."""

    title: AuxiliaryModel = area(AuxiliaryModel)


class PromptCachingSettings(Area):
    """Cache marks in requests."""

    cache_ttl: Literal["5m", "1h"] = setting("5m", "Life of a cache entry.")


class ApprovalSettings(Area):
    """Who is asked before something dangerous runs."""

    mode: Annotated[Literal["manual", "smart", "off"], BeforeValidator(_approval_mode)] = setting(
        "manual", "manual asks, smart lets a model decide the clear cases, off never asks."
    )
    timeout: Seconds = setting(300, "How long a question waits for an answer; then it is denied.", gt=0)
    cron_mode: Literal["deny", "approve"] = setting("deny", "Answer in scheduled runs.")
    single_query_mode: Literal["deny", "approve"] = setting("deny", "Answer in one-shot runs.")
    unattended_mode: Literal["deny", "approve"] = setting("deny", "Answer where nobody listens.")
    denial_breaker_threshold: int = setting(3, "Denials in a row after which the turn ends.", gt=0)
    deny: Words = setting((), "Commands that never run, as patterns.")
    mcp_reload_confirm: bool = setting(True, "Ask before a reload of MCP servers, which empties the prompt cache.")


class SecuritySettings(Area):
    """Guards that no model and no project file can relax."""

    redact_secrets: bool = setting(True, "Mask secrets in output and logs.", env="HERMES_REDACT_SECRETS")
    protected_instruction_files: bool = setting(True, "Ask before instruction files are changed.")
    write_safe_root: str = setting("", "Writes outside this directory are refused.", env="HERMES_WRITE_SAFE_ROOT")


class DelegationSettings(Area):
    """Child agents."""

    model: str = setting("", "Model of children; empty: the parent's.")
    provider: str = setting("", "Provider of children.")
    max_iterations: int = setting(250, "Model calls per child.", gt=0)
    max_concurrent_children: int = setting(10, "Children at the same time.", gt=0)
    max_spawn_depth: int = setting(1, "How deep delegation may go; a child needs the role orchestrator.", ge=0)
    max_summary_chars: int = setting(24_000, "Length of a child's report.", gt=0)
    child_timeout_seconds: Seconds = setting(0, "Limit of a child; 0: none.", ge=0)
    stale_idle_seconds: Seconds = setting(450, "A child that is silent so long has stalled; 0: never.", ge=0)
    stale_tool_seconds: Seconds = setting(1200, "The same while a tool of the child runs; 0: never.", ge=0)
    stale_grace_seconds: Seconds = setting(120, "A stalled child is ended after so long.", ge=0)
    subagent_auto_approve: bool = setting(False, "Approve what children ask.")
    reasoning_effort: EffortWord = setting("", "Reasoning effort of children.")


class MemorySettings(Area):
    """What is remembered between sessions."""

    memory_enabled: bool = setting(True, "Keep notes.")
    user_profile_enabled: bool = setting(True, "Keep a profile of the user.")
    memory_char_limit: int = setting(2200, "Length of the notes.", gt=0)
    user_char_limit: int = setting(1375, "Length of the profile.", gt=0)


class SkillSettings(Area):
    """Skills."""

    external_dirs: Words = setting((), "More directories that hold skills.")
    create_dir: str = setting("", "Where new skills are written.")
    trusted_project_dirs: Words = setting((), "Projects whose own skills are read.")
    auto_load: Words = setting((), "Skills that every session starts with.")


class DatabaseSettings(Area):
    """The session database."""

    journal_mode: Literal["wal", "delete"] = setting("wal", "SQLite journal; delete for network file systems.")


class DisplaySettings(Area):
    """What hosts show; most values are kept for them."""

    busy_input_mode: Literal["interrupt", "queue", "steer"] = setting("interrupt", "A prompt that comes during a turn.")
    tool_progress: Annotated[
        Literal["off", "new", "all", "verbose"],
        BeforeValidator(lambda v: "off" if v is False else "all" if v is True else v),
    ] = setting(
        "all",
        "Which tool events are sent: all; `new`, where the tool is another than before; `off`, edits, questions and "
        "failures only; `verbose`, all with their arguments and output as text.",
    )
    inline_diffs: bool = setting(True, "Diffs in tool events.")
    show_reasoning: bool = setting(True, "Send reasoning.")
    reasoning_display: Literal["show", "hide", "full", "clamp"] = setting("show", "How hosts show it.")
    interim_assistant_messages: bool = setting(True, "Send what the model says between tool calls.")
    skin: str = setting("default", "Colours.")
    theme: str = setting("auto", "Light or dark.")
    indicator: str = setting("kaomoji", "Busy sign.")
    personality: str = setting("none", "Named tone.")
    statusbar: Annotated[str, BeforeValidator(_switch_word)] = setting("top", "Status line.")
    density: Annotated[str, BeforeValidator(_switch_word)] = setting("off", "Compact view.")
    mouse: Annotated[str, BeforeValidator(_switch_word)] = setting("all", "Mouse reporting.")
    focus: bool = setting(False, "Hide tool progress.")
    battery: bool = setting(False, "Battery in the status line.")
    timestamps: bool = setting(False, "Times beside messages.")
    footer: bool = setting(True, "A line with model and usage below answers.")
    details_mode: str = setting("collapsed", "Details of a turn.")
    details: Mapping[str, str] = setting({}, "Details by part: thinking, tools, subagents, activity.")
    thinking_mode: str = setting("collapsed", "Reasoning in the transcript.")
    message_reactions: bool = setting(False, "Reactions on messages.")
    in_app_tips: bool = setting(True, "Tips.")
    in_app_tours: bool = setting(True, "Tours.")
    tui_auto_resume_recent: bool = setting(False, "A host resumes the newest session when it starts.")
