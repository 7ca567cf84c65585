"""Feeding recorded streams to a parser, as the bytes of a body."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from hermes.agent.ports import DeltaKind, ModelFinished, ModelRequest, ToolSpec
from hermes.agent.providers.http_provider import FORMATS, AnswerReader
from hermes.agent.providers.wire_format import Endpoint

TRANSCRIPTS = Path(__file__).parent.parent / "agent" / "providers" / "transcripts"
TERMINAL = ToolSpec("terminal", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})


def endpoint(api_mode: str = "chat_completions", **more: Any) -> Endpoint:
    given: dict[str, Any] = {"name": "p", "base_url": "https://api.example.com/v1", "api_key": "k"}
    return Endpoint(api_mode=api_mode, **(given | more))


def request(*messages: Any, **more: Any) -> ModelRequest:
    given: dict[str, Any] = {"request_id": "t1:api:1", "model": "m", "messages": tuple(messages)}
    return ModelRequest(**(given | more))


class Reading:
    """One answer being read; ``deltas`` are what the sink received."""

    def __init__(self, api_mode: str, *, asked: ModelRequest | None = None, at: Endpoint | None = None) -> None:
        self.deltas: list[tuple[DeltaKind, str]] = []
        place = at or endpoint(api_mode)
        parser = FORMATS[place.api_mode].parser(
            asked or request(), place, lambda kind, text: self.deltas.append((kind, text))
        )
        self._reader = AnswerReader(parser)

    def read(self, pieces: Iterable[bytes], content_type: str = "text/event-stream") -> ModelFinished:
        for piece in pieces:
            self._reader.consume(piece)
        return self._reader.finish(content_type)

    def said(self, kind: DeltaKind) -> str:
        return "".join(text for found, text in self.deltas if found is kind)


def events(*payloads: Any, done: bool = True) -> bytes:
    """Payloads as a stream; strings stand as they are."""
    lines = [payload.encode() if isinstance(payload, str) else orjson.dumps(payload) for payload in payloads]
    lines += [b"[DONE]"] if done else []
    return b"".join(b"data: " + line + b"\n\n" for line in lines)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
