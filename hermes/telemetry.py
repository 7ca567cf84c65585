"""Where spans go: to the tracer provider of the program around us, or to one that the usual variables describe.

``OTEL_TRACES_EXPORTER`` (``otlp``, ``console``: standard error) or ``OTEL_EXPORTER_OTLP_ENDPOINT`` switch them on; the
exporter reads its other variables itself. Nothing of OpenTelemetry is imported without one of these. The exporter
sends from a thread of its own, so that no turn ever waits for a collector.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from hermes.config import wanted_span_exporter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import TracerProvider

log = logging.getLogger(__name__)

# At exit what is left is sent; a collector that does not answer may hold the process up for this long.
SEND_WITHIN = 2


def tracer_provider() -> TracerProvider | None:
    """None where nobody wants spans."""
    return _of_the_program() or _described(wanted_span_exporter())


def _of_the_program() -> TracerProvider | None:
    """Set by a program that embeds us, or by ``opentelemetry-instrument``."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return None
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = trace.get_tracer_provider()
    return provider if isinstance(provider, TracerProvider) else None


def _described(exporter: str) -> TracerProvider | None:
    if not exporter:
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        sends = _exporter(exporter)
    except ImportError:
        log.warning("spans are asked for, but the packages are missing: pip install 'hermes-agent-server[otel]'")
        return None
    if sends is None:
        log.warning("OTEL_TRACES_EXPORTER is %r; otlp and console are served", exporter)
        return None
    provider = TracerProvider(resource=Resource.create({"service.name": "hermes"}))
    provider.add_span_processor(BatchSpanProcessor(sends))
    return provider


def _exporter(name: str) -> SpanExporter | None:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        # Standard output belongs to the wire.
        return ConsoleSpanExporter(out=sys.stderr)
    if name == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(timeout=SEND_WITHIN)
    return None
