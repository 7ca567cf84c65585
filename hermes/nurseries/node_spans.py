"""Spans for OpenTelemetry: one for each node of the live tree, with the node's cause and outcome as attributes.

A session is the root of a trace; its turns, model calls, tool calls, questions and processes hang below it as they do
in the tree. Prompts, answers and arguments are not in the spans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes.nurseries.scopes import ReasonScope
from hermes.outcomes import CancelReason

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

TRACE_ROOTS = frozenset({"server", "sessions", "session"})


class NodeSpans:
    """Put among the ``observers`` of a tree. ``in_context`` and ``failed`` are the two functions of the API that are
    needed beside the tracer: a parent span as a context, and the status of a failure."""

    def __init__(self, tracer: Tracer, in_context: Callable[[Span | None], Any], failed: Callable[[str], Any]) -> None:
        self._tracer = tracer
        self._in_context = in_context
        self._failed = failed
        self._spans: dict[str, Span] = {}

    def started(self, node: ReasonScope) -> None:
        parent = None
        if node.kind not in TRACE_ROOTS and node.parent is not None:
            parent = self._spans.get(node.parent.node_id)
        attributes: dict[str, str] = {
            "hermes.node_id": node.node_id,
            "hermes.kind": node.kind,
            "hermes.name": node.name,
        }
        if node.kind == "session" and node.details:
            attributes["hermes.session"] = str(node.details.get("session", ""))
        # The name is one of a few words, as a span's name should be; what it is about is an attribute.
        span = self._tracer.start_span(node.kind, context=self._in_context(parent), attributes=attributes)
        self._spans[node.node_id] = span

    def ended(self, node: ReasonScope, outcome: str, reason: CancelReason | None) -> None:
        span = self._spans.pop(node.node_id, None)
        if span is None:
            return
        span.set_attribute("hermes.outcome", outcome)
        if reason is not None:
            span.set_attribute("hermes.cause", reason.cause.value)
            if reason.text is not None:
                span.set_attribute("hermes.reason", reason.text)
        if outcome == "failed":
            span.set_status(self._failed(outcome))
        span.end()


def node_spans(provider: TracerProvider, version: str) -> NodeSpans:
    """Spans that go to this tracer provider."""
    from opentelemetry.context import Context
    from opentelemetry.trace import Status, StatusCode, set_span_in_context

    return NodeSpans(
        provider.get_tracer("hermes", version),
        # An empty context, and not the current one: what happens to be current where a node is made is no parent.
        lambda parent: Context() if parent is None else set_span_in_context(parent, Context()),
        lambda text: Status(StatusCode.ERROR, text),
    )
