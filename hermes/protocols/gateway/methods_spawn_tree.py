"""spawn_tree.*: what hosts keep of the trees of subagents they have drawn (gateway §9.6)."""

from __future__ import annotations

from typing import Any

import trio

from hermes.agent.spawn_archive import list_trees, load_tree, save_tree
from hermes.errors import InvalidParams
from hermes.protocols.gateway import schemas_work as w
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.rpc.method_table import MethodTable

methods: MethodTable[GatewayClient] = MethodTable()


@methods.method("spawn_tree.save", w.SpawnTreeSaveParams, "SpawnTreeSaveResult")
async def spawn_tree_save(client: GatewayClient, params: w.SpawnTreeSaveParams) -> dict[str, Any]:
    if not params.subagents:
        raise InvalidParams("subagents must not be empty")
    services = client.server.services
    tree = {
        "session_id": params.session_id or "default",
        "started_at": params.started_at,
        "finished_at": params.finished_at if params.finished_at is not None else services.clock(),
        "label": params.label,
        "subagents": params.subagents,
    }
    path = await trio.to_thread.run_sync(save_tree, services.home, tree)
    return {"path": str(path), "session_id": str(tree["session_id"])}


@methods.method("spawn_tree.list", w.SpawnTreeListParams, "SpawnTreeListResult")
async def spawn_tree_list(client: GatewayClient, params: w.SpawnTreeListParams) -> dict[str, Any]:
    home = client.server.services.home

    def read() -> list[dict[str, Any]]:
        return list_trees(home, params.session_id, cross_session=params.cross_session, limit=params.limit)

    return {"entries": await trio.to_thread.run_sync(read)}


@methods.method("spawn_tree.load", w.SpawnTreeLoadParams, "SpawnTreeLoadResult")
async def spawn_tree_load(client: GatewayClient, params: w.SpawnTreeLoadParams) -> dict[str, Any]:
    if not params.path:
        raise InvalidParams("path is required")
    return await trio.to_thread.run_sync(load_tree, client.server.services.home, params.path)
