"""``GET /api/runs``: the runs of the caller that have not ended, oldest first."""

from __future__ import annotations

import trio

from hermes.protocols.http.call import Call, Reply, json_reply


async def list_runs(call: Call) -> Reply:
    """Statuses as ``GET /v1/runs/{run_id}`` gives them; runs that have ended are asked for by id."""
    await trio.lowlevel.checkpoint()
    runs = call.api.runs
    mine = [runs.wire.status(run) for run in runs.live() if run.principal == call.principal]
    return json_reply({"object": "list", "data": mine})
