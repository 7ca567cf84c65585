"""The live sessions: made, resumed once however many ask, parked, reclaimed, and closed without a rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import StoredSession
from hermes.errors import (
    Draining,
    HermesError,
    Overloaded,
    SessionNotFound,
    StoredSessionNotFound,
    StoreUnavailable,
)
from hermes.events import ApprovalsCancelled, ServerEvent, SessionReclaimed, TurnEnded
from hermes.messages import Prompt, Row, ToolCall
from hermes.nurseries.client_requests import Attachment
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.nurseries.turn import Turn
from hermes.outcomes import CancelReason, Cause
from hermes.settings import Settings
from tests.support.core import call, events_of, hang, make_services, running_tree, say
from tests.support.failing_store import FailingStore

CLOSE = CancelReason(Cause.SESSION_CLOSED)
GRACE = 20


def limits(**values: Any) -> Settings:
    settings = Settings()
    return settings.model_copy(update={"limits": settings.limits.model_copy(update=values)})


def grace(seconds: float) -> Settings:
    settings = Settings()
    update = {"ws_orphan_reap_grace_s": seconds}
    return settings.model_copy(update={"dashboard": settings.dashboard.model_copy(update=update)})


async def started(session: Session, text: str = "hello") -> Turn:
    turn = await session.submit_nowait(Prompt(text)).wait_turn()
    assert turn is not None
    await trio.testing.wait_all_tasks_blocked()
    return turn


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def store_session(services: Services, key: str = "20260101_000000_abcdef") -> str:
    await services.store.create_session(StoredSession(key, title="Stored"))
    await services.store.append_rows(key, [Row("user", "before"), Row("assistant", "answer")])
    return key


def announced(services: Services, kind: type) -> list[ServerEvent]:
    return [entry.event for entry in services.announce.since(0)[0] if isinstance(entry.event, kind)]


async def test_a_new_session_is_found_by_both_of_its_ids(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        registry = tree.registry
        with trio.testing.assert_no_checkpoints():
            session = registry.create(source="tui", cwd="/", title="mine", principal="p", hidden=True)
        assert registry.get(session.runtime_id) is session
        assert registry.by_key(session.key) is session
        assert registry.live() == [session]
        assert (session.stored.title_source, session.stored.principal, session.stored.hidden) == ("user", "p", True)
        with pytest.raises(SessionNotFound):
            registry.get("nope")
        assert registry.by_key("nope") is None


async def test_a_client_may_bring_its_own_key(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        assert tree.registry.create(source="http", cwd="/", key="mine").key == "mine"


async def test_a_stored_session_is_resumed_with_its_rows(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("hi"))
    async with running_tree(services) as tree:
        key = await store_session(services)
        session = await tree.registry.resume(key)
        assert [row.text for row in session.rows] == ["before", "answer"]
        assert session.is_stored and session.stored.title == "Stored"
        assert (await (await started(session)).wait_ended()).text == "hi"


async def test_resumes_at_the_same_time_give_the_same_session(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    found: list[Session] = []
    async with running_tree(services) as tree:
        key = await store_session(services)

        async def resume() -> None:
            found.append(await tree.registry.resume(key))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(resume)
        assert len({id(session) for session in found}) == 1
        assert await tree.registry.resume(key) is found[0]
        assert tree.registry.live() == [found[0]]


async def test_a_requester_who_leaves_does_not_take_the_others_answer_along(
    autojump_clock: trio.testing.MockClock,
) -> None:
    gate = trio.Event()

    async def slow(method: str) -> None:
        if method == "load_rows":
            await gate.wait()

    services, _ = make_services(store=FailingStore(before=slow))
    found: list[Session] = []
    with trio.fail_after(30):
        async with running_tree(services) as tree:
            key = await store_session(services)

            async def resume(scope: trio.CancelScope) -> None:
                with scope:
                    found.append(await tree.registry.resume(key))

            leaver, stayer = trio.CancelScope(), trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(resume, leaver)
                await settle()
                nursery.start_soon(resume, stayer)
                await settle()
                leaver.cancel()
                await settle()
                gate.set()
            assert leaver.cancelled_caught
            assert found == [tree.registry.by_key(key)]


async def test_a_resume_during_a_close_waits_for_it_and_gives_a_new_life(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, model = make_services(hang(), say("again"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        tree.registry.close_nowait(session, CLOSE)
        assert tree.registry.by_key(session.key) is None
        with pytest.raises(SessionNotFound):
            tree.registry.get(session.runtime_id)
        again = await tree.registry.resume(session.key)
        assert turn.ended.settled and session.ended.settled
        assert again is not session and again.key == session.key and again.runtime_id != session.runtime_id
        assert again.rows[-1].role == "assistant"
        await settle()
        assert tree.registry.by_key(session.key) is again
        assert (await (await started(again)).wait_ended()).text == "again"
        assert model.open == 0


async def test_what_is_not_stored_cannot_be_resumed(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        for ask in (tree.registry.resume, tree.registry.find_stored):
            with pytest.raises(StoredSessionNotFound):
                await ask("nope")
        key = await store_session(services)
        assert (await tree.registry.find_stored(key)).key == (await tree.registry.find_stored("Stored")).key == key


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (lambda: StoreUnavailable("locked", cause="locked"), StoreUnavailable),
        (lambda: KeyError("a damaged row"), StoreUnavailable),
    ],
)
async def test_a_session_that_cannot_be_read_is_an_error_of_that_resume_alone(
    autojump_clock: trio.testing.MockClock, error: Callable[[], Exception], told: type[HermesError]
) -> None:
    broken = True

    async def read(method: str) -> None:
        await trio.lowlevel.checkpoint()
        if method == "load_rows" and broken:
            raise error()

    services, _ = make_services(store=FailingStore(before=read))
    async with running_tree(services) as tree:
        key = await store_session(services)
        other = tree.registry.create(source="test", cwd="/")
        with pytest.raises(told):
            await tree.registry.resume(key)
        assert tree.registry.live() == [other]
        broken = False
        assert (await tree.registry.resume(key)).key == key


async def test_a_turn_that_a_crash_left_open_is_shown_and_repaired_with_the_next_prompt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(say("went on"))
    async with running_tree(services) as tree:
        key = "20260101_000000_abcdef"
        await services.store.create_session(StoredSession(key))
        asked = Row("assistant", "look", tool_calls=(ToolCall("c1", "nap", "{}"),))
        await services.store.append_rows(key, [Row("user", "do it"), asked])
        session = await tree.registry.resume(key)
        inflight = session.inflight()
        assert inflight is not None
        assert (inflight["user"], inflight["status"]) == ("do it", "error")
        assert inflight["error_surface"]["code"] == "server_restart"
        await (await started(session)).wait_ended()
        repaired = [row for row in session.rows if row.role == "tool"]
        assert [(row.tool_call_id, row.effect_disposition) for row in repaired] == [("c1", "unknown")]
        assert session.inflight() is None


async def test_a_branch_is_brought_to_life_as_stored(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        key = await store_session(services)
        stored, rows = await services.store.branch(key, StoredSession("branch", parent_key=key))
        session = tree.registry.adopt(stored, rows)
        assert session.is_stored
        assert [row.text for row in session.rows] == ["before", "answer"]


# --- closing ---


async def test_a_close_names_the_approvals_that_go_with_it(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("", calls=[call("ask")]))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await started(session)
        (request,) = session.requests.open_requests()
        assert request.approval_id is not None
        tree.registry.close_nowait(session, CLOSE)
        assert announced(services, ApprovalsCancelled) == [
            ApprovalsCancelled(session.runtime_id, session.key, "session_closed", (request.approval_id,))
        ]
        await session.wait_closed()
        assert sum(isinstance(event, TurnEnded) for event in events_of(session)) == 1


async def test_a_draining_server_makes_and_resumes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        key = await store_session(services)
        tree.registry.drain()
        with pytest.raises(Draining):
            tree.registry.create(source="test", cwd="/")
        with pytest.raises(Draining):
            await tree.registry.resume(key)


async def test_a_registry_that_does_not_run_holds_no_session() -> None:
    from hermes.nurseries.server_tree import ServerTree

    services, _ = make_services()
    with pytest.raises(Draining):
        ServerTree(services).registry.create(source="test", cwd="/")


async def test_closing_all_leaves_nothing(autojump_clock: trio.testing.MockClock) -> None:
    services, model = make_services(hang(), hang())
    async with running_tree(services) as tree:
        sessions = [tree.registry.create(source="test", cwd="/") for _ in range(3)]
        for session in sessions[:2]:
            await started(session)
        await tree.registry.close_all(CancelReason(Cause.SHUTDOWN))
        assert all(session.ended.value == "shutdown" for session in sessions)
        await settle()
        assert (len(tree.registry), model.open) == (0, 0)
        assert [node.kind for node in tree.scope.walk()] == ["server", "sessions"]


# --- too many ---


async def test_at_the_bound_the_least_recently_used_idle_session_makes_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(say("hi"), settings=limits(max_sessions=2))
    async with running_tree(services) as tree:
        old = tree.registry.create(source="test", cwd="/")
        await trio.sleep(1)
        young = tree.registry.create(source="test", cwd="/")
        await trio.sleep(1)
        await (await started(old)).wait_ended()
        new = tree.registry.create(source="test", cwd="/")
        assert tree.registry.live() == [old, new]
        assert announced(services, SessionReclaimed) == [SessionReclaimed(young.runtime_id, young.key, "lru_evict")]
        assert await young.wait_closed() == "session_closed"


@pytest.mark.parametrize("busy", ["running", "asking", "attached", "held", "side work"])
async def test_a_session_that_is_in_use_is_never_evicted(autojump_clock: trio.testing.MockClock, busy: str) -> None:
    reply = say("", calls=[call("ask")]) if busy == "asking" else hang()
    services, _ = make_services(reply, settings=limits(max_sessions=1))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        if busy in ("running", "asking"):
            await started(session)
        elif busy == "attached":
            session.attach(Attachment("a", lambda method: True))
        elif busy == "held":
            session.slot.held = "compressing"
        else:
            session.side_work["x"] = object()  # type: ignore[assignment]
        with pytest.raises(Overloaded, match="1 sessions"):
            tree.registry.create(source="test", cwd="/")
        assert tree.registry.live() == [session]


# --- nobody watches ---


def parked(tree: Any, *, parks: bool = True) -> Session:
    session: Session = tree.registry.create(source="tui", cwd="/")
    session.parks = parks
    session.attach(Attachment("ws", lambda method: True))
    return session


async def test_an_idle_session_that_nobody_watches_is_closed_after_the_grace(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = parked(tree)
        await trio.sleep(100)
        session.detach("ws")
        await trio.sleep(GRACE - 1)
        assert not session.closing
        await trio.sleep(2)
        assert session.ended.settled
        assert announced(services, SessionReclaimed) == [
            SessionReclaimed(session.runtime_id, session.key, "ws_orphan_reap")
        ]


async def test_only_the_last_client_that_leaves_parks_a_session(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = parked(tree)
        session.attach(Attachment("other", lambda method: True))
        session.detach("ws")
        await trio.sleep(10 * GRACE)
        assert not session.closing


async def test_a_client_that_comes_back_in_time_keeps_the_session_and_the_grace_begins_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = parked(tree)
        session.detach("ws")
        await trio.sleep(GRACE - 5)
        session.attach(Attachment("ws", lambda method: True))
        await trio.sleep(2)
        session.detach("ws")
        await trio.sleep(GRACE - 1)
        assert not session.closing
        await trio.sleep(2)
        assert session.closing


async def test_a_grace_of_zero_keeps_parked_sessions(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(settings=grace(0))
    async with running_tree(services) as tree:
        session = parked(tree)
        session.detach("ws")
        await trio.sleep(3600)
        assert not session.closing


async def test_a_session_of_a_stdio_host_is_never_orphaned(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = parked(tree, parks=False)
        session.detach("ws")
        await trio.sleep(24 * 3600)
        assert not session.closing


async def test_a_session_that_asked_for_it_is_closed_with_its_last_client(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = parked(tree)
        session.close_on_disconnect = True
        turn = await started(session)
        session.detach("ws")
        assert session.closing
        assert (await turn.wait_ended()).cause is Cause.SESSION_CLOSED


async def test_a_parked_turn_may_finish_and_the_grace_begins_with_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(say(*"abcdefghij", pause=GRACE))
    async with running_tree(services) as tree:
        session = parked(tree)
        turn = await started(session)
        session.detach("ws")
        record = await turn.wait_ended()
        assert record.completed
        await trio.sleep(GRACE - 1)
        assert not session.closing
        await trio.sleep(2)
        assert session.closing


async def test_a_parked_turn_that_shows_nothing_for_too_long_is_interrupted_and_then_its_session_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = parked(tree)
        turn = await started(session)
        await trio.sleep(5)
        session.detach("ws")
        await trio.sleep(590)
        assert not turn.ended.settled
        await trio.sleep(20)
        record = turn.ended.value
        assert record is not None
        assert (record.cause, record.reason_text) == (Cause.SESSION_CLOSED, "ws_orphan_reap")
        await trio.sleep(GRACE + 1)
        assert session.ended.settled


async def test_work_beside_the_conversation_defers_the_reaping(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = parked(tree)
        session.side_work["x"] = object()  # type: ignore[assignment]
        session.detach("ws")
        await trio.sleep(10 * GRACE)
        assert not session.closing
        session.side_work.clear()
        await trio.sleep(2 * GRACE)
        assert session.closing


async def test_a_session_that_nobody_used_for_hours_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(settings=limits(session_idle=3600, idle_scan=300))
    async with running_tree(services) as tree:
        forgotten = tree.registry.create(source="http", cwd="/")
        forgotten.parks = True
        watched = parked(tree)
        stdio = tree.registry.create(source="tui", cwd="/")
        await trio.sleep(3500)
        assert not forgotten.closing
        await trio.sleep(600)
        assert tree.registry.live() == [watched, stdio]
        assert announced(services, SessionReclaimed) == [
            SessionReclaimed(forgotten.runtime_id, forgotten.key, "idle_timeout")
        ]


async def test_a_parked_turn_that_does_not_let_go_loses_its_session(autojump_clock: trio.testing.MockClock) -> None:
    from collections.abc import Mapping

    from hermes.agent.ports import ToolContext
    from tests.support.core import PlainTool

    async def clings(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(800)
        return "late"

    services, _ = make_services(say("", calls=[call("clings")]), tools=[PlainTool("clings", clings)])
    async with running_tree(services) as tree:
        session = parked(tree)
        await started(session)
        session.detach("ws")
        await trio.sleep(650)
        assert not session.closing
        await trio.sleep(20)
        assert session.closing
        await session.wait_closed()
        assert announced(services, SessionReclaimed) == [
            SessionReclaimed(session.runtime_id, session.key, "ws_orphan_reap")
        ]
