"""The journal of a run whose server is gone: it gets the end that nobody was there to write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hermes.agent.ports import TranscriptStore

READ_BATCH = 1000
END = "run.interrupted"
TOLD = ("completed", "partial", "interrupted", "cause", "reason", "error")


async def end_lost_journal(
    store: TranscriptStore, encode: Callable[[Any], bytes], status: Mapping[str, Any], *, journaled: bool, keep: int
) -> None:
    """Append the terminal event, with what the terminal ``status`` says. May be repeated.

    ``journaled``: it gets one even if no event of it has become durable.
    """
    run_id = str(status["run_id"])
    last, newest = -1, b""
    while page := await store.read_journal(run_id, after=last, limit=READ_BATCH):
        last, newest = page[-1]
    if not (journaled or newest) or (newest and json.loads(newest).get("event") == END):
        return
    told = {name: status[name] for name in TOLD}
    body = {"event": END, "run_id": run_id, "timestamp": status["updated_at"], **told, "failed": False, "seq": last + 1}
    await store.append_journal(run_id, [(last + 1, encode(body))], keep=keep)
