"""One table: every domain error, and what it is called on each wire.

Numbers and statuses of errors stand here and in ``wire/jsonrpc.py``, nowhere else. A row holds for a class and for all
below it that have no row of their own. A method may have its own number for an error (``METHOD_CODES``, gateway §2.2)
or for a parameter of the wrong type (``PARAM_CODES``). Whatever has no row is a bug of ours: the client gets a log id,
the log gets the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from hermes import errors as e
from hermes.protocols.wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    SERVER_ERROR,
    ErrorObject,
)
from hermes.records import dataclass

logger = logging.getLogger(__name__)

ACP_AUTH_REQUIRED: Final = -32000
ACP_INVALID_REQUEST: Final = -32600
ACP_NOT_FOUND: Final = -32002
ACP_NOT_NOW: Final = REQUEST_CANCELLED
"""Its schema: aborted by the caller, or because of resource constraints or shutdown. Nothing is broken here."""

UNKNOWN_KEY: Final = 4000
UNKNOWN_SESSION: Final = 4001
AUTHOR_SUPPLIED: Final = 4124
UNKNOWN_PROFILE: Final = 4064
NOT_SHOWN_HERE: Final = 4404
"""A client's own answer: this question is not being shown to the user there (gateway §7.6)."""

AUTHOR_KEYS: Final = frozenset(
    {"author", "author_id", "author_name", "user_id", "user_name", "sender", "sender_id", "sender_name", "identity"}
)


@dataclass(frozen=True, slots=True)
class Row:
    """One error on the three wires. ``http_type`` is the ``type`` of the HTTP envelope (api-server A.1)."""

    gateway: int
    acp: int
    http: int
    http_code: str | None = None
    http_type: str = "invalid_request_error"


def _server(gateway: int, http: int, http_code: str | None, acp: int = INTERNAL_ERROR) -> Row:
    return Row(gateway, acp, http, http_code, "server_error")


TABLE: Final[Mapping[type[e.HermesError], Row]] = {
    # the caller must change the request
    e.InvalidRequest: Row(INVALID_PARAMS, INVALID_PARAMS, 400, "invalid_request"),
    e.InvalidParams: Row(INVALID_PARAMS, INVALID_PARAMS, 400, "invalid_request"),
    e.UnknownParameter: Row(UNKNOWN_KEY, INVALID_PARAMS, 400, "unsupported_session_field"),
    e.MissingSessionId: Row(4006, INVALID_PARAMS, 400, "invalid_session_id"),
    e.EmptyText: Row(4002, INVALID_PARAMS, 400, "missing_message"),
    e.InvalidRewind: Row(4004, INVALID_PARAMS, 400, "invalid_rewind"),
    e.RewindNotConfirmed: Row(4029, INVALID_PARAMS, 400, "rewind_not_confirmed"),
    e.EmptyRewindNotConfirmed: Row(4028, INVALID_PARAMS, 400, "empty_rewind_not_confirmed"),
    e.ModelNotServed: Row(INVALID_PARAMS, INVALID_PARAMS, 400, "model_not_served"),
    e.InvalidValue: Row(4002, INVALID_PARAMS, 400, "invalid_value"),
    e.ChoiceNotOffered: Row(INVALID_PARAMS, INVALID_PARAMS, 400, "approval_choice_not_offered"),
    # it is not there
    e.NotFound: Row(4044, ACP_NOT_FOUND, 404, "not_found"),
    e.SessionNotFound: Row(UNKNOWN_SESSION, ACP_NOT_FOUND, 404, "session_not_found"),
    e.StoredSessionNotFound: Row(4007, ACP_NOT_FOUND, 404, "session_not_found"),
    e.RunNotFound: Row(4044, ACP_NOT_FOUND, 404, "run_not_found"),
    e.ClientRequestNotFound: Row(4002, ACP_NOT_FOUND, 404, "request_not_found"),
    e.NodeNotFound: Row(4044, ACP_NOT_FOUND, 404, "node_not_found"),
    e.CommandNotFound: Row(4011, ACP_NOT_FOUND, 404, "command_not_found"),
    e.ProcessNotFound: Row(4044, ACP_NOT_FOUND, 404, "process_not_found"),
    e.ResponseNotFound: Row(4044, ACP_NOT_FOUND, 404, "response_not_found"),
    # right request, wrong moment
    e.Conflict: Row(4009, ACP_INVALID_REQUEST, 409, "conflict"),
    e.SessionBusy: Row(4009, ACP_INVALID_REQUEST, 409, "session_active_turn"),
    e.SessionOwnedElsewhere: Row(4090, ACP_INVALID_REQUEST, 409, "session_active_turn"),
    e.SessionClosing: Row(4007, ACP_NOT_FOUND, 409, "session_closing"),
    e.SessionExists: Row(4009, ACP_INVALID_REQUEST, 409, "session_exists"),
    e.NothingToBranch: Row(4008, ACP_INVALID_REQUEST, 409, "nothing_to_branch"),
    e.StaleRewindTarget: Row(4018, ACP_INVALID_REQUEST, 409, "stale_rewind_target"),
    e.RewindTargetMismatch: Row(4030, ACP_INVALID_REQUEST, 409, "rewind_target_mismatch"),
    e.NothingToUndo: Row(4018, ACP_INVALID_REQUEST, 409, "nothing_to_undo"),
    e.RunNotAcceptingSteer: Row(4009, ACP_INVALID_REQUEST, 409, "run_not_accepting_steer"),
    e.RunNotActive: Row(4009, ACP_INVALID_REQUEST, 409, "run_not_active"),
    e.ApprovalNotPending: Row(4009, ACP_INVALID_REQUEST, 409, "approval_not_pending"),
    e.ApprovalNotActive: Row(4009, ACP_INVALID_REQUEST, 409, "approval_not_active"),
    e.IdempotencyConflict: Row(4009, ACP_INVALID_REQUEST, 409, "idempotency_key_conflict"),
    e.TitleTaken: Row(4022, ACP_INVALID_REQUEST, 400, "invalid_title"),
    e.SessionIsLive: Row(4023, ACP_INVALID_REQUEST, 409, "session_active_turn"),
    # not allowed, not able, not now
    e.Unauthorized: Row(SERVER_ERROR, ACP_AUTH_REQUIRED, 401, "gateway_auth_failed", "gateway_auth_error"),
    e.Forbidden: Row(4403, ACP_INVALID_REQUEST, 403, "forbidden"),
    e.Unsupported: Row(4010, METHOD_NOT_FOUND, 400, "unsupported"),
    e.Unavailable: _server(5035, 503, "unavailable"),
    e.Overloaded: Row(5035, ACP_NOT_NOW, 429, "rate_limit_exceeded", "rate_limit_error"),
    e.Draining: _server(5035, 503, "gateway_draining", ACP_NOT_NOW),
    e.StoreUnavailable: _server(5072, 503, "session_db_unavailable"),
    e.ChangeNotStored: _server(5008, 503, "session_db_unavailable"),
    e.ProviderNotConfigured: _server(SERVER_ERROR, 503, "provider_not_configured", ACP_AUTH_REQUIRED),
    e.ProviderError: Row(SERVER_ERROR, INTERNAL_ERROR, 502, "agent_error", "server_error"),
    e.CommandBlocked: Row(4005, INVALID_PARAMS, 400, "command_blocked"),
    e.CommandFailed: _server(5030, 500, None),
    e.TurnFailed: _server(SERVER_ERROR, 502, "agent_error"),
}

METHOD_CODES: Final[Mapping[str, Mapping[type[e.HermesError], int]]] = {
    "approval.respond": {e.InvalidValue: INVALID_PARAMS},
    "request.answer": {e.InvalidParams: 4002, e.InvalidValue: INVALID_PARAMS},
    "session.title": {e.EmptyText: 4021, e.InvalidValue: 4022, e.StoreUnavailable: 5007},
    "session.set_hidden": {e.InvalidParams: 4021},
    "session.delete": {e.StoreUnavailable: 5036},
    "session.list": {e.StoreUnavailable: 5006},
    "session.most_recent": {e.StoreUnavailable: 5006},
    "session.compress": {e.ProviderError: 5005, e.StoreUnavailable: 5005},
    "session.undo": {e.StoreUnavailable: 5008},
    "session.undo_rewind": {e.StoreUnavailable: 5008},
    "session.branch": {e.StoreUnavailable: 5008},
    "session.branch_whole": {e.StoreUnavailable: 5008},
    "session.branch_stored": {e.StoreUnavailable: 5008},
    "session.cwd.set": {e.InvalidParams: 4016, e.InvalidValue: 4017},
    "session.save": {e.Overloaded: 4131, e.InvalidValue: 5011},
    "prompt.background": {e.EmptyText: 4012},
    "prompt.btw": {e.EmptyText: 4012},
    "process.kill": {e.InvalidParams: 4012},
    "llm.oneshot": {e.EmptyText: 4030, e.InvalidValue: 4030, e.ProviderError: 5030},
    "cli.exec": {e.InvalidParams: 4003, e.CommandFailed: 5017, e.Unavailable: 5016},
    "shell.exec": {e.EmptyText: 4004, e.Unavailable: 5002, e.CommandFailed: 5003},
    "slash.exec": {
        e.EmptyText: 4004,
        e.CommandNotFound: 4018,
        e.CommandFailed: 4018,
        e.InvalidParams: 4004,
        e.NotFound: 4016,
    },
    "command.dispatch": {
        e.EmptyText: 4004,
        e.CommandNotFound: 4018,
        e.CommandFailed: 4018,
        e.NothingToUndo: 4018,
        e.InvalidParams: 4004,
        e.NotFound: 4016,
    },
    "image.attach": {e.InvalidParams: 4015, e.NotFound: 4016, e.InvalidValue: 4016},
    "image.attach_bytes": {e.InvalidParams: 4015, e.InvalidValue: 4017, e.Overloaded: 4018},
    "file.attach": {e.InvalidParams: 4015, e.NotFound: 4016, e.InvalidValue: 4017, e.Unavailable: 5028},
    "clipboard.paste": {e.Unavailable: 5027, e.InvalidValue: 5027},
    "paste.collapse": {e.EmptyText: 4004, e.Unavailable: 5027},
    "rollback.diff": {e.InvalidParams: 4014, e.NotFound: 4014, e.Unavailable: 5020},
    "rollback.restore": {e.InvalidParams: 4014, e.NotFound: 4014, e.Unavailable: 5020},
    "rollback.list": {e.Unavailable: 5020},
    "config.set": {e.Unavailable: 5001, e.InvalidParams: 4002},
    "config.get": {e.ProviderNotConfigured: 5013, e.Unavailable: 5001, e.InvalidParams: 4002},
    "model.save_key": {e.InvalidParams: 4001, e.Unsupported: 4003, e.Unavailable: 5034},
    "model.disconnect": {e.InvalidParams: 4001, e.Unsupported: 4003, e.NothingToUndo: 4005, e.Unavailable: 5034},
    "model.options": {e.Unavailable: 5033, e.ProviderError: 5033},
    "spawn_tree.save": {e.InvalidParams: 4000},
    "spawn_tree.load": {e.InvalidParams: 4000, e.Forbidden: 4030},
    "subagent.interrupt": {e.InvalidParams: 4000},
    "subagent.steer": {e.InvalidParams: 4000},
    "subagent.tail": {e.InvalidParams: 4000},
    "mcp.servers.test": {e.NotFound: 4064},
    "reload.mcp": {e.Unavailable: 5015},
    "reload.env": {e.Unavailable: 5015},
    "setup.runtime_check": {e.Conflict: 5097},
    "sudo.respond": {e.ClientRequestNotFound: 4009},
    "secret.respond": {e.ClientRequestNotFound: 4009},
    "clarify.respond": {e.ClientRequestNotFound: 4009},
    "terminal.read.respond": {e.ClientRequestNotFound: 4009},
}

PROMPT_STORE_CODES: Final[Mapping[str, int]] = {"full": 5070, "io": 5071, "locked": 5071, "read_only": 5071}
"""``prompt.submit`` could not store its prompt, by cause; any other cause is an unusable database (5072)."""

PARAM_CODES: Final[Mapping[tuple[str, str], int]] = {
    ("", "session_id"): UNKNOWN_SESSION,
    ("", "cols"): SERVER_ERROR,
    ("session.resume", "session_id"): 4006,
    ("session.delete", "session_id"): 4006,
    ("approval.received", "request_id"): 4006,
    ("session.steer", "text"): 4002,
    ("session.redirect", "text"): 4002,
    ("subagent.steer", "text"): 4002,
    ("subagent.steer", "subagent_id"): UNKNOWN_KEY,
    ("subagent.interrupt", "subagent_id"): UNKNOWN_KEY,
    ("subagent.tail", "subagent_id"): UNKNOWN_KEY,
    ("prompt.background", "text"): 4012,
    ("prompt.btw", "text"): 4012,
    ("process.kill", "process_id"): 4012,
    ("session.title", "title"): 4021,
    ("session.set_hidden", "hidden"): 4021,
    ("session.cwd.set", "cwd"): 4016,
    ("clarify.lock", "request_id"): 4002,
    ("clarify.lock", "question_id"): 4002,
    ("clarify.respond", "request_id"): 4009,
    ("sudo.respond", "request_id"): 4009,
    ("secret.respond", "request_id"): 4009,
    ("terminal.read.respond", "request_id"): 4009,
    ("request.answer", "id"): 4002,
    ("request.answer", "result"): 4002,
    ("model.save_key", "slug"): 4001,
    ("model.save_key", "api_key"): 4001,
    ("model.disconnect", "slug"): 4001,
    ("config.get", "key"): 4002,
    ("config.set", "key"): 4002,
    ("cli.exec", "argv"): 4003,
    ("command.dispatch", "name"): 4004,
    ("command.dispatch", "command"): 4004,
    ("command.resolve", "name"): 4011,
    ("slash.exec", "command"): 4004,
    ("shell.exec", "command"): 4004,
    ("paste.collapse", "text"): 4004,
    ("image.attach", "path"): 4015,
    ("image.detach", "path"): 4015,
    ("rollback.diff", "hash"): 4014,
    ("rollback.restore", "hash"): 4014,
    ("spawn_tree.save", "subagents"): UNKNOWN_KEY,
    ("spawn_tree.load", "path"): UNKNOWN_KEY,
}


def row_of(error: e.HermesError) -> Row:
    """The row of the nearest class that has one."""
    for kind in type(error).__mro__:
        row = TABLE.get(kind)
        if row is not None:
            return row
    return _server(SERVER_ERROR, 500, None)


# --- gateway ---------------------------------------------------------------------------------------------------------


def gateway_error(error: Exception, method: str, *, crash_code: int = SERVER_ERROR) -> ErrorObject:
    """The error object for whatever a gateway handler raised. ``crash_code``: what a bug of ours is there (§1.3.6)."""
    if not isinstance(error, e.HermesError):
        return _crash(error, method, crash_code)
    data: Any = error.data
    if isinstance(error, e.StoreUnavailable):
        data = {"code": "session_db_unavailable", "cause": error.cause, "details": error.message}
    return ErrorObject(_gateway_code(error, method), error.message, data)


def _gateway_code(error: e.HermesError, method: str) -> int:
    if isinstance(error, e.ChangeNotStored):
        return TABLE[e.ChangeNotStored].gateway
    if method == "prompt.submit" and isinstance(error, e.StoreUnavailable):
        return PROMPT_STORE_CODES.get(error.cause, 5072)
    own = METHOD_CODES.get(method, {})
    for kind in type(error).__mro__:
        if kind in own:
            return own[kind]
        if kind in TABLE:
            return TABLE[kind].gateway
    return SERVER_ERROR


MOST_FAULTS: Final = 1000
"""So many faults of one request are looked at: each takes longer than it took to find it, and everybody waits."""


def gateway_params_error(error: ValidationError, method: str) -> ErrorObject:
    """Parameters that the method's model refused: an undeclared key first, then the first that is wrong."""
    if error.error_count() > MOST_FAULTS:
        return ErrorObject(INVALID_PARAMS, f"{method}: {error.error_count()} parameters are wrong")
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    for fault in faults:
        if fault["type"] == "extra_forbidden":
            key = ".".join(map(str, fault["loc"]))
            if method == "prompt.submit" and key in AUTHOR_KEYS:
                return ErrorObject(AUTHOR_SUPPLIED, f"{key}: the author of a turn is who is connected")
            return ErrorObject(UNKNOWN_KEY, f"{method}: unknown parameter: {key}")
    fault = faults[0]
    key = str(fault["loc"][0]) if fault["loc"] else ""
    if key == "profile":
        return ErrorObject(UNKNOWN_PROFILE, "unknown profile; this server has only the profile 'default'")
    code = PARAM_CODES.get((method, key), PARAM_CODES.get(("", key), INVALID_PARAMS))
    if code == UNKNOWN_SESSION:
        return ErrorObject(code, "session not found")
    return ErrorObject(code, _params_message(faults))


# --- ACP -------------------------------------------------------------------------------------------------------------


def acp_error(error: Exception, method: str) -> ErrorObject:
    """The error object for whatever an ACP handler raised."""
    if not isinstance(error, e.HermesError):
        return _crash(error, method, INTERNAL_ERROR)
    return ErrorObject(row_of(error).acp, error.message, error.data)


def acp_params_error(error: ValidationError, method: str) -> ErrorObject:
    """Parameters that the method's model refused."""
    if error.error_count() > MOST_FAULTS:
        return ErrorObject(INVALID_PARAMS, f"{method}: {error.error_count()} parameters are wrong")
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return ErrorObject(INVALID_PARAMS, f"{method}: {_params_message(faults)}")


# --- HTTP ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpError:
    """An error of the HTTP surface: status and the members of its envelope (api-server A.1)."""

    status: int
    message: str
    code: str | None
    type: str
    param: str | None = None
    data: Mapping[str, Any] | None = None


class HttpRefusal(e.HermesError):
    """A condition that only the HTTP surface has. ``code`` names its row in ``HTTP_CODES``; ``param`` the member of the
    request that is wrong."""

    def __init__(
        self, code: str, message: str, *, param: str | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, data=data)
        self.code = code
        self.param = param


HTTP_CODES: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        (
            *("invalid_json", "invalid_request", "missing_messages", "missing_input", "no_user_message"),
            *("invalid_history", "conflicting_parameters", "model_route_conflict", "invalid_session_id"),
            *("invalid_session_key", "session_conflict", "unsupported_content_type", "invalid_image_url"),
            *("invalid_content_part", "invalid_content_length", "invalid_idempotency_key", "invalid_author"),
            *("invalid_approval_choice", "invalid_approval_request", "invalid_steer_input", "invalid_system_prompt"),
            *("invalid_title", "unsupported_session_field", "invalid_session_field", "invalid_pagination"),
            *("missing_message", "invalid_system_message", "missing_model", "invalid_provider", "invalid_limits"),
            *("browser_control_protocol_unsupported", "browser_control_invalid_registration", "artifact_rejected"),
            *("browser_control_no_capabilities",),
        ),
        400,
    ),
    "gateway_auth_failed": 401,
    "browser_control_auth_required": 403,
    "browser_control_session_forbidden": 403,
    "browser_control_developer_mode_required": 403,
    "not_found": 404,
    "endpoint_not_supported": 404,
    "model_not_found": 404,
    "browser_control_disabled": 404,
    "artifact_not_found": 404,
    "method_not_allowed": 405,
    "body_too_slow": 408,
    "session_exists": 409,
    "steer_not_accepted": 409,
    "run_cancelled": 409,
    "model_lock_unavailable": 409,
    "artifact_expired": 410,
    "body_too_large": 413,
    "artifact_too_large": 413,
    "artifact_mime_rejected": 415,
    "provider_rate_limited": 429,
    "artifact_rate_limited": 429,
    "model_options_failed": 500,
    "server_error": 500,
    "agent_incomplete": 502,
    "provider_auth_failed": 502,
}
"""Codes that no domain error stands for, with their status (api-server A.2)."""


def http_type(status: int) -> str:
    """The ``type`` of the envelope for a status (api-server A.1)."""
    if status == 401:
        return "gateway_auth_error"
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def http_error(error: Exception, where: str) -> HttpError:
    """What an HTTP route answers for whatever it raised. ``where`` names the route in the log."""
    if isinstance(error, HttpRefusal):
        status = HTTP_CODES[error.code]
        return HttpError(status, error.message, error.code, http_type(status), error.param, error.data)
    if not isinstance(error, e.HermesError):
        fault = _crash(error, where, INTERNAL_ERROR)
        return HttpError(500, fault.message, None, "server_error")
    row = row_of(error)
    return HttpError(row.http, error.message, row.http_code, row.http_type, data=error.data)


# --- shared ----------------------------------------------------------------------------------------------------------


def _crash(error: Exception, where: str, code: int) -> ErrorObject:
    log_id = f"{id(error) & 0xFFFFFFFF:08x}"
    logger.error("%s failed (log id %s)", where, log_id, exc_info=error)
    return ErrorObject(code, f"internal error; the server's log has the details under {log_id}", {"log_id": log_id})


def _params_message(faults: list[Any]) -> str:
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'params'}: {fault['msg']}" for fault in faults[:3])
