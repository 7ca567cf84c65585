"""Configuration, reloads, set-up and models (gateway §8.8, §9.1 to §9.4, §9.8, §9.9)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from hermes.errors import Conflict, HermesError, SessionNotFound
from hermes.nurseries.command_views import toolsets
from hermes.nurseries.host_config import KeyRequest, change, mcp_revision, read_key, rules_of, sections, set_key
from hermes.nurseries.mcp_servers import CONFIRM_RELOAD, needs_confirmation
from hermes.nurseries.model_choice import picker
from hermes.nurseries.pinned import forget_tools
from hermes.nurseries.provider_keys import forget_key, save_key
from hermes.nurseries.session import Session
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway import schemas_config as c
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.shapes import live_info
from hermes.protocols.rpc.method_table import Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()

SESSION_KEYS = frozenset({"model", "fast", "yolo", "reasoning"})
"""Keys of a session: a stale session id is an error for them (§9.2)."""


@methods.method("config.get", c.ConfigGetParams, "ConfigGetResult")
def config_get(client: GatewayClient, params: c.ConfigGetParams) -> dict[str, Any]:
    session = optional_session(client, params.session_id)
    return read_key(client.server.services, params.key, session, params.cwd)


@methods.method("config.set", c.ConfigSetParams, "ConfigSetResult")
def config_set(client: GatewayClient, params: c.ConfigSetParams) -> Awaiting[Any]:
    if params.session_id is not None and params.key in SESSION_KEYS:
        session: Session | None = client.session(params.session_id)
    else:
        session = optional_session(client, params.session_id)
    if params.key == "model" and client.older and session is not None and session.slot.taken:
        raise session.slot.busy()
    request = KeyRequest(params.key, params.value, params.scope, params.confirm_expensive_model)

    async def run() -> dict[str, Any]:
        with rules_told(client, session):
            result = await set_key(client.server.services, session, request)
        client.catch_up_all()
        if session is not None and params.key == "personality":
            result["info"] = live_info(session.info())
        return result

    return Awaiting(run)


@contextmanager
def rules_told(client: GatewayClient, told: Session | None) -> Iterator[None]:
    """Around what may change the rules of approval of all sessions: each shows them, ``told`` by itself."""
    before = rules_of(client.server.services)
    yield
    if rules_of(client.server.services) != before:
        client.server.registry.announce_rules(told)


def optional_session(client: GatewayClient, runtime_id: str | None) -> Session | None:
    """The session if it is live; a stale or missing id is none."""
    if not runtime_id:
        return None
    try:
        return client.session(runtime_id)
    except SessionNotFound:
        return None


@methods.method("config.show", s.EmptyParams, "ConfigShowResult")
def config_show(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    session = optional_session(client, client.current)
    names = (lambda: sorted(toolsets(session))) if session is not None else (list)
    return {"sections": sections(client.server.services, session, names)}


# --- reloads ---------------------------------------------------------------------------------------------------------


@methods.method("reload.mcp", c.ReloadMcpParams, "ReloadMcpResult")
def reload_mcp(client: GatewayClient, params: c.ReloadMcpParams) -> Any:
    """Reconnects the MCP servers; asks first, because the prompt cache goes (§9.4)."""
    server = client.server
    ask = server.settings.approvals.mcp_reload_confirm
    if needs_confirmation(params.confirm or params.always or None, ask=ask):
        return {"status": "confirm_required", "message": CONFIRM_RELOAD}

    async def run() -> dict[str, Any]:
        services = server.services
        if params.always:
            await change(services, "approvals.mcp_reload_confirm", False)
        if services.config is not None:
            await services.config.reload()
        if server.tree.mcp is None:
            return {"status": "reloaded", "loaded_rev": mcp_revision(server.settings)}
        done = await server.tree.mcp.reload(lambda: server.settings.mcp_servers, wanted=params.rev)
        for session in server.registry.live():
            forget_tools(session)
            session.announce_info()
        client.catch_up_all()
        result: dict[str, Any] = {"status": "reloaded", "loaded_rev": done.revision}
        if done.coalesced:
            result["coalesced"] = True
        return result

    return Awaiting(run)


@methods.method("reload.env", s.EmptyKeyedParams, "ReloadEnvResult")
async def reload_env(client: GatewayClient, params: s.EmptyKeyedParams) -> dict[str, Any]:
    config = client.server.services.config
    return {"updated": await config.reload_variables() if config is not None else 0}


# --- set-up and models -----------------------------------------------------------------------------------------------


@methods.method("setup.status", s.EmptyParams, "SetupStatusResult")
def setup_status(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    """The demonstration can be used, but it is no configured provider (decisions, "demo model")."""
    models = client.server.services.models
    try:
        provider = models.default_provider()
    except HermesError:
        return {"provider_configured": False, "ready": False, "inference_provider": "", "profile": "default"}
    return {
        "provider_configured": provider != "demo",
        "ready": True,
        "inference_provider": provider,
        "profile": "default",
    }


@methods.method("setup.runtime_check", c.SetupRuntimeCheckParams, "SetupRuntimeCheckResult")
async def runtime_check(client: GatewayClient, params: c.SetupRuntimeCheckParams) -> dict[str, Any]:
    """Whether a turn could start now: a provider with credentials and a model. Sends no prompt. One at a time."""
    checking = client.server.checking
    try:
        checking.acquire_nowait()
    except trio.WouldBlock:
        raise Conflict("another check is running; ask again when it has answered") from None
    try:
        models = client.server.services.models
        resolved = await models.resolve(None, params.provider)
        models.provider_for(resolved)
    except HermesError as error:
        return {"ok": False, "error": error.message, "provider": params.provider}
    finally:
        checking.release()
    return {"ok": True, "provider": resolved.provider, "model": resolved.model, "source": resolved.route_source}


@methods.method("model.options", c.ModelOptionsParams, "ModelOptionsResult")
async def model_options(client: GatewayClient, params: c.ModelOptionsParams) -> dict[str, Any]:
    """Only the current custom endpoint is asked, unless ``refresh`` (§9.8)."""
    return await picker(
        client.server.services,
        optional_session(client, params.session_id),
        refresh=params.refresh,
        include_unconfigured=params.include_unconfigured,
        explicit_only=params.explicit_only,
    )


@methods.method("model.save_key", c.ModelSaveKeyParams, "ModelSaveKeyResult")
async def model_save_key(client: GatewayClient, params: c.ModelSaveKeyParams) -> dict[str, Any]:
    """Keeps a key in the home's environment file; it is in no answer."""
    row = await save_key(client.server.services, params.slug, params.api_key)
    menu = await picker(
        client.server.services,
        optional_session(client, params.session_id),
        refresh=False,
        include_unconfigured=True,
        explicit_only=False,
    )
    shown = next((dict(one) for one in menu["providers"] if one.get("slug") == row.id), None)
    return {"provider": shown or {"slug": row.id, "name": row.name, "authenticated": True}}


@methods.method("model.disconnect", c.ModelDisconnectParams, "ModelDisconnectResult")
async def model_disconnect(client: GatewayClient, params: c.ModelDisconnectParams) -> dict[str, Any]:
    row = await forget_key(client.server.services, params.slug)
    return {"slug": row.id, "name": row.name, "disconnected": True}
