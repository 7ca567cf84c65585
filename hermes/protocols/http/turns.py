"""From a request to a turn: the session, the model, the disconnect policy, and the run that carries it.

Shared by every route that starts a turn. A request never is the turn: it starts a run, and owns only the right to end
it when its client goes away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, runtime_checkable

import trio

from hermes.agent.model_switch import ModelSwitch
from hermes.agent.ports import ResolvedModel, StoredSession
from hermes.errors import (
    HermesError,
    InvalidValue,
    ModelNotServed,
    ProviderNotConfigured,
    SessionClosing,
    StoredSessionNotFound,
)
from hermes.messages import Row, TurnLimits
from hermes.nurseries.model_names import meaning
from hermes.nurseries.run import Run, RunRequest
from hermes.nurseries.runs import Admission
from hermes.nurseries.session import Session
from hermes.outcomes import TurnRecord
from hermes.protocols.error_table import HttpRefusal
from hermes.protocols.http.browser_control import bound_to_browser
from hermes.protocols.http.call import Api, Call
from hermes.records import dataclass

SESSION_KEY_RECORD = "session_key"
SESSION_NAME_RECORD = "session_name"
SOURCE = "api_server"
MODEL_LOCK = "model_lock"
"""Key of ``model_config`` with the pair that the session is fixed to."""
SYSTEM_MESSAGE = "system_message"
"""Key of ``model_config`` with the system prompt that the session was made with."""
MAX_ID = 256
EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"})
CATALOG_WITHIN = 2.0
OWN_ROUTE = "route:"
"""Before an alias: the provider of a model route that has an endpoint or a key of its own."""
TRIES = 3
STREAM_WITHIN = 5.0
"""Seconds after which a stream begins although its prompt is not durable yet: no client waits ten for a byte."""


@runtime_checkable
class ModelLister(Protocol):
    """A model gateway that can list what an endpoint serves."""

    async def served_models(self, provider: str, *, refresh: bool = False) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """What a request chose. ``model`` and ``provider`` are for the prompt (None: the session's), ``shown`` is echoed,
    ``runs`` is the model that will run."""

    shown: str
    runs: str
    model: str | None = None
    provider: str | None = None
    options: Mapping[str, Any] | None = None
    source: str = "global"
    requested: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False
    """This model or none: it is locked, and no fallback takes its place."""

    def facts(self) -> dict[str, Any]:
        facts = {"model": self.shown, "route_source": self.source, "requested": dict(self.requested)}
        return {**facts, "model_lock": "confirmed"} if self.exact else facts


# --- sessions --------------------------------------------------------------------------------------------------------


def check_session_id(value: Any, code: str = "invalid_session_id") -> str:
    """A session id that may be a key: text, not path-like, no control characters. Raises ``HttpRefusal``."""
    bad = not isinstance(value, str) or not value.strip() or len(value) > MAX_ID
    if not bad:
        bad = (
            any(ord(c) < 32 or ord(c) == 127 for c in value)
            or ".." in value
            or value.strip() == "."
            or "/" in value
            or "\\" in value
        )
    if bad:
        raise HttpRefusal(code, f"a session id is text of at most {MAX_ID} characters, and no path", param="session_id")
    text: str = value.strip()
    return text


async def open_session(api: Api, key: str, principal: str) -> Session:
    """The live session of this id; loaded, or made if there is none: then its first prompt stores it. Another
    principal's is not there."""
    registry = api.tree.registry
    try:
        session = await registry.resume(key)
    except StoredSessionNotFound:
        # Looked up again in the same breath: another request may have made it meanwhile.
        session = registry.by_key(key) or registry.create(
            source=SOURCE, cwd=api.options.cwd, key=key, principal=principal
        )
    check_owner(session.stored.principal, principal)
    session.parks = True
    session.system_message = session.system_message or session.stored.model_config.get(SYSTEM_MESSAGE)
    return session


def check_owner(owner: str | None, principal: str) -> None:
    if owner is not None and owner != principal:
        raise StoredSessionNotFound("session not found")


def session_key_of(call: Call) -> str | None:
    """The name of the conversation: our own header, or one that the operator has mapped to it (DEV-46)."""
    for header in ("x-hermes-session-key", *call.api.server.session_key_headers):
        value = call.label(header.lower(), "invalid_session_key")
        if value is not None:
            return value
    return None


def session_key_id(principal: str, key: str) -> str:
    return hashlib.sha256(f"{principal}\0{key}".encode()).hexdigest()


async def session_of_key(api: Api, principal: str, key: str | None) -> str | None:
    """The last session of a named conversation (``X-Hermes-Session-Key``). A name that is new is given one here: of two
    first requests at once both find the same."""
    if key is None:
        return None
    store, record_id = api.services.store, session_key_id(principal, key)
    record = await store.get_record(SESSION_KEY_RECORD, record_id)
    if record is None:
        ours = {"session_id": api.services.ids("session")}
        record = await store.claim_record(SESSION_KEY_RECORD, record_id, ours, owner=principal) or ours
    return str(record["session_id"])


async def remember_session_key(api: Api, principal: str, key: str | None, session_id: str) -> None:
    """This session is the last one of that name, unless it already has another name."""
    if key is None:
        return
    store, record_id = api.services.store, session_key_id(principal, key)
    named = await store.claim_record(SESSION_NAME_RECORD, session_id, {"key": record_id}, owner=principal)
    if named is None or named["key"] == record_id:
        await store.put_record(SESSION_KEY_RECORD, record_id, {"session_id": session_id}, owner=principal)


async def forget_session_key(api: Api, session_id: str) -> None:
    """The session is gone: the name that led to it leads nowhere."""
    store = api.services.store
    named = await store.get_record(SESSION_NAME_RECORD, session_id)
    if named is None:
        return
    await store.delete_record(SESSION_NAME_RECORD, session_id)
    newest = await store.get_record(SESSION_KEY_RECORD, str(named["key"]))
    if newest is not None and newest["session_id"] == session_id:
        await store.delete_record(SESSION_KEY_RECORD, str(named["key"]))


# --- model choice ----------------------------------------------------------------------------------------------------


def text_member(body: Mapping[str, Any], name: str) -> str | None:
    """A member that is text, without blanks around it; None if it is not there or empty. Raises ``HttpRefusal``."""
    value = body.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise HttpRefusal("invalid_request", f"{name} must be a string", param=name)
    return value.strip() or None


async def choose_model(
    call: Call, body: Mapping[str, Any], *, bare: bool, session: Session | None = None
) -> ModelChoice:
    """The model of this request (api-server §6.5). ``bare``: a model without provider is always meant.

    Otherwise it is honoured when it names something that is served, and is a mere label if not: frontends send names
    they were built with. Raises ``HttpRefusal`` and ``ModelNotServed``.
    """
    api = call.api
    model, provider = text_member(body, "model"), text_member(body, "provider")
    requested = {"provider": provider or "", "model": model or ""}
    shown = model or api.model_id
    source, refusal = "global", None
    route = api.server.model_routes.get(model) if model else None
    if provider is not None and provider.startswith(OWN_ROUTE):
        # A route's key pays for the route's model, and for no other.
        raise HttpRefusal("invalid_provider", f"unknown model provider: {provider}", param="provider")
    if route is not None and route.get("model"):
        alias = model or ""
        _check_route(alias, route, provider)
        own = any(route.get(key) for key in ROUTE_OWN)
        model, source = str(route["model"]), "model_routes"
        provider = f"{OWN_ROUTE}{alias}" if own else route.get("provider") or None
    elif model == api.model_id:
        model = None
    if source == "global" and (model or provider):
        source = "raw_request"
        meant = meaning(api.services, model, provider, session) if model else None
        if model and not provider and not bare and not await _is_served(api, model, meant):
            model, source, meant = None, "global", None
        if meant is not None and meant.success:
            model, provider = meant.new_model, meant.target_provider
        elif meant is not None:
            refusal = meant.error_message
    exact = False
    if not model and not provider and session is not None and session.stored.model:
        lock = model_lock_of(session.stored)
        source, exact = ("session_model", False) if lock is None else ("session_model_lock", True)
        if lock not in (None, (session.stored.model, session.stored.provider)):
            # Switched on another surface, which does not undo a lock.
            model, provider = lock
    resolved = await _resolve(api, model, provider, session)
    if refusal is not None and not resolved.demo:
        raise HttpRefusal("invalid_request", refusal, param="model")
    return ModelChoice(shown, resolved.model, model, provider, model_options(body) or None, source, requested, exact)


def model_lock_of(stored: StoredSession) -> tuple[str, str | None] | None:
    """The pair that a session is fixed to (api-server §5.7), if it is."""
    lock = stored.model_config.get(MODEL_LOCK)
    if isinstance(lock, Mapping):
        return str(lock["model"]), lock["provider"]
    return (stored.model, stored.provider) if lock and stored.model else None


ROUTE_OWN = ("api_key", "base_url", "key_env")
"""What makes a route a provider of its own."""


def _check_route(alias: str, route: Mapping[str, Any], provider: str | None) -> None:
    if not provider:
        return
    pinned = route.get("provider")
    if any(route.get(key) for key in ROUTE_OWN) or (pinned and pinned != provider):
        raise HttpRefusal("model_route_conflict", f"{alias} is served by its own provider", param="provider")


async def _is_served(api: Api, model: str, meant: ModelSwitch | None) -> bool:
    if not api.server.direct_model_requests or (meant is not None and not meant.success):
        return False
    models = api.services.models
    try:
        if meant is None:
            resolved = await models.resolve(model, None)
        else:
            resolved = await models.resolve(meant.new_model, meant.target_provider)
            if not resolved.provider.startswith("custom"):
                # A name that says where it belongs is no label.
                named = meant.new_model != model and (":" in model or "/" in model)
                return (meant.known or named) and not resolved.demo
        if resolved.model != model or not resolved.provider.startswith("custom"):
            return not resolved.demo
        if not isinstance(models, ModelLister):
            return meant is None or meant.known
        if meant is not None and meant.known and not {"/", ":"} & set(model):
            # Declared by the user, whether the endpoint lists it or not.
            return True
        served: Sequence[Any] = ()
        with trio.move_on_after(CATALOG_WITHIN):
            served = await models.served_models(resolved.provider)
        return any(getattr(entry, "id", entry) == model for entry in served)
    except HermesError:
        return False


async def is_unlisted(api: Api, resolved: ResolvedModel) -> bool:
    """The endpoint lists what it serves, and this is not among it. Who lists nothing may serve anything."""
    models = api.services.models
    if not resolved.provider.startswith("custom") or not isinstance(models, ModelLister):
        return False
    meant = meaning(api.services, resolved.model, resolved.provider)
    if meant is not None and meant.known:
        return False
    served: Sequence[Any] = ()
    try:
        with trio.move_on_after(CATALOG_WITHIN):
            served = await models.served_models(resolved.provider)
    except HermesError:
        return False
    return bool(served) and all(getattr(entry, "id", entry) != resolved.model for entry in served)


async def _resolve(api: Api, model: str | None, provider: str | None, session: Session | None) -> ResolvedModel:
    """Refuse now what the turn would fail on: the status can still say it."""
    if model is None and provider is None and session is not None:
        model, provider = session.stored.model, session.stored.provider
    try:
        resolved = await api.services.models.resolve(model, provider)
        api.services.models.provider_for(resolved)
    except InvalidValue as error:
        raise HttpRefusal("invalid_provider", error.message, param="provider") from None
    except ProviderNotConfigured as error:
        if provider is None:
            raise
        raise HttpRefusal("provider_auth_failed", error.message, param="provider") from None
    except ModelNotServed:
        raise
    return resolved


def model_options(body: Mapping[str, Any]) -> dict[str, Any]:
    """Request-scoped options (api-server §6.6); what is unknown is ignored."""
    options: dict[str, Any] = {}
    given = body.get("model_options")
    given = given if isinstance(given, dict) else {}
    reasoning = given.get("reasoning")
    reasoning = reasoning if isinstance(reasoning, dict) else {}
    own = body.get("reasoning")
    effort = (
        reasoning.get("effort")
        or given.get("reasoning_effort")
        or body.get("reasoning_effort")
        or (own.get("effort") if isinstance(own, dict) else None)
    )
    if reasoning.get("enabled") is False:
        effort = "none"
    if isinstance(effort, str) and effort.lower() in EFFORTS:
        options["reasoning_effort"] = effort.lower()
    tier = given.get("service_tier")
    if isinstance(tier, str) and tier:
        options["service_tier"] = tier
    elif given.get("fast") is True:
        options["service_tier"] = "priority"
    return options


def limits_of(body: Mapping[str, Any]) -> TurnLimits:
    """Deadlines and budgets that the caller sets. Raises ``HttpRefusal``."""
    values: dict[str, Any] = {}
    for name, whole in (
        ("deadline_s", False),
        ("max_iterations", True),
        ("max_tokens_total", True),
        ("max_cost_usd", False),
    ):
        value = body.get(name)
        if value is None:
            continue
        number = isinstance(value, int) or (isinstance(value, float) and not whole)
        if isinstance(value, bool) or not number or not value > 0:
            raise HttpRefusal("invalid_limits", f"{name} must be a positive number", param=name)
        values[name] = value
    return TurnLimits(**values)


# --- starting --------------------------------------------------------------------------------------------------------


def cancels_on_disconnect(call: Call, *, default: bool) -> bool:
    """Whether the client takes the turn along when it goes (decisions, "disconnect policy")."""
    word = call.headers.get("x-hermes-on-disconnect", "").strip().lower()
    if not word:
        word = call.api.server.on_disconnect or ("cancel" if default else "continue")
    if word not in ("cancel", "continue"):
        raise HttpRefusal("invalid_request", "X-Hermes-On-Disconnect must be cancel or continue")
    return word == "cancel"


async def start_run(
    call: Call, admission: Admission, key: str, request: RunRequest, *, owned: bool, streams: bool = False
) -> Run:
    """Submit the prompt to the session of this id and, if a turn starts at once, wait until it is durable.

    Raises what refuses it. ``owned``: the run ends when the client of this request goes away. ``streams``: when
    becoming durable takes long, the stream begins without it, so that its keepalives flow.
    """
    patience = STREAM_WITHIN if streams else float("inf")
    request = replace(request, prompt=bound_to_browser(call, request.prompt, key))
    for _ in range(TRIES):
        session = await open_session(call.api, key, call.principal)
        try:
            run = admission.start(session, request)
        except SessionClosing:
            # Closed between the look-up and the submit: what comes next is a new life of the same session.
            await session.wait_closed()
            continue
        if owned:
            call.work.runs.append(run)
        call.api.metrics.turn_started(request.kind)
        if run.submission.status == "streaming":
            with trio.move_on_after(patience):
                await run.submission.wait_accepted()
        return run
    raise SessionClosing


def rows_of(run: Run, record: TurnRecord) -> list[Row]:
    """The rows that this turn stored, its prompt left out."""
    wanted = set(record.row_ids) - {record.user_row_id}
    return [row for row in run.session.rows if row.row_id in wanted]


def reasoning_of(run: Run, record: TurnRecord) -> str:
    """The turn's reasoning, its blocks joined by a blank line."""
    blocks = [row.reasoning or row.reasoning_content for row in rows_of(run, record) if row.role == "assistant"]
    return "\n\n".join(block for block in blocks if block)
