"""Counters of the HTTP surface: Prometheus text for ``/metrics``, and today's figures for ``/health/detailed``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from hermes.errors import Overloaded
from hermes.outcomes import TurnRecord
from hermes.protocols.error_table import row_of

LATENCY_SAMPLES = 512
TURN_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# What is asked for when somebody looks, by name; counters are counted as things happen.
GAUGES: Mapping[str, str] = {
    "hermes_active_runs": "Runs that hold a slot.",
    "hermes_tree_nodes": "Nodes of the live tree.",
    "hermes_sessions": "Live sessions.",
    "hermes_turns_running": "Turns that run now, on all surfaces.",
    "hermes_prompts_queued": "Prompts that wait for the turn before them.",
    "hermes_open_questions": "Questions to a human that are open.",
    "hermes_processes": "Tool processes and background processes that run.",
    "hermes_connections": "HTTP and WebSocket connections that are served.",
    "hermes_loop_longest_round_seconds": "Longest round of the event loop since this was last read.",
    "hermes_loop_busy_seconds": "Seconds that the event loop has worked since the start.",
}


class Metrics:
    """One server's counters, in a registry of their own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "hermes_http_requests", "HTTP requests by route and status.", ["route", "status"], registry=self._registry
        )
        self._turns = Counter("hermes_turns_started", "Turns started over HTTP.", ["kind"], registry=self._registry)
        self._ended = Counter(
            "hermes_turns_ended", "Turns ended on all surfaces, by status and cause.", ["status", "cause"],
            registry=self._registry,
        )  # fmt: skip
        self._tokens = Counter("hermes_tokens", "Tokens of ended turns.", ["direction"], registry=self._registry)
        self._seconds = Histogram(
            "hermes_turn_seconds", "Duration of turns.", buckets=TURN_SECONDS, registry=self._registry
        )
        self._gauges = {name: Gauge(name, text, registry=self._registry) for name, text in GAUGES.items()}
        ProcessCollector(registry=self._registry)
        self._latencies: deque[float] = deque(maxlen=LATENCY_SAMPLES)
        self._day = ""
        self._today = {"requests": 0, "messages": 0, "tokens": 0}
        self.last_request_at: float | None = None
        self._no_room = row_of(Overloaded("")).http
        self.refused = 0
        """Turns for which there was no room."""

    def request(self, route: str, status: int) -> None:
        self._turn_day()
        self._requests.labels(route, str(status)).inc()
        self._today["requests"] += 1
        self.refused += status == self._no_room
        self.last_request_at = self._clock()

    def turn_started(self, kind: str) -> None:
        self._turn_day()
        self._turns.labels(kind).inc()
        self._today["messages"] += 1

    def turn_ended(self, record: TurnRecord) -> None:
        """Any turn, whoever asked for it."""
        self._ended.labels(record.run_status.value, record.cause.value if record.cause else "").inc()
        self._tokens.labels("input").inc(record.usage.prompt_tokens)
        self._tokens.labels("output").inc(record.usage.output_tokens)
        self._seconds.observe(max(0.0, record.ended_at - record.started_at))

    def run_ended(self, record: TurnRecord) -> None:
        """A turn that was asked for over HTTP."""
        self._turn_day()
        self._latencies.append(max(0.0, record.ended_at - record.started_at) * 1000)
        self._today["tokens"] += record.usage.total_tokens

    def today(self) -> dict[str, Any]:
        self._turn_day()
        ordered = sorted(self._latencies)
        p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))] if ordered else None
        return {"day": self._day, **self._today, "latency_p95_ms": None if p95 is None else round(p95, 1)}

    def exposition(self, now: Mapping[str, float]) -> bytes:
        """The text. ``now``: a value for each of ``GAUGES``."""
        for name, gauge in self._gauges.items():
            gauge.set(now[name])
        text: bytes = generate_latest(self._registry)
        return text

    def _turn_day(self) -> None:
        day = time.strftime("%Y-%m-%d", time.gmtime(self._clock()))
        if day != self._day:
            self._day = day
            self._today = dict.fromkeys(self._today, 0)
