"""The live tree: reasons, doors, deadlines, and what can be seen of it."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from hermes.errors import NodeNotFound
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.outcomes import CancelReason, Cause

STOP = CancelReason(Cause.USER_INTERRUPT, "enough")
LATER = CancelReason(Cause.SHUTDOWN)


def root(name: str = "root") -> ReasonScope:
    return ReasonScope("server", name, None, tree=LiveTree())


async def test_the_first_reason_wins(autojump_clock: trio.testing.MockClock) -> None:
    scope = root()
    with scope:
        assert scope.cancel(STOP)
        assert not scope.cancel(LATER)
        await trio.sleep(1)
    assert scope.caught
    assert scope.reason == scope.own_reason == STOP


async def test_a_node_below_a_cancelled_one_knows_why(autojump_clock: trio.testing.MockClock) -> None:
    above = root()
    with above:
        middle = ReasonScope("session", "s", above)
        with middle:
            below = ReasonScope("turn", "t", middle)
            with below:
                above.cancel(STOP)
                await trio.sleep(1)
    assert (below.reason, below.own_reason, below.caught) == (STOP, None, False)
    assert above.caught


async def test_the_nearest_reason_is_the_one_that_counts() -> None:
    above = root()
    below = ReasonScope("turn", "t", above)
    above.cancel(LATER)
    below.cancel(STOP)
    assert below.reason == STOP


async def test_a_deadline_is_a_reason_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    above = root()
    with above:
        timed = ReasonScope("turn", "t", above, deadline=trio.current_time() + 5)
        seen: list[CancelReason | None] = []
        with timed:
            below = ReasonScope("tool_call", "x", timed)
            with below:
                try:
                    await trio.sleep(10)
                finally:
                    seen.append(below.reason)
        assert timed.caught
        assert timed.reason == CancelReason(Cause.DEADLINE)
    assert seen == [CancelReason(Cause.DEADLINE)]
    assert above.reason is None


async def test_time_that_does_not_count_moves_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    scope = ReasonScope("group", "g", None, tree=LiveTree(), deadline=trio.current_time() + 5)
    with scope:
        scope.set_deadline(scope.deadline + 10)
        await trio.sleep(14)
    assert not scope.caught


async def test_a_cancel_from_outside_of_the_tree_has_no_reason(autojump_clock: trio.testing.MockClock) -> None:
    with trio.move_on_after(1):
        scope = root()
        with scope:
            await trio.sleep(5)
    assert (scope.reason, scope.caught) == (None, False)


async def test_a_request_goes_through_the_nodes_own_door() -> None:
    scope = root()
    asked: list[CancelReason] = []

    def door(reason: CancelReason) -> bool:
        asked.append(reason)
        return len(asked) == 1

    scope.on_cancel = door
    assert scope.request_cancel(STOP)
    assert not scope.request_cancel(LATER)
    assert asked == [STOP, LATER]
    assert not scope.cancelled
    scope.on_cancel = None
    assert scope.request_cancel(LATER)
    assert scope.cancelled


async def test_a_node_is_found_by_its_id_until_its_block_has_been_left() -> None:
    above = root()
    below = ReasonScope("turn", "t", above)
    assert above.tree.get(below.node_id) is below
    with below:
        pass
    with pytest.raises(NodeNotFound):
        above.tree.get(below.node_id)
    assert list(above.walk()) == [above]
    assert len(above.tree) == 1


async def test_a_node_that_never_ran_is_closed_by_hand() -> None:
    above = root()
    ReasonScope("turn", "t", above).close()
    assert above.children == {}
    above.close()
    assert len(above.tree) == 0


async def test_a_root_needs_its_tree() -> None:
    with pytest.raises(ValueError, match="tree"):
        ReasonScope("server", "s", None)


async def test_an_exception_leaves_no_node_behind() -> None:
    scope = root()
    with pytest.raises(KeyError), scope:
        raise KeyError
    assert len(scope.tree) == 0


async def test_a_watcher_wakes_with_the_next_change(autojump_clock: trio.testing.MockClock) -> None:
    scope = root()
    tree = scope.tree
    seen: list[int] = []

    async def watch() -> None:
        seen.append(await tree.changed(tree.version))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await trio.testing.wait_all_tasks_blocked()
            assert seen == []
            ReasonScope("turn", "t", scope)
        assert seen == [tree.version]
        with trio.testing.assert_checkpoints():
            assert await tree.changed(0) == tree.version


async def test_a_snapshot_shows_state_reason_age_deadline_and_pids(autojump_clock: trio.testing.MockClock) -> None:
    above = root("all")
    with above:
        below = ReasonScope(
            "tool_call",
            "terminal",
            above,
            deadline=trio.current_time() + 10,
            details={"arguments": {"command": "ls"}},
            pids=lambda: [7, 8],
        )
        phased = ReasonScope("turn", "t", above, phase=lambda: "waiting_for_client")
        waiting = ReasonScope("question", "q", above)
        await trio.sleep(2)
        below.cancel(STOP)
        assert above.snapshot() == {
            "node_id": above.node_id,
            "kind": "server",
            "name": "all",
            "state": "running",
            "age_s": 2.0,
            "children": [
                {
                    "node_id": below.node_id,
                    "kind": "tool_call",
                    "name": "terminal",
                    "state": "stopping",
                    "age_s": 2.0,
                    "cause": "user_interrupt",
                    "reason": "enough",
                    "deadline_in_s": 8.0,
                    "details": {"arguments": {"command": "ls"}},
                    "pids": [7, 8],
                    "children": [],
                },
                {
                    "node_id": phased.node_id,
                    "kind": "turn",
                    "name": "t",
                    "state": "waiting_for_client",
                    "age_s": 2.0,
                    "children": [],
                },
                {
                    "node_id": waiting.node_id,
                    "kind": "question",
                    "name": "q",
                    "state": "starting",
                    "age_s": 2.0,
                    "children": [],
                },
            ],
        }
