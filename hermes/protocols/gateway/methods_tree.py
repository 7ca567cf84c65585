"""The live tree over the wire: print it, watch it, cancel any node of it (decisions, "per-node cancel")."""

from __future__ import annotations

from typing import Any

import trio

from hermes.outcomes import CancelReason, Cause
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.events import WireEvent, event_frame
from hermes.protocols.rpc.method_table import Answer, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()

TREE_EVERY = 0.1
"""Seconds between two pictures of the tree for one subscriber: what changes between them is in the later one."""


@methods.method("tree.get", s.TreeGetParams, "TreeGetResult")
def tree_get(client: GatewayClient, params: s.TreeGetParams) -> dict[str, Any]:
    tree = client.server.services.tree
    if params.node_id is not None:
        return {"version": tree.version, "tree": tree.get(params.node_id).snapshot()}
    return {"version": tree.version, "tree": client.server.tree.snapshot()}


@methods.method("tree.subscribe", s.TreeSubscribeParams, "TreeSubscribeResult")
def tree_subscribe(client: GatewayClient, params: s.TreeSubscribeParams) -> Any:
    """From now on each change is followed by a ``tree.changed`` event with the whole tree."""
    version = client.server.services.tree.version
    if client.tree_watch is not None:
        client.tree_watch.cancel("unsubscribed")
        client.tree_watch = None
    if not params.subscribed:
        return {"subscribed": False, "version": version}

    async def watch() -> None:
        seen = version
        while await client.connection.wait_room():
            seen = await client.server.services.tree.changed(seen)
            payload = {"version": seen, "tree": client.server.tree.snapshot()}
            client.send_event(event_frame(WireEvent("tree.changed", payload), ""))
            await trio.sleep(TREE_EVERY)

    def start() -> None:
        client.tree_watch = client.connection.start_companion(watch, name=f"{client.name} tree")

    return Answer({"subscribed": True, "version": version}, after=start)


@methods.method("scope.cancel", s.ScopeCancelParams, "ScopeCancelResult")
def scope_cancel(client: GatewayClient, params: s.ScopeCancelParams) -> dict[str, Any]:
    """Cancel one node and what is below it; what is above goes on. False: somebody else has stopped it already."""
    node = client.server.services.tree.get(params.node_id)
    stopped = node.request_cancel(CancelReason(Cause.NODE_CANCEL, params.reason))
    client.catch_up_all()
    return {"cancelled": stopped, "node_id": params.node_id}
