"""``/api/sessions/{id}/chat`` and ``…/chat/stream``: a turn in a stored session (api-server §5.5, §5.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hermes.events import (
    ClientRequestOpened,
    InterimText,
    ReasoningAvailable,
    SessionEvent,
    SubagentProgress,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from hermes.messages import Content, Prompt
from hermes.nurseries.run import Run, RunRequest
from hermes.nurseries.session import Session
from hermes.nurseries.turn_feed import TurnFeed
from hermes.outcomes import TurnRecord
from hermes.protocols.error_table import HttpRefusal
from hermes.protocols.http.call import Api, Call, Reply, boolish, json_reply
from hermes.protocols.http.content import content_of, is_empty
from hermes.protocols.http.run_wire import (
    approval_request,
    flags,
    is_hidden_tool,
    preview,
    run_event,
    runtime_of,
    usage_members,
)
from hermes.protocols.http.sessions import lockable, message_object, require_session
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
    start_run,
)
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class ChatBody:
    """A checked request."""

    message: Content
    system: str | None
    model: ModelChoice
    session_key: str | None
    prompt: Prompt


async def _checked(call: Call, *, streams: bool) -> ChatBody:
    key = call.path["session_id"]
    await require_session(call.api, key, call.principal)
    body = call.json_object()
    message = content_of(body.get("message", body.get("input")), "message")
    if is_empty(message):
        raise HttpRefusal("missing_message", "message is required", param="message")
    system = body.get("system_message", body.get("instructions"))
    if system is not None and not isinstance(system, str):
        raise HttpRefusal("invalid_system_message", "system_message must be text", param="system_message")
    if body.get("author") is not None and not isinstance(body["author"], dict):
        raise HttpRefusal("invalid_author", "author must be an object", param="author")
    session: Session = await open_session(call.api, key, call.principal)
    model = await choose_model(call, body, bare=True, session=session)
    if boolish(body.get("require_model_lock")):
        await lockable(call.api, body.get("model", session.stored.model), body.get("provider"), must_serve=True)
        model = replace(model, exact=True)
    prompt = Prompt(
        content=message,
        source="api",
        unattended=not streams,
        asks_here=streams,
        allow_clarify=False,
        system_extra=system or None,
        model=model.model,
        provider=model.provider,
        exact_model=model.exact,
        model_options=model.options,
        limits=limits_of(body),
        owns_processes=True,
    )
    return ChatBody(message, system, model, session_key_of(call), prompt)


def _headers(call: Call, body: ChatBody) -> dict[str, str]:
    headers = {"X-Hermes-Session-Id": call.path["session_id"]}
    if body.session_key is not None:
        headers["X-Hermes-Session-Key"] = body.session_key
    return headers


async def chat(call: Call) -> Reply:
    key = call.path["session_id"]
    with call.api.runs.admit() as admission:
        body = await _checked(call, streams=False)
        run_id = call.api.services.ids("run")
        facts = body.model.facts()
        request = RunRequest(run_id, "session_chat", call.principal, body.prompt, facts=facts, told_at_end=True)
        owned = cancels_on_disconnect(call, default=True)
        run = await start_run(call, admission, key, request, owned=owned)
        await remember_session_key(call.api, call.principal, body.session_key, key)
    record = await run.wait_ended()
    runtime = runtime_of(run, record)
    usage = {name: value for name, value in usage_members(record.usage).items() if not name.startswith("cache")}
    answer = {
        "object": "hermes.session.chat.completion",
        "session_id": run.session.key,
        "run_id": run.run_id,
        "message": {"role": "assistant", "content": record.text or record.error or ""},
        "usage": {**usage, "runtime": runtime},
        "runtime": runtime,
        **flags(record),
    }
    return json_reply(answer, headers=_headers(call, body))


async def chat_stream(call: Call) -> Reply:
    key = call.path["session_id"]
    with call.api.runs.admit() as admission:
        body = await _checked(call, streams=True)
        run_id = call.api.services.ids("run")
        feed = TurnFeed()
        request = RunRequest(
            run_id,
            "session_chat",
            call.principal,
            body.prompt,
            journaled=True,
            facts=body.model.facts(),
            feeds=(feed,),
        )
        owned = cancels_on_disconnect(call, default=True)
        run = await start_run(call, admission, key, request, owned=owned, streams=True)
        await remember_session_key(call.api, call.principal, body.session_key, key)
    return sse_reply(SessionStream(call.api, run, feed), _headers(call, body))


class SessionStream(TurnStream):
    """Named events with their own numbers from 1: run, message, text, tools, the end, ``done``."""

    def __init__(self, api: Api, run: Run, feed: TurnFeed) -> None:
        super().__init__(feed)
        self._run = run
        self._redact = api.services.redact
        self._clock = api.services.clock
        self._number = 0
        self._message_id = api.services.ids("msg")
        self._interim = bool(api.settings.display.interim_assistant_messages)

    def _event(self, name: str, **members: Any) -> bytes:
        self._number += 1
        base = {"session_id": self._run.session.key, "run_id": self._run.run_id, "seq": self._number}
        return frame({**base, "ts": self._clock(), **members}, event=name)

    def _of_message(self, name: str, **members: Any) -> bytes:
        return self._event(name, message_id=self._message_id, **members)

    def opening(self) -> list[bytes]:
        requested = self._run.facts.get("requested", {})
        user = {"role": "user", "content": self._run.prompt.text}
        return [
            self._event("run.started", user_message=user, runtime=requested),
            self._event("message.started", message={"id": self._message_id, "role": "assistant"}),
        ]

    def shown(self, event: SessionEvent) -> list[bytes]:
        match event:
            case TextDelta(text=text):
                return [self._of_message("assistant.delta", delta=text)]
            case ReasoningAvailable(text=text):
                delta = preview(text, self._redact)
                return [self._of_message("tool.progress", tool_name="_thinking", delta=delta)]
            case InterimText(text=text, already_streamed=streamed) if self._interim:
                return [self._of_message("assistant.commentary", text=text, already_streamed=streamed)]
            case ToolStarted(name=name) if not is_hidden_tool(name):
                shown = preview(event.context, self._redact)
                return [
                    self._of_message(
                        "tool.started", tool_name=name, preview=shown, args=dict(event.args), tool_call_id=event.call_id
                    )
                ]
            case ToolEnded(name=name, result=result) if not is_hidden_tool(name):
                word = "tool.failed" if result.is_error else "tool.completed"
                return [self._of_message(word, tool_name=name, preview=None, args=None, tool_call_id=event.call_id)]
            case ClientRequestOpened(question=question) if question.method == "approval":
                payload = approval_request(question, event.approval_id or event.request_id)
                return [self._of_message("approval.request", **payload)]
            case SubagentProgress():
                translated = run_event(event, self._redact)
                return [self._of_message(translated[0], **translated[1])] if translated is not None else []
            case _:
                return []

    async def ending(self, record: TurnRecord) -> list[bytes]:
        ends = flags(record)
        runtime = runtime_of(self._run, record)
        rows = [message_object(self._run.session.key, row) for row in rows_of(self._run, record)]
        pieces: list[bytes] = []
        if record.failed and record.error and not record.text:
            pieces.append(self._event("error", message=self._redact(record.error)))
        pieces.append(
            self._of_message(
                "assistant.completed", content=None if record.interrupted else record.text, runtime=runtime, **ends
            )
        )
        usage = usage_members(record.usage)
        # The status is there before the event that says so, as on the run's own stream.
        await self._run.stored.wait()
        pieces.append(
            self._of_message(f"run.{record.run_status.value}", messages=rows, usage=usage, runtime=runtime, **ends)
        )
        pieces.append(self._event("done"))
        return pieces
