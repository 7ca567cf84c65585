"""The live tree over HTTP: look at it, watch it, cancel one node of it."""

from __future__ import annotations

import trio

from hermes.outcomes import CancelReason, Cause
from hermes.protocols.http.call import Api, Call, Reply, boolish, json_reply
from hermes.protocols.http.streaming import KEEPALIVE, KEEPALIVE_SECONDS, RECONNECT_MS, SSE_TYPE, frame, sse_reply
from hermes.protocols.wire.sse import sse_retry

PAUSE = 0.1
"""Seconds between two snapshots: a busy tree changes with every token."""


async def tree(call: Call) -> Reply:
    """The tree as JSON, or as a stream of snapshots for a client that accepts one (or asks with ``?stream=1``)."""
    await trio.lowlevel.checkpoint()
    if SSE_TYPE in call.headers.get("accept", "") or boolish(call.query.get("stream")):
        return sse_reply(TreeStream(call.api), {})
    return json_reply({"object": "hermes.tree", "version": call.api.services.tree.version, "tree": _tree(call.api)})


def _tree(api: Api) -> dict[str, object]:
    return api.tree.snapshot()


class TreeStream:
    """A snapshot at once, then one after each change, at most ten a second. Each has its version as its id: a snapshot
    is whole, so who comes back has missed nothing."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._seen = -1
        self._closed = False

    async def next(self) -> bytes | None:
        tree = self._api.services.tree
        if self._closed or self._api.tree.sessions_ended.is_set():
            return None
        seen = self._seen
        if seen >= 0:
            await trio.sleep(PAUSE)
        changed = False
        with trio.move_on_after(KEEPALIVE_SECONDS):
            await tree.changed(self._seen)
            changed = True
        if not changed:
            return KEEPALIVE
        self._seen = tree.version
        told = frame({"version": self._seen, "tree": _tree(self._api)}, event="tree", id=self._seen)
        return told if seen >= 0 else sse_retry(RECONNECT_MS) + told

    def close(self) -> None:
        self._closed = True


async def cancel_node(call: Call) -> Reply:
    """Cancel just that node. A cancelled tool call gives a result that says so, and the turn goes on."""
    await trio.lowlevel.checkpoint()
    node = call.api.services.tree.get(call.path["node_id"])
    reason = None
    if call.body.strip():
        given = call.json_object().get("reason")
        reason = given if isinstance(given, str) and given else None
    reason = reason or call.query.get("reason") or None
    cancelled = node.request_cancel(CancelReason(Cause.NODE_CANCEL, reason))
    answer = {"object": "hermes.tree.node", "node_id": node.node_id, "kind": node.kind, "name": node.name}
    return json_reply({**answer, "cancelled": cancelled})
