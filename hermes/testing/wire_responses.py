"""OpenAI Responses as the fake provider speaks it: output items, each with its own little life, numbered events."""

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
from hermes.testing.wire_frames import Frame, Json

INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesEncoder:
    """One response. `length` and `content_filter` end it incomplete, `failed` fails it, all else completes it."""

    def __init__(self, body: Json, faults: Faults, number: int) -> None:
        self._body = body
        self._faults = faults
        self._number = number
        include = body.get("include")
        self._encrypts = isinstance(include, list) and "reasoning.encrypted_content" in include
        self._sequence = 0
        self._output: list[Json] = []
        self._open: str | None = None

    def start(self) -> list[Frame]:
        response = self._response("in_progress", None)
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def feed(self, step: Step) -> list[Frame]:
        match step:
            case TextChunk(text):
                frames = self._open_message("output_text", "text")
                self._output[-1]["content"][0]["text"] += text
                return [*frames, self._part_event("response.output_text.delta", delta=text, logprobs=[])]
            case RefusalChunk(text):
                frames = self._open_message("refusal", "refusal")
                self._output[-1]["content"][0]["refusal"] += text
                return [*frames, self._part_event("response.refusal.delta", delta=text)]
            case ReasoningChunk(text, signature):
                return self._reasoning(text, signature)
            case RedactedReasoning(data):
                frames = self._close()
                frames.append(self._add({"type": "reasoning", "summary": [], "encrypted_content": data}))
                return [*frames, self._item_done()]
            case ToolCall():
                return [*self._close(), *self._function_call(step)]
            case Delay() | WaitFor() | Finish():
                return []

    def finish(self, step: Finish) -> list[Frame]:
        frames = self._close()
        if self._faults.no_done:
            return frames
        response = self._ended(step)
        if self._faults.completed_without_output:
            response = response | {"output": []}
        name = f"response.{response['status']}"
        frames.append(self._event(name, final=True, response=response))
        if self._faults.duplicate_final:
            frames.append(self._event(name, final=True, response=response))
        return frames

    def whole(self, step: Finish) -> Json:
        self._close()
        return self._ended(step)

    def error(self, message: str, kind: str, code: str | None) -> Frame:
        return self._event("error", code=code or kind, message=message, param=None)

    def _ended(self, step: Finish) -> Json:
        response = self._response("completed", step.usage)
        if step.reason in INCOMPLETE_REASONS:
            response["status"] = "incomplete"
            response["incomplete_details"] = {"reason": INCOMPLETE_REASONS[step.reason]}
        elif step.reason == "failed":
            response["status"] = "failed"
            response["error"] = {"code": "server_error", "message": "The model failed to produce a response."}
        if self._faults.no_finish_reason:
            response["status"] = "in_progress" if response["status"] == "completed" else response["status"]
        return response

    def _response(self, status: str, usage: Usage | None) -> Json:
        return {
            "id": f"resp_{self._number}",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": self._body.get("instructions"),
            "metadata": {},
            "model": self._body.get("model", "fake-model"),
            "output": list(self._output),
            "parallel_tool_calls": bool(self._body.get("parallel_tool_calls", True)),
            "temperature": 1.0,
            "tool_choice": self._body.get("tool_choice", "auto"),
            "tools": self._body.get("tools", []),
            "top_p": 1.0,
            "usage": None if usage is None else _usage(usage),
        }

    # --- items

    def _open_message(self, part_type: str, field: str) -> list[Frame]:
        if self._open == part_type:
            return []
        frames = self._close()
        frames.append(self._add({"type": "message", "role": "assistant", "status": "in_progress", "content": []}))
        part: Json = {"type": part_type, field: ""}
        if part_type == "output_text":
            part["annotations"] = []
        self._output[-1]["content"].append(part)
        frames.append(self._part_event("response.content_part.added", part=dict(part)))
        self._open = part_type
        return frames

    def _reasoning(self, text: str, signature: str | None) -> list[Frame]:
        frames: list[Frame] = []
        if self._open != "reasoning":
            frames = [*self._close(), self._add({"type": "reasoning", "summary": []})]
            self._output[-1]["summary"].append({"type": "summary_text", "text": ""})
            part = {"type": "summary_text", "text": ""}
            frames.append(self._summary_event("response.reasoning_summary_part.added", part=part))
            self._open = "reasoning"
        self._output[-1]["summary"][0]["text"] += text
        frames.append(self._summary_event("response.reasoning_summary_text.delta", delta=text))
        if signature is None:
            return frames
        if signature and self._encrypts:
            self._output[-1]["encrypted_content"] = signature
        return [*frames, *self._close()]

    def _function_call(self, call: ToolCall) -> list[Frame]:
        identity = {} if call.id is None else {"call_id": call.id}
        item = {"type": "function_call", **identity, "name": call.name, "arguments": "", "status": "in_progress"}
        frames = [self._add(item)]
        for piece in call.argument_chunks:
            frames.append(self._item_event("response.function_call_arguments.delta", delta=piece))
        self._output[-1] |= {"arguments": call.arguments, "status": "completed"}
        done = {"name": call.name, "arguments": call.arguments}
        frames.append(self._item_event("response.function_call_arguments.done", **done))
        return [*frames, self._item_done()]

    def _close(self) -> list[Frame]:
        """End the open item: the text as a whole, its part, the item."""
        kind, self._open = self._open, None
        if kind is None:
            return []
        item = self._output[-1]
        if kind == "reasoning":
            text = item["summary"][0]["text"]
            frames = [
                self._summary_event("response.reasoning_summary_text.done", text=text),
                self._summary_event("response.reasoning_summary_part.done", part=item["summary"][0]),
            ]
        else:
            item["status"] = "completed"
            part = item["content"][0]
            whole = {"text": part["text"], "logprobs": []} if kind == "output_text" else {"refusal": part["refusal"]}
            frames = [
                self._part_event(f"response.{kind}.done", **whole),
                self._part_event("response.content_part.done", part=part),
            ]
        return [*frames, self._item_done()]

    def _add(self, item: Json) -> Frame:
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[item["type"]]
        self._output.append({"id": f"{prefix}_{self._number}_{len(self._output)}", **item})
        return self._event(
            "response.output_item.added", output_index=len(self._output) - 1, item=_copy(self._output[-1])
        )

    def _item_done(self) -> Frame:
        index = len(self._output) - 1
        return self._event("response.output_item.done", output_index=index, item=_copy(self._output[-1]))

    # --- events

    def _item_event(self, name: str, /, **fields: Any) -> Frame:
        item_id, index = self._output[-1]["id"], len(self._output) - 1
        return self._event(name, item_id=item_id, output_index=index, **fields)

    def _part_event(self, name: str, /, **fields: Any) -> Frame:
        return self._item_event(name, content_index=0, **fields)

    def _summary_event(self, name: str, /, **fields: Any) -> Frame:
        return self._item_event(name, summary_index=0, **fields)

    def _event(self, name: str, /, *, final: bool = False, **fields: Any) -> Frame:
        number, self._sequence = self._sequence, self._sequence + 1
        return Frame({"type": name, "sequence_number": number, **fields}, event=name, final=final)


def _copy(item: Json) -> Json:
    """Items still grow after they were announced; a frame must show them as they were."""
    return {key: list(value) if isinstance(value, list) else value for key, value in item.items()}


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
