"""What the command line says that is not a setting: facts of one run, handed to ``app``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from hermes.records import dataclass


def say_nothing(line: str) -> None:
    """Where nobody reads."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """``allow_remote``: the address may be reachable from other machines. ``report`` shows a line to a person."""

    allow_remote: bool = False
    report: Callable[[str], None] = field(default=say_nothing, compare=False)


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """``legacy_requests``: questions go out as events of the older dialect as well."""

    legacy_requests: bool = False


@dataclass(frozen=True, slots=True)
class AcpOptions:
    """Nothing but settings so far: ``--check``, ``--setup`` and ``--version`` do not reach the server."""
