"""Anthropic messages as the fake provider speaks it: blocks that open, grow and close."""

from __future__ import annotations

from typing import Any

from hermes.testing.script import (
    Delay,
    Faults,
    Finish,
    ReasoningChunk,
    RedactedReasoning,
    RefusalChunk,
    Step,
    TextChunk,
    ToolCall,
    Usage,
    WaitFor,
)
from hermes.testing.wire_frames import Frame, Json, parse_arguments

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


class MessagesEncoder:
    """One message. A reason that is not in the table is sent as it stands (`pause_turn`, ...)."""

    def __init__(self, body: Json, faults: Faults, number: int, input_tokens: int) -> None:
        self._faults = faults
        self._model = body.get("model", "fake-model")
        self._id = f"msg_{number}"
        self._input_tokens = input_tokens
        self._blocks: list[Json] = []
        self._open = False

    def start(self) -> list[Frame]:
        message = self._message([], None)
        if not self._faults.no_usage:
            message["usage"] = {"input_tokens": self._input_tokens, "output_tokens": 1}
        return [_event("message_start", message=message)]

    def feed(self, step: Step) -> list[Frame]:
        match step:
            case TextChunk(text) | RefusalChunk(text):
                frames = self._open_block({"type": "text", "text": ""})
                self._blocks[-1]["text"] += text
                return [*frames, self._delta({"type": "text_delta", "text": text})]
            case ReasoningChunk(text, signature):
                return self._thinking(text, signature)
            case RedactedReasoning(data):
                return [*self._open_block({"type": "redacted_thinking", "data": data}), *self._close_block()]
            case ToolCall():
                return self._tool_use(step)
            case Delay() | WaitFor() | Finish():
                return []

    def finish(self, step: Finish) -> list[Frame]:
        frames = self._close_block()
        if not self._faults.no_finish_reason:
            reason = STOP_REASONS.get(step.reason, step.reason)
            event: Json = {"delta": {"stop_reason": reason, "stop_sequence": None}}
            if step.usage is not None:
                event["usage"] = _usage(step.usage)
            frames.append(_event("message_delta", final=True, **event))
            if self._faults.duplicate_final:
                frames.append(_event("message_delta", final=True, **event))
        if not self._faults.no_done:
            frames.append(_event("message_stop"))
        return frames

    def whole(self, step: Finish) -> Json:
        reason = None if self._faults.no_finish_reason else STOP_REASONS.get(step.reason, step.reason)
        content = [
            block | {"input": parse_arguments(block["input"])} if block["type"] == "tool_use" else block
            for block in self._blocks
        ]
        message = self._message(content, reason)
        if step.usage is not None:
            message["usage"] = _usage(step.usage)
        return message

    def error(self, message: str, kind: str, code: str | None) -> Frame:
        return _event("error", error={"type": kind, "message": message})

    def _message(self, content: list[Json], reason: str | None) -> Json:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
        }

    def _thinking(self, text: str, signature: str | None) -> list[Frame]:
        frames = self._open_block({"type": "thinking", "thinking": "", "signature": ""})
        self._blocks[-1]["thinking"] += text
        frames.append(self._delta({"type": "thinking_delta", "thinking": text}))
        if signature is None:
            return frames
        if signature:
            self._blocks[-1]["signature"] = signature
            frames.append(self._delta({"type": "signature_delta", "signature": signature}))
        return [*frames, *self._close_block()]

    def _tool_use(self, call: ToolCall) -> list[Frame]:
        frames = self._close_block()
        identity = {} if call.id is None else {"id": call.id}
        frames += self._open_block({"type": "tool_use", **identity, "name": call.name, "input": {}})
        frames += [self._delta({"type": "input_json_delta", "partial_json": piece}) for piece in call.argument_chunks]
        self._blocks[-1]["input"] = call.arguments
        return [*frames, *self._close_block()]

    def _open_block(self, block: Json) -> list[Frame]:
        """Go on in the open block if it is of the same type, else close it and open this one."""
        if self._open and self._blocks[-1]["type"] == block["type"]:
            return []
        frames = self._close_block()
        self._blocks.append(dict(block))
        self._open = True
        return [*frames, _event("content_block_start", index=len(self._blocks) - 1, content_block=block)]

    def _close_block(self) -> list[Frame]:
        if not self._open:
            return []
        self._open = False
        return [_event("content_block_stop", index=len(self._blocks) - 1)]

    def _delta(self, delta: Json) -> Frame:
        return _event("content_block_delta", index=len(self._blocks) - 1, delta=delta)


def _event(name: str, /, *, final: bool = False, **fields: Any) -> Frame:
    return Frame({"type": name, **fields}, event=name, final=final)


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
    }
