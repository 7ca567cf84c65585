"""Which calls run side by side."""

from __future__ import annotations

import posixpath

from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.ports import ParallelClass, PlannedCall
from hermes.agent.tool_calls import error_result
from hermes.agent.tool_plan import overlapping, plan_segments
from hermes.messages import ToolCall
from tests.support.loop_port import READ, TERMINAL, WRITE, tool

FREE = tool("web_search", ParallelClass.FREE)
PATHS = ["/a", "/a/b", "/a/../a/b", "/ab", "/c/", ""]


def planned(kind: str, path: str, number: int = 0, *, broken: bool = False) -> PlannedCall:
    made = {"read": READ, "write": WRITE, "free": FREE, "barrier": TERMINAL}[kind]
    one = ToolCall(str(number), made.spec.name, "{}")
    if broken:
        return PlannedCall(one, None, {}, error=error_result(one, "bad"))
    return PlannedCall(one, made, {"path": path} if path else {})


def plan(*calls: tuple[str, str]) -> list[list[str]]:
    made = [planned(kind, path, number) for number, (kind, path) in enumerate(calls)]
    return [[one.call.id for one in segment] for segment in plan_segments(made, posixpath.normpath)]


def test_reads_overlap_and_a_write_to_the_same_path_waits_for_them() -> None:
    assert plan(("read", "/a"), ("read", "/a"), ("write", "/a"), ("barrier", "")) == [["0", "1"], ["2"], ["3"]]


def test_a_write_conflicts_with_parents_and_children_but_not_with_neighbours() -> None:
    assert plan(("write", "/a"), ("read", "/a/b")) == [["0"], ["1"]]
    assert plan(("write", "/a/b"), ("read", "/a")) == [["0"], ["1"]]
    assert plan(("write", "/a"), ("write", "/ab")) == [["0", "1"]]


def test_paths_are_compared_resolved() -> None:
    assert plan(("write", "/x/../a"), ("read", "/a")) == [["0"], ["1"]]


def test_a_call_that_cannot_run_stands_alone() -> None:
    calls = [planned("free", "", 0), planned("free", "", 1, broken=True), planned("free", "", 2)]
    assert [len(segment) for segment in plan_segments(calls, str)] == [1, 1, 1]


def test_groups_are_no_longer_than_the_limit() -> None:
    calls = [planned("free", "", number) for number in range(20)]
    assert [len(segment) for segment in plan_segments(calls, str, limit=8)] == [8, 8, 4]


def test_four_images_are_looked_at_side_by_side_and_no_more() -> None:
    look = tool("vision_analyze", ParallelClass.FREE, toolset="vision")
    calls = [PlannedCall(ToolCall(str(number), "vision_analyze", "{}"), look, {}) for number in range(9)]
    calls[4:4] = [planned("free", "", 20), planned("free", "", 21)]
    segments = plan_segments(calls, str)
    assert [len(segment) for segment in segments] == [6, 4, 1]
    assert [one for segment in segments for one in segment] == calls


@given(st.lists(st.tuples(st.sampled_from(["read", "write", "free", "barrier"]), st.sampled_from(PATHS)), max_size=14))
def test_a_plan_keeps_the_order_and_never_lets_conflicting_calls_meet(calls: list[tuple[str, str]]) -> None:
    made = [planned(kind, path, number) for number, (kind, path) in enumerate(calls)]
    segments = plan_segments(made, posixpath.normpath, limit=4)
    assert [one for segment in segments for one in segment] == made
    for segment in segments:
        assert 1 <= len(segment) <= 4
        kinds = [calls[int(one.call.id)] for one in segment]
        if any(kind == "barrier" for kind, _ in kinds):
            assert len(segment) == 1
        for index, (kind, path) in enumerate(kinds):
            for other_kind, other in kinds[index + 1 :]:
                if "write" in (kind, other_kind) and "free" not in (kind, other_kind):
                    assert not overlapping(posixpath.normpath(path), posixpath.normpath(other))
