"""Browser control: an extension registers, connects with its ticket, and takes the commands of one conversation.

Off unless ``browser.extension_control.enabled`` is true (api-server §7). The state is in ``nurseries.browser_broker``;
here are the route, the WebSocket and the binding of a turn to its browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import trio

from hermes.errors import HermesError, Unauthorized
from hermes.messages import Prompt
from hermes.nurseries.artifacts import ARTIFACT_SECONDS, MAX_BYTES, Artifacts
from hermes.nurseries.browser_broker import (
    TICKET_SECONDS,
    BrowserFailure,
    Controller,
    ControllerIdentity,
    Lane,
    Send,
    Ticket,
)
from hermes.nurseries.browser_capabilities import (
    ARTIFACT_CAPABILITIES,
    CAPABILITIES,
    DEVELOPER_CAPABILITIES,
    PROTOCOL_VERSION,
    developer_mode,
    is_enabled,
    is_version,
    permitted,
)
from hermes.nurseries.browser_tools import browser_tools
from hermes.nurseries.connection import ConnectionTree
from hermes.protocols.channels.websocket import WebSocketChannel, WebSocketRequest
from hermes.protocols.error_table import HttpRefusal, http_error
from hermes.protocols.http.body_guard import SECURITY_HEADERS
from hermes.protocols.http.call import JSON_TYPE, Api, Call, Reply, error_body, json_reply
from hermes.protocols.wire.json_codec import NotJson, decode, encode

WS_PATH: Final = "/v1/browser-control/ws"
REGISTER_PATH: Final = "/v1/browser-control/register"
PROTOCOL: Final = "hermes-browser-control-v1"
TICKET_PROTOCOL: Final = "hermes-browser-control-ticket."
PING_SECONDS: Final = 30.0
MAX_NONCE: Final = 128
MIME_TYPES: Final = (
    *("application/json", "application/pdf", "image/gif", "image/jpeg", "image/png", "image/webp", "text/plain"),
)
MAX_FILENAME: Final = 160
MAX_ERROR: Final = 512
OFF: Final = "browser control is switched off"


def enabled(api: Api) -> bool:
    return is_enabled(api.settings)


def feature(api: Api) -> dict[str, Any]:
    """``features.browser_extension_control`` (api-server §7.2)."""
    developer = developer_mode(api.settings)
    return {
        "enabled": enabled(api),
        "protocol_version": PROTOCOL_VERSION,
        "capabilities": sorted(CAPABILITIES),
        "artifact_capabilities": sorted(ARTIFACT_CAPABILITIES),
        "developer_capabilities": sorted(DEVELOPER_CAPABILITIES) if developer else [],
        "developer_mode": developer,
        "artifact_transport": {
            "upload": {"method": "POST", "path": "/v1/artifacts/upload"},
            "download": {"method": "GET", "path": "/v1/artifacts/download/{artifact_id}"},
            "max_bytes": MAX_BYTES,
            "ttl_seconds": int(ARTIFACT_SECONDS),
            "allowed_mime_types": list(MIME_TYPES),
        },
        "real_browser_actions": True,
        "transports": {"local_vps": "websocket-subprotocol-ticket", "cloud": "authenticated-gateway-rpc"},
    }


def lane_of(call: Call, session_id: str) -> Lane:
    family = "local-api" if call.is_local else "remote-api"
    return Lane(call.principal, call.api.options.profile, session_id, family)


def bound_to_browser(call: Call, prompt: Prompt, session_id: str) -> Prompt:
    """The prompt whose turn gets the tools of the browser that is attached to this conversation, and no other's.

    Looked up when the turn begins: a prompt may wait in the queue behind one that came from elsewhere.
    """
    api, lane = call.api, lane_of(call, session_id)
    return replace(prompt, guest_tools=lambda: browser_tools(api.browsers, lane, api.artifacts) if enabled(api) else ())


# --- register --------------------------------------------------------------------------------------------------------


async def register(call: Call) -> Reply:
    api = call.api
    _require_enabled(api)
    body = call.json_object()
    version = body.get("protocol_version")
    if not is_version(version):
        raise HttpRefusal(
            "browser_control_protocol_unsupported", "protocol_version must be 1", param="protocol_version"
        )
    ids: dict[str, str] = {}
    for name in ("session_id", "controller_id", "browser_profile_id"):
        value = body.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > 256:
            raise HttpRefusal("browser_control_invalid_registration", f"{name} must be a non-empty string", param=name)
        ids[name] = value.strip()
    await _require_own_session(call, ids["session_id"])
    capabilities = _permitted(api, body.get("capabilities"))
    identity = ControllerIdentity(lane_of(call, ids["session_id"]), ids["controller_id"], ids["browser_profile_id"])
    ticket = api.browsers.mint_ticket(identity, capabilities)
    answer = {
        "protocol_version": 1,
        "ticket": ticket,
        "ticket_expires_in_seconds": TICKET_SECONDS,
        "ticket_expires_at": api.services.clock() + TICKET_SECONDS,
        "ws_path": WS_PATH,
        "scope": identity.scope(capabilities),
    }
    return json_reply(answer, 201)


def _require_enabled(api: Api) -> None:
    if not enabled(api):
        raise HttpRefusal("browser_control_disabled", OFF)


async def _require_own_session(call: Call, session_id: str) -> None:
    stored = await call.api.services.store.get_session(session_id)
    if stored is None or stored.principal not in (None, call.principal):
        raise HttpRefusal("browser_control_session_forbidden", "this session cannot be controlled", param="session_id")


def _permitted(api: Api, wanted: Any) -> frozenset[str]:
    named = {name for name in wanted if isinstance(name, str)} if isinstance(wanted, list) else set()
    if named and named <= DEVELOPER_CAPABILITIES and not developer_mode(api.settings):
        raise HttpRefusal("browser_control_developer_mode_required", "this needs developer mode", param="capabilities")
    left = permitted(api.settings, named)
    if not left:
        raise HttpRefusal("browser_control_no_capabilities", "no permitted capability is left", param="capabilities")
    return left


# --- the connection --------------------------------------------------------------------------------------------------


async def serve_controller(api: Api, request: WebSocketRequest) -> None:
    """A handshake on ``WS_PATH``. The ticket is the authentication, whatever page the browser shows."""
    if not enabled(api):
        await _reject(request, HttpRefusal("browser_control_disabled", OFF))
        return
    ticket = _ticket_of(api, request)
    if ticket is None:
        await _reject(request, Unauthorized())
        return
    channel = await request.accept(name="browser", subprotocol=PROTOCOL, ping_interval=PING_SECONDS)
    await ControllerConnection(api, channel, ticket).run()


async def _reject(request: WebSocketRequest, why: HermesError) -> None:
    """Before the upgrade, in the words of every other refusal."""
    error = http_error(why, WS_PATH)
    headers = ((b"content-type", JSON_TYPE.encode()), *SECURITY_HEADERS)
    await request.reject(error.status, encode(error_body(error)), headers)


def _ticket_of(api: Api, request: WebSocketRequest) -> Ticket | None:
    tickets = [name for name in request.subprotocols if name.startswith(TICKET_PROTOCOL)]
    if "ticket" in request.query or PROTOCOL not in request.subprotocols or len(tickets) != 1:
        return None
    return api.browsers.redeem(tickets[0].removeprefix(TICKET_PROTOCOL))


class ControllerConnection:
    """One accepted connection of a controller."""

    def __init__(self, api: Api, channel: WebSocketChannel, ticket: Ticket) -> None:
        self._broker = api.browsers
        self._channel = channel
        self._tree = ConnectionTree("browser controller", max_requests=1)
        # Kept: the broker recognises a connection by this very object.
        self._send: Send = self._write
        self._controller: Controller = self._broker.attach(ticket.identity, ticket.capabilities, self._send)
        self._detached = False

    async def run(self) -> None:
        try:
            await self._tree.run(read=self._read, write=self._channel.run_writer, farewell=self._channel.aclose)
        finally:
            self._broker.lost(self._controller, self._send)

    def _write(self, method: str, params: Mapping[str, Any]) -> None:
        self._channel.send_nowait(encode({"method": method, "params": dict(params)}))

    async def _read(self) -> None:
        for name, companion in self._channel.companions():
            self._tree.start_companion(companion, name=name)
        while True:
            line = await self._channel.receive()
            if line is None:
                return
            if isinstance(line, bytes):
                self._take(line)

    def _take(self, line: bytes) -> None:
        """A frame; what is malformed, unknown or from a connection that was replaced is ignored."""
        try:
            frame = decode(line)
        except NotJson:
            return
        params = frame.get("params") if isinstance(frame, dict) else None
        if not isinstance(params, dict) or not self._broker.owns(self._controller, self._send):
            return
        match frame.get("method"):
            case "browser.controller.result":
                self._result(params)
            case "browser.controller.heartbeat":
                nonce = params.get("nonce")
                if isinstance(nonce, str) and 1 <= len(nonce) <= MAX_NONCE:
                    self._write("browser.controller.heartbeat", {"nonce": nonce, "ok": True})
            case "browser.controller.cancel":
                self._broker.gave_up(self._controller, params.get("tool_call_id"))
            case "browser.controller.detach":
                self._write("browser.controller.detach", {"ok": True})
                self._broker.detach(self._controller)
            case _:
                return

    def _result(self, params: Mapping[str, Any]) -> None:
        answer: Mapping[str, Any] | BrowserFailure = {"result": params.get("result")}
        if params.get("ok") is not True:
            error = params.get("error")
            text = error if isinstance(error, str) else encode(error).decode()
            answer = BrowserFailure("rejected", text[:MAX_ERROR])
        self._broker.answered(self._controller, params.get("command_id"), answer)


# --- artifacts -------------------------------------------------------------------------------------------------------


async def upload(call: Call) -> Reply:
    await trio.lowlevel.checkpoint()
    api = call.api
    _require_enabled(api)
    content_type = call.headers.get("content-type", "").split(";")[0].strip().lower()
    if content_type not in MIME_TYPES:
        raise HttpRefusal("artifact_mime_rejected", f"{content_type or 'no type'} is not accepted")
    name = call.headers.get("x-artifact-filename", "").strip().replace("/", "_").replace("\\", "_")[:MAX_FILENAME]
    if not name or not call.body:
        raise HttpRefusal("artifact_rejected", "X-Artifact-Filename and a body are required")
    if len(call.body) > MAX_BYTES:
        raise HttpRefusal("artifact_too_large", f"at most {MAX_BYTES} bytes")
    if not api.artifacts.may_upload(call.principal):
        raise HttpRefusal("artifact_rate_limited", "too many uploads in this minute")
    artifact = api.artifacts.put(_owner(call), name, content_type, call.body)
    now = api.services.clock()
    answer = {
        "artifact_id": artifact.artifact_id,
        "sha256": artifact.sha256,
        "size_bytes": len(artifact.data),
        "content_type": artifact.content_type,
        "filename": artifact.filename,
        "created_at": now,
        "expires_at": now + ARTIFACT_SECONDS,
        "ttl_seconds": int(ARTIFACT_SECONDS),
        "one_shot": True,
        "download_path": f"/v1/artifacts/download/{artifact.artifact_id}",
    }
    return json_reply(answer, 201)


async def download(call: Call) -> Reply:
    await trio.lowlevel.checkpoint()
    _require_enabled(call.api)
    artifact_id = call.path["artifact_id"]
    if len(artifact_id) != 32 or not all(char in "0123456789abcdef" for char in artifact_id):
        raise HttpRefusal("artifact_rejected", "this is no artifact id")
    held = call.api.artifacts.look(artifact_id)
    if held is None:
        raise HttpRefusal("artifact_not_found", "there is no such artifact, or it was taken")
    if held.owner != _owner(call):
        raise HttpRefusal("artifact_rejected", "this artifact belongs to somebody else")
    call.api.artifacts.take(artifact_id)
    if Artifacts.is_expired(held):
        raise HttpRefusal("artifact_expired", "the artifact has expired")
    headers = {
        "X-Artifact-Sha256": held.sha256,
        "X-Artifact-Id": held.artifact_id,
        "Content-Disposition": 'attachment; filename="{}"'.format(
            "".join(c for c in held.filename if c.isalnum() or c in "._- ")
        ),
    }
    return Reply(200, held.data, headers, held.content_type)


def _owner(call: Call) -> tuple[str, str]:
    return call.principal, "local-api" if call.is_local else "remote-api"
