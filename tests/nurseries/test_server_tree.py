"""The root: surfaces over sessions, one stop in a fixed order, a tree that can be printed."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio
import trio.testing

from hermes.errors import Draining
from hermes.events import ServerDraining, SessionClosed, TurnEnded
from hermes.messages import Prompt
from hermes.nurseries.event_log import LogClosed
from hermes.nurseries.server_tree import EXIT_CRASHED, ServerTree
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause, RunStatus
from tests.support.core import call, events_of, hang, make_services, running_tree, say
from tests.support.failing_store import FailingStore

LAST = ["store closed", "connections closed"]
SHUTDOWN = CancelReason(Cause.SHUTDOWN, "test")


async def until_sessions_ended(tree: ServerTree) -> None:
    """What a good surface does at the end: flush and return."""
    await tree.sessions_ended.wait()


async def run(tree: ServerTree, *surfaces: Callable[[], Awaitable[None]]) -> int:
    with trio.fail_after(60):
        return await tree.run([(f"surface {number}", one) for number, one in enumerate(surfaces)], signals=False)


async def test_a_surface_that_returns_takes_the_server_along(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    tree = ServerTree(services)
    seen: list[str] = []

    async def host() -> None:
        tree.registry.create(source="test", cwd="/")
        seen.append("served")
        await trio.lowlevel.checkpoint()

    assert await run(tree, host, lambda: until_sessions_ended(tree)) == 0
    assert seen == ["served"]
    assert tree.stopping and len(tree.registry) == 0
    assert len(services.tree) == 0


async def test_a_surface_that_crashes_stops_the_server_in_order(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(hang())
    tree = ServerTree(services)
    sessions: list[Session] = []

    async def broken() -> None:
        session = tree.registry.create(source="test", cwd="/")
        sessions.append(session)
        await session.submit_nowait(Prompt("hello")).wait_accepted()
        raise RuntimeError("a bug")

    assert await run(tree, broken) == EXIT_CRASHED
    assert isinstance(events_of(sessions[0])[-1], SessionClosed)


async def test_the_stop_order_is_refuse_then_sessions_then_logs_then_surfaces_then_store(
    autojump_clock: trio.testing.MockClock,
) -> None:
    order: list[str] = []

    async def note(method: str) -> None:
        await trio.lowlevel.checkpoint()
        if method == "aclose":
            order.append("store closed")

    services, model = make_services(say("a", "b", pause=10), store=FailingStore(before=note))

    async def close_connections() -> None:
        await trio.lowlevel.checkpoint()
        order.append("connections closed")

    tree = ServerTree(replace(services, close_connections=close_connections))

    async def surface() -> None:
        session = tree.registry.create(source="test", cwd="/")
        events, everybody = session.log.subscribe(0), services.announce.subscribe(0)
        await session.submit_nowait(Prompt("hello")).wait_accepted()
        await trio.sleep(15)
        assert tree.stop(SHUTDOWN)
        assert not tree.stop(CancelReason(Cause.USER_INTERRUPT))
        await tree.draining.wait()
        order.append("draining")
        with pytest.raises(Draining):
            session.submit_nowait(Prompt("late"))
        with pytest.raises(Draining):
            tree.registry.create(source="test", cwd="/")
        told = [entry.event for entry in await everybody.next()]
        assert told[-1] == ServerDraining() or ServerDraining() in told
        while True:
            try:
                batch = await events.next()
            except LogClosed:
                break
            for entry in batch:
                if isinstance(entry.event, TurnEnded):
                    assert entry.event.record.run_status is RunStatus.INTERRUPTED
                    assert entry.event.record.text == "a"
                    order.append("turn ended")
                elif isinstance(entry.event, SessionClosed):
                    order.append(f"session closed: {entry.event.reason}")
        await tree.sessions_ended.wait()
        assert model.open == 0
        order.append("surface flushed")

    assert await run(tree, surface) == 0
    assert order == ["draining", "turn ended", "session closed: shutdown", "surface flushed", *LAST]


async def test_a_surface_that_does_not_end_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    tree = ServerTree(services)

    async def stubborn() -> None:
        tree.stop(SHUTDOWN)
        await trio.sleep_forever()

    assert await run(tree, stubborn) == 0
    assert trio.current_time() < 5


async def test_a_tool_that_does_not_let_go_delays_the_stop_no_longer_than_its_bound(
    autojump_clock: trio.testing.MockClock,
) -> None:
    from collections.abc import Mapping
    from typing import Any

    from hermes.agent.ports import ToolContext
    from tests.support.core import PlainTool

    async def clings(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)
        return "late"

    services, _ = make_services(say("", calls=[call("clings")]), tools=[PlainTool("clings", clings)])
    tree = ServerTree(services)
    flushed: list[float] = []

    async def surface() -> None:
        session = tree.registry.create(source="test", cwd="/")
        await session.submit_nowait(Prompt("hello")).wait_accepted()
        await trio.sleep(1)
        tree.stop(SHUTDOWN)
        await tree.sessions_ended.wait()
        flushed.append(trio.current_time())

    assert await run(tree, surface) == 0
    assert flushed[0] < 5


async def test_a_cancel_of_the_root_node_is_a_stop_in_order(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    tree = ServerTree(services)

    async def surface() -> None:
        assert services.tree.get(tree.scope.node_id).request_cancel(SHUTDOWN)
        await tree.sessions_ended.wait()

    assert await run(tree, surface) == 0


async def test_a_cancel_of_all_sessions_closes_them_and_leaves_room_for_new_ones(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(hang(), say("hello"))
    async with running_tree(services) as tree:
        with trio.fail_after(60):
            node = tree.registry.scope
            assert node.request_cancel(CancelReason(Cause.NODE_CANCEL)) is False
            first = tree.registry.create(source="test", cwd="/")
            turn = await first.submit_nowait(Prompt("hi", source="test")).wait_turn()
            assert turn is not None
            await trio.testing.wait_all_tasks_blocked()
            assert node.request_cancel(CancelReason(Cause.NODE_CANCEL, "enough")) is True
            await first.wait_closed()
            record = await turn.wait_ended()
            assert (record.cause, record.reason_text) == (Cause.NODE_CANCEL, "enough")
            second = tree.registry.create(source="test", cwd="/")
            again = await second.submit_nowait(Prompt("hi", source="test")).wait_turn()
            assert again is not None
            assert (await again.wait_ended()).completed


async def test_the_whole_tree_can_be_printed(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("", calls=[call("ask"), call("nap", "c2", seconds=5)]))
    tree = ServerTree(services)
    printed: list[object] = []

    def shape(node: dict[str, object]) -> object:
        children = node["children"]
        assert isinstance(children, list)
        return {f"{node['kind']} {node['state']}": [shape(child) for child in children]}

    async def surface() -> None:
        session = tree.registry.create(source="test", cwd="/")
        await session.submit_nowait(Prompt("hello")).wait_accepted()
        await trio.sleep(1)
        printed.append(shape(tree.snapshot()))
        tree.stop(SHUTDOWN)
        await tree.sessions_ended.wait()

    await run(tree, surface)
    assert printed == [
        {
            "server running": [
                {
                    "sessions running": [
                        {
                            "session waiting": [
                                {"turn waiting_for_client": [{"tool_call running": [{"question running": []}]}]}
                            ]
                        }
                    ]
                },
                {"surface running": []},
            ]
        }
    ]


async def test_a_signal_stops_the_server_and_says_which() -> None:
    services, _ = make_services()
    tree = ServerTree(services)
    reasons: list[CancelReason | None] = []

    async def surface() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await tree.draining.wait()
        reasons.append(tree._stopping.value)
        await tree.sessions_ended.wait()

    with trio.fail_after(10):
        assert await tree.run([("stdio", surface)]) == 0
    assert reasons == [CancelReason(Cause.SHUTDOWN, "SIGTERM")]
