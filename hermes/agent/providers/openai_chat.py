"""The chat completions format: request bodies, and a parser for everything servers call a chat completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes.agent.model_catalog import fit_effort
from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest, ToolSpec
from hermes.agent.providers.encoded_rows import conversation
from hermes.agent.providers.text_calls import TextCallSplitter, read_text_call
from hermes.agent.providers.tool_call_slots import ToolCallSlots
from hermes.agent.providers.wire_format import (
    FINISHING,
    SETTLED,
    Endpoint,
    ErrorContext,
    StreamParser,
    canonical_arguments,
    count,
    image_url,
    parts_of,
    replay_entry,
    replay_of,
    text_of,
    wire_content,
)
from hermes.messages import ImagePart, Row, TextPart, content_text, has_images
from hermes.outcomes import Usage

FINISH_REASONS: Final[Mapping[str, str]] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "content_filter",
    "recitation": "content_filter",
    "sensitive": "content_filter",
}
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_text")
_MAX_TOKENS: Final = ("max_tokens", "max_completion_tokens")
_MARKER: Final = {"type": "ephemeral"}


class ChatFormat:
    """``POST {base}/chat/completions``."""

    def url(self, endpoint: Endpoint) -> str:
        base = endpoint.base_url.rstrip("/")
        return base if base.endswith("/chat/completions") else f"{base}/chat/completions"

    def headers(self, request: ModelRequest, endpoint: Endpoint) -> list[tuple[str, str]]:
        return [("Authorization", f"Bearer {endpoint.api_key}")] if endpoint.api_key else []

    def body(self, request: ModelRequest, endpoint: Endpoint, without: frozenset[str]) -> dict[str, Any]:
        """``messages`` comes last, so that a request is a prefix of the next one as far as possible."""
        body: dict[str, Any] = {"model": request.model}
        if request.stream:
            body["stream"] = True
            if endpoint.stream_usage:
                body["stream_options"] = {"include_usage": True}
        if request.max_output_tokens:
            names = sorted(_MAX_TOKENS, key=lambda name: name != endpoint.max_tokens_field)
            body |= dict.fromkeys([n for n in names if n not in without][:1], request.max_output_tokens)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        body |= _reasoning_fields(request, endpoint)
        body |= endpoint.extra_body
        body |= request.extra_body
        for name in without:
            body.pop(name, None)
        if request.tools:
            body["tools"] = [_tool(spec) for spec in request.tools]
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
            if endpoint.parallel_tools and "parallel_tool_calls" not in without:
                body["parallel_tool_calls"] = True
        body["messages"] = conversation(request, (endpoint, request.model), _ChatRows(request, endpoint))
        return body

    def parser(self, request: ModelRequest, endpoint: Endpoint, on_delta: DeltaSink) -> StreamParser:
        return ChatParser(request, endpoint, on_delta)


def _reasoning_fields(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    effort = fit_effort(request.model, request.reasoning_effort)
    if effort is None:
        return {}
    if endpoint.routed:
        return {"reasoning": {"enabled": False} if effort == "none" else {"effort": effort}}
    if endpoint.thinking_switch:
        return {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}
    return {"reasoning_effort": effort}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    return {"type": "function", "function": function}


class _ChatRows:
    """Rows as chat messages; see ``RowsFormat``."""

    def __init__(self, request: ModelRequest, endpoint: Endpoint) -> None:
        self._request = request
        self._endpoint = endpoint
        self._marked = endpoint.routed and "claude" in request.model.lower()
        self.final_to = len(request.messages)

    def head(self) -> list[dict[str, Any]]:
        system = [tier for tier in self._request.system if tier]
        if not system:
            return []
        content: Any = "\n\n".join(system)
        if self._marked:
            content = [{"type": "text", "text": tier, "cache_control": _MARKER} for tier in system[:1]]
            if len(system) > 1:
                content.append({"type": "text", "text": "\n\n".join(system[1:]), "cache_control": _MARKER})
        return [{"role": "developer" if self._endpoint.developer_role else "system", "content": content}]

    def encode(self, rows: Sequence[Row], first: int) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        tool_images: list[ImagePart] = []
        for row in rows:
            if row.role != "tool" and tool_images:
                messages.append(_shown_images(tool_images))
                tool_images = []
            messages.append(_message(row, self._request, self._endpoint))
            if row.role == "tool" and type(wire_content(row)) is not str:
                tool_images += [part for part in parts_of(wire_content(row)) if isinstance(part, ImagePart)]
        if tool_images:
            messages.append(_shown_images(tool_images))
        return messages

    def begins(self, before: Row, row: Row) -> bool:
        return row.role != "tool"

    def finish(self, messages: list[dict[str, Any]], *, newest: bool) -> None:
        if self._marked:
            _mark(messages, newest=newest)


def _message(row: Row, request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    content = wire_content(row)
    if type(content) is str and row.role == "user":
        return {"role": "user", "content": content}
    if row.role == "tool":
        return {"role": "tool", "tool_call_id": row.tool_call_id or "", "content": content_text(content)}
    if row.role != "assistant":
        if has_images(content):
            return {"role": "user", "content": [_part(part) for part in parts_of(content)]}
        return {"role": "user", "content": content_text(content)}
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content_text(content) or (None if row.tool_calls else ""),
    }
    if endpoint.routed and (details := replay_of(row, endpoint.issuer(request.model), signed=True)):
        message["reasoning_details"] = details
    elif endpoint.echo_reasoning and row.tool_calls:
        message["reasoning_content"] = row.reasoning_content or ""
    if row.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": canonical_arguments(call.arguments)},
            }
            for call in row.tool_calls
        ]
    return message


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": image_url(part)}}


def _shown_images(images: Sequence[ImagePart]) -> dict[str, Any]:
    """Tool messages hold text only; their images follow in a user message."""
    return {
        "role": "user",
        "content": [{"type": "text", "text": "Images of the tool results above:"}, *map(_part, images)],
    }


def _mark(messages: list[dict[str, Any]], *, newest: bool) -> None:
    """Every content becomes a list, marked or not, so that a moving marker does not change the bytes around it."""
    for message in messages:
        if isinstance(message["content"], str) and message["content"]:
            message["content"] = [{"type": "text", "text": message["content"]}]
    said = [m for m in messages if m["role"] not in ("system", "developer") and isinstance(m["content"], list)]
    for message in said[-2:] if newest else ():
        message["content"][-1]["cache_control"] = _MARKER


# --- the answer ------------------------------------------------------------------------------------------------------


class ChatParser:
    """Chunks of a chat completion in, deltas and one ``ModelFinished`` out."""

    def __init__(self, request: ModelRequest, endpoint: Endpoint, on_delta: DeltaSink) -> None:
        self.ended = False
        self._request = request
        self._endpoint = endpoint
        self._on_delta = on_delta
        self._errors = ErrorContext(endpoint, request)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_field: str | None = None
        self._details: list[dict[str, Any]] = []
        self._refusal: list[str] = []
        self._calls = ToolCallSlots(request.request_id, on_delta)
        self._text_calls = TextCallSplitter() if endpoint.local and request.tools else None
        self._finish_reason: str | None = None
        self._usage: Mapping[str, Any] | None = None
        self._model: str | None = None
        self._id: str | None = None

    def event(self, data: bytes) -> float | None:
        if data.startswith(b"[DONE]"):
            self.ended = True
            return SETTLED
        chunk = self._errors.decode(data)
        if chunk is not None:
            self._read(chunk)
        return None if self._finish_reason is None else FINISHING

    def whole(self, answer: Mapping[str, Any]) -> None:
        self._read(answer)
        self.ended = True

    def finish(self) -> ModelFinished:
        self._read_text_calls()
        calls = self._calls.calls()
        reason = self._finish_reason or ("stop" if self.ended else None)
        if calls and reason == "stop":
            reason = "tool_calls"
        reasoning = "".join(self._reasoning)
        return ModelFinished(
            text="".join(self._text),
            reasoning=reasoning,
            tool_calls=calls,
            finish_reason=reason,
            usage=None if self._usage is None else chat_usage(self._usage),
            refusal="".join(self._refusal) or None,
            reasoning_content=reasoning if self._reasoning_field == "reasoning_content" else None,
            reasoning_details=self._details or None,
            replay_items=replay_entry(self._endpoint.issuer(self._request.model), self._details),
            served_model=self._model,
            response_id=self._id,
        )

    def _read_text_calls(self) -> None:
        if self._text_calls is None:
            return
        self._give_text(self._text_calls.flush(), split=False)
        native = bool(self._calls)
        for position, block in enumerate(self._text_calls.blocks):
            call = None if native else read_text_call(block)
            if call is not None:
                self._calls.add(position, None, *call)
            else:
                self._give_text(block.strip(), split=False)

    def _read(self, chunk: Mapping[str, Any]) -> None:
        if chunk.get("error"):
            raise self._errors.from_payload(chunk)
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        choices = chunk.get("choices")
        if self._model is None:
            self._model = chunk.get("model") or None
            self._id = chunk.get("id") or None
        if not choices:
            if chunk.get("object") == "error" or ("message" in chunk and "choices" not in chunk and "id" not in chunk):
                raise self._errors.from_payload(chunk)
            return
        choice = choices[0]
        if choice.get("error"):
            raise self._errors.from_payload(choice)
        delta = choice.get("delta")
        if delta:
            self._delta(delta)
        message = choice.get("message")
        if message:
            self._message(message)
        reason = choice.get("finish_reason")
        if reason:
            if reason == "error":
                raise self._errors.from_payload({"message": "the provider ended the answer with an error", "code": 500})
            self._finish_reason = FINISH_REASONS.get(str(reason).lower(), "stop")
        if choice.get("usage"):
            self._usage = choice["usage"]

    def _delta(self, delta: Mapping[str, Any]) -> None:
        content = delta.get("content")
        if content:
            if isinstance(content, str):
                self._give_text(content)
            else:
                self._content_parts(content)
        if len(delta) > 1 or "content" not in delta:
            self._other_fields(delta)

    def _other_fields(self, delta: Mapping[str, Any]) -> None:
        self._read_reasoning(delta)
        if delta.get("refusal"):
            self._refusal.append(text_of(delta["refusal"]))
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            self._calls.add(call.get("index"), call.get("id"), function.get("name"), function.get("arguments"))
        legacy = delta.get("function_call")
        if legacy:
            self._calls.add(0, None, legacy.get("name"), legacy.get("arguments"))

    def _message(self, message: Mapping[str, Any]) -> None:
        """A whole message: the answer to a request without streaming, or at the end of an odd stream."""
        if not self._text and not self._reasoning:
            content = message.get("content")
            self._read_reasoning(message)
            if isinstance(content, str):
                self._give_text(content)
            elif content:
                self._content_parts(content)
        if message.get("refusal") and not self._refusal:
            self._refusal.append(text_of(message["refusal"]))
        if not self._calls:
            for position, call in enumerate(message.get("tool_calls") or ()):
                function = call.get("function") or {}
                self._calls.add(position, call.get("id"), function.get("name"), function.get("arguments"))
            legacy = message.get("function_call")
            if legacy:
                self._calls.add(0, None, legacy.get("name"), legacy.get("arguments"))

    def _content_parts(self, content: Any) -> None:
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, Mapping) and part.get("type") == "thinking":
                self._give_reasoning(text_of(part.get("thinking")))
            elif text := text_of(part):
                self._give_text(text)

    def _read_reasoning(self, delta: Mapping[str, Any]) -> None:
        """One field is read, the first that speaks: servers send the same text under several names."""
        for name in _REASONING_FIELDS if self._reasoning_field is None else (self._reasoning_field,):
            value = delta.get(name)
            if value:
                self._reasoning_field = name
                self._give_reasoning(text_of(value))
                break
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            for detail in details:
                if isinstance(detail, Mapping):
                    self._add_detail(detail)
                    if self._reasoning_field in (None, "reasoning_details"):
                        text = detail.get("text") or detail.get("summary")
                        if isinstance(text, str) and text:
                            self._reasoning_field = "reasoning_details"
                            self._give_reasoning(text)

    def _add_detail(self, detail: Mapping[str, Any]) -> None:
        """Pieces of one block are joined, so that what is replayed is what a whole answer would have held."""
        last = self._details[-1] if self._details else None
        same = last is not None and all(last.get(key) == detail.get(key) for key in ("type", "index"))
        if last is None or not same or detail.get("type") == "reasoning.encrypted":
            self._details.append(dict(detail))
            return
        for key, value in detail.items():
            if key in ("text", "summary", "data") and isinstance(value, str):
                last[key] = (last.get(key) or "") + value
            elif value is not None:
                last[key] = value

    def _give_text(self, text: str, *, split: bool = True) -> None:
        if split and self._text_calls is not None:
            text = self._text_calls.feed(text)
        if text:
            self._text.append(text)
            self._on_delta(DeltaKind.TEXT, text)

    def _give_reasoning(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._on_delta(DeltaKind.REASONING, text)


def chat_usage(usage: Mapping[str, Any]) -> Usage:
    """``input_tokens`` are those that were not read from or written to a cache."""
    prompt = count(usage, "prompt_tokens") or count(usage, "input_tokens")
    read = (
        count(usage, "prompt_tokens_details", "cached_tokens")
        or count(usage, "prompt_cache_hit_tokens")
        or count(usage, "cached_tokens")
        or count(usage, "cache_read_input_tokens")
    )
    written = count(usage, "prompt_tokens_details", "cache_write_tokens") or count(usage, "cache_creation_input_tokens")
    cost = usage.get("cost")
    return Usage(
        input_tokens=max(0, prompt - read - written),
        output_tokens=count(usage, "completion_tokens") or count(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count(usage, "completion_tokens_details", "reasoning_tokens"),
        calls=1,
        cost_usd=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )
