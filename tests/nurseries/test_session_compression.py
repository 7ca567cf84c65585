"""Compression by hand: it holds the slot, can be stopped, and changes all or nothing."""

from __future__ import annotations

import pytest
import trio

from hermes.errors import SessionBusy
from hermes.events import HistoryCompressed, StatusUpdate
from hermes.messages import Prompt
from hermes.nurseries.session import Session
from hermes.nurseries.session_compression import CompressResult, CompressWish, compress, parse_wish
from hermes.outcomes import CancelReason, Cause
from tests.support.core import ScriptedModel, events_of, hang, make_services, running_tree, say

STOP = CancelReason(Cause.USER_INTERRUPT)
LONG = "word " * 400


async def long_talk(session: Session, model: ScriptedModel, turns: int = 6) -> None:
    for number in range(turns):
        model.replies[:] = [say(f"answer {number} {LONG}")]
        turn = await session.submit_nowait(Prompt(f"question {number}")).wait_turn()
        assert turn is not None
        await turn.wait_ended()


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        (None, CompressWish()),
        ("the parser", CompressWish(focus="the parser")),
        ("here", CompressWish(keep=2)),
        ("here 4", CompressWish(keep=4)),
        ("here 3 the parser", CompressWish(focus="the parser", keep=3)),
        ("--keep 3", CompressWish(keep=3)),
        ("--keep 0", CompressWish(keep=1)),
        ("\u2014preview", CompressWish(preview=True)),
        ("--dry-run the parser", CompressWish(focus="the parser", preview=True)),
    ],
)
def test_the_wish_is_read(text: str | None, wish: CompressWish) -> None:
    assert parse_wish(text) == wish


async def test_a_compression_keeps_the_last_exchanges_and_tells(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await long_talk(session, model)
        model.replies[:] = [say("all that mattered")]
        before = session.log.latest_seq
        result = await compress(session, "here 2")
        assert result.status == "compressed"
        assert result.removed > 0 and result.after_tokens < result.before_tokens
        assert [row.text for row in session.rows][-4] == "question 4"
        assert tuple(session.rows) == await services.store.load_rows(session.key)
        events = events_of(session, before)
        assert [event.kind for event in events if isinstance(event, StatusUpdate)] == ["compressing", "status"]
        assert any(isinstance(event, HistoryCompressed) for event in events)
        assert session.usage.calls == 7
        model.replies[:] = [say("next")]
        turn = await session.submit_nowait(Prompt("more")).wait_turn()
        assert turn is not None and (await turn.wait_ended()).text == "next"


async def test_a_preview_and_a_short_history_change_nothing(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        assert (await compress(session, None)).summary.noop
        await long_talk(session, model)
        rows = tuple(session.rows)
        result = await compress(session, "here 1 --preview")
        assert result.summary.noop and result.summary.note is not None and result.removed == 0
        assert tuple(session.rows) == rows


async def test_it_is_refused_while_a_turn_runs(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await session.submit_nowait(Prompt("a")).wait_accepted()
        with pytest.raises(SessionBusy):
            await compress(session, None)


async def test_an_interrupt_aborts_it_drops_nothing_of_the_history_and_frees_the_slot(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, model = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await long_talk(session, model)
        rows = tuple(session.rows)
        model.replies[:] = [hang(), say("next")]
        results: list[CompressResult] = []

        async def run() -> None:
            results.append(await compress(session, "here 1"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            assert session.status == "working"
            submission = session.submit_nowait(Prompt("later"))
            assert submission.status == "queued"
            interrupt = session.interrupt_nowait(STOP)
            settled = await interrupt.wait_settled(0.9)
            assert settled.status == "interrupted" and settled.settled
            assert [drop["text"] for drop in settled.dropped_prompts] == ["later"]
            assert session.submit_nowait(Prompt("now")).status == "streaming"
        assert results[0].status == "aborted" and results[0].summary.aborted
        assert tuple(session.rows)[: len(rows)] == rows
        assert model.open == 0


async def test_prompts_that_come_meanwhile_start_afterwards(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await long_talk(session, model)
        model.replies[:] = [say("summary", pause=3), say("then")]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(compress, session, "here 1")
            await trio.testing.wait_all_tasks_blocked()
            submission = session.submit_nowait(Prompt("later"))
        turn = await submission.wait_turn()
        assert turn is not None and (await turn.wait_ended()).text == "then"
        assert any(row.compacted_summary for row in session.rows)
