"""Parameters and results of configuration, models, listings and commands (gateway §8, §9)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from hermes.protocols.gateway.schemas import GatewayParams, KeyedParams, KeyedSessionParams, OpenResult, SessionParams
from hermes.protocols.gateway.schemas_shapes import SessionLiveInfo
from hermes.protocols.rpc.method_table import Result

Json = Any

# --- configuration (methods_config.py) -------------------------------------------------------------------------------


class ConfigGetParams(GatewayParams):
    key: str
    session_id: str | None = None
    cwd: str | None = None


class ConfigGetResult(Result):
    value: str | None = None
    display: str | None = None
    tool_progress: str | None = None
    model: str | None = None
    provider: str | None = None
    providers: list[dict[str, Json]] | None = None
    home: str | None = None
    cwd: str | None = None
    branch: str | None = None
    config: dict[str, Json] | None = None
    prompt: str | None = None
    mtime: float | None = None
    mcp_rev: str | None = None


class ConfigSetParams(KeyedParams):
    key: str
    value: Json = None
    session_id: str | None = None
    scope: str | None = None
    confirm_expensive_model: bool = False


class ConfigSetResult(Result):
    key: str
    value: str | bool | None = None
    warning: str | None = None
    confirm_required: bool | None = None
    confirm_message: str | None = None
    scope: str | None = None
    deferred: bool | None = None
    tool_progress: str | None = None
    cwd: str | None = None
    branch: str | None = None
    history_reset: bool | None = None
    info: SessionLiveInfo | None = None


class ConfigShowResult(Result):
    sections: list[dict[str, Json]]


class ReloadMcpParams(KeyedParams):
    session_id: str | None = None
    confirm: bool | None = None
    always: bool = False
    rev: str | None = None


class ReloadMcpResult(Result):
    status: Literal["confirm_required", "reloaded"]
    message: str | None = None
    loaded_rev: str | None = None
    coalesced: bool | None = None


class ReloadEnvResult(Result):
    updated: int


class SetupStatusResult(Result):
    provider_configured: bool
    ready: bool
    inference_provider: str
    profile: str


class SetupRuntimeCheckParams(GatewayParams):
    provider: str | None = None


class SetupRuntimeCheckResult(Result):
    ok: bool
    provider: str | None = None
    model: str | None = None
    source: str | None = None
    error: str | None = None


class ModelOptionsParams(GatewayParams):
    session_id: str | None = None
    explicit_only: bool = False
    include_unconfigured: bool = False
    refresh: bool = False


class ModelOptionsResult(OpenResult):
    providers: list[dict[str, Json]]
    model: str | None
    provider: str | None


class ModelSaveKeyParams(KeyedParams):
    slug: str
    api_key: str
    session_id: str | None = None


class ModelSaveKeyResult(Result):
    provider: dict[str, Json]


class ModelDisconnectParams(KeyedParams):
    slug: str
    session_id: str | None = None


class ModelDisconnectResult(Result):
    slug: str
    name: str
    disconnected: bool


# --- listings (methods_listing.py) -----------------------------------------------------------------------------------


class OptionalSessionParams(GatewayParams):
    session_id: str | None = None


class SkillsReloadParams(KeyedParams):
    session_id: str | None = None


class ToolsetsResult(Result):
    toolsets: list[dict[str, Json]]


class ToolsShowResult(Result):
    sections: list[dict[str, Json]]
    total: int


class ToolsConfigureParams(KeyedParams):
    action: Literal["enable", "disable"]
    names: list[str]
    session_id: str | None = None


class ToolsConfigureResult(Result):
    changed: list[str]
    enabled_toolsets: list[str]
    missing_servers: list[str]
    reset: bool
    unknown: list[str]
    info: SessionLiveInfo | None = None


class SkillsManageParams(GatewayParams):
    action: str = "list"
    query: str | None = None
    page: int | None = None
    page_size: int | None = None


class SkillsManageResult(Result):
    skills: dict[str, list[str]] | None = None
    info: dict[str, Json] | None = None
    results: list[dict[str, Json]] | None = None


class SkillsReloadResult(Result):
    output: str
    result: dict[str, Json]


class PluginsListResult(Result):
    plugins: list[dict[str, Json]]


class McpServersListResult(Result):
    servers: list[dict[str, Json]]


class McpServersStatusResult(Result):
    servers: list[dict[str, Json]]
    checked_at: int


class McpServersTestParams(GatewayParams):
    name: str


class McpServersTestResult(Result):
    ok: bool
    tools: list[dict[str, Json]]
    oauth_needed: bool
    error: str | None = None


class ProjectFactsParams(GatewayParams):
    cwd: str | None = None


class ProjectFactsResult(Result):
    facts: dict[str, Json] | None


class RollbackListResult(Result):
    enabled: bool
    checkpoints: list[dict[str, Json]]


class RollbackDiffParams(SessionParams):
    hash: str


class RollbackRestoreParams(KeyedSessionParams):
    hash: str
    file_path: str | None = None


class RollbackDiffResult(Result):
    stat: str
    diff: str
    rendered: str


class RollbackRestoreResult(OpenResult):
    success: bool


# --- commands (methods_commands.py) ----------------------------------------------------------------------------------


class CommandsCatalogResult(Result):
    pairs: list[list[str]]
    sub: dict[str, list[str]]
    canon: dict[str, str]
    commands: dict[str, dict[str, Json]]
    categories: list[dict[str, Json]]
    skills: dict[str, dict[str, Json]]
    skill_count: int
    warning: str


class CommandResolveParams(GatewayParams):
    name: str = ""


class CommandResolveResult(Result):
    canonical: str
    description: str
    category: str


class CommandDispatchParams(KeyedParams):
    name: str | None = None
    arg: str | None = None
    command: str | None = None
    session_id: str | None = None


class CommandDispatchResult(Result):
    type: Literal["exec", "alias", "plugin", "send", "skill", "prefill"]
    output: str | None = None
    target: str | None = None
    message: str | None = None
    notice: str | None = None
    display: str | None = None
    name: str | None = None
    status: str | None = None
    warning: str | None = None
    state_changed: list[str] | None = None


class SlashExecParams(KeyedParams):
    session_id: str
    command: str


class SlashExecResult(Result):
    output: str | None = None
    warning: str | None = None
    type: str | None = None
    target: str | None = None
    message: str | None = None
    notice: str | None = None
    display: str | None = None
    name: str | None = None
    status: str | None = None
    state_changed: list[str] | None = None


class CliExecParams(KeyedParams):
    argv: list[Annotated[str, Field(strict=True)]]
    timeout: int | None = None


class CliExecResult(Result):
    blocked: bool
    code: int
    output: str
    hint: str | None = None


class ShellExecParams(KeyedParams):
    command: str


class ShellExecResult(Result):
    stdout: str
    stderr: str
    code: int


class CompleteSlashParams(GatewayParams):
    text: str = ""
    session_id: str | None = None


class CompleteResult(Result):
    items: list[dict[str, Json]]
    replace_from: int | None = None


class CompletePathParams(GatewayParams):
    word: str = ""
    cwd: str | None = None
    session_id: str | None = None
