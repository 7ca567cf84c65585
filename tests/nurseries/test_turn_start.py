"""How a turn begins: lease, durable prompt, repaired history; and what refuses it changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import BackgroundProcessInfo, LeaseOwner
from hermes.errors import (
    HermesError,
    InvalidParams,
    NotFound,
    SessionOwnedElsewhere,
    StaleRewindTarget,
    StoredSessionNotFound,
    StoreUnavailable,
)
from hermes.events import HistoryRewound, Notice, SessionsChanged, StatusUpdate, TurnStarted
from hermes.messages import Prompt, RewindIntent, Row
from hermes.nurseries import turn_start
from hermes.nurseries.session import Session
from hermes.nurseries.turn import Turn
from hermes.outcomes import CancelReason, Cause
from hermes.settings import Settings
from tests.support.core import call, events_of, hang, make_services, running_tree, say
from tests.support.failing_store import FailingStore
from tests.support.invariants import assert_events_are_well_formed, assert_history_is_whole

OTHER = LeaseOwner("another-host", 2, 2, "other")


async def started(session: Session, text: str = "hello", **options: Any) -> Turn:
    turn = await session.submit_nowait(Prompt(text, **options)).wait_turn()
    assert turn is not None
    await trio.testing.wait_all_tasks_blocked()
    return turn


async def test_the_prompt_is_durable_before_the_turn_is_told_to_have_started(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await started(
            session, "shown", api_content="meant", client_message_id="m1", display_metadata={"a": 1}, source="tui"
        )
        (event,) = [event for event in events_of(session) if isinstance(event, TurnStarted)]
        (row,) = await services.store.load_rows(session.key)
        assert (row.content, row.api_content, row.platform_message_id) == ("shown", "meant", "m1")
        assert (event.user_text, event.user_row_id, event.prompt_row) == ("shown", row.row_id, session.rows[0])
        assert (event.client_message_id, event.display_metadata, event.source) == ("m1", {"a": 1}, "tui")
        assert SessionsChanged() in [entry.event for entry in services.announce.since(0)[0]]


@pytest.mark.parametrize("taken", (False, True), ids=("a free title", "a taken title"))
async def test_a_title_given_while_the_session_is_being_stored_is_stored_or_taken_back(
    taken: bool, autojump_clock: trio.testing.MockClock
) -> None:
    asked, go = trio.Event(), trio.Event()
    wait = False

    async def before(name: str) -> None:
        if name == "begin_turn" and wait:
            asked.set()
            await go.wait()

    store = FailingStore(before=before)
    services, _ = make_services(say("hi"), say("hi"), store=store)
    async with running_tree(services) as tree:
        if taken:
            await tree.registry.create(source="test", cwd="/", title="mine").ensure_stored()
        wait = True
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("one")).wait_turn()
        assert turn is not None
        await asked.wait()
        await session.set_title("mine")
        go.set()
        assert (await turn.wait_ended()).completed
        stored = await services.store.get_session(session.key)
        assert stored is not None
        assert stored.title == session.stored.title == ("one" if taken else "mine")
        warned = [event.text for event in events_of(session) if isinstance(event, Notice) and event.level == "warning"]
        assert len(warned) == taken


@pytest.mark.parametrize("path", ("a\0b", "\0", "\ud800/x"))
def test_what_is_no_name_of_a_file_is_left_for_the_tool_to_refuse(path: str) -> None:
    assert turn_start.real_path("/work", path) == f"/work/{path}"


async def test_no_session_works_in_a_directory_that_cannot_be(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        with pytest.raises(InvalidParams):
            tree.registry.create(source="test", cwd="/work\0")
        assert tree.registry.live() == []


async def test_a_turn_without_words_continues_what_is_there(autojump_clock: trio.testing.MockClock) -> None:
    services, model = make_services(say("go on"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await services.store.create_session(session.stored)
        session.is_stored = True
        session.rows.extend(await services.store.append_rows(session.key, [Row("user", "asked before")]))
        submission = session.submit_nowait(Prompt(None))
        assert (await submission.wait_accepted()).user_row_id is None
        turn = await submission.wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert [row.role for row in session.rows if row.role == "user"] == ["user"]
        assert model.requests[0].messages[0].text == "asked before"


async def test_a_session_whose_lease_another_process_holds_is_busy_elsewhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, model = make_services(say("first"), say("now"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session)).wait_ended()
        await services.store.acquire_lease(session.key, OTHER, ttl=30)
        submission = session.submit_nowait(Prompt("mine"))
        with pytest.raises(SessionOwnedElsewhere, match="pid 2 on another-host"):
            await submission.wait_accepted()
        turn = await submission.wait_turn()
        assert turn is not None
        record = await turn.wait_ended()
        assert record.exit_reason == "session_busy"
        assert len(model.requests) == 1
        assert "mine" not in [row.text for row in await services.store.load_rows(session.key)]
        await services.store.release_lease(session.key, OTHER)
        assert (await (await started(session)).wait_ended()).text == "now"


async def test_a_prompt_waits_a_moment_for_a_turn_elsewhere_and_says_so_and_an_edit_does_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(say("first"), say("now"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session)).wait_ended()
        await services.store.acquire_lease(session.key, OTHER, ttl=1000)
        at = trio.current_time()
        edit = session.submit_nowait(Prompt("edit"), rewind=RewindIntent(row_id=1, confirm_empty=True))
        with pytest.raises(SessionOwnedElsewhere):
            await edit.wait_accepted()
        assert trio.current_time() == at
        told = session.log.latest_seq
        with pytest.raises(SessionOwnedElsewhere) as refused:
            await session.submit_nowait(Prompt("mine")).wait_accepted()
        assert trio.current_time() == at + 5
        assert refused.value.data["owner"] == "pid 2 on another-host"
        assert refused.value.data["expires_at"] == pytest.approx(services.clock() + 1000, abs=10)
        said = [event.text for event in events_of(session, told) if isinstance(event, StatusUpdate)]
        assert said[0].endswith("(pid 2 on another-host); waiting up to 5 s for its end")
        assert said[1:] == ["ready"]
        waiting = session.submit_nowait(Prompt("mine again"))
        await trio.sleep(3)
        await services.store.release_lease(session.key, OTHER)
        assert (await waiting.wait_accepted()).user_row_id is not None
        turn = await waiting.wait_turn()
        assert turn is not None and (await turn.wait_ended()).text == "now"


async def test_what_another_process_wrote_is_read_before_the_turn(autojump_clock: trio.testing.MockClock) -> None:
    services, model = make_services(say("first"), say("second"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session)).wait_ended()
        await services.store.acquire_lease(session.key, OTHER, ttl=30)
        await services.store.append_rows(session.key, [Row("user", "from there"), Row("assistant", "said there")])
        await services.store.release_lease(session.key, OTHER)
        await (await started(session, "from here")).wait_ended()
        texts = ["hello", "first", "from there", "said there", "from here", "second"]
        assert [row.text for row in session.rows] == texts
        assert [row.text for row in await services.store.load_rows(session.key)] == texts
        assert [row.text for row in model.requests[1].messages] == texts[:-1]


async def test_a_session_that_another_process_deleted_is_not_brought_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(say("first"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session)).wait_ended()
        await services.store.delete_session(session.key)
        with pytest.raises(NotFound):
            await session.submit_nowait(Prompt("again")).wait_accepted()
        with pytest.raises((NotFound, StoredSessionNotFound)):
            await turn_start.reload(session)


async def test_a_rewind_replaces_the_tail_and_tells_what_is_left(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("a"), say("b"), say("c"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session, "one")).wait_ended()
        await (await started(session, "two")).wait_ended()
        session.memory.file_reads["x"] = 1
        gone = [row.row_id for row in session.rows[2:] if row.row_id is not None]
        submission = session.submit_nowait(Prompt("two, better"), rewind=RewindIntent(row_id=session.rows[2].row_id))
        accepted = await submission.wait_accepted()
        turn = await submission.wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert [row.text for row in session.rows] == ["one", "a", "two, better", "c"]
        assert accepted.survivors == (session.rows[0].row_id,)
        assert accepted.user_row_id == session.rows[2].row_id
        (event,) = [event for event in events_of(session) if isinstance(event, HistoryRewound)]
        assert event == HistoryRewound(tuple(gone), accepted.survivors)
        assert session.memory.file_reads == {}
        stored = await services.store.get_session(session.key)
        assert stored is not None and stored.history_version == session.history_version


@pytest.mark.parametrize("broken", ["stale target", "disk full"])
async def test_a_rewind_that_is_refused_has_changed_nothing(
    autojump_clock: trio.testing.MockClock, broken: str
) -> None:
    store = FailingStore()
    services, _ = make_services(say("a"), say("b"), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session, "one")).wait_ended()
        before, told = list(session.rows), session.log.latest_seq
        intent = RewindIntent(row_id=session.rows[0].row_id, confirm_empty=True)
        expected: type[HermesError] = StoreUnavailable
        if broken == "stale target":
            intent, expected = RewindIntent(row_id=9999), StaleRewindTarget
        else:
            store.refused = frozenset({"rewind"})
        submission = session.submit_nowait(Prompt("again"), rewind=intent)
        with pytest.raises(expected):
            await submission.wait_accepted()
        turn = await submission.wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert session.rows == before == list(await store.load_rows(session.key))
        assert not any(isinstance(event, HistoryRewound) for event in events_of(session, told))
        assert not session.slot.taken
        store.recover()
        assert (await (await started(session, "two")).wait_ended()).text == "b"


@pytest.mark.parametrize(
    "intent",
    [RewindIntent(row_id=1), RewindIntent(ordinal=0, confirm_empty=True), RewindIntent(message_id="m")],
    ids=("row id", "ordinal", "message id"),
)
async def test_a_rewind_of_a_session_that_was_never_stored_is_stale_and_stores_nothing(
    autojump_clock: trio.testing.MockClock, intent: RewindIntent
) -> None:
    store = FailingStore()
    services, _ = make_services(say("a"), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/", title="mine")
        with pytest.raises(StaleRewindTarget) as refused:
            await session.submit_nowait(Prompt("again"), rewind=intent).wait_accepted()
        assert refused.value.data["user_turn_count"] == 0
        assert store.writes == []
        assert await store.get_session(session.key) is None and not session.is_stored
        assert (await (await started(session)).wait_ended()).text == "a"
        stored = await store.get_session(session.key)
        assert stored is not None and stored.title == "mine"


async def test_a_context_of_the_callers_own_replaces_the_stored_one_for_that_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, model = make_services(say("a"), say("b"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session, "stored")).wait_ended()
        history = (Row("user", "theirs"), Row("assistant", "their answer"))
        await (await started(session, "new", history=history)).wait_ended()
        assert [row.text for row in model.requests[1].messages] == ["theirs", "their answer", "new"]
        assert [row.text for row in session.rows] == ["stored", "a", "new", "b"]


# --- the lease while the turn runs ---


async def test_the_lease_is_renewed_as_long_as_the_turn_runs_and_given_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = FailingStore()
    services, _ = make_services(say("slow", pause=99), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(95)
        with pytest.raises(SessionOwnedElsewhere):
            await store.inner.acquire_lease(session.key, OTHER, ttl=30)
        await turn.wait_ended()
        assert store.writes.count("refresh_leases") == 9
        await store.inner.acquire_lease(session.key, OTHER, ttl=30)


async def test_a_turn_that_has_lost_its_lease_stops_and_writes_nothing_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = FailingStore()
    services, _ = make_services(say("", calls=[call("nap", seconds=100)]), say("again"), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await store.inner.release_lease(session.key, services.owner)
        await store.inner.acquire_lease(session.key, OTHER, ttl=1000)
        before = await store.load_rows(session.key)
        record = await turn.wait_ended()
        assert (record.cause, record.exit_reason) == (
            Cause.LEASE_LOST,
            "interrupted_by_system(session_turn_lease_lost)",
        )
        assert await store.load_rows(session.key) == before
        assert_events_are_well_formed(events_of(session))
        await store.inner.release_lease(session.key, OTHER)
        await (await started(session)).wait_ended()
        assert_history_is_whole(session.rows)


async def test_rows_of_a_turn_whose_lease_was_taken_are_refused_before_anybody_has_noticed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A clock that jumps makes a lease look expired: the tool ends before the next renewal."""
    store = FailingStore()
    services, _ = make_services(say("", calls=[call("nap", seconds=2)]), say("again"), say("new"), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(1)
        await store.inner.release_lease(session.key, services.owner)
        await store.inner.acquire_lease(session.key, OTHER, ttl=1000)
        before = await store.load_rows(session.key)
        record = await turn.wait_ended()
        assert record.cause is Cause.LEASE_LOST
        assert await store.load_rows(session.key) == before
        assert_events_are_well_formed(events_of(session))
        await store.inner.release_lease(session.key, OTHER)
        await (await started(session)).wait_ended()
        assert_history_is_whole(session.rows)


async def test_a_turn_whose_session_was_deleted_elsewhere_ends_as_one_that_lost_its_lease(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """For somebody whose clock has jumped the lease had expired, and nothing spoke against deleting."""
    store = FailingStore()
    services, _ = make_services(say("", calls=[call("nap", seconds=2)]), say("again"), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(1)
        await store.inner.release_lease(session.key, services.owner)
        await store.inner.delete_session(session.key)
        record = await turn.wait_ended()
        assert record.cause is Cause.LEASE_LOST
        assert_events_are_well_formed(events_of(session))


@pytest.mark.parametrize(("failures", "lost"), [(2, False), (3, True)])
async def test_a_lease_that_cannot_be_renewed_counts_as_lost_when_it_has_expired(
    autojump_clock: trio.testing.MockClock, failures: int, lost: bool
) -> None:
    store = FailingStore()
    services, _ = make_services(say("slow", pause=50), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        store.refused = frozenset({"refresh_leases"})
        await trio.sleep(failures * 10 + 5)
        store.recover()
        record = await turn.wait_ended()
        assert record.cause is (Cause.LEASE_LOST if lost else None)


# --- turns that the server starts by itself ---


def ended(process_id: str = "proc_1") -> BackgroundProcessInfo:
    return BackgroundProcessInfo(process_id, "make all", "/", 7, 0.0, "exited", exit_code=2)


async def test_the_end_of_a_process_is_a_turn_of_its_own_kind(autojump_clock: trio.testing.MockClock) -> None:
    services, model = make_services(say("seen"))
    services = replace(services, redact=lambda text: text.replace("secret", "***"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.process_finished(ended(), "x" * 9000 + " secret end")
        turn = session.slot.turn
        assert turn is not None
        await turn.wait_ended()
        row = session.rows[0]
        assert (row.display_kind, row.text) == ("process_complete", "[process proc_1 finished, exit 2]")
        metadata: Mapping[str, Any] = row.display_metadata or {}
        assert metadata["process_id"] == "proc_1"
        sent = model.requests[0].messages[0]
        assert "*** end" in str(sent) and "secret" not in str(sent)
        assert session.stored.title is None, "a turn that nobody typed gives no title"


async def test_the_end_of_a_process_waits_behind_the_running_turn(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("slow", pause=5), say("seen"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await started(session)
        session.process_finished(ended(), "")
        (queued,) = session.slot.queued
        turn = await queued.wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert session.rows[2].display_kind == "process_complete"


async def test_a_process_that_ends_when_the_queue_is_full_is_told_as_a_notice(
    autojump_clock: trio.testing.MockClock,
) -> None:
    settings = Settings()
    update = {"limits": settings.limits.model_copy(update={"max_queued_prompts": 1})}
    services, _ = make_services(hang(), settings=settings.model_copy(update=update))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await started(session)
        session.submit_nowait(Prompt("waits"))
        session.process_finished(ended(), "")
        assert Notice("[process proc_1 finished, exit 2]") in events_of(session)
        assert not session.closing


async def test_a_process_that_ends_with_its_session_starts_nothing(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        from hermes.outcomes import CancelReason

        session.cancel(CancelReason(Cause.SESSION_CLOSED))
        session.process_finished(ended(), "")
        assert session.slot.turn is None and session.slot.queued == ()


async def test_what_a_prompt_names_is_read_when_its_turn_begins(autojump_clock: trio.testing.MockClock) -> None:
    services, model = make_services(say("read"))

    async def load() -> str:
        await trio.sleep(5)
        return "look at this: contents"

    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session, "look at this", load_api_content=load)
        await turn.wait_ended()
        assert (session.rows[0].content, session.rows[0].api_content) == ("look at this", "look at this: contents")
        assert "contents" in str(model.requests[0].messages[0])


async def test_a_turn_waits_a_little_for_one_of_another_process_to_end(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("first"), say("second"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session)).wait_ended()
        await services.store.acquire_lease(session.key, OTHER, ttl=30)
        began = trio.current_time()
        submission = session.submit_nowait(Prompt("mine"))
        await trio.sleep(2)
        await services.store.release_lease(session.key, OTHER)
        await submission.wait_accepted()
        assert trio.current_time() - began < 3
        turn = await submission.wait_turn()
        assert turn is not None
        assert (await turn.wait_ended()).text == "second"


async def test_an_interrupt_ends_the_wait_for_the_turn_of_another_process(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, model = make_services(say("first"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session)).wait_ended()
        await services.store.acquire_lease(session.key, OTHER, ttl=30)
        session.submit_nowait(Prompt("mine"))
        await trio.sleep(1)
        began = trio.current_time()
        interrupt = session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT))
        assert (await interrupt.wait_settled(0.9)).settled
        assert trio.current_time() - began < 0.1
        assert len(model.requests) == 1
