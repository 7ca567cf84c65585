"""All event logs together keep no more than their bound; the most silent one gives way first."""

from __future__ import annotations

import pytest
import trio

from hermes.nurseries.event_log import EventLog, Lagged
from hermes.nurseries.replay_memory import ReplayMemory
from hermes.settings import Settings
from tests.support.core import make_services, running_tree


def new_log(memory: ReplayMemory) -> EventLog[str]:
    return EventLog(cost=len, clock=lambda: 0.0, memory=memory)


async def test_the_log_that_was_silent_for_longest_forgets_first() -> None:
    memory = ReplayMemory(max_bytes=10, max_logs=64)
    first, second, third = (new_log(memory) for _ in range(3))
    first.append("aaaa")
    second.append("bbbb")
    first.append("a")
    third.append("cccc")
    assert (len(first), len(second), len(third)) == (2, 0, 1)
    assert memory.total == 9


async def test_no_more_logs_are_kept_than_allowed() -> None:
    memory = ReplayMemory(max_bytes=1000, max_logs=2)
    logs = [new_log(memory) for _ in range(3)]
    for log in logs:
        log.append("x")
    assert [len(log) for log in logs] == [0, 1, 1]


async def test_a_reader_that_was_up_to_date_notices_nothing_and_a_late_one_is_told() -> None:
    memory = ReplayMemory(max_bytes=5, max_logs=64)
    old, new = new_log(memory), new_log(memory)
    reader, late = old.subscribe(0), old.subscribe(0)
    old.append("aaaa")
    assert [entry.event for entry in await reader.next()] == ["aaaa"]
    new.append("bbbb")
    assert len(old) == 0
    with pytest.raises(Lagged):
        await late.next()
    old.append("c")
    assert [entry.event for entry in await reader.next()] == ["c"]
    assert old.since(1)[0][0].seq == 2


async def test_more_logs_than_are_kept_lose_nothing_that_somebody_is_about_to_read() -> None:
    memory = ReplayMemory(max_bytes=1000, max_logs=2)
    logs = [new_log(memory) for _ in range(5)]
    readers = [log.subscribe() for log in logs]
    for log in logs:
        log.append("a")
        log.append("b")
    assert [[entry.event for entry in reader.next_nowait()] for reader in readers] == [["a", "b"]] * 5
    assert [len(log) for log in logs] == [0, 0, 0, 2, 2]
    assert all(log.cost == 0 for log in logs[:3])


async def test_a_reader_that_leaves_unread_events_behind_keeps_them_no_longer() -> None:
    memory = ReplayMemory(max_bytes=1000, max_logs=1)
    old, new = new_log(memory), new_log(memory)
    reader = old.subscribe()
    old.append("a")
    new.append("b")
    assert len(old) == 1
    reader.close()
    assert (len(old), old.cost) == (0, 0)


async def test_one_log_alone_is_bounded_by_its_own_window_only() -> None:
    memory = ReplayMemory(max_bytes=5, max_logs=1)
    log = new_log(memory)
    log.append("aaaaaaaaaa")
    assert len(log) == 1


async def test_a_closed_log_counts_no_more() -> None:
    memory = ReplayMemory()
    log = new_log(memory)
    log.append("aaaa")
    log.close()
    assert (memory.total, len(memory)) == (0, 0)


async def test_sessions_share_the_bound_of_the_settings(autojump_clock: trio.abc.Clock) -> None:
    settings = Settings.model_validate({"limits": {"replay_total_bytes": 5000, "replay_sessions": 2}})
    services, _ = make_services(settings=settings)
    async with running_tree(services) as tree:
        sessions = [tree.registry.create(source="test", cwd="/") for _ in range(3)]
        for session in sessions:
            session.notice("hello")
        assert [len(session.log) for session in sessions] == [0, 1, 1]
        for _ in range(20):
            sessions[2].notice("hello")
        assert services.replay.total <= 10_500 and len(sessions[1].log) == 0
