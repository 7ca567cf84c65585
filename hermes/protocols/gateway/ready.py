"""The first frame of every connection (gateway §1.5), and the way to write it before the rest of the server is loaded.

A host on standard input and output waits for this frame before it writes, and what it writes then waits in the pipe:
so the frame is put out as soon as the settings are known to be good, while everything else is still being imported.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from typing import Any


def new_epoch() -> str:
    """32 hex digits that no other process has: numbers of events are comparable only within one (§1.5)."""
    return secrets.token_hex(16)


def ready_payload(epoch: str, *, skin: Mapping[str, Any] | None = None, is_websocket: bool = False) -> dict[str, Any]:
    payload: dict[str, Any] = {"skin": dict(skin or {}), "change_events": True, "replay_epoch": epoch}
    if is_websocket:
        payload["heartbeat"] = True
    return payload


def greet_early(descriptor: int) -> str:
    """Write the frame to a fresh output, which has room for it; returns the epoch it announces."""
    epoch = new_epoch()
    params = {"type": "gateway.ready", "payload": ready_payload(epoch)}
    frame = json.dumps({"jsonrpc": "2.0", "method": "event", "params": params}, separators=(",", ":"))
    try:
        os.write(descriptor, frame.encode() + b"\n")
    except OSError:
        # Nobody reads any more: the channel finds that out too, and ends the server in order.
        return epoch
    return epoch
