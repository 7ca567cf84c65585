"""``/v1/runs``: admit a turn, look at it, read its events, answer it, steer it, stop it (api-server §4)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from hermes.errors import (
    ApprovalNotActive,
    EmptyText,
    RunNotAcceptingSteer,
    RunNotActive,
)
from hermes.messages import Prompt, Row
from hermes.nurseries.run import Run, RunFrame, RunRequest
from hermes.nurseries.runs import RunEvents
from hermes.outcomes import CancelReason, Cause, RunStatus
from hermes.protocols.error_table import HttpRefusal
from hermes.protocols.http.call import Api, Call, Reply, boolish, json_reply, whole_number
from hermes.protocols.http.content import Conversation, explicit_history, input_conversation
from hermes.protocols.http.response_records import load_response
from hermes.protocols.http.run_wire import CHOICE_WORDS
from hermes.protocols.http.streaming import KEEPALIVE, KEEPALIVE_SECONDS, RECONNECT_MS, sse_reply
from hermes.protocols.http.turns import (
    cancels_on_disconnect,
    check_session_id,
    choose_model,
    limits_of,
    open_session,
    remember_session_key,
    session_key_of,
    session_of_key,
    start_run,
)
from hermes.protocols.wire.json_codec import decode, encode
from hermes.protocols.wire.sse import json_event, sse_comment, sse_retry
from hermes.records import dataclass

APPROVAL_CHOICES = ("once", "session", "always", "deny")
MAX_REQUEST_ID = 256


@dataclass(frozen=True, slots=True)
class RunBody:
    """A checked request to start a run."""

    body: Mapping[str, Any]
    said: Conversation
    history: tuple[Row, ...] | None
    session_id: str | None
    session_key: str | None
    instructions: str | None
    named_session: str | None
    """The session that the request itself names."""


async def create_run(call: Call) -> Reply:
    """The order of checks is api-server §4.2; the cap comes after the idempotency look-up."""
    if call.api.tree.draining.is_set():
        with call.api.runs.admit():
            pass
    session_key = session_key_of(call)
    body = call.json_object()
    key = _idempotency_key(call)
    checked = await _checked(call, body, session_key)
    cancel_on_leave = cancels_on_disconnect(call, default=False)
    run_id = call.api.services.ids("run")
    if key is None:
        run = await _start(call, checked, run_id, keyed=False, cancel_on_leave=cancel_on_leave)
    else:
        slot = f"runs:{key}"
        there = await call.api.runs.claim(
            call.principal, slot, _fingerprint(body, checked.named_session, session_key), run_id
        )
        if there is not None:
            return await _replayed(call, there)
        async with call.api.runs.starting(call.principal, slot, run_id):
            run = await _start(call, checked, run_id, keyed=True, cancel_on_leave=cancel_on_leave)
    headers = {"Location": f"/v1/runs/{run.run_id}", "X-Hermes-Session-Id": run.session.key}
    if session_key is not None:
        headers["X-Hermes-Session-Key"] = session_key
    answer = {"run_id": run.run_id, "status": "started", "replayed": False, "session_id": run.session.key}
    return json_reply(answer, 202, headers)


async def _start(call: Call, checked: RunBody, run_id: str, *, keyed: bool, cancel_on_leave: bool) -> Run:
    with call.api.runs.admit() as admission:
        session_id = checked.session_id or run_id
        session = await open_session(call.api, session_id, call.principal)
        model = await choose_model(call, checked.body, bare=True, session=session)
        prompt = Prompt(
            content=checked.said.prompt,
            source="api",
            asks_here=True,
            allow_clarify=boolish(checked.body.get("clarify")),
            system_extra=checked.instructions,
            model=model.model,
            provider=model.provider,
            exact_model=model.exact,
            model_options=model.options,
            history=checked.history,
            limits=limits_of(checked.body),
            owns_processes=True,
        )
        facts = {**model.facts(), "cancel_on_leave": cancel_on_leave}
        request = RunRequest(run_id, "run", call.principal, prompt, journaled=True, keyed=keyed, facts=facts)
        run = await start_run(call, admission, session_id, request, owned=False)
    if checked.body.get("previous_response_id") is None:
        await remember_session_key(call.api, call.principal, checked.session_key, session_id)
    return run


async def _replayed(call: Call, run_id: str) -> Reply:
    status = await call.api.runs.status(run_id, call.principal)
    answer = {"run_id": run_id, "status": status["status"], "replayed": True}
    return json_reply(answer, 202, {"Idempotency-Replayed": "true", "Location": f"/v1/runs/{run_id}"})


def _idempotency_key(call: Call) -> str | None:
    key = call.headers.get("idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= 255 or not all(33 <= ord(char) <= 126 for char in key):
        raise HttpRefusal("invalid_idempotency_key", "Idempotency-Key must be 1 to 255 visible ASCII characters")
    return key


def _fingerprint(body: Mapping[str, Any], session_id: str | None, session_key: str | None) -> str:
    """``session_id`` is the one that the request names, in its body or in the header: either says the same."""
    named = body if session_id is None else {**body, "session_id": session_id}
    canonical = encode(_sorted({"body": named, "session_key": session_key}))
    return hashlib.sha256(canonical).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


async def _checked(call: Call, body: dict[str, Any], session_key: str | None) -> RunBody:
    api = call.api
    now = api.services.clock()
    said = input_conversation(body.get("input"), now, bare_strings=False)
    if body.get("author") is not None and not isinstance(body["author"], dict):
        raise HttpRefusal("invalid_author", "author must be an object", param="author")
    history = explicit_history(body.get("conversation_history"), now)
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise HttpRefusal("invalid_system_message", "instructions must be a string", param="instructions")
    session_id = named_session = _session_id(call, body)
    previous = body.get("previous_response_id")
    if previous is not None:
        chained = await load_response(api, call.principal, str(previous))
        session_id = session_id or chained.session_id
        if history is None:
            # Not the session's own rows: what came after the chained response is no part of the chain.
            history = (*chained.rows, *said.history)
    if history is None and said.history:
        history = said.history
    if session_id is None:
        session_id = await session_of_key(api, call.principal, session_key)
    extra = "\n".join(text for text in (instructions, said.system) if text) or None
    return RunBody(body, said, history, session_id, session_key, extra, named_session)


def _session_id(call: Call, body: Mapping[str, Any]) -> str | None:
    named = body.get("session_id")
    header = call.label("x-hermes-session-id", "invalid_session_id")
    session_id = check_session_id(named) if named is not None else None
    if header is not None:
        header = check_session_id(header)
        if session_id is not None and session_id != header:
            raise HttpRefusal("session_conflict", "session_id and X-Hermes-Session-Id differ", param="session_id")
    return session_id or header


# --- looking ---------------------------------------------------------------------------------------------------------


async def get_run(call: Call) -> Reply:
    return json_reply(await call.api.runs.status(call.path["run_id"], call.principal))


async def run_events(call: Call) -> Reply:
    """The journal as server-sent events, from a cursor. Leaving ends the run only if the run or this reader said so."""
    api, run_id = call.api, call.path["run_id"]
    events = await api.runs.events(run_id, call.principal)
    after = _cursor(call)
    missing_from = await events.seek(after)
    stream = RunEventStream(api, run_id, events, named=boolish(call.query.get("named")))
    if missing_from is not None:
        stream.replay_truncated(missing_from, after)
    run = api.runs.find(run_id, call.principal)
    if run is not None:
        default = bool(run.facts.get("cancel_on_leave"))
        given = "x-hermes-on-disconnect" in call.headers
        if cancels_on_disconnect(call, default=default) if given else default:
            call.work.runs.append(run)
    return sse_reply(stream, {})


def _cursor(call: Call) -> int | None:
    """The last number the reader has; garbage counts as "from the start"."""
    for text in (call.headers.get("last-event-id"), call.query.get("after"), call.query.get("last_seq")):
        if text is not None:
            digits = text.strip()
            number = whole_number(digits.removeprefix("-"))
            return -1 if number is not None and digits.startswith("-") else number
    return None


class RunEventStream:
    """One reader of one run's events: ``: open``, numbered events, ``: stream closed``."""

    def __init__(self, api: Api, run_id: str, events: RunEvents, *, named: bool) -> None:
        self._api = api
        self._run_id = run_id
        self._events = events
        self._named = named
        self._first = [sse_comment("open"), sse_retry(RECONNECT_MS)]
        self._closed = False

    def replay_truncated(self, oldest: int, requested: int | None) -> None:
        """Say first that events behind the cursor are gone."""
        body = {
            "event": "replay.truncated",
            "run_id": self._run_id,
            "timestamp": self._api.services.clock(),
            "oldest_retained_seq": oldest,
        }
        if requested is not None:
            body["requested_seq"] = requested
        self._first.append(json_event(encode(body), event="replay.truncated" if self._named else None))

    async def next(self) -> bytes | None:
        if self._first:
            first, self._first = b"".join(self._first), []
            return first
        if self._closed:
            return None
        batch = await self._events.next(KEEPALIVE_SECONDS)
        pieces = [self._frame(seq, item) for seq, item in batch]
        if self._events.ended:
            self._closed = True
            pieces.append(sse_comment("stream closed"))
        elif not batch:
            pieces.append(KEEPALIVE)
        return b"".join(pieces)

    def close(self) -> None:
        self._closed = True

    def _frame(self, seq: int, item: RunFrame | bytes) -> bytes:
        if isinstance(item, RunFrame):
            return json_event(item.data, id=seq, event=item.name if self._named else None)
        return json_event(item, id=seq, event=decode(item)["event"] if self._named else None)


# --- acting ----------------------------------------------------------------------------------------------------------


async def stop_run(call: Call) -> Reply:
    """Stop it. Idempotent: a run that has ended answers with its status, unchanged."""
    runs, run_id = call.api.runs, call.path["run_id"]
    run = runs.find(run_id, call.principal)
    if run is None or run.record is not None:
        status = await runs.status(run_id, call.principal)
        if RunStatus(status["status"]).terminal:
            return json_reply(status)
        await runs.require_live(run_id, call.principal)
        raise RunNotActive
    run.cancel(CancelReason(Cause.RUN_STOP, _reason(call)))
    return json_reply({"run_id": run_id, "status": "stopping"})


def _reason(call: Call) -> str | None:
    """The caller's words; a body that is no JSON is ignored, as the route takes none."""
    if not call.body.strip():
        return None
    try:
        reason = call.json_object().get("reason")
    except HttpRefusal:
        return None
    return reason[:200] if isinstance(reason, str) and reason else None


async def approve_run(call: Call) -> Reply:
    run = await _answerable(call)
    body = call.json_object()
    choice = body.get("choice")
    word = choice.strip().lower() if isinstance(choice, str) else ""
    word = CHOICE_WORDS.get(word, word)
    if word not in APPROVAL_CHOICES:
        raise HttpRefusal(
            "invalid_approval_choice", "choice must be one of once, session, always, deny", param="choice"
        )
    request_id = _request_id(body)
    every = boolish(body.get("all")) or boolish(body.get("resolve_all"))
    resolved = run.respond_approval(word, request_id=request_id, every=every)
    answer = {"object": "hermes.run.approval_response", "run_id": run.run_id, "choice": word, "resolved": resolved}
    if request_id is not None:
        answer["request_id"] = request_id
    return json_reply(answer)


async def clarify_run(call: Call) -> Reply:
    """Answer an open clarification (ours): ``{"answers": {question id: text}, "request_id"?}``."""
    run = await _answerable(call)
    body = call.json_object()
    answers = body.get("answers")
    if not isinstance(answers, dict):
        raise HttpRefusal("invalid_request", "answers must be an object of question ids", param="answers")
    run.answer_clarify(answers, request_id=_request_id(body))
    return json_reply({"object": "hermes.run.clarify_response", "run_id": run.run_id, "resolved": 1})


async def _answerable(call: Call) -> Run:
    try:
        return await call.api.runs.require_live(call.path["run_id"], call.principal)
    except RunNotActive as error:
        # A run of another process: the answer belongs there, and the question stays open.
        raise ApprovalNotActive(error.message if error.data else None, data=error.data) from None


def _request_id(body: Mapping[str, Any]) -> str | None:
    if "request_id" not in body:
        return None
    value = body["request_id"]
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_REQUEST_ID:
        raise HttpRefusal("invalid_approval_request", "request_id must be a non-empty string", param="request_id")
    return value.strip()


async def steer_run(call: Call) -> Reply:
    """Queue text for the next tool boundary. The state of the run is looked at before the body."""
    try:
        run = await call.api.runs.require_live(call.path["run_id"], call.principal)
    except RunNotActive as error:
        raise RunNotAcceptingSteer(error.message if error.data else None, data=error.data) from None
    if run.kind == "chat":
        raise RunNotAcceptingSteer("a chat completion takes no steer input")
    if run.status is not RunStatus.RUNNING:
        raise RunNotAcceptingSteer(f"the run is {run.status.value}; only a running one takes steer input")
    body = call.json_object()
    text = _steer_text(next((body[name] for name in ("input", "message", "text") if body.get(name)), ""))
    try:
        accepted = run.steer(text)
    except EmptyText as error:
        raise HttpRefusal("invalid_steer_input", error.message) from None
    if not accepted:
        raise HttpRefusal("steer_not_accepted", "the turn is ending and takes no more steer input")
    return json_reply({"object": "hermes.run.steer", "run_id": run.run_id, "accepted": True})


def _steer_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = [part if isinstance(part, str) else part.get("text") for part in value if isinstance(part, str | dict)]
        return "\n".join(text for text in texts if isinstance(text, str) and text)
    return ""
