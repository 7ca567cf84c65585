"""The output of a response, item by item, and the OpenAI events that announce it (api-server §3.4, §3.5). Pure.

One builder turns the events of a turn into items and frames. Ids are made of the response's id and the item's number,
so the stored response and the streamed one name the same items, whoever built them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes.events import InterimText, ReasoningDelta, SessionEvent, TextDelta, ToolEnded, ToolStarted
from hermes.outcomes import TurnRecord
from hermes.protocols.http.run_wire import is_hidden_tool
from hermes.protocols.wire.json_codec import encode

KEPT_OUTPUT = 1000
CUT_OUTPUT = KEPT_OUTPUT // 2

Emit = Callable[[str, dict[str, Any]], None]
"""Called with the type and the members of each OpenAI event."""


def nothing(_type: str, _members: dict[str, Any]) -> None:
    """Nobody listens: the items are all that is wanted."""


class ResponseOutput:
    """The items so far.

    Parameters: ``commentary``, whether text beside tool calls is an item of its own; ``tools``, whether tool calls are
    shown at all.
    """

    def __init__(self, response_id: str, emit: Emit = nothing, *, commentary: bool = True, tools: bool = True) -> None:
        self.items: list[dict[str, Any]] = []
        self._mark = response_id.partition("_")[2]
        self._emit = emit
        self._commentary = commentary
        self._tools = tools
        self._message: dict[str, Any] | None = None
        self._reasoning: dict[str, Any] | None = None
        self._text: list[str] = []
        self._calls: set[str] = set()

    def take(self, event: SessionEvent) -> None:
        """One event of the turn."""
        match event:
            case ReasoningDelta(text=text):
                self._reason(text)
            case TextDelta(text=text):
                self._say(text)
            case InterimText(text=text, already_streamed=False):
                self._close_all("commentary")
                self._say(text)
                self._close_all("commentary")
            case ToolStarted(name=name) if self._tools and not is_hidden_tool(name):
                self._close_all("commentary")
                self._call(event)
            case ToolStarted():
                self._close_all("commentary")
            case ToolEnded(call_id=call_id) if call_id in self._calls:
                self._calls.discard(call_id)
                self._result(event)
            case _:
                pass

    def finish(self, record: TurnRecord) -> list[dict[str, Any]]:
        """Close what is open; the final items."""
        text = record.text or ""
        if text and self._message is None and not self._ends_with(text):
            self._say(text)
        self._close_all(None)
        return [cut(item) for item in self.items if self._commentary or item.get("phase") != "commentary"]

    def _ends_with(self, text: str) -> bool:
        last = self.items[-1] if self.items else None
        return last is not None and last["type"] == "message" and last["content"][0]["text"].strip() == text.strip()

    # --- text ---

    def _say(self, text: str) -> None:
        self._close_reasoning()
        if self._message is None:
            # The blank line that separates it from earlier text belongs between items, not into one.
            text = text.lstrip("\n")
            if not text:
                return
            self._message = self._add(
                {"id": self._id("msg"), "type": "message", "role": "assistant", "status": "in_progress", "content": []}
            )
            self._part("response.content_part.added", "")
        self._text.append(text)
        self._emit("response.output_text.delta", {**self._place(self._message), "delta": text, "logprobs": []})

    def _part(self, event: str, text: str) -> None:
        assert self._message is not None
        part = {"type": "output_text", "text": text, "annotations": []}
        self._emit(event, {**self._place(self._message), "part": part})

    def _close_message(self, phase: str | None) -> None:
        message, self._message = self._message, None
        if message is None:
            return
        text = "".join(self._text)
        self._text.clear()
        self._emit("response.output_text.done", {**self._place(message), "text": text, "logprobs": []})
        self._message = message
        self._part("response.content_part.done", text)
        self._message = None
        message["status"] = "completed"
        message["content"] = [{"type": "output_text", "text": text, "annotations": []}]
        if phase is not None:
            message["phase"] = phase
        self._done(message)

    # --- reasoning ---

    def _reason(self, text: str) -> None:
        self._close_message(None)
        if self._reasoning is None:
            item = {"id": self._id("rs"), "type": "reasoning", "status": "in_progress", "summary": []}
            self._reasoning = self._add(item)
            part = {"type": "summary_text", "text": ""}
            self._emit("response.reasoning_summary_part.added", {**self._summary(self._reasoning), "part": part})
        self._text.append(text)
        self._emit("response.reasoning_summary_text.delta", {**self._summary(self._reasoning), "delta": text})

    def _close_reasoning(self) -> None:
        item, self._reasoning = self._reasoning, None
        if item is None:
            return
        text = "".join(self._text)
        self._text.clear()
        part = {"type": "summary_text", "text": text}
        self._emit("response.reasoning_summary_text.done", {**self._summary(item), "text": text})
        self._emit("response.reasoning_summary_part.done", {**self._summary(item), "part": part})
        item["status"] = "completed"
        item["summary"] = [part]
        self._done(item)

    def _close_all(self, phase: str | None) -> None:
        self._close_reasoning()
        self._close_message(phase)

    # --- tools ---

    def _call(self, event: ToolStarted) -> None:
        self._calls.add(event.call_id)
        arguments = encode(dict(event.args)).decode()
        base = {"id": self._id("fc"), "type": "function_call", "name": event.name, "call_id": event.call_id}
        item = self._add({**base, "status": "in_progress", "arguments": ""})
        where = {"item_id": item["id"], "output_index": self._index(item)}
        self._emit("response.function_call_arguments.delta", {**where, "delta": arguments})
        self._emit("response.function_call_arguments.done", {**where, "arguments": arguments, "name": event.name})
        item["status"] = "completed"
        item["arguments"] = arguments
        self._done(item)

    def _result(self, event: ToolEnded) -> None:
        output = [{"type": "input_text", "text": event.result.content}]
        base = {"id": self._id("fco"), "type": "function_call_output", "status": "completed"}
        item = self._add({**base, "call_id": event.call_id, "output": output})
        self._done(item)

    # --- items ---

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._mark}{len(self.items):04x}"

    def _add(self, item: dict[str, Any]) -> dict[str, Any]:
        self.items.append(item)
        self._emit("response.output_item.added", {"output_index": len(self.items) - 1, "item": dict(item)})
        return item

    def _done(self, item: dict[str, Any]) -> None:
        self._emit("response.output_item.done", {"output_index": self._index(item), "item": dict(item)})

    def _index(self, item: dict[str, Any]) -> int:
        return next(index for index, known in enumerate(self.items) if known is item)

    def _place(self, item: dict[str, Any]) -> dict[str, Any]:
        return {"item_id": item["id"], "output_index": self._index(item), "content_index": 0}

    def _summary(self, item: dict[str, Any]) -> dict[str, Any]:
        return {"item_id": item["id"], "output_index": self._index(item), "summary_index": 0}


def cut(item: dict[str, Any]) -> dict[str, Any]:
    """A long tool result in the final response keeps its beginning; the stream had it whole."""
    if item["type"] != "function_call_output" or len(item["output"][0]["text"]) <= KEPT_OUTPUT:
        return item
    text = item["output"][0]["text"]
    note = f"{text[:CUT_OUTPUT]}\n[{len(text) - CUT_OUTPUT} more characters]"
    return {**item, "output": [{"type": "input_text", "text": note}]}
