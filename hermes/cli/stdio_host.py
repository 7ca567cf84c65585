"""``hermes gateway`` and ``hermes acp`` without options: the same as the full commands, without parsing any."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.cli.loading import load_with
from hermes.launch import AcpOptions, GatewayOptions


def run(arguments: Sequence[str]) -> int:
    """Serve; returns the exit code. Raises ``HermesError``."""
    loaded = load_with({}, None)
    from hermes import app

    if arguments[0] == "gateway":
        return app.run_gateway(loaded, GatewayOptions())
    return app.run_acp(loaded, AcpOptions())
