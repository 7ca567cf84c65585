"""``browser.controller.…``: a host lets the agent act in its browser (api-server §7.7). All refusals are Forbidden."""

from __future__ import annotations

from typing import Any

from hermes.errors import Forbidden
from hermes.nurseries.browser_broker import BrowserFailure, Controller
from hermes.nurseries.browser_capabilities import ARTIFACT_CAPABILITIES, is_enabled, is_version, permitted
from hermes.protocols.gateway import schemas_browser as b
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.schemas import SessionParams
from hermes.protocols.rpc.method_table import MethodTable
from hermes.protocols.wire.json_codec import encode

methods: MethodTable[GatewayClient] = MethodTable()

MAX_ERROR = 512
MAX_NAME = 256


@methods.method("browser.controller.register", b.BrowserRegisterParams, "BrowserRegisterResult")
def register(client: GatewayClient, params: b.BrowserRegisterParams) -> dict[str, Any]:
    """From now on the session's turns that this gateway starts have the browser's tools."""
    session = client.session(params.session_id)
    settings = client.server.settings
    if not is_enabled(settings):
        raise Forbidden("browser control is switched off")
    if not is_version(params.protocol_version):
        raise Forbidden("protocol_version must be 1")
    if not client.is_websocket:
        raise Forbidden("only an authenticated connection may control a browser")
    if not client.watching(session):
        raise Forbidden("this session is not attached to this connection")
    if not all(name.strip() and len(name) <= MAX_NAME for name in (params.controller_id, params.browser_profile_id)):
        raise Forbidden(f"controller_id and browser_profile_id must be 1 to {MAX_NAME} characters")
    named = [name for name in params.capabilities if isinstance(name, str)]
    # Files go by the HTTP routes, which know another identity than this connection has.
    able = permitted(settings, named) - ARTIFACT_CAPABILITIES
    if not able:
        raise Forbidden("no permitted capability is left")
    client.browsers.register(session, params.controller_id.strip(), params.browser_profile_id.strip(), able)
    return {"scope": _own(client, params.session_id).identity.scope(able)}


@methods.method("browser.controller.result", b.BrowserResultParams, "BrowserResultResult")
def result(client: GatewayClient, params: b.BrowserResultParams) -> dict[str, Any]:
    """The answer to a command. Not accepted: nobody waits for it any more."""
    controller = _own(client, params.session_id)
    answer: dict[str, Any] | BrowserFailure = {"result": params.result}
    if params.ok is not True:
        text = params.error if isinstance(params.error, str) else encode(params.error).decode()
        answer = BrowserFailure("rejected", text[:MAX_ERROR])
    return {"accepted": client.server.tree.browsers.answered(controller, params.command_id, answer)}


@methods.method("browser.controller.heartbeat", SessionParams, "BrowserHeartbeatResult")
def heartbeat(client: GatewayClient, params: SessionParams) -> dict[str, Any]:
    _own(client, params.session_id)
    return {"ok": True}


@methods.method("browser.controller.detach", SessionParams, "BrowserDetachResult")
def detach(client: GatewayClient, params: SessionParams) -> dict[str, Any]:
    """The browser gives the conversation up; what it was asked is cancelled."""
    _own(client, params.session_id)
    client.browsers.detach(params.session_id)
    return {"detached": True}


def _own(client: GatewayClient, session_id: str) -> Controller:
    controller = client.browsers.controller(client.session(session_id).runtime_id)
    if controller is None:
        raise Forbidden("this connection controls no browser of this session")
    return controller
