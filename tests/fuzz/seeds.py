"""Inputs that are nearly right: where a search of the byte space begins."""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.support.provider_parsing import delta, events

CUTS = b"\x20\x80\xe0"


def _typed(*payloads: dict[str, Any]) -> bytes:
    return b"".join(
        b"event: %s\ndata: %s\n\n" % (str(one["type"]).encode(), json.dumps(one).encode()) for one in payloads
    )


CHAT = events(
    delta(role="assistant", content=""),
    delta(reasoning_content="let me "),
    delta(content="h\u00e9llo"),
    delta(
        tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{"}}]
    ),
    delta(tool_calls=[{"index": 0, "function": {"arguments": '"command": "ls"}'}}]),
    delta("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
)
MESSAGES = _typed(
    {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "so"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "terminal"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
)
RESPONSES = _typed(
    {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "i", "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "item_id": "i", "delta": "hello"},
    {
        "type": "response.output_item.done",
        "output_index": 1,
        "item": {"type": "function_call", "id": "f", "call_id": "c", "name": "terminal", "arguments": "{}"},
    },
    {"type": "response.completed", "response": {"status": "completed", "usage": {"input_tokens": 1}, "output": []}},
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CALL = b'{"jsonrpc":"2.0","id":1,"method":"prompt.submit","params":{"session_id":"s","text":"hi"}}\n'
SEEDS: tuple[bytes, ...] = (
    CUTS + CALL + b'{"id":"srq-1","result":{"choice":"once"}}\r\n[1]\n{"id":2}\n',
    CUTS + CHAT,
    CUTS + MESSAGES,
    CUTS + RESPONSES,
    CUTS + b'{"error":{"message":"no","type":"x","code":7}}',
    CUTS + HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
    CUTS + HEAD + b"Content-Length: 5\r\n\r\nhello",
    CUTS + HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"hello" * 9, mtime=0),
    CUTS + b"\xef\xbb\xbfid: 1\r\nevent: e\rretry: 10\ndata: a\ndata: b\n\n: c\n",
)
