"""The to-do list outlives its session's memory: a resume, a rewind and a summary find it in the rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.compression import CompressionPlan, handoff_row
from hermes.agent.stored_views import latest_todos
from hermes.agent.tools.todo import TodoList
from hermes.messages import Prompt, Row
from hermes.nurseries.turn_start import forget_removed
from tests.support.core import call, make_services, running_tree, say
from tests.support.tool_context import make_services as tool_services

DIG = {"id": "a", "content": "dig", "status": "in_progress"}
FILL = {"id": "b", "content": "fill", "status": "pending"}
DUG = {**DIG, "status": "completed"}


def told(*todos: dict[str, str], name: str = "todo_list", beside: bool = True, **more: Any) -> Row:
    """A stored result of the tool, with the list beside it or, as older ones are, only in it."""
    listed = list(todos)
    metadata = {"todos": listed} if beside else None
    return Row("tool", json.dumps({"todos": listed}), tool_name=name, display_metadata=metadata, **more)


@pytest.mark.parametrize(
    ("rows", "todos"),
    [
        ([], []),
        ([told(DIG), told(DUG, FILL)], [DUG, FILL]),
        ([told(DIG), told()], []),
        ([told(DIG, beside=False)], [DIG]),
        ([told(DIG, beside=False, name="todo")], [DIG]),
        ([told(DIG), Row("tool", '{"error": "no"}', tool_name="todo_list")], [DIG]),
        ([told(DIG), Row("tool", "cut o", tool_name="todo_list")], [DIG]),
        ([told(DIG), Row("tool", json.dumps({"todos": [FILL]}), tool_name="mcp__x__list")], [DIG]),
        ([Row("user", "x", compacted_summary=True, display_metadata={"todos": [DIG]})], [DIG]),
        ([told(DIG), Row("user", "x", compacted_summary=True)], [DIG]),
        ([Row("user", "x", display_metadata={"todos": [DIG]})], []),
    ],
)
def test_the_newest_list_in_the_rows_is_the_one_in_force(rows: Sequence[Row], todos: list[dict[str, str]]) -> None:
    assert latest_todos(rows) == todos


async def test_a_resumed_session_has_its_list_and_a_rewind_takes_it_back(
    autojump_clock: trio.abc.Clock, tmp_path: Path
) -> None:
    steps = ([DIG, FILL], [DUG])
    replies = [
        reply
        for number, todos in enumerate(steps)
        for reply in (say("", calls=[call("todo_list", f"c{number}", todos=todos, merge=number > 0)]), say("noted"))
    ]
    services, _ = make_services(*replies, tools=[TodoList(tool_services(tmp_path))])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        for text in ("plan", "go on"):
            turn = await session.submit_nowait(Prompt(text)).wait_turn()
            assert turn is not None
            await turn.wait_ended()
        assert session.memory.todos == [DUG, FILL]
        rows = tuple(session.rows)
        session.rows[:] = rows[: next(at for at, row in enumerate(rows) if row.text == "go on")]
        forget_removed(session)
        assert session.memory.todos == [DIG, FILL]
        key = session.key
    async with running_tree(services) as tree:
        again = await tree.registry.resume(key)
        assert again is not session and again.memory.todos == [DUG, FILL]


def test_a_summary_tells_the_list_that_it_takes_away_and_is_found_by_the_next_one() -> None:
    asked, done = Row("user", "dig a hole"), Row("assistant", "fine")
    first = handoff_row(CompressionPlan((), (asked, told(DIG, FILL), done), (asked,)), "so far", 0.0, str)
    assert "- a (in_progress): dig\n- b (pending): fill" in first.text
    second = handoff_row(CompressionPlan((), (first, done), (asked,)), "so far", 0.0, lambda text: text.upper())
    assert "- A (IN_PROGRESS): DIG" in second.text
    assert latest_todos([second]) == [DIG, FILL]


@pytest.mark.parametrize("newer", [told(DUG), told()])
def test_a_summary_is_silent_about_a_list_that_a_kept_result_replaces(newer: Row) -> None:
    asked = Row("user", "dig a hole")
    row = handoff_row(CompressionPlan((), (asked, told(DIG)), (asked, newer)), "so far", 0.0, str)
    assert "to-do" not in row.text and "todos" not in (row.display_metadata or {})
    assert latest_todos([row, newer]) == latest_todos([newer])
