"""Tools that reach into the attached client: its terminal and window, its preview, its vault.

Each asks one kind of question and is offered only while a client that shows such questions is attached.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import trio

from hermes.agent.ports import ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.redaction import redact
from hermes.agent.tools.base import BuiltinTool, choice, failure, flag, number, parameters, result, text
from hermes.agent.tools.services import ToolServices
from hermes.messages import Answered, Declined, Question, TimedOut
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class Bridge:
    """One question as a tool. ``secret``: the answer is never told to the model, only whether there was one."""

    method: str
    timeout: float
    spec: ToolSpec
    secret: bool = False
    read_only: bool = True


_START_COUNT = {"start": number("First line.", minimum=0), "count": number("Number of lines.", minimum=1)}
_SELECTORS = {
    "action": text("What to do: click, type, press, scroll, snapshot …"),
    "ref": text("Reference of an element."),
    "selector": text("CSS selector of an element."),
    "text": text("Text to type."),
    "key": text("Key to press."),
    "submit": flag("Submit afterwards."),
    "to": text("Where to scroll to."),
    "amount": number("How far to scroll."),
    "full": flag("snapshot: the whole page."),
    "max": number("snapshot: at most so many elements.", minimum=1),
    "allow_shortcut": flag("press: a shortcut of the application itself is meant."),
}
_TOUR = {
    "action": text("start, show, next, end …"),
    "surface": text("Part of the application."),
    "selector": text("Element to point at."),
    "title": text("Heading."),
    "text": text("Explanation."),
    "side": choice("Where the note stands.", "top", "bottom", "left", "right"),
    "steps": {"type": "array", "items": {"type": "object"}, "description": "The steps of a tour, in order."},
    "step_index": number("Which step, from 0.", minimum=0),
    "preset": text("Name of a tour that the application has."),
}

BRIDGES: tuple[Bridge, ...] = (
    Bridge(
        "terminal.read",
        30,
        ToolSpec("terminal_read", "Read the text of the user's own terminal pane.", parameters(_START_COUNT)),
    ),
    Bridge("window.read", 30, ToolSpec("window_read", "Read what the user's window shows.", parameters({}))),
    Bridge(
        "preview.read",
        45,
        ToolSpec("preview_read", "Read the page in the user's preview pane.", parameters(_START_COUNT)),
    ),
    Bridge(
        "preview.act",
        45,
        ToolSpec("preview_act", "Act on the page in the user's preview pane.", parameters(_SELECTORS, "action")),
        read_only=False,
    ),
    Bridge(
        "tour",
        45,
        ToolSpec("tour", "Show the user around in the application.", parameters(_TOUR, "action")),
        read_only=False,
    ),
    Bridge(
        "vault.code",
        180,
        ToolSpec(
            "vault_code",
            "Ask the user for a one-time code.",
            parameters({"site": text("For which site."), "hint": text("Where the code comes from.")}),
        ),
        read_only=False,
    ),
    Bridge(
        "vault.unlock_prompt",
        120,
        ToolSpec(
            "vault_unlock",
            "Ask the user to unlock a password store.",
            parameters({"backend": text("Which store."), "display_name": text("Its name for people.")}, "backend"),
        ),
        secret=True,
        read_only=False,
    ),
    Bridge(
        "vault.save_login",
        180,
        ToolSpec(
            "vault_save_login",
            "Ask the user to save the login of a site in their password store. You learn only whether it was saved.",
            parameters(
                {"origin": text("Address of the site."), "site": text("Its name for people.")}, "origin", "site"
            ),
        ),
        secret=True,
        read_only=False,
    ),
)


_DOUBTED = frozenset({"preview.read", "preview.act", "tour"})
"""Kinds that a client may have promised without knowing them: the first one is not waited for so long."""
_FIRST_TIMEOUT, _SILENCE = 10.0, 30.0


@dataclass(slots=True)
class _Manners:
    """What a session knows of its clients and one kind of question."""

    answers: bool = False
    silent_until: float = -1.0


class ClientBridge(BuiltinTool):
    """A question to the client as a tool."""

    def __init__(self, services: ToolServices, bridge: Bridge) -> None:
        super().__init__(services)
        self.spec = bridge.spec
        self.flags = ToolFlags(
            interactive=True, read_only=bridge.read_only, untrusted_output=not bridge.secret, toolset="client"
        )
        self.answered_by = bridge.method
        self._bridge = bridge

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        bridge = self._bridge
        manners: _Manners = ctx.memory.extras.setdefault(f"bridge:{bridge.method}", _Manners())
        if trio.current_time() < manners.silent_until:
            raise failure("the client did not answer a moment ago; try again later")
        first = bridge.method in _DOUBTED and not manners.answers
        timeout = min(_FIRST_TIMEOUT, bridge.timeout) if first else bridge.timeout
        answer = await ctx.ask(Question(bridge.method, self._shown(arguments), (), timeout, ctx.call_id))
        match answer:
            case Answered(value=value):
                manners.answers = True
                return self._answered(value)
            case TimedOut():
                if first:
                    manners.silent_until = trio.current_time() + _SILENCE
                raise failure("the client did not answer in time")
            case Declined(message=message):
                raise failure(message)
            case _:
                raise failure("not available: no attached client offers this")

    def _shown(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments without what looks like a secret; but what is to be typed, has to be typed as it is."""
        hides = self.services.redact and self._bridge.method != "preview.act"
        return {name: redact(value) if hides and isinstance(value, str) else value for name, value in arguments.items()}

    def _answered(self, value: Mapping[str, Any]) -> ToolOutput:
        given = value.get("value")
        if given in (None, ""):
            return result({"status": "skipped"})
        if self._bridge.secret:
            return result({"status": "saved" if self._bridge.method == "vault.save_login" else "unlocked"})
        if isinstance(given, str):
            try:
                parsed = json.loads(given)
            except ValueError:
                return ToolOutput(given)
            if isinstance(parsed, dict):
                return result(parsed)
            return result({"value": given})
        return result({"value": given})
