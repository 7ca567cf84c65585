"""Counters of the HTTP surface: Prometheus text for ``/metrics``, and today's figures for ``/health/detailed``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hermes.outcomes import TurnRecord

LATENCY_SAMPLES = 512
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """One server's counters, in a registry of their own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "hermes_http_requests", "HTTP requests by route and status.", ["route", "status"], registry=self._registry
        )
        self._turns = Counter("hermes_turns_started", "Turns started over HTTP.", ["kind"], registry=self._registry)
        self._ended = Counter("hermes_turns_ended", "Turns ended, by status.", ["status"], registry=self._registry)
        self._tokens = Counter("hermes_tokens", "Tokens of ended turns.", ["direction"], registry=self._registry)
        self._seconds = Histogram("hermes_turn_seconds", "Duration of turns.", registry=self._registry)
        self._active = Gauge("hermes_active_runs", "Runs that hold a slot.", registry=self._registry)
        self._nodes = Gauge("hermes_tree_nodes", "Nodes of the live tree.", registry=self._registry)
        self._latencies: deque[float] = deque(maxlen=LATENCY_SAMPLES)
        self._day = ""
        self._today = {"requests": 0, "messages": 0, "tokens": 0}
        self.last_request_at: float | None = None

    def request(self, route: str, status: int) -> None:
        self._turn_day()
        self._requests.labels(route, str(status)).inc()
        self._today["requests"] += 1
        self.last_request_at = self._clock()

    def turn_started(self, kind: str) -> None:
        self._turn_day()
        self._turns.labels(kind).inc()
        self._today["messages"] += 1

    def turn_ended(self, record: TurnRecord) -> None:
        self._turn_day()
        seconds = max(0.0, record.ended_at - record.started_at)
        self._ended.labels(record.run_status.value).inc()
        self._tokens.labels("input").inc(record.usage.prompt_tokens)
        self._tokens.labels("output").inc(record.usage.output_tokens)
        self._seconds.observe(seconds)
        self._latencies.append(seconds * 1000)
        self._today["tokens"] += record.usage.total_tokens

    def today(self) -> dict[str, Any]:
        self._turn_day()
        ordered = sorted(self._latencies)
        p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))] if ordered else None
        return {"day": self._day, **self._today, "latency_p95_ms": None if p95 is None else round(p95, 1)}

    def exposition(self, *, active: int, nodes: int) -> bytes:
        self._active.set(active)
        self._nodes.set(nodes)
        text: bytes = generate_latest(self._registry)
        return text

    def _turn_day(self) -> None:
        day = time.strftime("%Y-%m-%d", time.gmtime(self._clock()))
        if day != self._day:
            self._day = day
            self._today = dict.fromkeys(self._today, 0)
