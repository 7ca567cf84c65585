"""Results of configuration, models, listings and commands (gateway §8, §9)."""

from __future__ import annotations

from typing import Any, Literal

from hermes.protocols.gateway import result_rows as rows
from hermes.protocols.gateway.results import OpenResult
from hermes.protocols.gateway.schemas_shapes import SessionLiveInfo
from hermes.protocols.rpc.method_table import Result

Json = Any


class ConfigGetResult(Result):
    value: str | None = None
    display: str | None = None
    tool_progress: str | None = None
    model: str | None = None
    provider: str | None = None
    providers: list[rows.ConfigProviderRef] | None = None
    home: str | None = None
    cwd: str | None = None
    branch: str | None = None
    config: dict[str, Json] | None = None
    prompt: str | None = None
    mtime: float | None = None
    mcp_rev: str | None = None


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
    sections: list[rows.ConfigSection]


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


class SetupRuntimeCheckResult(Result):
    ok: bool
    provider: str | None = None
    model: str | None = None
    source: str | None = None
    error: str | None = None


class ModelOptionsResult(OpenResult):
    providers: list[rows.ModelOptionProvider]
    model: str | None
    provider: str | None


class ModelSaveKeyResult(Result):
    provider: rows.ModelOptionProvider


class ModelDisconnectResult(Result):
    slug: str
    name: str
    disconnected: bool


class ToolsetsResult(Result):
    toolsets: list[rows.ToolsetRow]


class ToolsShowResult(Result):
    sections: list[rows.ToolShowSection]
    total: int


class ToolsConfigureResult(Result):
    changed: list[str]
    enabled_toolsets: list[str]
    missing_servers: list[str]
    reset: bool
    unknown: list[str]
    info: SessionLiveInfo | None = None


class SkillsManageResult(Result):
    skills: dict[str, list[str]] | None = None
    info: rows.SkillInspectInfo | None = None
    results: list[rows.SkillHit] | None = None


class SkillsReloadResult(Result):
    output: str
    result: rows.SkillsReloadDiff


class PluginsListResult(Result):
    plugins: list[rows.PluginRow]


class McpServersListResult(Result):
    servers: list[rows.McpServerSummary]


class McpServersStatusResult(Result):
    servers: list[rows.McpServerRuntimeRow]
    checked_at: int


class McpServersTestResult(Result):
    ok: bool
    tools: list[rows.ToolRow]
    oauth_needed: bool
    error: str | None = None
    notice: str | None = None


class ProjectFactsResult(Result):
    facts: rows.ProjectFacts | None


class RollbackListResult(Result):
    enabled: bool
    checkpoints: list[rows.RollbackCheckpoint]


class RollbackDiffResult(Result):
    stat: str
    diff: str
    rendered: str


class RollbackRestoreResult(OpenResult):
    success: bool


class InsightsGetResult(Result):
    days: int
    sessions: int
    messages: int


class SystemBatteryResult(Result):
    available: bool
    percent: int | None = None
    plugged: bool | None = None
    category: Literal["good", "warn", "bad", "critical", "dim"] | None = None


class MachineFactsResult(Result):
    machine: rows.MachineInfo
    machine_kind: str
    has_nvidia_gpu: bool
    locale: str | None = None


class ProfilesListResult(Result):
    profiles: list[rows.ProfileRow]


class LlmOneshotResult(Result):
    text: str


class CommandsCatalogResult(Result):
    pairs: list[tuple[str, str]]
    sub: dict[str, list[str]]
    canon: dict[str, str]
    commands: dict[str, rows.CommandCatalogMeta]
    categories: list[rows.CommandCategory]
    skills: dict[str, rows.SkillCatalogEntry]
    skill_count: int
    warning: str


class CommandResolveResult(Result):
    canonical: str
    description: str
    category: str


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


class CliExecResult(Result):
    blocked: bool
    code: int
    output: str
    hint: str | None = None


class ShellExecResult(Result):
    stdout: str
    stderr: str
    code: int


class CompleteResult(Result):
    items: list[rows.CompletionItem]
    replace_from: int | None = None
