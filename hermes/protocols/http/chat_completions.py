"""``POST /v1/chat/completions``, streaming and not (api-server §2)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any

from hermes.agent.ports import DeltaKind, ModelRequest
from hermes.errors import IdempotencyConflict, StoredSessionNotFound
from hermes.events import (
    ClientRequestOpened,
    ReasoningDelta,
    SessionEvent,
    StatusUpdate,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from hermes.messages import Prompt, Row
from hermes.nurseries.run import Run, RunRequest
from hermes.nurseries.runs import Admission
from hermes.nurseries.turn_feed import TurnFeed
from hermes.outcomes import Cancelled, Cause, Completed, Failed, TurnRecord, Usage
from hermes.protocols.error_table import HttpRefusal
from hermes.protocols.http.call import Api, Call, Ended, Reply, boolish, header_text, json_reply
from hermes.protocols.http.content import Conversation, chat_conversation
from hermes.protocols.http.run_wire import approval_request, flags, is_hidden_tool
from hermes.protocols.http.streaming import TurnStream, frame, sse_reply
from hermes.protocols.http.turns import (
    ModelChoice,
    cancels_on_disconnect,
    check_session_id,
    choose_model,
    limits_of,
    open_session,
    reasoning_of,
    remember_session_key,
    session_key_of,
    start_run,
)
from hermes.protocols.wire.json_codec import encode
from hermes.protocols.wire.sse import on_one_line
from hermes.records import dataclass

DONE = b"data: [DONE]\n\n"
LIMIT_CAUSES = (Cause.BUDGET, Cause.DEADLINE)
RATE_CLASSES = frozenset({"rate_limit", "upstream_rate_limit", "billing"})
AUTH_CLASSES = frozenset({"auth", "auth_permanent"})
IDEMPOTENT_SECONDS = 300.0
CLAIMS = 5
MAX_ENDED = 1000
TOLD_OF_END = ("completed", "partial", "interrupted", "failed", "turn_exit_reason", "cause", "reason", "error")
FINGERPRINTED = (
    *("model", "provider", "model_options", "messages", "tools", "tool_choice", "stream", "input", "instructions"),
    *("previous_response_id", "conversation", "conversation_history", "store", "truncation"),
    *("reasoning", "reasoning_effort", "deadline_s", "max_iterations", "max_tokens_total", "max_cost_usd"),
)
TASK_PREFIX = "### Task:"
STRICT_CLIENTS = ("ai-sdk", "ai/", "jan", "boltai", "opencode")
EMOJI: Mapping[str, str] = {"terminal": "💻", "read_file": "📖", "write_file": "✍️", "patch": "🩹", "search_files": "🔎"}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A checked request."""

    body: Mapping[str, Any]
    said: Conversation
    stream: bool
    include_usage: bool
    named_frames: bool
    session_id: str
    session_header: str | None
    session_key: str | None
    model: ModelChoice


async def create_chat_completion(call: Call) -> Reply:
    with call.api.runs.admit() as admission:
        request = await _checked(call)
        if is_auxiliary(call, request.body, stream=request.stream):
            return await auxiliary_reply(call, request)
        feed = TurnFeed()
        run_request = RunRequest(
            run_id=call.api.services.ids("chatcmpl"),
            kind="chat",
            principal=call.principal,
            prompt=_prompt(call, request),
            facts=request.model.facts(),
            told_at_end=not request.stream,
            feeds=(feed,) if request.stream else (),
        )
        key = call.headers.get("idempotency-key", "").strip()
        if request.stream:
            owned = cancels_on_disconnect(call, default=True)
            run = await _started(call, admission, request, run_request, owned=owned)
            await remember_session_key(call.api, call.principal, request.session_key, run.session.key)
            return sse_reply(
                ChatStream(call.api, request, run, feed), answer_headers(request, run.session.key, request.model.runs)
            )
        owned = cancels_on_disconnect(call, default=not key)
        if key:
            replayed = await claim_or_find(call, "chat", key, request.body, run_request.run_id)
            if replayed is not None:
                return await _replay(call, request, replayed)
            run_request = replace(run_request, keyed=True)
        async with starting(call, "chat", key, run_request.run_id):
            run = await _started(call, admission, request, run_request, owned=owned)
        await remember_session_key(call.api, call.principal, request.session_key, run.session.key)
    record = await run.wait_ended()
    return completion_reply(call.api, request, ended_of(run, record))


async def _started(
    call: Call, admission: Admission, request: ChatRequest, run_request: RunRequest, *, owned: bool
) -> Run:
    try:
        return await start_run(call, admission, request.session_id, run_request, owned=owned, streams=request.stream)
    except StoredSessionNotFound:
        if request.session_header is not None:
            raise
    # Whoever had the key before has begun a chat with the same words; his session is not ours.
    own = derived_session_id(request.said, call.principal)
    return await start_run(call, admission, own, run_request, owned=owned, streams=request.stream)


async def _checked(call: Call) -> ChatRequest:
    """The order of checks is api-server §2.1."""
    body = call.json_object()
    said = chat_conversation(body, call.api.services.clock())
    session_key = session_key_of(call)
    header = call.label("x-hermes-session-id", "invalid_session_id")
    profile = () if call.api.options.profile == "default" else (call.api.options.profile,)
    session_id = check_session_id(header) if header is not None else derived_session_id(said, *profile)
    session = None
    if header is not None:
        # The history is the stored one; of the body only the last message counts.
        session = await open_session(call.api, session_id, call.principal)
        said = Conversation(said.system, (), said.prompt, said.first_user_text)
    options = body.get("stream_options")
    return ChatRequest(
        body=body,
        said=said,
        stream=boolish(body.get("stream")),
        include_usage=isinstance(options, dict) and boolish(options.get("include_usage")),
        named_frames=_wants_named_frames(call, body),
        session_id=session_id,
        session_header=header,
        session_key=session_key,
        model=await choose_model(call, body, bare=False, session=session),
    )


def derived_session_id(said: Conversation, *mixed: str) -> str:
    """The same opening is the same session, so one chat of a frontend is one stored session."""
    seed = "\n".join((*mixed, said.system or "", said.first_user_text))
    return f"api-{hashlib.sha256(seed.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _wants_named_frames(call: Call, body: Mapping[str, Any]) -> bool:
    """Clients that parse every data line as a chunk break on named frames."""
    if "hermes_events" in body:
        return boolish(body["hermes_events"], default=True)
    switch = call.api.server.custom_stream_events
    if switch != "auto":
        return switch == "on"
    agent = call.headers.get("user-agent", "").lower()
    return not any(mark in agent for mark in STRICT_CLIENTS)


def _prompt(call: Call, request: ChatRequest) -> Prompt:
    # Only a stream with named frames can carry a question, so only there anybody can answer.
    asks = request.stream and request.named_frames
    history = None if request.session_header is not None else request.said.history
    return Prompt(
        content=request.said.prompt,
        source="api",
        unattended=not asks,
        asks_here=asks,
        allow_clarify=False,
        system_extra=request.said.system,
        model=request.model.model,
        provider=request.model.provider,
        exact_model=request.model.exact,
        model_options=request.model.options,
        history=history,
        limits=limits_of(request.body),
        owns_processes=True,
    )


# --- side prompts of frontends (DEV-45) ------------------------------------------------------------------------------


def is_auxiliary(call: Call, body: Mapping[str, Any], *, stream: bool) -> bool:
    """A frontend's template for a title, tags or follow-ups: it wants text from the model, not the work of an agent."""
    if stream or call.api.server.auxiliary_requests != "direct" or "x-hermes-session-id" in call.headers:
        return False
    messages = body.get("messages")
    if not isinstance(messages, list) or len(messages) != 1 or messages[0].get("role") != "user":
        return False
    content = messages[0].get("content")
    return isinstance(content, str) and content.lstrip().startswith(TASK_PREFIX)


async def auxiliary_reply(call: Call, request: ChatRequest) -> Reply:
    """One plain model call: no tools, no session, nothing stored."""
    models = call.api.services.models
    resolved = await models.resolve(request.model.model, request.model.provider)
    pieces: list[str] = []
    completion_id = call.api.services.ids("chatcmpl")
    finished = await models.provider_for(resolved).call(
        ModelRequest(
            request_id=completion_id,
            model=resolved.model,
            messages=(Row("user", request.said.prompt),),
            session_key=completion_id,
        ),
        lambda kind, text: pieces.append(text) if kind is DeltaKind.TEXT else None,
    )
    body = _completion(call.api, completion_id, request.model.shown, finished.text or "".join(pieces), "", "stop")
    usage = finished.usage or Usage()
    body["usage"] = _usage(usage.prompt_tokens, usage.output_tokens)
    return json_reply(body, headers={"X-Hermes-Model": header_text(finished.served_model or resolved.model)})


# --- idempotency of non-streaming calls ------------------------------------------------------------------------------


async def claim_or_find(call: Call, route: str, key: str, body: Mapping[str, Any], run_id: str) -> str | None:
    """None: the key is ours now. Otherwise the run that answers it (api-server §2.10: 300 s, no conflict)."""
    if len(key) > 255 or not all(33 <= ord(char) <= 126 for char in key):
        raise HttpRefusal("invalid_idempotency_key", "Idempotency-Key must be 1 to 255 visible ASCII characters")
    runs, slot = call.api.runs, f"{route}:{key}"
    print_of = {name: body[name] for name in FINGERPRINTED if name in body}
    headers = [call.headers.get(name, "") for name in ("x-hermes-session-id", "x-hermes-session-key")]
    fingerprint = hashlib.sha256(encode([sorted(print_of.items()), headers])).hexdigest()
    for _ in range(CLAIMS):
        try:
            there = await runs.claim(call.principal, slot, fingerprint, run_id)
        except IdempotencyConflict:
            # Another request under this key: the newer one takes the place over, which it may lose again.
            await runs.release(call.principal, slot, run_id)
            continue
        if there is None:
            return None
        status = await runs.status(there, call.principal)
        if call.api.services.clock() - float(status["created_at"]) <= IDEMPOTENT_SECONDS:
            return there
        await runs.release(call.principal, slot)
    return None


def starting(call: Call, route: str, key: str, run_id: str) -> AbstractAsyncContextManager[None]:
    """The block in which the run of a claimed key is started; of no key, just a block."""
    return call.api.runs.starting(call.principal, f"{route}:{key}", run_id) if key else nullcontext()


def ended_of(run: Run, record: TurnRecord) -> Ended:
    return Ended(run.run_id, run.session.key, record, reasoning_of(run, record))


def keep_ended(api: Api, run: Run, record: TurnRecord) -> None:
    """For the retries of a request that had a key (api-server §2.10: at most so many)."""
    if run.keyed and run.kind in ("chat", "response"):
        api.ended[run.run_id] = ended_of(run, record)
        while len(api.ended) > MAX_ENDED:
            api.ended.popitem(last=False)


async def end_for_retry(call: Call, run_id: str) -> Ended | None:
    """How the run ended that answers a retry; None if this process has not seen it or not kept it."""
    run = call.api.runs.find(run_id, call.principal)
    return ended_of(run, await run.wait_ended()) if run is not None else call.api.ended.get(run_id)


async def _replay(call: Call, request: ChatRequest, run_id: str) -> Reply:
    ended = await end_for_retry(call, run_id)
    if ended is not None:
        reply = completion_reply(call.api, request, ended)
        reply.headers["Idempotency-Replayed"] = "true"
        return reply
    status = await call.api.runs.status(run_id, call.principal)
    if not status.get("completed") and not status.get("output"):
        message = str(status.get("error") or "the turn ended without an answer")
        raise HttpRefusal("agent_incomplete", message)
    usage = status.get("usage", {})
    body = _completion(call.api, run_id, request.model.shown, str(status.get("output", "")), "", "stop")
    body["usage"] = _usage(usage.get("input_tokens", 0), usage.get("output_tokens", 0))
    if not status.get("completed"):
        body["choices"][0]["finish_reason"] = "error" if status.get("failed") else "length"
        body["hermes"] = {name: status[name] for name in TOLD_OF_END if name in status}
    return json_reply(body, headers=replay_headers(status, request.session_key))


def replay_headers(status: Mapping[str, Any], session_key: str | None) -> dict[str, str]:
    headers = {"Idempotency-Replayed": "true", "X-Hermes-Session-Id": str(status["session_id"])}
    return headers if session_key is None else {**headers, "X-Hermes-Session-Key": session_key}


# --- the answer ------------------------------------------------------------------------------------------------------


def finish_reason(record: TurnRecord) -> str:
    """``stop`` only for a turn that said what it had to say (api-server §2.5, DEV-11)."""
    match record.outcome:
        case Completed():
            return "stop"
        case Cancelled(reason=reason):
            return "length" if reason.cause in LIMIT_CAUSES else "error"
        case Failed(incomplete=incomplete):
            return "length" if incomplete else "error"


def hermes_object(record: TurnRecord) -> dict[str, Any]:
    members = flags(record)
    if not record.completed:
        truncated = finish_reason(record) == "length"
        members["error_code"] = "output_truncated" if truncated else "agent_error"
    return members


def status_headers(record: TurnRecord) -> dict[str, str]:
    """Headers of an answer that is not complete."""
    if record.completed:
        return {}
    headers = {
        "X-Hermes-Completed": "false",
        "X-Hermes-Partial": "true" if record.partial else "false",
    }
    if record.error:
        headers["X-Hermes-Error"] = header_text(record.error)
    return headers


def failure_without_text(record: TurnRecord) -> HttpRefusal:
    """What a turn that failed and said nothing answers."""
    data = {"hermes": {"completed": False, "partial": record.partial, "failed": record.failed}}
    message = record.error or f"the turn ended without an answer ({record.exit_reason})"
    reason = record.outcome.failure_reason if isinstance(record.outcome, Failed) else ""
    if reason in AUTH_CLASSES:
        return HttpRefusal("provider_auth_failed", message, data=data)
    if reason in RATE_CLASSES:
        return HttpRefusal("provider_rate_limited", message, data=data)
    if record.interrupted:
        return HttpRefusal("run_cancelled", "the turn was stopped before it had an answer", data=data)
    return HttpRefusal("agent_incomplete", message, data=data)


def said_nothing(record: TurnRecord) -> bool:
    """No text of the model's is there; a failure's own explanation is no answer."""
    if record.completed:
        return False
    text = (record.text or "").strip()
    return not text or text == (record.error or "").strip()


def answer_headers(request: ChatRequest, session_id: str, runs: str) -> dict[str, str]:
    headers = {"X-Hermes-Session-Id": request.session_header or session_id}
    if request.session_key is not None:
        headers["X-Hermes-Session-Key"] = request.session_key
    if runs:
        headers["X-Hermes-Model"] = header_text(runs)
    return headers


def completion_reply(api: Api, request: ChatRequest, ended: Ended) -> Reply:
    record = ended.record
    if said_nothing(record):
        raise failure_without_text(record)
    text = record.text or ""
    body = _completion(api, ended.run_id, request.model.shown, text, ended.reasoning, finish_reason(record))
    body["usage"] = _usage(record.usage.prompt_tokens, record.usage.output_tokens)
    if not record.completed:
        body["hermes"] = hermes_object(record)
    runs = record.served_model or request.model.runs
    return json_reply(body, headers={**answer_headers(request, ended.session_id, runs), **status_headers(record)})


def _completion(api: Api, run_id: str, model: str, text: str, reasoning: str, finish: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    return {
        "id": run_id,
        "object": "chat.completion",
        "created": int(api.services.clock()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


# --- the stream ------------------------------------------------------------------------------------------------------


class ChatStream(TurnStream):
    """Chunks, named frames, the last chunk and ``[DONE]`` (api-server §2.6 to §2.8)."""

    def __init__(self, api: Api, request: ChatRequest, run: Run, feed: TurnFeed) -> None:
        super().__init__(feed)
        self._request = request
        self._run = run
        self._redact = api.services.redact
        self._named = request.named_frames
        self._tools = request.named_frames and api.server.tool_progress_events
        self._running: set[str] = set()
        self._sent_text = False
        self._head = encode(
            {
                "id": run.run_id,
                "object": "chat.completion.chunk",
                "created": int(api.services.clock()),
                "model": request.model.shown,
            }
        )[:-1]

    def opening(self) -> list[bytes]:
        return [self._chunk({"role": "assistant"})]

    def shown(self, event: SessionEvent) -> list[bytes]:
        match event:
            case TextDelta(text=text):
                self._sent_text = True
                return [self._chunk({"content": text})]
            case ReasoningDelta(text=text):
                return [self._chunk({"reasoning_content": text})]
            case ToolStarted(name=name, call_id=call_id) if self._tools and not is_hidden_tool(name):
                self._running.add(call_id)
                label = self._redact(event.context)
                payload = {"tool": name, "emoji": EMOJI.get(name, "🔧"), "label": label, "toolCallId": call_id}
                return [frame({**payload, "status": "running"}, event="hermes.tool.progress")]
            case ToolEnded(name=name, call_id=call_id) if call_id in self._running:
                self._running.discard(call_id)
                payload = {"tool": name, "toolCallId": call_id, "status": "completed"}
                return [frame(payload, event="hermes.tool.progress")]
            case StatusUpdate(kind=kind, text=text) if self._named:
                return [frame({"kind": kind, "text": self._redact(text)}, event="hermes.status")]
            case ClientRequestOpened(question=question) if self._named and question.method == "approval":
                payload = approval_request(question, event.approval_id or event.request_id)
                payload |= {"run_id": self._run.run_id, "session_id": self._run.session.key}
                return [frame(payload, event="approval.request")]
            case _:
                return []

    async def ending(self, record: TurnRecord) -> list[bytes]:
        pieces: list[bytes] = []
        if record.text and not self._sent_text and not said_nothing(record):
            pieces.append(self._chunk({"content": record.text}))
        last: dict[str, Any] = {}
        usage = _usage(record.usage.prompt_tokens, record.usage.output_tokens)
        last["usage"] = None if self._request.include_usage else usage
        if not record.completed:
            last["hermes"] = hermes_object(record)
            if finish_reason(record) == "error":
                last["error"] = stream_error(record)
        pieces.append(self._chunk({}, finish=finish_reason(record), **last))
        if self._request.include_usage:
            pieces.append(self._raw({"choices": [], "usage": usage}))
        pieces.append(DONE)
        return pieces

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        return self._raw({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})

    def _raw(self, members: dict[str, Any]) -> bytes:
        # The head is the same for every chunk of a stream and is encoded once.
        return b"data: " + on_one_line(self._head + b"," + encode(members)[1:]) + b"\n\n"


def stream_error(record: TurnRecord) -> dict[str, Any]:
    """The error object that makes the official client raise: a failure must not look like an answer."""
    reason = record.outcome.failure_reason if isinstance(record.outcome, Failed) else ""
    kind = "rate_limit_error" if reason in RATE_CLASSES else "agent_error"
    if reason in AUTH_CLASSES:
        kind = "server_error"
    message = record.error or f"the turn was stopped ({record.exit_reason})"
    return {"message": message, "type": kind, "param": None, "code": reason or record.exit_reason}
