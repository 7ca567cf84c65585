"""A store that refuses: at each single write of a turn, once or for good, the turn ends truthfully and runs nothing
that is not stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import ParallelClass, ToolContext
from hermes.errors import HermesError, StoreUnavailable
from hermes.events import ToolEnded, ToolStarted, TurnEnded, TurnRefused
from hermes.messages import Prompt
from hermes.nurseries.turn_slot import Accepted
from hermes.outcomes import Failed, TurnRecord
from tests.support.core import PlainTool, ScriptedModel, call, events_of, make_services, running_tree, say
from tests.support.failing_store import FailingStore
from tests.support.invariants import assert_events_are_well_formed, assert_history_is_whole


class Played:
    def __init__(self) -> None:
        self.ran: list[str] = []
        self.accepted: Accepted | HermesError | None = None
        self.record: TurnRecord | None = None
        self.events: list[Any] = []


async def play(store: FailingStore, *, parallel: bool = False) -> Played:
    """One turn with tools over this store; afterwards the store recovers and a second turn must be complete."""
    played = Played()

    async def note(ctx: ToolContext, arguments: Any) -> str:
        rows = await ctx.store.load_rows(ctx.session_key)
        assert any(ctx.call_id == asked.id for row in rows for asked in row.tool_calls), "ran without being stored"
        played.ran.append(ctx.call_id)
        await trio.sleep(1)
        return "noted"

    calls = [call("note", "c1"), call("note", "c2")] if parallel else [call("note", "c1")]
    model = ScriptedModel(say("look", calls=calls), say("done"))
    kind = ParallelClass.FREE if parallel else ParallelClass.BARRIER
    services, _ = make_services(model=model, store=store, tools=[PlainTool("note", note, kind)])
    with trio.fail_after(200):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="test", cwd="/")
            submission = session.submit_nowait(Prompt("hello"))
            played.accepted = await submission.accepted.wait()
            turn = await submission.wait_turn()
            assert turn is not None
            played.record = await turn.wait_ended()
            assert not session.slot.taken
            assert model.open == 0
            store.recover()
            model.replies[:] = [say("second")]
            again = await session.submit_nowait(Prompt("again")).wait_turn()
            assert again is not None
            assert (await again.wait_ended()).text == "second"
            played.events = list(events_of(session))
            assert_events_are_well_formed(played.events)
            assert_history_is_whole(session.rows)
            assert tuple(session.rows) == tuple(await store.load_rows(session.key)), "memory and store differ"
    return played


async def count_writes(parallel: bool) -> list[str]:
    """The writes of the turn that nothing disturbs; the turn behind it makes the same ones without a tool."""
    store = FailingStore()
    await play(store, parallel=parallel)
    return store.writes[: store.writes.index("finish_turn") + 1]


@pytest.mark.parametrize("stay", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("parallel", [False, True], ids=["one call", "two calls"])
async def test_a_refusal_at_any_write_ends_the_turn_truthfully(
    autojump_clock: trio.testing.MockClock, parallel: bool, stay: bool
) -> None:
    writes = await count_writes(parallel)
    assert writes == ["begin_turn", *["append_rows"] * (3 if parallel else 2), "finish_turn"]
    for at, name in enumerate(writes, 1):
        store = FailingStore(at=at, stay=stay)
        played = await play(store, parallel=parallel)
        assert store.refusals, name
        record = played.record
        assert record is not None
        if name == "begin_turn":
            assert isinstance(played.accepted, StoreUnavailable)
            assert record.exit_reason == "session_persistence_failed"
            assert (played.ran, record.api_calls) == ([], 0), "a turn whose prompt is not stored asks nobody (TL-2)"
        elif at == 2:
            assert played.ran == [], "a tool ran although its call was not stored"
        assert isinstance(record.outcome, Failed)
        assert record.exit_reason == "session_persistence_failed"
        assert record.outcome.failure_reason == "session_persistence_failed:full"


async def test_a_refused_prompt_is_told_to_whoever_sent_it_and_to_nobody_twice(
    autojump_clock: trio.testing.MockClock,
) -> None:
    played = await play(FailingStore(at=1))
    assert isinstance(played.accepted, StoreUnavailable)
    assert played.accepted.cause == "full"
    assert not any(isinstance(event, TurnRefused) for event in played.events)
    assert sum(isinstance(event, TurnEnded) for event in played.events) == 1


async def test_a_tool_whose_result_cannot_be_stored_still_ends_for_those_who_watch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    played = await play(FailingStore(at=3, stay=True))
    assert played.ran == ["c1"]
    assert [event.call_id for event in played.events if isinstance(event, ToolStarted)] == ["c1"]
    assert [event.call_id for event in played.events if isinstance(event, ToolEnded)] == ["c1"]


async def test_the_answer_is_told_although_its_row_could_not_be_stored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    played = await play(FailingStore(at=4, stay=True))
    assert played.record is not None
    assert played.record.text == "done"
    assert played.record.failed and played.record.partial
    assert played.record.exit_reason == "session_persistence_failed"


async def test_a_turn_whose_last_write_is_refused_gives_its_lease_back_by_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = FailingStore(refused=frozenset({"finish_turn"}))
    played = await play(store)
    assert played.record is not None and played.record.failed
    assert store.writes[3:5] == ["finish_turn", "release_lease"]


async def test_a_lease_that_cannot_be_given_back_does_not_hold_the_end_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    played = await play(FailingStore(refused=frozenset({"finish_turn", "release_lease"})))
    assert played.record is not None
    assert len(played.record.cleanup_errors) >= 1


def broken() -> Exception:
    return RuntimeError("a bug in the store")


@pytest.mark.parametrize("make", [broken, lambda: KeyError("x")], ids=["runtime error", "key error"])
async def test_a_store_that_breaks_in_another_way_than_it_may_leaves_no_turn_without_an_end(
    autojump_clock: trio.testing.MockClock, make: Callable[[], Exception]
) -> None:
    for at in range(1, len(await count_writes(False)) + 1):
        played = await play(FailingStore(at=at, error=make))
        assert played.record is not None
        assert played.accepted is not None
