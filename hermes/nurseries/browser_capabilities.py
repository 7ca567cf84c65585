"""What a browser may be asked to do, and when (api-server §7.2). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hermes.settings import Settings

PROTOCOL_VERSION: Final = 1
CAPABILITIES: Final = frozenset(
    {"controller.noop", "browser_back", "browser_click", "browser_navigate", "browser_press", "browser_screenshot"}
    | {"browser_scroll", "browser_snapshot", "browser_tab_activate", "browser_tabs", "browser_type"}
)
ARTIFACT_CAPABILITIES: Final = frozenset({"browser_artifact_download", "browser_artifact_upload"})
DEVELOPER_CAPABILITIES: Final = frozenset({"browser_cdp", "browser_evaluate"})


def is_enabled(settings: Settings) -> bool:
    return settings.browser.extension_control.enabled is True


def developer_mode(settings: Settings) -> bool:
    return settings.browser.extension_control.developer_mode is True


def is_version(value: object) -> bool:
    """The integer 1: not true, not "1"."""
    return type(value) is int and value == PROTOCOL_VERSION


def permitted(settings: Settings, wanted: Iterable[str]) -> frozenset[str]:
    """What is left of the wished-for capabilities; the rest is left out without a word."""
    allowed = CAPABILITIES | ARTIFACT_CAPABILITIES
    if developer_mode(settings):
        allowed |= DEVELOPER_CAPABILITIES
    return frozenset(wanted) & allowed


def may_act(settings: Settings, action: str) -> bool:
    """Whether this may be asked of a browser now, whatever was allowed when it registered."""
    return is_enabled(settings) and (action not in DEVELOPER_CAPABILITIES or developer_mode(settings))
