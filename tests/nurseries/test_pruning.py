"""A turn that leaves old results out, in the tree: durable before it is told, all or nothing, whatever stops it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import ToolContext
from hermes.agent_settings import CompressionSettings
from hermes.events import HistoryCompressed
from hermes.messages import Prompt, Row
from hermes.nurseries import session_history as history
from hermes.nurseries.session import Session
from hermes.outcomes import Failed
from hermes.settings import Settings
from hermes.testing import SweepRun
from tests.support.core import PlainTool, Reply, call, events_of, make_services, running_tree, say
from tests.support.failing_store import FailingStore
from tests.support.verb_sweep import Left, VerbScenario, one_turn, sweep

LONG = "x" * 40_000
SETTINGS = Settings(compression=CompressionSettings(threshold_tokens=50_000))


async def _dump(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    await trio.lowlevel.checkpoint()
    return LONG


DUMP = PlainTool("dump", _dump)


def dumps(count: int = 6) -> list[Reply]:
    return [*(say("", calls=[call("dump", f"c{number}", number=number)]) for number in range(count)), say("done")]


def left_out(rows: Any) -> list[bool]:
    return [row.api_content is not None for row in rows if row.role == "tool"]


async def turn(session: Session, text: str) -> Any:
    started = await session.submit_nowait(Prompt(text)).wait_turn()
    assert started is not None
    return await started.wait_ended()


async def test_a_long_turn_leaves_its_old_results_out_durably_and_shows_them_all(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, model = make_services(*dumps(), tools=[DUMP], settings=SETTINGS)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.memory.file_reads["/a"] = "seen"
        assert (await turn(session, "go")).text == "done"
        assert len(model.requests) == 7, "no model was asked for a summary"
        assert left_out(session.rows) == [True, True, True, False, False, False]
        assert not session.memory.file_reads, "what was read is not before the model any more"
        stored = await services.store.load_rows(session.key)
        assert tuple(session.rows) == stored == await services.store.load_transcript(session.key)
        assert [row.content for row in stored if row.role == "tool"] == [LONG] * 6
        assert sum(isinstance(event, HistoryCompressed) for event in events_of(session)) == 1
        stored_session = await services.store.get_session(session.key)
        assert stored_session is not None
        assert session.history_version == stored_session.history_version
        # Undo and its undo, and a branch, work as ever, and the model reads the same again.
        read = [row.text for row in model.requests[-1].messages]
        await turn(session, "next")
        assert [row.text for row in model.requests[-1].messages][: len(read)] == read
        await history.undo(session)
        await history.undo_rewind(session)
        made = await history.branch(tree.registry, session)
        assert [row.content for row in made.rows] == [row.content for row in session.rows]
        for one in (session, made):
            await turn(one, "and now?")
            assert [row.text for row in model.requests[-1].messages][: len(read)] == read


async def test_an_edit_of_the_prompt_before_what_was_left_out_takes_it_along_and_back(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, _model = make_services(*dumps(), tools=[DUMP], settings=SETTINGS)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await turn(session, "go")
        before = tuple(session.rows)
        await history.undo(session)
        assert not session.rows
        await history.undo_rewind(session)
        assert tuple(session.rows) == before == await services.store.load_rows(session.key)


async def test_a_store_that_refuses_it_ends_the_turn_and_nothing_is_left_out(autojump_clock: trio.abc.Clock) -> None:
    store = FailingStore(refused=frozenset({"shorten_rows"}))
    services, model = make_services(*dumps(), tools=[DUMP], settings=SETTINGS, store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        record = await turn(session, "go")
        assert isinstance(record.outcome, Failed) and record.exit_reason == "session_persistence_failed"
        assert store.refusals == 1 and not any(left_out(session.rows))
        assert not any(isinstance(event, HistoryCompressed) for event in events_of(session))
        store.recover()
        model.replies[:] = [say("second")]
        assert (await turn(session, "again")).text == "second"
        assert tuple(session.rows) == await store.inner.load_rows(session.key)
        assert any(left_out(session.rows))


def _all_or_nothing(run: SweepRun[VerbScenario, Left]) -> None:
    rows: list[Row] = [row for row in run.result.rows if row.role == "tool"]
    assert all(row.content == LONG for row in rows if row.effect_disposition is None)
    told = sum(isinstance(event, HistoryCompressed) for event in run.result.events)
    which = left_out(rows)
    # The prompt that comes after the stop may be the one that makes room.
    assert which == sorted(which, reverse=True) and which.count(True) in (0, 3)
    assert told <= any(which), "told before it was durable"
    assert not any(row.compacted_summary for row in run.result.rows)
    assert run.step or told == 1


@pytest.mark.parametrize("level", ("interrupt", "session", "server"))
def test_a_stop_of_a_turn_that_leaves_results_out_leaves_out_all_or_none(level: str) -> None:
    sweep(one_turn, dumps, level, _all_or_nothing, settings=SETTINGS, tools=(DUMP,))
