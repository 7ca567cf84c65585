"""Chat completions as the fake provider speaks it, with the variations that real endpoints have."""

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


class ChatEncoder:
    """One completion. Usage is streamed if the request asked for it, or if the script fixes another style."""

    def __init__(self, body: Json, faults: Faults, number: int) -> None:
        self._faults = faults
        self._model = body.get("model", "fake-model")
        self._id = f"chatcmpl-{number}"
        options = body.get("stream_options")
        self._wants_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[Json] = []
        self._frames_with_usage = 0

    def start(self) -> list[Frame]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def feed(self, step: Step) -> list[Frame]:
        match step:
            case TextChunk(text):
                self._text.append(text)
                return [self._chunk({"content": text})]
            case ReasoningChunk(text, signature):
                self._reasoning.append(text)
                return [self._chunk(self._reasoning_delta(text, signature))]
            case RedactedReasoning(data):
                return [self._chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": data}]})]
            case RefusalChunk(text):
                self._refusal.append(text)
                return [self._chunk({"refusal": text})]
            case ToolCall():
                self._calls.append(self._whole_call(step))
                return [] if self._faults.whole_message else self._call_frames(step)
            case Delay() | WaitFor() | Finish():
                return []

    def finish(self, step: Finish) -> list[Frame]:
        reason = None if self._faults.no_finish_reason else step.reason
        last = self._envelope({"index": 0, "delta": {}, "finish_reason": reason})
        if self._faults.whole_message:
            last["choices"][0]["message"] = self._message()
        style = self._faults.usage_style
        if step.usage is not None and style != "separate":
            last["usage"] = _usage(step.usage)
        frames = [Frame(last, final=True)]
        if self._faults.duplicate_final:
            frames.append(Frame(last, final=True))
        if step.usage is not None and style == "separate" and self._wants_usage:
            frames.append(Frame({**self._envelope(), "usage": _usage(step.usage)}))
        if not self._faults.no_done:
            frames.append(Frame("[DONE]"))
        return frames

    def whole(self, step: Finish) -> Json:
        reason = None if self._faults.no_finish_reason else step.reason
        answer = self._envelope({"index": 0, "message": self._message(), "logprobs": None, "finish_reason": reason})
        answer["object"] = "chat.completion"
        if step.usage is not None:
            answer["usage"] = _usage(step.usage)
        return answer

    def error(self, message: str, kind: str, code: str | None) -> Frame:
        return Frame({"error": {"message": message, "type": kind, "param": None, "code": code}})

    def _envelope(self, *choices: Json) -> Json:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": self._model,
            "choices": list(choices),
        }

    def _chunk(self, delta: Json) -> Frame:
        chunk = self._envelope({"index": 0, "delta": delta, "finish_reason": None})
        if self._faults.usage_style == "every_chunk" and not self._faults.no_usage:
            # Cumulative, as some gateways send it: the last value counts, the sum would be wrong.
            self._frames_with_usage += 1
            chunk["usage"] = _usage(Usage(1, self._frames_with_usage))
        return Frame(chunk)

    def _reasoning_delta(self, text: str, signature: str | None) -> Json:
        field = self._faults.reasoning_field
        if field != "reasoning_details":
            return {field: text}
        detail: Json = {"type": "reasoning.text", "text": text, "index": 0}
        if signature:
            detail["signature"] = signature
        return {"reasoning_details": [detail]}

    def _call_frames(self, call: ToolCall) -> list[Frame]:
        if self._faults.arguments_as_object:
            return [self._chunk({"tool_calls": [self._place(call) | self._whole_call(call)]})]
        head = self._place(call) | _with_id(call) | {"type": "function"}
        opening = self._chunk({"tool_calls": [head | {"function": {"name": call.name, "arguments": ""}}]})
        pieces = [
            self._chunk({"tool_calls": [self._place(call) | {"function": {"arguments": piece}}]})
            for piece in call.argument_chunks
        ]
        return [opening, *pieces]

    def _place(self, call: ToolCall) -> Json:
        return {} if self._faults.no_tool_index else {"index": call.index}

    def _whole_call(self, call: ToolCall) -> Json:
        arguments: Any = call.arguments
        if self._faults.arguments_as_object:
            arguments = parse_arguments(call.arguments)
        return _with_id(call) | {"type": "function", "function": {"name": call.name, "arguments": arguments}}

    def _message(self) -> Json:
        message: Json = {"role": "assistant", "content": "".join(self._text) or None}
        if self._reasoning:
            message |= self._reasoning_delta("".join(self._reasoning), None)
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._calls:
            message["tool_calls"] = self._calls
        return message


def _with_id(call: ToolCall) -> Json:
    return {} if call.id is None else {"id": call.id}


def _usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
