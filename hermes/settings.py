"""Everything that can be set: the server's own areas, and ``Settings``, the whole.

Pure data: nothing here reads a file or the environment; ``config.py`` does, and ``docs/reference/configuration.md`` is
generated from these classes. The agent's areas are in ``agent_settings.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hermes.agent_settings import (
    AgentSettings,
    ApprovalSettings,
    Area,
    AuxiliarySettings,
    CompressionSettings,
    DatabaseSettings,
    DelegationSettings,
    DisplaySettings,
    GuardrailSettings,
    MemorySettings,
    ModelSettings,
    PromptCachingSettings,
    Seconds,
    SecuritySettings,
    SkillSettings,
    TerminalSettings,
    TimeoutSettings,
    ToolOutputSettings,
    Words,
    area,
    setting,
)
from hermes.records import dataclass

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class ApiServerSettings(Area):
    """The HTTP server."""

    enabled: bool = setting(True, "Kept for other tools' files: `hermes serve` always serves.")
    key: str = setting("", "The server's key.", env="API_SERVER_KEY", secret=True)
    host: str = setting("127.0.0.1", "Address to listen on.", env="API_SERVER_HOST")
    port: int = setting(8642, "Port to listen on; 0: any free one.", env="API_SERVER_PORT", ge=0, le=65535)
    cors_origins: Words = setting((), "Origins of browser pages that may call.", env="API_SERVER_CORS_ORIGINS")
    model_name: str = setting("", "Model id it announces; empty: hermes-agent.", env="API_SERVER_MODEL_NAME")
    model_routes: Mapping[str, Mapping[str, Any]] = setting(
        {}, "Aliases: name to {model, provider, api_key, base_url}.", secret=True
    )
    direct_model_requests: bool = setting(
        True, "Honour the bare `model` of OpenAI requests when it is served; false: only aliases and `provider`."
    )
    custom_stream_events: Literal["on", "off", "auto"] = setting(
        "auto", "Named frames in chat streams; auto: not for clients that take every frame for a chunk."
    )
    auxiliary_requests: Literal["direct", "agent"] = setting(
        "direct", "Frontends' side prompts (titles, tags): one plain model call, or a whole turn."
    )
    tool_items: Literal["function_call", "hidden"] = setting(
        "function_call", "Tool calls in responses; hidden: for SDKs that would run them themselves."
    )
    max_stored_responses: int = setting(1000, "Stored responses of one key; the least recently used go.", gt=0)
    session_key_headers: Words = setting((), "Other headers that name the conversation, like X-Hermes-Session-Key.")
    tool_progress_events: bool = setting(True, "Named tool frames in chat streams.")
    max_concurrent_runs: int = setting(10, "Turns at the same time; 0: no cap.")
    history_tool_output_max_chars: int = setting(0, "Cap of stored tool output in responses; 0: none.", ge=0)
    on_disconnect: Literal["cancel", "continue"] | None = setting(
        None, "What happens to a turn whose client went away. None: as each route says."
    )


class GatewaySettings(Area):
    """The servers."""

    api_server: ApiServerSettings = area(ApiServerSettings)
    legacy_prompts: bool = setting(
        False, "Questions as events of the older dialect, also for undeclared WebSocket clients."
    )


class DashboardSettings(Area):
    """WebSocket clients."""

    ws_orphan_reap_grace_s: Seconds = setting(
        20, "Life of an idle session whose last client left; 0: never closed.", ge=0
    )
    ws_ping_interval: Seconds = setting(20, "Between pings, beyond loopback; 0: none.", ge=0)
    ws_ping_timeout: Seconds = setting(20, "Wait for the pong.", gt=0)


class LimitSettings(Area):
    """Every deadline and bound of the server itself."""

    interrupt_ack: Seconds = setting(0.9, "Longest wait of an interrupt for its turn to settle.", gt=0)
    kill_grace: Seconds = setting(0.5, "Between TERM and KILL of a tool's processes.", ge=0)
    write_deadline: Seconds = setting(10, "One write to a client that does not read.", gt=0)
    head_deadline: Seconds = setting(10, "A client's request head.", gt=0)
    flush_grace: Seconds = setting(5, "Last writes to clients at shutdown.", ge=0)
    drain_grace: Seconds = setting(0.5, "Busy HTTP connections at shutdown, after every turn has ended.", ge=0)
    shutdown_grace: Seconds = setting(
        1.0, "Everything of a stdio server after a signal.", env="HERMES_TUI_GATEWAY_SHUTDOWN_GRACE_S", gt=0
    )
    approval_timeout: Seconds | None = setting(None, "Overrides approvals.timeout.", gt=0)
    lease_ttl: Seconds = setting(30, "Life of a turn lease that is not renewed.", gt=0)
    replay_events: int = setting(512, "Events kept per session for a reconnect.", gt=0)
    replay_bytes: int = setting(4 * 1024 * 1024, "Bytes kept per session for a reconnect.", gt=0)
    replay_total_bytes: int = setting(64 * 1024 * 1024, "Bytes kept for all sessions.", gt=0)
    replay_sessions: int = setting(64, "Sessions whose events are kept.", gt=0)
    subscriber_buffer: int = setting(256, "Frames waiting for one subscriber.", gt=0)
    subscriber_bytes: int = setting(4 * 1024 * 1024, "Bytes waiting for one subscriber.", gt=0)
    max_frame_bytes: int = setting(384 * 1024 * 1024, "One incoming frame or line.", gt=0)
    max_body_bytes: int = setting(10_000_000, "One HTTP request body.", gt=0)
    max_sessions: int = setting(4096, "Live sessions; the least recently used idle one makes room.", gt=0)
    max_connections: int = setting(256, "Open connections.", gt=0)
    max_requests: int = setting(256, "Requests in flight on one connection.", gt=0)
    max_queued_prompts: int = setting(32, "Prompts waiting for one session.", gt=0)
    max_processes: int = setting(64, "Child processes of one session.", gt=0)
    session_idle: Seconds = setting(6 * 3600, "Life of a session that nobody looks at.", gt=0)
    idle_scan: Seconds = setting(300, "Between two looks for idle sessions.", gt=0)
    parked_activity: Seconds = setting(600, "Silence after which a parked turn is interrupted.", gt=0)
    parked_force_close: Seconds = setting(60, "Then the wait until it is closed.", gt=0)
    run_retention: Seconds = setting(3600, "How long a finished run can be read.", gt=0)


class ExtensionControl(Area):
    """Browser control by an extension."""

    enabled: Annotated[bool, Field(strict=True)] = setting(False, "Must be the boolean true.")
    developer_mode: Annotated[bool, Field(strict=True)] = setting(False, "Must be the boolean true.")


class BrowserSettings(Area):
    """Browsers."""

    extension_control: ExtensionControl = area(ExtensionControl)


class LoggingSettings(Area):
    """Logs."""

    level: Annotated[Level, BeforeValidator(_upper)] = setting("INFO", "Least severe record that is kept.")
    format: Literal["text", "json"] = setting("text", "Form of a record.")
    destination: Literal["stderr", "file"] = setting("stderr", "stderr, or rotating files under logs/ in the home.")
    max_size_mb: float = setting(5, "Size at which a file is rotated.", gt=0)
    backup_count: int = setting(3, "Rotated files that are kept.", ge=0)


class HostSettings(Area):
    """Facts about how this process was started; fixed for its life."""

    yolo: bool = setting(False, "Never ask for approval.", env="HERMES_YOLO_MODE")
    ignore_rules: bool = setting(False, "Read no instruction files of the project.", env="HERMES_IGNORE_RULES")
    skip_configured_mcp: bool = setting(
        False, "ACP sessions do not start the configured MCP servers.", env="HERMES_ACP_SKIP_CONFIGURED_MCP"
    )


class TopLevel(Area):
    """Settings that belong to no area."""

    model_aliases: Mapping[str, Any] = setting({}, "Short names of models.")
    providers: Mapping[str, Mapping[str, Any]] = setting(
        {},
        "Named endpoints by name: base_url, api_key or key_env or key_cmd (a command that prints the key), api_mode, "
        "default_model, models, context_length, extra_headers, extra_body, request_timeout_seconds, "
        "stale_timeout_seconds.",
        secret=True,
    )
    custom_providers: tuple[Mapping[str, Any], ...] = setting(
        (), "Named endpoints as a list: the same, each with its name.", secret=True
    )
    fallback_providers: tuple[Any, ...] = setting((), "Models to try when the first one fails, in order.", secret=True)
    toolsets: Words = setting((), "Toolsets that are offered; empty: the host's preset.")
    file_read_max_chars: int = setting(100_000, "Characters of one file read.", gt=0)
    context_file_max_chars: int | None = setting(None, "Characters of one instruction file.", gt=0)
    command_allowlist: Words = setting((), "Command patterns that were approved for good.")
    mcp_servers: Mapping[str, Mapping[str, Any]] = setting({}, "MCP servers by name.", secret=True)
    quick_commands: Mapping[str, Mapping[str, Any]] = setting({}, "The user's own slash commands.")
    voice: Mapping[str, Any] = setting({}, "Read by hosts.")


class Settings(TopLevel):
    """Everything that can be set."""

    model: ModelSettings = area(ModelSettings)
    agent: AgentSettings = area(AgentSettings)
    timeouts: TimeoutSettings = area(TimeoutSettings)
    terminal: TerminalSettings = area(TerminalSettings)
    tool_output: ToolOutputSettings = area(ToolOutputSettings)
    tool_loop_guardrails: GuardrailSettings = area(GuardrailSettings)
    compression: CompressionSettings = area(CompressionSettings)
    auxiliary: AuxiliarySettings = area(AuxiliarySettings)
    prompt_caching: PromptCachingSettings = area(PromptCachingSettings)
    approvals: ApprovalSettings = area(ApprovalSettings)
    security: SecuritySettings = area(SecuritySettings)
    delegation: DelegationSettings = area(DelegationSettings)
    memory: MemorySettings = area(MemorySettings)
    skills: SkillSettings = area(SkillSettings)
    database: DatabaseSettings = area(DatabaseSettings)
    display: DisplaySettings = area(DisplaySettings)
    gateway: GatewaySettings = area(GatewaySettings)
    dashboard: DashboardSettings = area(DashboardSettings)
    limits: LimitSettings = area(LimitSettings)
    browser: BrowserSettings = area(BrowserSettings)
    logging: LoggingSettings = area(LoggingSettings)
    host: HostSettings = area(HostSettings)

    @property
    def approval_timeout(self) -> float:
        """How long an approval waits."""
        return self.limits.approval_timeout or self.approvals.timeout


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting as data: for documentation, listings and checks of keys."""

    key: str
    default: Any
    description: str
    env: str
    secret: bool
    annotation: Any


def area_of(kind: type[Area], name: str) -> type[Area] | None:
    """The nested area of this name, or None if the name is a value (or unknown)."""
    field = kind.model_fields.get(name)
    annotation = field.annotation if field is not None else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, Area) else None


def every_setting(kind: type[Area] = Settings, prefix: str = "") -> Iterator[SettingField]:
    """All settings below an area, in the order in which they are declared."""
    for name, field in kind.model_fields.items():
        nested = area_of(kind, name)
        if nested is not None:
            yield from every_setting(nested, f"{prefix}{name}.")
            continue
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        yield SettingField(
            key=prefix + name,
            default=field.default,
            description=field.description or "",
            env=str(extra.get("env", "")),
            secret=bool(extra.get("secret")),
            annotation=field.annotation,
        )
