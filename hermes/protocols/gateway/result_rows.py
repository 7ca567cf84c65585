"""The rows of lists and the small objects inside results, exactly as they are given (gateway §10.5).

Handlers build plain JSON; these models are read by the contract and by the tests, which hold every answer against them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from hermes.protocols.rpc.method_table import Result

Json = Any


class Row(Result):
    model_config = ConfigDict(extra="forbid")


# --- sessions --------------------------------------------------------------------------------------------------------


class ReplayedEvent(Row):
    """The ``params`` of an event frame, as it was sent."""

    type: str
    session_id: str
    payload: Json = None
    seq: int
    turn_id: str | None = None


class StoppedNode(Row):
    node_id: str
    kind: str
    name: str


class DroppedPrompt(Row):
    text: str
    client_message_id: str | None = None


class TreeNode(Row):
    """A node of the live tree and everything below it."""

    node_id: str
    kind: str
    name: str
    state: str
    age_s: float
    cause: str | None = None
    reason: str | None = None
    deadline_in_s: float | None = None
    details: dict[str, Json] | None = None
    pids: list[int] | None = None
    children: list[TreeNode]


class TodoItem(Row):
    id: str
    content: str
    status: str


class CompressionSummary(Row):
    noop: bool
    aborted: bool
    refused_would_grow: bool
    fallback_used: bool
    headline: str
    token_line: str
    note: str | None = None


class ContextCategory(Row):
    id: str
    label: str
    tokens: int
    color: str


class FailedDelegation(Row):
    delegation_id: str
    task_index: int
    status: str
    goal: str
    error: str | None
    dispatched_at: float | None
    completed_at: float | None


class SpawnTreeEntry(Row):
    path: str
    session_id: str | None
    started_at: float | None
    finished_at: float | None
    label: str | None
    count: int


# --- configuration and models ----------------------------------------------------------------------------------------


class ConfigProviderRef(Row):
    id: str
    label: str
    aliases: list[str]
    authenticated: bool


class ConfigSection(Row):
    """``rows``: label and value."""

    title: str
    rows: list[tuple[str, str]]


class ModelCapabilities(Row):
    fast: bool
    reasoning: bool
    can_disable_reasoning: bool | None = None


class ModelPricing(Row):
    input: str
    output: str
    cache: str | None = None
    free: bool


class ModelOptionProvider(Row):
    """One provider of the picker, with its models."""

    slug: str
    name: str
    models: list[str] | None = None
    total_models: int | None = None
    is_current: bool | None = None
    is_user_defined: bool | None = None
    source: str | None = None
    authenticated: bool | None = None
    aliases: list[str] | None = None
    auth_type: str | None = None
    api_url: str | None = None
    native_catalog_empty: bool | None = None
    key_env: str | None = None
    warning: str | None = None
    featured_models: list[str] | None = None
    capabilities: dict[str, ModelCapabilities] | None = None
    pricing: dict[str, ModelPricing] | None = None


# --- listings --------------------------------------------------------------------------------------------------------


class ToolsetRow(Row):
    name: str
    description: str
    tool_count: int
    enabled: bool
    tools: list[str] | None = None


class ToolRow(Row):
    name: str
    description: str


class ToolShowSection(Row):
    name: str
    tools: list[ToolRow]


class SkillHit(Row):
    name: str
    description: str


class SkillInspectInfo(Row):
    name: str
    description: str
    source: str
    identifier: str
    tags: list[str]
    skill_md_preview: str


class SkillCommandRef(Row):
    name: str
    description: str | None = None


class SkillsReloadDiff(Row):
    added: list[SkillCommandRef]
    removed: list[SkillCommandRef]
    unchanged: list[str]
    total: int
    commands: int


class PluginRow(Row):
    name: str
    version: str
    enabled: bool


class McpServerSummary(Row):
    """``tools``: the names that are let in, null for all; ``env``: names only."""

    name: str
    transport: str
    command: str | None = None
    url: str | None = None
    args: list[str]
    env: list[str]
    enabled: bool
    tools: list[str] | None
    source: Literal["config", "plugin"]


class McpServerRuntimeRow(Row):
    """``notice``: which of its tools cannot be used, and why."""

    name: str
    transport: str
    tools: int
    connected: bool
    disabled: bool
    status: str
    source: Literal["config", "plugin"]
    notice: str | None = None


class ProjectFacts(Row):
    root: str
    manifests: list[str]
    package_managers: list[str] = Field(alias="packageManagers")
    verify_commands: list[str] = Field(alias="verifyCommands")
    context_files: list[str] = Field(alias="contextFiles")


class RollbackCheckpoint(Row):
    hash: str
    timestamp: str
    message: str


class MachineInfo(Row):
    os_family: str
    os_release: str
    native_arch: str
    cpu_model: str | None = None
    ram_gb: int | None = None
    vendor: str | None = None
    wsl: bool
    container: bool


class ProfileRow(Row):
    name: str
    path: str
    is_default: bool
    model: str
    provider: str


# --- commands --------------------------------------------------------------------------------------------------------


class CommandCatalogMeta(Row):
    argument_mode: Literal["options", "text", "mixed"]


class CommandCategory(Row):
    """``pairs``: name and description."""

    name: str
    pairs: list[tuple[str, str]]


class SkillCatalogEntry(Row):
    origin: str


class CompletionItem(Row):
    text: str
    display: str
    meta: str
    kind: str
