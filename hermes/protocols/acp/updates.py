"""Domain events to ``session/update`` frames: one translator per session and connection.

It turns an ordered stream of events into an ordered stream of frames and knows three things besides: which message is
being written, which calls are open, and which facts of the session the client has been told. A delta is a template and
one encoded string; deltas that have piled up become one frame. Frames are not kept in the log entries: a process has
one client on its pipes, so nothing would ever be encoded twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from hermes.agent.tool_display import one_line
from hermes.events import (
    ClientRequestClosed,
    ClientRequestOpened,
    CommandsChanged,
    HistoryCompressed,
    InterimText,
    Notice,
    ReasoningAvailable,
    ReasoningDelta,
    SessionEvent,
    SessionInfo,
    SessionInfoChanged,
    SessionTitled,
    StatusUpdate,
    SubagentProgress,
    TextDelta,
    TodoUpdated,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnRefused,
    TurnStarted,
    UsageUpdated,
)
from hermes.messages import Answered
from hermes.outcomes import Completed, Failed, TurnRecord, Usage
from hermes.protocols.acp import tool_calls
from hermes.protocols.acp.content import content_blocks, text_block
from hermes.protocols.acp.schemas import ClientCapabilities
from hermes.protocols.wire.json_codec import encode
from hermes.protocols.wire.jsonrpc import build_notification

MESSAGE: Final = "agent_message_chunk"
THOUGHT: Final = "agent_thought_chunk"
USER: Final = "user_message_chunk"
MAX_CHUNK: Final = 256 * 1024
"""Characters of one chunk: what has piled up for a slow client need not be one frame of any size."""
_NOTICE_LEVELS: Final[Mapping[str, str]] = {"warn": "warning", "warning": "warning", "error": "error"}
_IDS: Final = bytes.fromhex("6f1c0c0e2f435d0e9d6c6b1d0a5c9b11")


@lru_cache(maxsize=64)
def message_id(*parts: object) -> str:
    """The id of a message: the same for the same parts, never that of another message."""
    # A UUID of version 5, written out: it is needed for every message, and the module makes twelve objects of it.
    made = bytearray(hashlib.sha1(_IDS + "\0".join(map(str, parts)).encode(), usedforsecurity=False).digest()[:16])
    made[6] = made[6] & 0x0F | 0x50
    made[8] = made[8] & 0x3F | 0x80
    text = made.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def update_frame(session_id: str, update: Mapping[str, Any]) -> bytes:
    return build_notification("session/update", {"sessionId": session_id, "update": update})


@lru_cache(maxsize=16)
def _chunk_template(session_id: str, kind: str, message: str) -> bytes:
    update = {"sessionUpdate": kind, "messageId": message, "content": {"type": "text", "text": ""}}
    frame = update_frame(session_id, update)
    assert frame.endswith(_CHUNK_END)
    return frame[: -len(_CHUNK_END)]


_CHUNK_END: Final = b'""}}}}'


def chunk_frame(session_id: str, kind: str, message: str, text: str) -> bytes:
    """A text chunk: what a turn sends most, so the frame around the text is made once per message."""
    return _chunk_template(session_id, kind, message) + encode(text) + _CHUNK_END[2:]


class Translator:
    """Turns the events of one session into frames for one client.

    Parameters: ``options``, the present complete list of config options, for when one of them has changed;
    ``commands``, the list of slash commands; ``own_turn``, whether a turn was asked for by this client and began at
    once, so that the client shows its text already; ``terminal_of``, the client's terminal that a call runs in.
    """

    def __init__(
        self,
        session_id: str,
        *,
        info: SessionInfo,
        capabilities: Callable[[], ClientCapabilities],
        options: Callable[[], list[dict[str, Any]]],
        commands: Callable[[], list[dict[str, Any]]],
        own_turn: Callable[[str], bool],
        terminal_of: Callable[[str], str | None] = lambda _call_id: None,
    ) -> None:
        self.session_id = session_id
        self._capabilities = capabilities
        self._options = options
        self._commands = commands
        self._own_turn = own_turn
        self._terminal_of = terminal_of
        self._told = info
        self._turn_id = ""
        self._message = 0
        self._kind: str | None = None
        self._buffer: list[str] = []
        self._buffered = (MESSAGE, "")
        """Kind and message of the text that is held back."""
        self._open_text: list[str] = []
        """What was sent of the message that is being written."""
        self._said: list[str] = []
        self._thought = False
        self._spoke = False
        """The answer was shown since the last call of a tool."""
        self._open_calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._terminals: dict[str, str] = {}
        self._asking: dict[str, str] = {}
        self._subagents: dict[str, str] = {}
        self._compactions = 0
        self._title_told = info.title

    @property
    def cwd(self) -> str:
        return self._told.cwd

    def client_knows(self, info: SessionInfo) -> None:
        """The facts that the client was given in an answer; only what differs later is told."""
        self._told = info

    def frames(self, event: SessionEvent) -> Iterator[bytes]:
        """The frames that tell of this event, in order; text may be held back until ``flush``."""
        if type(event) is TextDelta:
            yield from self._text(MESSAGE, event.text)
            return
        if type(event) is ReasoningDelta:
            self._thought = True
            yield from self._text(THOUGHT, event.text)
            return
        updates = list(self._updates(event))
        if updates:
            yield from self.flush()
        for update in updates:
            yield update_frame(self.session_id, update)

    def flush(self) -> Iterator[bytes]:
        """What is held back."""
        if self._buffer:
            text = "".join(self._buffer)
            self._buffer.clear()
            # As it was when the text came: the event that makes it be sent may have begun something new.
            kind, message = self._buffered
            if kind == self._kind and message == self._message_id():
                self._open_text.append(text)
            for start in range(0, len(text), MAX_CHUNK):
                yield chunk_frame(self.session_id, kind, message, text[start : start + MAX_CHUNK])

    def open_message(self) -> Iterator[bytes]:
        """What was sent so far of the message that is being written, once more and under its id."""
        text = "".join(self._open_text)
        if self._kind is not None and text:
            yield chunk_frame(self.session_id, self._kind, self._message_id(), text)

    # --- text --------------------------------------------------------------------------------------------------------

    def _text(self, kind: str, text: str) -> Iterator[bytes]:
        if kind != self._kind:
            yield from self.flush()
            self._message += 1
            self._kind = kind
            self._open_text.clear()
            # The blank line that separates it from the message before is for those who join deltas.
            text = text.removeprefix("\n\n") if kind == MESSAGE else text
        if text:
            if not self._buffer:
                self._buffered = (kind, self._message_id())
            self._buffer.append(text)
            if kind == MESSAGE:
                self._spoke = True
                self._said.append(text)

    def _message_id(self) -> str:
        return message_id(self.session_id, self._turn_id, self._message)

    def _whole_message(self, kind: str, text: str) -> dict[str, Any]:
        self._message += 1
        self._kind = None
        if kind == MESSAGE:
            self._said.append(text)
        return {"sessionUpdate": kind, "messageId": self._message_id(), "content": text_block(text)}

    # --- everything else ---------------------------------------------------------------------------------------------

    def _updates(self, event: SessionEvent) -> Iterator[dict[str, Any]]:
        match event:
            case TurnStarted():
                yield from self._turn_started(event)
            case InterimText(text=text, already_streamed=False) if text.strip():
                yield self._whole_message(MESSAGE, text)
            case ReasoningAvailable(text=text):
                if not self._thought and text.strip():
                    yield self._whole_message(THOUGHT, text)
                self._thought = False
            case ToolStarted() | ToolProgress() | ToolEnded() | SubagentProgress():
                yield from self._tool(event)
            case ClientRequestOpened(request_id=request_id, question=question):
                if question.tool_call_id is not None:
                    self._asking[request_id] = question.tool_call_id
            case ClientRequestClosed():
                yield from self._answered(event)
            case TodoUpdated(todos=todos):
                yield tool_calls.plan(todos)
            case UsageUpdated():
                yield from usage_update(event.usage, event.context_used, event.context_max)
            case SessionInfoChanged(info=info):
                yield from self._info(info)
            case SessionTitled(title=title):
                yield from self._title(title)
            case CommandsChanged():
                yield {"sessionUpdate": "available_commands_update", "availableCommands": self._commands()}
            case HistoryCompressed():
                yield from self._compressed(event)
            case Notice(text=str(text), level=level) | StatusUpdate(text=text, kind=level):
                yield from self._notice(text, level)
            case TurnEnded(record=record) | TurnRefused(record=record):
                yield from self._turn_ended(record)
            case _:
                # Status lines, risks, background output: this protocol has no form for them.
                return

    def _turn_started(self, event: TurnStarted) -> Iterator[dict[str, Any]]:
        self._turn_id = event.turn_id
        self._message = 0
        self._kind = None
        self._said.clear()
        self._thought = self._spoke = False
        if self._own_turn(event.turn_id):
            return
        metadata = event.display_metadata or {}
        shown = metadata.get("display_text") or event.user_text
        row = event.prompt_row
        blocks = [text_block(str(shown))] if row is None or "display_text" in metadata else content_blocks(row.content)
        message = message_id(self.session_id, event.turn_id, "user")
        for block in blocks:
            yield {"sessionUpdate": USER, "messageId": message, "content": block}

    def _tool(self, event: ToolStarted | ToolProgress | ToolEnded | SubagentProgress) -> Iterator[dict[str, Any]]:
        self._kind = None
        match event:
            case ToolStarted(call_id=call_id, name=name, args=args):
                self._open_calls[call_id] = (name, args)
                self._spoke = False
                shows_edit = self._told.mode == "default"
                yield tool_calls.started_call(call_id, name, args, self.cwd, shows_edit=shows_edit)
                yield tool_calls.status_change(call_id, "in_progress")
            case ToolProgress(call_id=call_id, name=name, preview=preview):
                yield from self._progress(call_id, name, preview)
            case ToolEnded(call_id=call_id, name=name, args=args, result=result):
                if self._open_calls.pop(call_id, None) is None:
                    # Its start fell into a gap; nothing may be said of a call that the client was not told of.
                    yield tool_calls.started_call(call_id, name, args, self.cwd, shows_edit=False)
                ended = tool_calls.ended_call(call_id, name, args, result, self.cwd)
                terminal = self._terminals.pop(call_id, None)
                if terminal is not None:
                    # The client goes on showing what the terminal said; only what went wrong is added.
                    more = ended["content"] if ended["status"] == "failed" else []
                    ended["content"] = [tool_calls.terminal_content(terminal), *more]
                yield ended
            case SubagentProgress(kind=kind, payload=payload):
                yield from self._subagent(kind, payload)

    def _progress(self, call_id: str, name: str, preview: str) -> Iterator[dict[str, Any]]:
        if call_id not in self._open_calls or call_id in self._terminals:
            return
        terminal = self._terminal_of(call_id)
        if terminal is None:
            yield tool_calls.progress(call_id, name, self._open_calls[call_id][1], preview)
        else:
            self._terminals[call_id] = terminal
            yield tool_calls.in_terminal(call_id, terminal)

    def _subagent(self, kind: str, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """What the agents below a delegating call are doing: one line for each, in that call."""
        call_id = next((key for key, (name, _) in self._open_calls.items() if name == "delegate_task"), None)
        if call_id is None or kind == "thinking":
            return
        doing = payload.get("tool_preview") or payload.get("text") or payload.get("summary") or payload.get("status")
        words = one_line(" ".join(str(part) for part in (payload.get("tool_name"), doing) if part))
        who = str(payload.get("subagent_id") or payload.get("goal") or "")
        self._subagents[who] = f"{one_line(str(payload.get('goal') or who))}: {words or kind}"
        name, arguments = self._open_calls[call_id]
        yield tool_calls.progress(call_id, name, arguments, "\n".join(self._subagents.values()))

    def _answered(self, event: ClientRequestClosed) -> Iterator[dict[str, Any]]:
        """The question showed the call as pending; consent means that it goes on."""
        call_id = self._asking.pop(event.request_id, None)
        answer = event.answer
        if isinstance(answer, Answered) and answer.value.get("choice") != "deny" and call_id in self._open_calls:
            yield tool_calls.status_change(str(call_id), "in_progress")

    def _info(self, info: SessionInfo) -> Iterator[dict[str, Any]]:
        told, self._told = self._told, info
        yield from self._title(info.title)
        if info.mode != told.mode:
            yield {"sessionUpdate": "current_mode_update", "currentModeId": info.mode}
        if (info.mode, info.model, info.provider) != (told.mode, told.model, told.provider):
            yield {"sessionUpdate": "config_option_update", "configOptions": self._options()}

    def _title(self, title: str | None) -> Iterator[dict[str, Any]]:
        if title == self._title_told:
            return
        self._title_told = title
        now = datetime.now(UTC).isoformat()
        yield {"sessionUpdate": "session_info_update", "title": title, "updatedAt": now}

    def _compressed(self, event: HistoryCompressed) -> Iterator[dict[str, Any]]:
        if not self._capabilities().compaction:
            return
        self._compactions += 1
        summary = f"{event.before_messages} messages became {event.after_messages}."
        if event.before_messages == event.after_messages:
            summary = "Old tool results are left out of what the model reads."
        yield {
            "sessionUpdate": "compaction_update",
            "compactionId": message_id(self.session_id, self._turn_id, "compaction", self._compactions),
            "status": "completed",
            "summary": [text_block(summary)],
        }

    def _notice(self, text: str, level: str) -> Iterator[dict[str, Any]]:
        if text.strip() and self._capabilities().notices:
            title, _, rest = text.strip().partition("\n")
            notice = {"sessionUpdate": "notice", "severity": _NOTICE_LEVELS.get(level, "info"), "title": title}
            yield {**notice, "description": rest.strip()} if rest.strip() else notice

    def _turn_ended(self, record: TurnRecord) -> Iterator[dict[str, Any]]:
        for call_id in self._open_calls:
            yield tool_calls.status_change(call_id, "failed")
        self._open_calls.clear()
        self._terminals.clear()
        self._subagents.clear()
        text = closing_text(record)
        # An answer that streamed is not said again, however its row was cleaned; an explanation is said once.
        said = self._spoke or record.response_previewed if record.completed else False
        if text and not said and text.strip() not in "".join(self._said):
            yield self._whole_message(MESSAGE, text)
        self._kind = None
        self._said.clear()


def closing_text(record: TurnRecord) -> str | None:
    """What a turn says at its end if it has not been said while it ran. A stopped turn says nothing more."""
    match record.outcome:
        case Completed(text=text):
            return text
        case Failed(text=text, error=error, failure_reason=reason, incomplete=incomplete):
            if incomplete:
                return text or error
            return error if reason == "content_policy_blocked" else text
        case _:
            return None


def usage_update(usage: Usage, used: int | None, size: int | None) -> Iterator[dict[str, Any]]:
    """Nothing where the window is not known: a zero would be a claim."""
    if used is None or not size:
        return
    update: dict[str, Any] = {"sessionUpdate": "usage_update", "used": max(0, used), "size": size}
    if usage.cost_usd is not None:
        update["cost"] = {"amount": usage.cost_usd, "currency": "USD"}
    yield update
