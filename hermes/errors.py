"""The one hierarchy of domain errors.

A domain error says which condition holds, in words that a person can act on, and carries typed ``data`` where a
machine should act. Which number or status it becomes on a wire is decided once, in ``protocols/error_table.py``.
A cancelled turn, a failed tool and a declined question are not errors: they are an outcome, a tool result and an
answer (architecture, "Errors").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class HermesError(Exception):
    """Base of every error a client may be told about.

    Parameters: ``message``, one sentence without secrets, server paths or tracebacks; ``data``, a JSON object that
    the wire form carries beside the message, or None.
    """

    default_message = "the request failed"

    def __init__(self, message: str | None = None, *, data: Mapping[str, Any] | None = None) -> None:
        self.message = message or self.default_message
        self.data: dict[str, Any] | None = dict(data) if data is not None else None
        super().__init__(self.message)


# --- the caller must change the request ------------------------------------------------------------------------------


class InvalidRequest(HermesError):
    """The request cannot succeed as it is, whatever the state of the server."""

    default_message = "invalid request"


class InvalidParams(InvalidRequest):
    """A parameter is missing, of the wrong type or out of range."""

    default_message = "invalid parameters"


class UnknownParameter(InvalidRequest):
    """A parameter that the method's contract does not declare."""

    def __init__(self, key: str) -> None:
        super().__init__(f"unknown parameter: {key}", data={"key": key})


class MissingSessionId(InvalidRequest):
    """A stored-session method was called without its session id."""

    default_message = "session_id required"


class EmptyText(InvalidRequest):
    """Text is required and was empty."""

    default_message = "text is required"


class InvalidRewind(InvalidRequest):
    """The rewind parameters are malformed or contradict themselves."""

    default_message = "invalid rewind target"


class RewindNotConfirmed(InvalidRequest):
    """A rewind target came without ``confirm_truncate: true``."""

    default_message = "truncation needs confirm_truncate"


class EmptyRewindNotConfirmed(InvalidRequest):
    """The rewind would leave nothing and ``confirm_empty_truncate: true`` is missing."""

    default_message = "this would empty the conversation; it needs confirm_empty_truncate"


class ModelNotServed(InvalidRequest):
    """The provider does not serve this model (gateway §3.3)."""

    def __init__(self, model: str, provider: str, suggestions: tuple[str, ...] = ()) -> None:
        hint = f"; try {', '.join(suggestions)}" if suggestions else ""
        super().__init__(
            f"{model} is not a model of provider {provider}{hint}",
            data={"model": model, "provider": provider, "suggestions": list(suggestions)},
        )


class InvalidValue(InvalidRequest):
    """A value (title, configuration value, choice) is not acceptable; the message says why."""


# --- it is not there -------------------------------------------------------------------------------------------------


class NotFound(HermesError):
    default_message = "not found"


class SessionNotFound(NotFound):
    """No live session has this id."""

    default_message = "session not found"


class StoredSessionNotFound(NotFound):
    """No stored session has this id or title."""

    default_message = "stored session not found"


class RunNotFound(NotFound):
    default_message = "run not found"


class ClientRequestNotFound(NotFound):
    default_message = "no such open request"


class NodeNotFound(NotFound):
    default_message = "no such node in the live tree"


class CommandNotFound(NotFound):
    default_message = "unknown command"


class ProcessNotFound(NotFound):
    default_message = "no such process"


class ResponseNotFound(NotFound):
    default_message = "response not found"


# --- right request, wrong moment -------------------------------------------------------------------------------------


class Conflict(HermesError):
    default_message = "the request conflicts with the current state"


class SessionBusy(Conflict):
    """A turn is running in this process (4009)."""

    default_message = "session busy"


class SessionOwnedElsewhere(Conflict):
    """Another process runs a turn of this session (4090)."""

    def __init__(self, owner: str, *, expires_at: float | None = None) -> None:
        super().__init__(
            f"another process is running a turn of this session ({owner})",
            data={"reason": "lease_held", "owner": owner, "expires_at": expires_at},
        )


class SessionClosing(Conflict):
    default_message = "session is closing"


class WorkStopped(Conflict):
    """What the caller waited for was stopped before it was done; nothing durable has changed."""

    default_message = "stopped before it was done"


class SessionExists(Conflict):
    default_message = "a session of this id exists already"


class NothingToBranch(Conflict):
    default_message = "the session has no history yet"


class StaleRewindTarget(Conflict):
    default_message = "rewind target is stale"


class RewindTargetMismatch(Conflict):
    default_message = "row id and ordinal name different turns"


class NothingToUndo(Conflict):
    default_message = "there is nothing to undo"


class RunNotAcceptingSteer(Conflict):
    default_message = "the run is not accepting steer input"


class RunNotActive(Conflict):
    default_message = "the run is not active in this process"


class ApprovalNotPending(Conflict):
    default_message = "no such approval is pending"


class ApprovalNotActive(Conflict):
    default_message = "the run is not live any more"


class ChoiceNotOffered(InvalidRequest):
    default_message = "this choice was not offered"


class IdempotencyConflict(Conflict):
    default_message = "the same key was used with a different request"


class TitleTaken(Conflict):
    default_message = "another session has this title"


class SessionIsLive(Conflict):
    default_message = "the session is live here; close it first"


# --- not allowed, not able, not now ----------------------------------------------------------------------------------


class Unauthorized(HermesError):
    default_message = "a valid key is required"


class Forbidden(HermesError):
    default_message = "not allowed"


class Unsupported(HermesError):
    """This server, this session or this client cannot do it."""

    default_message = "not supported here"


class Unavailable(HermesError):
    default_message = "temporarily unavailable"


class Overloaded(Unavailable):
    default_message = "too many requests at once"


class Draining(Unavailable):
    default_message = "the server is shutting down"


class StoreUnavailable(Unavailable):
    """The database refused a read or write.

    ``cause`` is one of full, locked, read_only, corrupt, io, foreign, newer.
    """

    def __init__(self, message: str, *, cause: str = "io") -> None:
        self.cause = cause
        super().__init__(message, data={"cause": cause})


class ChangeNotStored(StoreUnavailable):
    """A rewind, an undo or a branch could not be stored; nothing has changed."""


class CommandBlocked(InvalidRequest):
    """A shell command that this server does not run unasked."""

    default_message = "this command is not run here"


class CommandFailed(HermesError):
    """A command could not be run; the message says why."""

    default_message = "the command failed"


class ProviderNotConfigured(Unavailable):
    default_message = "no model provider is configured"


class TurnFailed(HermesError):
    """A turn that somebody waited for has failed; ``data`` says how (surfaces that answer with the end of a turn)."""

    default_message = "the turn failed"


# --- model providers: never raised to a client, becomes a turn's outcome --------------------------------------------


class ProviderError(HermesError):
    """A model request failed.

    ``error_class`` is a class of agent-core §1.13 (``rate_limit``, ``overloaded``, ``auth`` …), ``status`` the HTTP
    status or None, ``retry_after`` seconds the provider asked to wait or None, ``delivered`` whether visible text had
    already been streamed, ``reached_provider`` whether the request had been sent.
    """

    def __init__(
        self,
        message: str,
        *,
        error_class: str,
        status: int | None = None,
        retry_after: float | None = None,
        resets_at: float | None = None,
        provider: str = "",
        model: str = "",
        reached_provider: bool = True,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.status = status
        self.retry_after = retry_after
        self.resets_at = resets_at
        self.provider = provider
        self.model = model
        self.reached_provider = reached_provider
        self.details = dict(details or {})
