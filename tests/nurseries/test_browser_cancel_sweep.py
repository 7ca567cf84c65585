"""A command on its way to a browser, stopped after each of its steps: the browser is told of every command's end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from hermes.config import with_setting
from hermes.errors import HermesError
from hermes.messages import Prompt
from hermes.nurseries.browser_broker import BrowserBroker, Controller, ControllerIdentity, Lane
from hermes.nurseries.browser_tools import BrowserTool
from hermes.nurseries.session import Session
from hermes.settings import Settings
from hermes.testing import SweepRun
from tests.support.core import call, say
from tests.support.verb_sweep import Left, VerbScenario, sweep

ACTION = "browser_snapshot"
SETTINGS = with_setting(Settings(), "browser.extension_control.enabled", True)


class Browser:
    """It does what it is told after a second, in its own way, and remembers all of it."""

    def __init__(self, broker: BrowserBroker, session: Session, way: str) -> None:
        self.lane = Lane("somebody", "default", session.key, "gateway")
        self.way = way
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self.answered: set[str] = set()
        self._broker = broker
        self._identity = ControllerIdentity(self.lane, "controller", "profile")
        self._in, self._commands = trio.open_memory_channel[Mapping[str, Any]](math.inf)
        self.controller: Controller = self._attach()

    def _attach(self) -> Controller:
        self._send = self._receive
        return self._broker.attach(self._identity, frozenset({ACTION}), self._send)

    def _receive(self, method: str, params: Mapping[str, Any]) -> None:
        self.told.append((method, params))
        if method == "browser.controller.command":
            self._in.send_nowait(params)

    async def run(self) -> None:
        async for command in self._commands:
            await trio.sleep(1)
            match self.way:
                case "answers":
                    self._answer(command)
                case "gives up":
                    self._broker.gave_up(self.controller, command["tool_call_id"])
                case "comes back":
                    self._broker.lost(self.controller, self._send)
                    await trio.sleep(1)
                    self.controller = self._attach()
                    self._answer(command)
                case "is detached":
                    self._broker.detach(self.controller)

    def _answer(self, command: Mapping[str, Any]) -> None:
        name = command["command_id"]
        if self._broker.answered(self.controller, name, {"result": "a page"}):
            self.answered.add(name)

    def commands(self, method: str) -> list[str]:
        return [params["command_id"] for said, params in self.told if said == f"browser.controller.{method}"]


class Act:
    """A turn that looks at a page twice."""

    def __init__(self, way: str) -> None:
        self._way = way
        self.browser: Browser | None = None

    async def __call__(self, scenario: VerbScenario, session: Session) -> None:
        assert scenario.tree is not None
        broker = scenario.tree.browsers
        browser = self.browser = Browser(broker, session, self._way)
        prompt = Prompt("go", guest_tools=lambda: [BrowserTool(broker, browser.lane, ACTION)])
        refused: list[HermesError] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(browser.run)
            try:
                turn = await session.submit_nowait(prompt).wait_turn()
                if turn is not None:
                    await turn.wait_ended()
            except HermesError as error:
                refused.append(error)
            # One that is away when the turn is stopped is told when it comes back.
            await trio.sleep(3)
            nursery.cancel_scope.cancel()
        if refused:
            raise refused[0]


READS = {
    "answers": "a page",
    "gives up": "the browser gave up",
    "comes back": "a page",
    "is detached": "the browser was detached",
    "is silent": "no answer within 30 s",
}


@pytest.mark.parametrize("level", ("child", "interrupt", "session", "server"))
@pytest.mark.parametrize("way", list(READS))
def test_a_stop_of_a_command_to_a_browser_is_told_to_it_once(way: str, level: str) -> None:
    act = Act(way)

    def check(run: SweepRun[VerbScenario, Left]) -> None:
        browser = act.browser
        assert browser is not None
        assert browser.controller.pending == {}
        asked, cancelled = browser.commands("command"), browser.commands("cancel")
        assert len(asked) == len(set(asked)) and len(cancelled) == len(set(cancelled))
        assert set(cancelled) <= set(asked)
        assert not browser.answered & set(cancelled), "told to stop what it had done"
        if way in ("answers", "comes back"):
            assert browser.answered | set(cancelled) == set(asked)
        if not run.step:
            read = [row.text for row in run.result.rows if row.role == "tool"]
            assert len(read) == 2 and READS[way] in read[0]

    replies = [say("", calls=[call(ACTION, "c1")]), say("", calls=[call(ACTION, "c2")]), say("done")]
    sweep(act, lambda: list(replies), level, check, child_kind="tool_call", settings=SETTINGS)
