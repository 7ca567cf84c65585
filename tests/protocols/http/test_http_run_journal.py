"""Events of runs while the store refuses: nobody who reads them notices, then or later."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from hermes.agent.store.memory import MemoryStore
from hermes.errors import StoreUnavailable
from hermes.nurseries import runs
from tests.protocols.http.test_http_runs import events, start
from tests.support.core import clock, say
from tests.support.http_surface import http_surface


class RefusingStore(MemoryStore):
    """Takes no events while ``refuses``; ``slow``: does not answer at all, as a locked database."""

    refuses = True
    slow = False

    async def append_journal(self, run_id: str, frames: Sequence[tuple[int, bytes]], *, keep: int = 0) -> None:
        if self.slow:
            await trio.sleep(0.5)
        if self.refuses:
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("the disk is full", cause="full")
        await super().append_journal(run_id, frames, keep=keep)


@pytest.mark.parametrize("slow", [False, True], ids=["full", "locked"])
async def test_a_run_that_ended_while_the_store_refused_is_read_from_memory(
    slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "CONCLUDE_WITHIN", 0.2)
    store = RefusingStore(now=clock)
    store.slow = slow
    async with http_surface(say("a", "b"), store=store) as surface:
        run_id = await start(surface)
        whole = await events(surface, run_id)
        assert whole[-1].data["event"] == "run.completed"
        assert [event.data["seq"] for event in whole] == list(range(len(whole)))
        assert await events(surface, run_id) == whole
        surface.surface.api.runs.forget_session((await surface.get(f"/v1/runs/{run_id}")).json()["session_id"])
        assert (await surface.get(f"/v1/runs/{run_id}/events")).status_code == 404


async def test_what_the_store_refused_is_written_when_it_takes_it_again() -> None:
    store = RefusingStore(now=clock)
    async with http_surface(say("a", "b"), store=store) as surface:
        surface.surface.api.runs.on_end.append(lambda run, record: setattr(store, "refuses", False))
        run_id = await start(surface)
        whole = await events(surface, run_id)
        surface.surface.api.runs._finished.clear()
        assert len(surface.surface.api.runs._undurable) == 0
        assert await events(surface, run_id) == whole
        assert [event.data["seq"] for event in whole] == list(range(len(whole)))
