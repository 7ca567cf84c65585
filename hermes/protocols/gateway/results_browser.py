"""Results of the browser's methods."""

from __future__ import annotations

from typing import Any

from hermes.protocols.rpc.method_table import Result


class BrowserRegisterResult(Result):
    scope: dict[str, Any]


class BrowserResultResult(Result):
    accepted: bool


class BrowserHeartbeatResult(Result):
    ok: bool


class BrowserDetachResult(Result):
    detached: bool
