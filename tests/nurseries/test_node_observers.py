"""What is told of the nodes of the live tree: log lines with the fields of their session, and spans."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from hermes.events import ToolStarted
from hermes.logs import FACTS, LogFields, current_log_fields, log_fields
from hermes.messages import Prompt
from hermes.nurseries.node_log import NodeLog
from hermes.nurseries.node_spans import node_spans
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from tests.support.core import call, events_of, make_services, running_tree, say

INTERRUPT = CancelReason(Cause.USER_INTERRUPT, "changed my mind")


class Lines(logging.Handler):
    """Records with the fields that were in force when they were made."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, LogFields, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.getMessage(), current_log_fields(), getattr(record, FACTS, {})))


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logger = logging.getLogger("hermes.nurseries.node_log")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def spans() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


async def stopped_in_a_tool(session: Session) -> None:
    """A turn whose tool never ends, interrupted."""
    await session.submit_nowait(Prompt("hello")).wait_accepted()
    while not any(isinstance(event, ToolStarted) for event in events_of(session)):
        await trio.sleep(0.1)
    await trio.sleep(2)
    await session.interrupt_nowait(INTERRUPT).wait_settled(1)


async def test_session_turn_and_tool_call_log_their_start_and_their_end_with_its_reason(
    lines: Lines, autojump_clock: trio.testing.MockClock
) -> None:
    services, _ = make_services(say("", calls=[call("nap", seconds=100)]))
    services.tree.observers.append(NodeLog())
    with trio.fail_after(60):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="test", cwd="/")
            with log_fields(request="r1"):
                await stopped_in_a_tool(session)
            tree.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
            await session.wait_closed()
    facts = [fact for _, _, fact in lines.seen]
    assert [fact["event"] for fact in facts] == [
        *("session_started", "turn_started", "tool_call_started"),
        *("tool_call_ended", "turn_ended", "session_ended"),
    ]
    turn_id = next(event.turn_id for event in events_of(session) if isinstance(event, ToolStarted))
    assert {fields.session for _, fields, _ in lines.seen} == {session.key}
    assert [fields.turn for _, fields, _ in lines.seen] == ["", turn_id, turn_id, turn_id, turn_id, ""]
    assert [fields.request for _, fields, _ in lines.seen] == ["", "r1", "r1", "r1", "r1", ""]
    tool, turn, closed = facts[3:]
    assert (tool["name"], tool["outcome"], tool["cause"]) == ("nap", "cancelled", "user_interrupt")
    assert (turn["outcome"], turn["cause"], turn["reason"]) == ("cancelled", "user_interrupt", "changed my mind")
    assert turn["duration_s"] >= 2
    assert (closed["outcome"], closed["cause"]) == ("cancelled", "session_closed")
    assert lines.seen[4][0].startswith("turn ended: cancelled (user_interrupt: changed my mind) after 2.")


async def test_a_queued_turn_does_not_log_under_the_request_of_the_turn_before_it(
    lines: Lines, autojump_clock: trio.testing.MockClock
) -> None:
    services, _ = make_services(say("one", pause=1), say("two"))
    services.tree.observers.append(NodeLog())
    with trio.fail_after(60):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="test", cwd="/")
            with log_fields(request="r1"):
                await session.submit_nowait(Prompt("hello")).wait_accepted()
            with log_fields(request="r2"):
                turn = await session.submit_nowait(Prompt("again")).wait_turn()
            assert turn is not None
            await turn.wait_ended()
    ends = [fields.request for _, fields, fact in lines.seen if fact["event"] == "turn_ended"]
    assert ends == ["r1", ""]


async def test_a_turn_that_completes_says_so_without_a_cause(
    lines: Lines, autojump_clock: trio.testing.MockClock
) -> None:
    services, _ = make_services(say("hello"))
    services.tree.observers.append(NodeLog())
    with trio.fail_after(60):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="test", cwd="/")
            turn = await session.submit_nowait(Prompt("hello")).wait_turn()
            assert turn is not None
            await turn.wait_ended()
    (ended,) = [fact for _, _, fact in lines.seen if fact["event"] == "turn_ended"]
    assert ended["outcome"] == "completed"
    assert "cause" not in ended


async def test_every_node_is_one_span_with_outcome_and_cause_below_the_span_of_its_parent(
    spans: tuple[TracerProvider, InMemorySpanExporter], autojump_clock: trio.testing.MockClock
) -> None:
    provider, exporter = spans
    services, _ = make_services(say("", calls=[call("nap", seconds=100)]))
    services.tree.observers.append(node_spans(provider, "1"))
    seen: list[str] = []

    class Nodes:
        def started(self, node: ReasonScope) -> None:
            seen.append(node.node_id)

        def ended(self, node: ReasonScope, outcome: str, reason: CancelReason | None) -> None:
            seen.remove(node.node_id)
            ended.append(node.node_id)

    ended: list[str] = []
    services.tree.observers.append(Nodes())
    with trio.fail_after(60):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="test", cwd="/")
            await stopped_in_a_tool(session)
            tree.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
            await session.wait_closed()
    done = exporter.get_finished_spans()
    assert [attribute(span, "node_id") for span in done] == ended
    by_name = {span.name: span for span in done}
    turn, tool, root = by_name["turn"], by_name["tool_call"], by_name["session"]
    assert parent_of(tool) == id_of(turn)
    assert parent_of(turn) == id_of(root)
    assert root.parent is None
    assert (attribute(turn, "outcome"), attribute(turn, "cause")) == ("cancelled", "user_interrupt")
    assert attribute(turn, "reason") == "changed my mind"
    assert (attribute(tool, "name"), attribute(tool, "outcome")) == ("nap", "cancelled")
    assert attribute(root, "session") == session.key
    assert attribute(by_name["model_call"], "outcome") == "completed"


def test_a_node_that_breaks_is_a_failed_span_and_one_that_never_ran_is_dropped(
    spans: tuple[TracerProvider, InMemorySpanExporter],
) -> None:
    provider, exporter = spans

    async def nodes() -> None:
        await trio.lowlevel.checkpoint()
        tree = LiveTree()
        tree.observers.append(node_spans(provider, "1"))
        root = ReasonScope("server", "server", None, tree=tree)
        ReasonScope("turn", "t", root).close()
        with pytest.raises(ValueError, match="broken"), ReasonScope("tool_call", "x", root):
            raise ValueError("broken")

    trio.run(nodes)
    dropped, failed = exporter.get_finished_spans()
    assert attribute(dropped, "outcome") == "dropped"
    assert (attribute(failed, "outcome"), failed.status.status_code) == ("failed", StatusCode.ERROR)
    assert failed.events == ()


def attribute(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(f"hermes.{name}")


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)
