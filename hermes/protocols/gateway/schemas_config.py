"""Parameters of configuration, models, listings and commands (gateway §8, §9)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from hermes.protocols.gateway.schemas import Flag, GatewayParams, KeyedParams, KeyedSessionParams, SessionParams

Json = Any

# --- configuration (methods_config.py) -------------------------------------------------------------------------------


class ConfigGetParams(GatewayParams):
    key: str
    session_id: str | None = None
    cwd: str | None = None


class ConfigSetParams(KeyedParams):
    key: str
    value: Json = None
    session_id: str | None = None
    scope: str | None = None
    confirm_expensive_model: Flag = False


class ReloadMcpParams(KeyedParams):
    session_id: str | None = None
    confirm: Flag | None = None
    always: Flag = False
    rev: str | None = None


class SetupRuntimeCheckParams(GatewayParams):
    provider: str | None = None


class ModelOptionsParams(GatewayParams):
    session_id: str | None = None
    explicit_only: Flag = False
    include_unconfigured: Flag = False
    refresh: Flag = False


class ModelSaveKeyParams(KeyedParams):
    slug: str
    api_key: str
    session_id: str | None = None


class ModelDisconnectParams(KeyedParams):
    slug: str
    session_id: str | None = None


# --- listings (methods_listing.py) -----------------------------------------------------------------------------------


class OptionalSessionParams(GatewayParams):
    session_id: str | None = None


class SkillsReloadParams(KeyedParams):
    session_id: str | None = None


class ToolsConfigureParams(KeyedParams):
    action: Literal["enable", "disable"]
    names: list[str]
    session_id: str | None = None


class SkillsManageParams(GatewayParams):
    action: str = "list"
    query: str | None = None
    page: int | None = None
    page_size: int | None = None


class McpServersTestParams(GatewayParams):
    name: str


class ProjectFactsParams(GatewayParams):
    cwd: str | None = None


class RollbackDiffParams(SessionParams):
    hash: str


class RollbackRestoreParams(KeyedSessionParams):
    hash: str
    file_path: str | None = None


# --- beside the conversations (methods_host.py) ----------------------------------------------------------------------


class InsightsGetParams(GatewayParams):
    days: Annotated[int, Field(ge=1, le=36_500)] = 30


class ProfilesListParams(GatewayParams):
    include_sessions: Flag = False


class LlmOneshotParams(GatewayParams):
    template: str | None = None
    instructions: str | None = None
    input: str | None = None
    variables: dict[str, Json] | None = None
    task: str | None = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    max_tokens: Annotated[int | None, Field(gt=0, le=100_000)] = None
    session_id: str | None = None


# --- commands (methods_commands.py) ----------------------------------------------------------------------------------


class CommandResolveParams(GatewayParams):
    name: str = ""


class CommandDispatchParams(KeyedParams):
    name: str | None = None
    arg: str | None = None
    command: str | None = None
    session_id: str | None = None


class SlashExecParams(KeyedParams):
    session_id: str
    command: str


class CliExecParams(KeyedParams):
    argv: list[Annotated[str, Field(strict=True)]]
    timeout: int | None = None


class ShellExecParams(KeyedParams):
    command: str


class CompleteSlashParams(GatewayParams):
    text: str = ""
    session_id: str | None = None


class CompletePathParams(GatewayParams):
    word: str = ""
    cwd: str | None = None
    session_id: str | None = None
