"""``/v1/responses``: the OpenAI Responses way to run a turn, and the stored responses (api-server §3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hermes.events import SessionEvent, StatusUpdate
from hermes.messages import Prompt, Row
from hermes.nurseries.run import Run, RunRequest
from hermes.nurseries.turn_feed import TurnFeed
from hermes.outcomes import Cancelled, CancelReason, Cause, Failed, TurnRecord
from hermes.protocols.error_table import HttpRefusal
from hermes.protocols.http.call import Api, Call, Reply, boolish, header_text, json_reply, whole_number
from hermes.protocols.http.chat_completions import (
    RATE_CLASSES,
    claim_or_find,
    end_for_retry,
    failure_without_text,
    finish_reason,
    hermes_object,
    replay_headers,
    said_nothing,
    starting,
    status_headers,
)
from hermes.protocols.http.content import Conversation, explicit_history, input_conversation
from hermes.protocols.http.conversations import ConversationTurn
from hermes.protocols.http.response_output import ResponseOutput
from hermes.protocols.http.response_records import (
    StoredResponse,
    delete_response,
    latest_of_conversation,
    load_response,
    make_room,
    save_response,
)
from hermes.protocols.http.streaming import TurnStream, frame, sse_reply
from hermes.protocols.http.turns import (
    ModelChoice,
    cancels_on_disconnect,
    choose_model,
    limits_of,
    open_session,
    remember_session_key,
    rows_of,
    session_key_of,
    session_of_key,
    start_run,
)
from hermes.records import dataclass

TRUNCATED_MESSAGES = 100
DEFAULT_ITEMS, MAX_ITEMS = 20, 100
MAX_UNSTORED = 200
FEED_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A checked request. ``history`` None: the session's own rows."""

    body: Mapping[str, Any]
    response_id: str
    said: Conversation
    history: tuple[Row, ...] | None
    instructions: str | None
    session_id: str
    session_key: str | None
    previous: str | None
    conversation: str | None
    store: bool
    stream: bool
    model: ModelChoice
    created_at: int
    show_tools: bool


class ResponseJob:
    """One response from its run's start to its stored end: the same object for the stream, the answer and the store."""

    def __init__(self, api: Api, principal: str, request: ResponseRequest, place: ConversationTurn) -> None:
        self.api = api
        self.principal = principal
        self.request = request
        self.final: dict[str, Any] | None = None
        self.place = place
        self.feed = TurnFeed(FEED_BYTES)
        self.shown = TurnFeed()

    def base(self, status: str) -> dict[str, Any]:
        """The whole object that typed clients expect (DEV-21)."""
        request = self.request
        return {
            "id": request.response_id,
            "object": "response",
            "created_at": request.created_at,
            "status": status,
            "model": request.model.shown,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "metadata": request.body.get("metadata") if isinstance(request.body.get("metadata"), dict) else {},
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "previous_response_id": request.previous,
            "max_output_tokens": None,
            "store": request.store,
            "conversation": {"id": request.conversation} if request.conversation is not None else None,
            "usage": None,
        }

    def ended(self, record: TurnRecord, output: list[dict[str, Any]]) -> dict[str, Any]:
        status, details, error = verdict(record)
        body = self.base(status)
        body.update(output=output, incomplete_details=details, error=error, usage=usage_of(record))
        if not record.completed:
            body["hermes"] = hermes_object(record)
        return body

    async def begin(self) -> None:
        """A stored stream can be looked up from its first event on; a turn that was refused leaves nothing to find."""
        if self.request.store and self.request.stream and self.final is None:
            await self._save(self.base("in_progress"), ())

    async def finish(self, run: Run, record: TurnRecord) -> None:
        """Build the final object and store it, whether a client is there or not; then its conversation may go on."""
        try:
            await self._finish(run, record)
        finally:
            self.place.leave()

    async def _finish(self, run: Run, record: TurnRecord) -> None:
        output = ResponseOutput(self.request.response_id, commentary=self.request.stream, tools=self.request.show_tools)
        for event in await self.feed.next(0):
            output.take(event)
        self.final = self.ended(record, output.finish(record))
        gone = isinstance(record.outcome, Cancelled) and record.outcome.reason.cause is Cause.CLIENT_DISCONNECT
        if gone or (isinstance(record.outcome, Cancelled) and record.outcome.reason.cause is Cause.SHUTDOWN):
            self.final["status"] = "incomplete"
            self.final["incomplete_details"] = {"reason": record.cause.value if record.cause else "interrupted"}
        if self.request.store:
            await self._save(self.final, self._transcript(run, record))
            await make_room(self.api, self.principal, self.api.server.max_stored_responses)
        elif run.keyed:
            unstored = self.api.unstored
            unstored[run.run_id] = self.final
            while len(unstored) > MAX_UNSTORED:
                unstored.popitem(last=False)

    def _transcript(self, run: Run, record: TurnRecord) -> tuple[Row, ...]:
        own = rows_of(run, record)
        rows = run.session.rows
        prompt = [row for row in rows if row.row_id == record.user_row_id and row.row_id is not None]
        before = self.request.history
        if before is None:
            first = min(record.row_ids, default=None)
            before = tuple(row for row in rows if first is not None and row.row_id is not None and row.row_id < first)
        limit = self.api.server.history_tool_output_max_chars
        kept = [_capped(row, limit) for row in own] if limit else own
        return (*before, *prompt, *kept)

    async def _save(self, response: dict[str, Any], rows: tuple[Row, ...]) -> None:
        request = self.request
        stored = StoredResponse(
            response=response,
            session_id=request.session_id,
            rows=rows,
            instructions=request.instructions,
            conversation=request.conversation,
            input_items=input_items(request),
        )
        await save_response(self.api, self.principal, stored)


def _capped(row: Row, limit: int) -> Row:
    return replace(row, content=row.text[:limit]) if row.role == "tool" and len(row.text) > limit else row


# --- the route -------------------------------------------------------------------------------------------------------


async def create_response(call: Call) -> Reply:
    api, place, response_id = call.api, ConversationTurn(call.api.conversations), call.api.services.ids("resp")
    try:
        return await _create_response(call, place, response_id)
    finally:
        if not api.runs.knows(response_id):
            place.leave()


async def _create_response(call: Call, place: ConversationTurn, response_id: str) -> Reply:
    api = call.api
    with api.runs.admit() as admission:
        request = await _checked(call, place, response_id)
        job = ResponseJob(api, call.principal, request, place)
        run_request = RunRequest(
            run_id=request.response_id,
            kind="response",
            principal=call.principal,
            prompt=_prompt(request),
            facts=request.model.facts(),
            told_at_end=not request.stream,
            finisher=job.finish,
            feeds=(job.feed, job.shown),
        )
        key = "" if request.stream else call.headers.get("idempotency-key", "").strip()
        if key:
            there = await claim_or_find(call, "responses", key, request.body, request.response_id)
            if there is not None:
                return await _replay(call, there, request)
            run_request = replace(run_request, keyed=True)
        owned = cancels_on_disconnect(call, default=not key)
        async with starting(call, "responses", key, run_request.run_id):
            run = await start_run(call, admission, request.session_id, run_request, owned=owned, streams=request.stream)
        await job.begin()
        if request.previous is None:
            # A chain has its own session, whatever name it is called by.
            await remember_session_key(api, call.principal, request.session_key, request.session_id)
        if request.stream:
            return sse_reply(ResponseStream(job, run), _headers(request, request.model.runs))
    record = await run.wait_ended()
    await run.stored.wait()
    assert job.final is not None
    return _reply(request, job.final, record)


def _reply(request: ResponseRequest, response: dict[str, Any], record: TurnRecord) -> Reply:
    if record.failed and said_nothing(record):
        raise failure_without_text(record)
    runs = record.served_model or request.model.runs
    return json_reply(response, headers={**_headers(request, runs), **status_headers(record)})


def _prompt(request: ResponseRequest) -> Prompt:
    return Prompt(
        content=request.said.prompt,
        source="api",
        unattended=True,
        allow_clarify=False,
        system_extra=request.instructions,
        model=request.model.model,
        provider=request.model.provider,
        exact_model=request.model.exact,
        model_options=request.model.options,
        history=request.history,
        limits=limits_of(request.body),
        owns_processes=True,
    )


def _headers(request: ResponseRequest, runs: str) -> dict[str, str]:
    headers = {"X-Hermes-Session-Id": request.session_id, "X-Hermes-Model": header_text(runs)}
    if request.session_key is not None:
        headers["X-Hermes-Session-Key"] = request.session_key
    return headers


async def _checked(call: Call, place: ConversationTurn, response_id: str) -> ResponseRequest:
    api = call.api
    now = api.services.clock()
    body = call.json_object()
    said = input_conversation(body.get("input"), now)
    session_key = session_key_of(call)
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise HttpRefusal("invalid_system_message", "instructions must be a string", param="instructions")
    conversation = _conversation_name(body)
    previous = body.get("previous_response_id")
    if previous is not None and conversation is not None:
        message = "conversation and previous_response_id cannot be used together"
        raise HttpRefusal("conflicting_parameters", message, param="conversation")

    async def other_session() -> str:
        return await session_of_key(api, call.principal, session_key) or api.services.ids("session")

    session_id = None
    if previous is None and conversation is not None:
        await place.wait_first(f"{call.principal}\0{conversation}")
        previous, session_id = await latest_of_conversation(api, call.principal, conversation, other_session)
    chained = await load_response(api, call.principal, str(previous)) if previous is not None else None
    history = explicit_history(body.get("conversation_history"), now)
    if history is None:
        history = (*(chained.rows if chained is not None else ()), *said.history)
    if body.get("truncation") == "auto":
        history = history[-TRUNCATED_MESSAGES:]
    session_id = (chained.session_id if chained is not None else session_id) or await other_session()
    session = await open_session(api, session_id, call.principal)
    own = instructions if instructions is not None else (chained.instructions if chained is not None else None)
    system = "\n".join(text for text in (own, said.system) if text) or None
    return ResponseRequest(
        body=body,
        response_id=response_id,
        said=said,
        history=history,
        instructions=system,
        session_id=session_id,
        session_key=session_key,
        previous=str(previous) if previous is not None else None,
        conversation=conversation,
        store=boolish(body.get("store"), default=True),
        stream=boolish(body.get("stream")),
        model=await choose_model(call, body, bare=False, session=session),
        created_at=int(now),
        show_tools=api.server.tool_items == "function_call",
    )


def _conversation_name(body: Mapping[str, Any]) -> str | None:
    value = body.get("conversation")
    if isinstance(value, dict):
        value = value.get("id")
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise HttpRefusal(
            "invalid_request", "conversation must be a name or an object with an id", param="conversation"
        )
    return value.strip()


async def _replay(call: Call, response_id: str, request: ResponseRequest) -> Reply:
    run = call.api.runs.find(response_id, call.principal)
    if run is not None:
        await run.stored.wait()
    ended = await end_for_retry(call, response_id)
    status = await call.api.runs.status(response_id, call.principal)
    response = call.api.unstored.get(response_id)
    if response is None:
        response = (await load_response(call.api, call.principal, response_id)).response
    headers = replay_headers(status, request.session_key)
    if ended is not None:
        reply = _reply(request, response, ended.record)
        reply.headers |= headers
        return reply
    if response["status"] == "failed" and not any(item["type"] == "message" for item in response["output"]):
        raise HttpRefusal("agent_incomplete", str(response["error"]["message"]))
    return json_reply(response, headers=headers)


# --- what a turn's end is called here (DEV-20) -----------------------------------------------------------------------


def verdict(record: TurnRecord) -> tuple[str, dict[str, Any] | None, dict[str, Any] | None]:
    """``status``, ``incomplete_details`` and ``error`` of the response."""
    if record.completed:
        return "completed", None, None
    if finish_reason(record) == "length":
        budget = record.exit_reason.startswith(("max_iterations", "budget")) or record.interrupted
        return "incomplete", {"reason": "max_tool_calls" if budget else "max_output_tokens"}, None
    if record.interrupted:
        return "cancelled", None, None
    limited = isinstance(record.outcome, Failed) and record.outcome.failure_reason in RATE_CLASSES
    code = "rate_limit_exceeded" if limited else "server_error"
    return "failed", None, {"code": code, "message": record.error or record.exit_reason}


def usage_of(record: TurnRecord) -> dict[str, Any]:
    usage = record.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


class ResponseStream(TurnStream):
    """OpenAI's events, numbered from 0; no ``[DONE]``."""

    def __init__(self, job: ResponseJob, run: Run) -> None:
        super().__init__(job.shown)
        self._job = job
        self._run = run
        self._number = 0
        self._pieces: list[bytes] = []
        request = job.request
        self._output = ResponseOutput(request.response_id, self._emit, tools=request.show_tools)
        self._named = job.api.server.custom_stream_events == "on"
        self._redact = job.api.services.redact

    def opening(self) -> list[bytes]:
        created = self._job.base("in_progress")
        self._emit("response.created", {"response": created})
        self._emit("response.in_progress", {"response": created})
        return self._taken()

    def shown(self, event: SessionEvent) -> list[bytes]:
        if isinstance(event, StatusUpdate) and self._named:
            note = {"kind": event.kind, "text": self._redact(event.text)}
            return [frame(note, event="hermes.status")]
        self._output.take(event)
        return self._taken()

    async def ending(self, record: TurnRecord) -> list[bytes]:
        output = self._output.finish(record)
        body = self._job.ended(record, output)
        # Whoever asks for it after the last event finds it ended.
        await self._run.stored.wait()
        words = {"completed": "response.completed", "failed": "response.failed"}
        self._emit(words.get(body["status"], "response.incomplete"), {"response": body})
        return self._taken()

    def _emit(self, kind: str, members: dict[str, Any]) -> None:
        body = {"type": kind, "sequence_number": self._number, **members}
        self._number += 1
        self._pieces.append(frame(body, event=kind))

    def _taken(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces


# --- stored responses ------------------------------------------------------------------------------------------------


async def get_response(call: Call) -> Reply:
    stored = await load_response(call.api, call.principal, call.path["response_id"])
    return json_reply(stored.response)


async def remove_response(call: Call) -> Reply:
    response_id = call.path["response_id"]
    await delete_response(call.api, call.principal, response_id)
    return json_reply({"id": response_id, "object": "response", "deleted": True})


async def cancel_response(call: Call) -> Reply:
    """The same as stopping its run; answers with the response as it is then."""
    response_id = call.path["response_id"]
    run = call.api.runs.find(response_id, call.principal)
    if run is not None:
        run.cancel(CancelReason(Cause.RUN_STOP))
        await run.stored.wait()
    return await get_response(call)


def input_items(request: ResponseRequest) -> list[dict[str, Any]]:
    """What was asked, as items with ids: the client's own where they tell the items apart, as pages need them."""
    value = request.body.get("input")
    items = value if isinstance(value, list) else [value]
    mark = request.response_id.partition("_")[2]
    listed: list[dict[str, Any]] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        entry: dict[str, Any] = {"role": "user", "content": item} if isinstance(item, str) else dict(item)
        if not isinstance(entry.get("type"), str):
            entry["type"] = "message"
        named = entry.get("id")
        if not isinstance(named, str) or not named or named in seen:
            entry["id"] = f"in_{mark}{index:04x}"
        seen.add(entry["id"])
        if entry["type"] == "message":
            entry.setdefault("status", "completed")
            if isinstance(entry.get("content"), str):
                entry["content"] = [{"type": "input_text", "text": entry["content"]}]
        listed.append(entry)
    return listed


async def list_input_items(call: Call) -> Reply:
    stored = await load_response(call.api, call.principal, call.path["response_id"])
    items = list(stored.input_items)
    order, after = call.query.get("order", "desc"), call.query.get("after")
    limit = whole_number(call.query.get("limit", str(DEFAULT_ITEMS)))
    if limit is None or not 1 <= limit <= MAX_ITEMS:
        raise HttpRefusal("invalid_pagination", f"limit must be a number from 1 to {MAX_ITEMS}", param="limit")
    if order not in ("asc", "desc"):
        raise HttpRefusal("invalid_pagination", "order must be asc or desc", param="order")
    if order == "desc":
        items.reverse()
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise HttpRefusal("invalid_pagination", "after must be the id of an item of this response", param="after")
        items = items[ids.index(after) + 1 :]
    page = items[:limit]
    return json_reply(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > limit,
        }
    )
