"""Open questions survive the death of their server, as questions of a turn that is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import trio

from hermes.agent.ports import LeaseOwner
from hermes.agent.store.memory import MemoryStore
from hermes.events import ClientRequestClosed, ClientRequestOpened
from hermes.messages import Prompt, Withdrawn
from hermes.nurseries.question_log import KIND
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from tests.support.core import call, clock, events_of, make_services, running_tree, say
from tests.support.failing_store import FailingStore


async def asked(session: Session) -> str:
    session.submit_nowait(Prompt("go"))
    await trio.testing.wait_all_tasks_blocked()
    return next(event.request_id for event in events_of(session) if isinstance(event, ClientRequestOpened))


def next_server(services: Services, *, lives: bool = False) -> Services:
    fresh, _ = make_services(say("on we go"), store=services.store)
    return replace(fresh, owner=LeaseOwner("test", 2, 2, "other"), owner_lives=lambda _owner: lives)


async def kept(services: Services, session: Session) -> list[str]:
    return [request_id for request_id, _ in await services.store.list_records(KIND, owner=session.key)]


async def test_a_question_is_recorded_while_it_is_open_and_no_longer(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("ask")]), say("done"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        request_id = await asked(session)
        assert await kept(services, session) == [request_id]
        session.requests.answer_response(request_id, {"choice": "once"}, by="test")
        await trio.testing.wait_all_tasks_blocked()
        assert await kept(services, session) == []


async def test_an_interrupt_takes_the_record_away(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("ask")]))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await asked(session)
        await session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT)).wait_settled(1)
        await trio.testing.wait_all_tasks_blocked()
        assert await kept(services, session) == []


class CountingStore(MemoryStore):
    """Counts the deletions of records that cost a transaction of their own."""

    deletions = 0

    async def delete_record(self, kind: str, record_id: str) -> bool:
        self.deletions += 1
        return await super().delete_record(kind, record_id)


async def test_a_stop_deletes_the_record_together_with_its_last_rows(autojump_clock: trio.abc.Clock) -> None:
    store = CountingStore(now=clock)
    services, _ = make_services(say("", calls=[call("ask")]), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        request_id = await asked(session)
        assert await kept(services, session) == [request_id]
        turn = session.slot.turn
        assert turn is not None
        turn.cancel(CancelReason(Cause.USER_INTERRUPT))
        await turn.wait_ended()
        assert await kept(services, session) == []
        await trio.testing.wait_all_tasks_blocked()
        assert store.deletions == 0


async def test_a_stop_whose_last_rows_are_refused_deletes_it_afterwards(autojump_clock: trio.abc.Clock) -> None:
    store = FailingStore(refused=frozenset({"finish_turn"}))
    services, _ = make_services(say("", calls=[call("ask")]), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await asked(session)
        turn = session.slot.turn
        assert turn is not None
        turn.cancel(CancelReason(Cause.USER_INTERRUPT))
        await turn.wait_ended()
        await trio.testing.wait_all_tasks_blocked()
        assert await kept(services, session) == []


async def test_after_a_restart_it_is_shown_as_interrupted_and_closes_with_the_next_prompt(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, _ = make_services(say("", calls=[call("ask")]))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        request_id = await asked(session)
        await tree.registry.close_all(CancelReason(Cause.SHUTDOWN))
        assert await kept(services, session) == [request_id]
    later = next_server(services)
    async with running_tree(later) as tree:
        again = await tree.registry.resume(session.key)
        [entry] = again.requests.entries()
        assert (entry["id"], entry["method"], entry["interrupted"]) == (request_id, "approval", True)
        assert again.status == "idle" and len(again.requests) == 0
        turn = await again.submit_nowait(Prompt("more")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert again.requests.entries() == []
        [closed] = [event for event in events_of(again) if isinstance(event, ClientRequestClosed)]
        assert closed.answer == Withdrawn("interrupted")
        assert await kept(later, again) == []


async def test_an_answer_to_it_closes_it_and_runs_nothing(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("ask")]))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        request_id = await asked(session)
        await tree.registry.close_all(CancelReason(Cause.SHUTDOWN))
    later = next_server(services)
    async with running_tree(later) as tree:
        again = await tree.registry.resume(session.key)
        rows = tuple(again.rows)
        assert not again.requests.answer_response(request_id, {"choice": "once"}, by="late")
        await trio.testing.wait_all_tasks_blocked()
        assert again.requests.entries() == [] and tuple(again.rows) == rows
        assert await kept(later, again) == []


async def test_a_question_of_a_server_that_lives_is_not_ours_to_show(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("ask")]))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await asked(session)
        async with running_tree(next_server(services, lives=True)) as other:
            again = await other.registry.resume(session.key)
            assert again.requests.entries() == []


class SlowRecords(MemoryStore):
    """A store whose records take their time."""

    async def put_record(self, *args: Any, **kwargs: Any) -> None:
        await trio.sleep(1)
        await super().put_record(*args, **kwargs)


async def test_a_slow_record_delays_neither_the_question_nor_its_answer(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("ask")]), say("done"), store=SlowRecords(now=clock))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        began = trio.current_time()
        request_id = await asked(session)
        session.requests.answer_response(request_id, {"choice": "once"}, by="test")
        turn = session.slot.turn
        assert turn is not None
        await turn.wait_ended()
        assert trio.current_time() == began
        await trio.sleep(3)
        assert await kept(services, session) == []
