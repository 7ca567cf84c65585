"""Branch, undo, saving, and what a person sets for a session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from hermes.errors import NothingToBranch, NothingToUndo, SessionBusy
from hermes.events import HistoryRewound, SessionInfoChanged
from hermes.messages import Prompt
from hermes.nurseries import session_history as history
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from tests.support.core import call, events_of, hang, make_services, running_tree, say
from tests.support.invariants import assert_history_is_whole

STOP = CancelReason(Cause.USER_INTERRUPT)


async def talk(session: Session, *texts: str) -> None:
    for text in texts:
        turn = await session.submit_nowait(Prompt(text)).wait_turn()
        assert turn is not None
        await turn.wait_ended()


def texts(session: Session) -> list[str]:
    return [row.text for row in session.rows]


async def test_a_branch_has_the_history_new_ids_and_a_numbered_title(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(say("one"), say("two"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/", title="Plan")
        await talk(session, "a", "b")
        made = await history.branch(tree.registry, session)
        assert texts(made) == ["a", "one", "b", "two"]
        assert {row.row_id for row in made.rows}.isdisjoint(row.row_id for row in session.rows)
        assert (made.stored.title, made.stored.parent_key) == ("Plan #2", session.key)
        assert tree.registry.by_key(made.key) is made
        model.replies[:] = [say("three")]
        await talk(made, "c")
        assert texts(session) == ["a", "one", "b", "two"]


async def test_a_branch_of_the_first_messages_keeps_calls_with_their_results(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("look", calls=[call("nap")]), say("done"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await talk(session, "a")
        made = await history.branch(tree.registry, session, count=2, name="first two")
        assert [row.role for row in made.rows] == ["user", "assistant", "tool"]
        assert made.stored.title == "first two"


async def test_a_branch_of_a_running_session_leaves_the_unfinished_turn_out(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("one"), hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await talk(session, "a")
        submission = session.submit_nowait(Prompt("b"))
        await submission.wait_accepted()
        made = await history.branch(tree.registry, session)
        assert texts(made) == ["a", "one"]
        assert session.running


async def test_a_session_without_history_has_nothing_to_branch(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        with pytest.raises(NothingToBranch):
            await history.branch(tree.registry, session)


async def test_a_stored_session_can_be_branched_without_being_live(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("one"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await talk(session, "a")
        tree.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
        await session.wait_closed()
        made = await history.branch_stored(tree.registry, session.key)
        assert texts(made) == ["a", "one"]
        assert tree.registry.by_key(session.key) is None


async def test_an_undo_takes_the_last_turn_back_and_can_be_undone(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("one"), say("two"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await talk(session, "a", "b")
        result = await history.undo(session)
        assert (result.removed, result.text, result.survivors) == (2, "b", (session.rows[0].row_id,))
        assert texts(session) == ["a", "one"]
        assert any(isinstance(event, HistoryRewound) for event in events_of(session))
        await history.undo_rewind(session)
        assert texts(session) == ["a", "one", "b", "two"]
        assert tuple(session.rows) == await services.store.load_rows(session.key)
        assert not session.slot.taken


async def test_an_undo_inside_a_turn_closes_what_remains(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("nap")]), say("done"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        submission = session.submit_nowait(Prompt("a"))
        turn = await submission.wait_turn()
        assert turn is not None
        await submission.wait_accepted()
        assert session.steer("faster")
        await turn.wait_ended()
        result = await history.undo(session)
        assert result.text == "faster"
        assert_history_is_whole(session.rows)


async def test_an_undo_is_refused_while_a_turn_runs_and_when_there_is_nothing(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        with pytest.raises(NothingToUndo):
            await history.undo(session)
        await session.submit_nowait(Prompt("a")).wait_accepted()
        with pytest.raises(SessionBusy):
            await history.undo(session)


async def test_a_prompt_that_comes_during_an_undo_waits_and_then_runs(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(say("one"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await talk(session, "a")
        model.replies[:] = [say("two")]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(history.undo, session)
            while not session.slot.taken:
                await trio.lowlevel.checkpoint()
            submission = session.submit_nowait(Prompt("b"))
            assert submission.status == "queued"
        turn = await submission.wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert texts(session) == ["b", "two"]


async def test_a_saved_session_is_one_json_file(tmp_path: Path) -> None:
    services, _ = make_services(say("one"), home=tmp_path)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await talk(session, "a")
        with trio.fail_after(10):
            path = await history.save(session)
        assert path.parent == tmp_path / "sessions" / "saved"
        document = json.loads(path.read_text())
        assert document["session_id"] == session.key
        assert [message["content"] for message in document["messages"]] == ["a", "one"]


async def test_a_change_of_the_model_stays_with_the_session_and_the_next_prompt_notes_it(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, model = make_services(say("one"), say("two"), say("three"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await talk(session, "a")
        change = await history.set_model(session, "scripted-2", "custom")
        assert not change.deferred
        assert isinstance(events_of(session)[-1], SessionInfoChanged)
        await talk(session, "b", "c")
        assert [row.display_kind for row in session.rows] == [None, None, "model_switch", None, None, None, None]
        assert model.requests[-1].model == "scripted-2"
        assert session.rows[3].is_user_prompt
        stored = await services.store.get_session(session.key)
        assert stored is not None and (stored.model, stored.provider) == ("scripted-2", "custom")


async def test_a_change_of_the_model_during_a_turn_waits_for_its_end(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(say("look", calls=[call("nap")]), say("one"), say("two"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        submission = session.submit_nowait(Prompt("a"))
        await submission.wait_accepted()
        change = await history.set_model(session, "scripted-2", "custom")
        assert change.deferred
        turn = await submission.wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert [request.model for request in model.requests] == ["scripted-1", "scripted-1"]
        await talk(session, "b")
        assert model.requests[-1].model == "scripted-2"
        assert_history_is_whole(session.rows)


async def test_choices_are_stored_together_and_come_back(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("one"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await talk(session, "a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(history.set_reasoning_effort, session, "high")
            nursery.start_soon(history.set_yolo, session, True)
            nursery.start_soon(history.set_personality, session, "dry")
        tree.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
        await session.wait_closed()
        again = await tree.registry.resume(session.key)
        info = again.info()
        assert (info.reasoning_effort, info.yolo, info.personality) == ("high", True, "dry")


async def test_numbers_add_up(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("one"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await talk(session, "a")
        numbers = history.usage(session)
        assert (numbers.usage.input_tokens, numbers.usage.calls, numbers.active_subagents) == (10, 1, 0)
        breakdown = history.context_breakdown(session)
        assert breakdown.estimated_total == sum(category.tokens for category in breakdown.categories) > 0
