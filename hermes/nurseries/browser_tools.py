"""The ``browser_…`` tools of a turn whose conversation has a browser attached: each call is one command to it.

They exist only where a controller was registered for exactly this conversation; what it does not offer fails, and no
other browser is ever used instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.agent.ports import ParallelClass, Tool, ToolContext, ToolFailure, ToolFlags, ToolSpec
from hermes.nurseries.browser_broker import BrowserBroker, BrowserFailure, Lane

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}

# Action → what it does, and its arguments (those that must be given first).
ACTIONS: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "browser_navigate": ("Open a URL in the user's browser.", {"url": _TEXT}, ("url",)),
    "browser_back": ("Go back one page.", {}, ()),
    "browser_snapshot": ("The text and the elements of the current page.", {"full": {"type": "boolean"}}, ()),
    "browser_screenshot": ("A picture of the current page.", {}, ()),
    "browser_click": ("Click an element of the last snapshot.", {"ref": _TEXT}, ("ref",)),
    "browser_type": ("Type text into an element.", {"ref": _TEXT, "text": _TEXT}, ("ref", "text")),
    "browser_press": ("Press a key.", {"key": _TEXT}, ("key",)),
    "browser_scroll": ("Scroll the page.", {"direction": {"type": "string", "enum": ["up", "down"]}}, ("direction",)),
    "browser_tabs": ("List the open tabs.", {}, ()),
    "browser_tab_activate": ("Bring a tab to the front.", {"tab_id": _NUMBER}, ("tab_id",)),
    "browser_evaluate": ("Evaluate JavaScript in the page.", {"expression": _TEXT}, ("expression",)),
    "browser_cdp": ("Send a DevTools command.", {"method": _TEXT, "params": {"type": "object"}}, ("method",)),
}


class BrowserTool:
    """One action of an attached browser."""

    def __init__(self, broker: BrowserBroker, lane: Lane, action: str) -> None:
        description, properties, required = ACTIONS[action]
        self._broker = broker
        self._lane = lane
        self._action = action
        parameters = {"type": "object", "properties": dict(properties), "required": list(required)}
        self.spec = ToolSpec(action, description, parameters)
        self.flags = ToolFlags(parallel=ParallelClass.BARRIER, untrusted_output=True, toolset="browser", kind="fetch")

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        try:
            answer = await self._broker.dispatch(self._lane, self._action, arguments, ctx.call_id)
        except BrowserFailure as failure:
            raise ToolFailure(str(failure)) from None
        result = answer.get("result")
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)

    def preview(self, arguments: Mapping[str, Any]) -> str:
        return str(next(iter(arguments.values()), self._action))[:80]

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return ()


def browser_tools(broker: BrowserBroker, lane: Lane) -> list[Tool]:
    """The tools of this lane: none where no browser was ever registered."""
    capabilities = broker.registered(lane)
    if capabilities is None:
        return []
    return [BrowserTool(broker, lane, action) for action in ACTIONS if action in capabilities]
