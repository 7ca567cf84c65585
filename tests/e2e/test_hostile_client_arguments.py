"""Arguments that a model should never write, for the tools that exist only while a client is attached, and answers that
a client should never give: each call has one result in words, and the next call works."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider
from tests.e2e.test_hostile_arguments import AT_ONCE, HUGE, LIMIT, LONG, furnish, results_of
from tests.support.drivers import GatewayDriver, driving

pytestmark = pytest.mark.e2e

WRONG_TEXTS: tuple[Any, ...] = ("", "a\0b", LONG, "\ud800", 5, None, ["a"], {"a": 1}, True)
WRONG_NUMBERS: tuple[Any, ...] = (-1, HUGE, "two", 1.5, [1], None, True)

CALLS: dict[str, list[dict[str, Any]]] = {
    "terminal_read": [{name: value} for name in ("start", "count") for value in WRONG_NUMBERS] + [{"more": 1}],
    "window_read": [{"start": 1}, {"a": {"b": []}}],
    "preview_read": [{name: value} for name in ("start", "count") for value in WRONG_NUMBERS],
    "preview_act": [
        {},
        *({"action": value} for value in WRONG_TEXTS),
        *({"action": "type", name: value} for name in ("ref", "text", "selector") for value in WRONG_TEXTS),
        *({"action": "scroll", "amount": value} for value in WRONG_NUMBERS),
        *({"action": "press", "key": "F5", "allow_shortcut": value} for value in ("yes", 2, [])),
    ],
    "tour": [
        {},
        *({"action": value} for value in WRONG_TEXTS),
        *({"action": "start", "steps": value} for value in (5, "x", [1], [[]], [{}] * 300, {"a": 1})),
        *({"action": "show", "side": value} for value in ("inside", 1, None)),
        *({"action": "show", "step_index": value} for value in WRONG_NUMBERS),
    ],
    "vault_code": [{name: value} for name in ("site", "hint") for value in WRONG_TEXTS],
    "vault_unlock": [{}, *({"backend": value} for value in WRONG_TEXTS), {"backend": "x", "display_name": LONG}],
    "vault_save_login": [{}, {"origin": "x"}, *({"origin": value, "site": value} for value in WRONG_TEXTS)],
    "request_secret": [
        {},
        *({"env_var": value, "prompt": "p"} for value in WRONG_TEXTS),
        *({"env_var": name, "prompt": "p"} for name in ("PATH", "LD_PRELOAD", "API_SERVER_KEY", "A=B", "a b", "1A")),
        *({"env_var": "TOKEN_OF_TEST", "prompt": value} for value in WRONG_TEXTS),
    ],
    "manage_connections": [
        {},
        *({"targets": value} for value in (5, "x", [5], [None], [[]], ["nowhere"], ["\0"], [LONG], {"a": 1})),
        *({"reason": value} for value in WRONG_TEXTS),
    ],
}

ANSWERS: tuple[Any, ...] = (
    {"value": "seen"}, {"value": ""}, {"value": None}, {"value": {"a": [1]}}, {"value": "[1, 2]"}, {"value": 7}, {},
    {"value": "\ud800"}, {"value": "{" * 2000}, {"targets": 5, "settled_by": []}, {"targets": [None, {"name": []}]},
)  # fmt: skip
SILENT = frozenset({"client.capabilities"})


class Desk:
    """A desktop host: it answers each question at once, with the next of the answers."""

    def __init__(self, driver: GatewayDriver) -> None:
        self.driver = driver
        self.asked: list[str] = []

    async def serve(self) -> None:
        at = 0
        while True:
            frame = await self.driver.find(lambda one: "method" in one and "id" in one, at)
            at = self.driver.frames.index(frame) + 1
            answer = ANSWERS[len(self.asked) % len(ANSWERS)]
            self.asked.append(frame["method"])
            await self.driver.send({"jsonrpc": "2.0", "id": frame["id"], "result": answer})


def environment(provider: FakeProvider) -> Mapping[str, str]:
    values = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789"}
    return {**values, "HERMES_MODEL": "fake-model"}


def assert_in_words(step: dict[str, Any], text: str) -> None:
    assert "the tool failed" not in text and "Traceback" not in text, (step, text)
    assert "unknown tool" not in text.lower() and "no tool" not in text.lower(), (step, text)


@pytest.mark.parametrize("name", list(CALLS))
async def test_no_argument_for_a_client_costs_more_than_its_own_call(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    furnish(home)
    servers = {"mcp_servers": {"off": {"command": "false", "enabled": True}}}
    (home / "config.yaml").write_text(json.dumps(servers))
    steps: list[dict[str, Any]] = [{"name": name, "arguments": json.dumps(one)} for one in CALLS[name]]
    with trio.fail_after(LIMIT):
        async with FakeProvider() as provider, driving("gateway stdio", home, environment(provider)) as driver:
            assert isinstance(driver, GatewayDriver)
            await driver.call("client.capabilities", {"server_requests": True})
            made = await driver.call("session.create", {"cwd": str(home), "source": "desktop"})
            driver.session_id = made["session_id"]
            desk = Desk(driver)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(desk.serve)
                for at in range(0, len(steps), AT_ONCE):
                    some = steps[at : at + AT_ONCE]
                    for step, text in zip(some, await results_of(driver, provider, some), strict=True):
                        assert_in_words(step, text)
                sound_step = {"name": "terminal", "arguments": {"command": "echo sound"}}
                [sound] = await results_of(driver, provider, [sound_step])
                assert json.loads(sound)["output"] == "sound\n"
                nursery.cancel_scope.cancel()
            assert desk.asked, "no question reached the client"
            offered = {tool["function"]["name"] for one in provider.requests for tool in one.body.get("tools", ())}
            assert name in offered
        logs = "".join(path.read_text() for path in (home / "logs").glob("*.log")) if (home / "logs").exists() else ""
        assert "Traceback" not in logs, logs[-3000:]
