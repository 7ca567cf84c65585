"""Parameters of ``browser.controller.…`` (api-server §7.7). Refusals are Forbidden, so what would be one is
read leniently here and checked by the handler."""

from __future__ import annotations

from typing import Any

from hermes.protocols.gateway.schemas import SessionParams


class BrowserRegisterParams(SessionParams):
    controller_id: str
    browser_profile_id: str
    capabilities: list[Any] = []
    protocol_version: Any = None


class BrowserResultParams(SessionParams):
    command_id: str
    ok: Any = None
    result: Any = None
    error: Any = None
