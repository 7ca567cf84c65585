"""When spans are made at all, and where they go."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from hermes.config import wanted_span_exporter
from hermes.telemetry import tracer_provider

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("variables", "exporter"),
    (
        ({}, ""),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "Console, otlp"}, "console"),
        ({ENDPOINT: "http://127.0.0.1:4318"}, "otlp"),
        ({ENDPOINT: "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, ""),
        ({ENDPOINT: "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, ""),
    ),
)
def test_the_usual_variables_choose_the_exporter(variables: dict[str, str], exporter: str) -> None:
    assert wanted_span_exporter(variables) == exporter


def test_an_exporter_that_is_not_served_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with caplog.at_level(logging.WARNING):
        assert tracer_provider() is None
    assert "'zipkin'" in caplog.text


def run(program: str, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=kept | variables, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_without_a_wish_nothing_of_the_sdk_is_imported() -> None:
    program = (
        "import sys, hermes.composition as c; tree = c._observed_tree(); "
        "print(len(tree.observers), 'opentelemetry.sdk' in sys.modules)"
    )
    assert run(program) == "1 False"


def test_spans_go_to_the_provider_that_the_program_has_set() -> None:
    program = (
        "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider; "
        "mine = TracerProvider(shutdown_on_exit=False); trace.set_tracer_provider(mine); "
        "import hermes.telemetry as t; print(t.tracer_provider() is mine)"
    )
    assert run(program) == "True"


def test_spans_can_be_sent_to_a_collector_and_a_silent_one_does_not_hold_up_the_end() -> None:
    program = (
        "import time, hermes.telemetry as t; provider = t.tracer_provider(); "
        "provider.get_tracer('x').start_span('one').end(); began = time.monotonic(); provider.shutdown(); "
        "print(type(provider).__name__, time.monotonic() - began < 20)"
    )
    assert run(program, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") == "TracerProvider True"
