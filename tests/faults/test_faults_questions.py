"""Questions to clients that come and go: kept, shown again, withdrawn once, and answered where they were asked."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ParallelClass, ToolContext
from hermes.events import ClientRequestClosed
from hermes.messages import Question, Withdrawn
from hermes.nurseries.client_requests import Attachment
from hermes.testing import FakeProvider, Script
from tests.support.core import PlainTool, call, make_services, running_tree
from tests.support.core import say as core_say
from tests.support.drivers import GatewayDriver, driving, http_driver
from tests.support.fault_play import LIMIT, Frame, events, model_environment, playing, say, terminal
from tests.support.gateway_host import connected, gateway_server

CHOICES = ("once", "session", "always", "deny")


def approval(one: Frame) -> bool:
    return one.get("method") == "approval"


def answered(question: Frame, choice: str) -> Frame:
    return {"jsonrpc": "2.0", "id": question["id"], "result": {"choice": choice}}


async def _ask_named(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    question = Question("approval", {"command": str(arguments["what"])}, choices=CHOICES, timeout=7200)
    return f"{arguments['what']}: {await ctx.ask(question)!r}"


ASK = PlainTool("ask_named", _ask_named, ParallelClass.FREE)


# --- clients that leave -----------------------------------------------------------------------------------------------


@pytest.mark.fault("B-078")
@pytest.mark.parametrize("how", ["session.resume", "session.activate"])
@pytest.mark.parametrize("away", [25, 590])
async def test_a_question_waits_for_a_client_that_was_away(away: int, how: str, autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(core_say("", calls=[call("ask_named", what="x")]), core_say("thanks"), tools=[ASK])
    async with running_tree(services) as tree:
        server = gateway_server(tree)
        async with connected(tree, websocket=True, server=server, name="first") as first:
            await first.call("client.capabilities", server_requests=True)
            made = await first.call("session.create")
            session_id = made["session_id"]
            await first.call("prompt.submit", session_id=session_id, text="go")
            question = await first.question("approval")
        await trio.sleep(away)
        named = made["stored_session_id"] if how == "session.resume" else session_id
        async with connected(tree, websocket=True, server=server, name="second") as second:
            await second.call("client.capabilities", server_requests=True)
            snapshot = await second.call(how, session_id=named, omit_messages=True)
            assert [one["id"] for one in snapshot["open_requests"]] == [question["id"]]
            second.reply(question["id"], {"choice": "once"})
            second.reply(question["id"], {"choice": "deny"})
            assert (await second.event("message.complete"))["payload"]["text"] == "thanks"
        (session,) = tree.registry.live()
        (result,) = [row.text for row in session.rows if row.role == "tool"]
        assert "'choice': 'once'" in result


@pytest.mark.fault("B-078")
async def test_a_question_of_a_session_that_nobody_came_back_to_is_withdrawn_and_no_denial(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, _ = make_services(core_say("", calls=[call("ask_named", what="x")]), core_say("next"), tools=[ASK])
    limits = services.settings().limits
    async with running_tree(services) as tree:
        server = gateway_server(tree)
        async with connected(tree, websocket=True, server=server, name="first") as first:
            await first.call("client.capabilities", server_requests=True)
            made = await first.call("session.create")
            await first.call("prompt.submit", session_id=made["session_id"], text="go")
            await first.question("approval")
        (session,) = tree.registry.live()
        await trio.sleep(limits.parked_activity + limits.parked_force_close)
        closed = [entry.event for entry in session.log.since(0)[0] if isinstance(entry.event, ClientRequestClosed)]
        assert [type(event.answer) for event in closed] == [Withdrawn]
        assert not any("deny" in row.text for row in session.rows)
        async with connected(tree, websocket=True, server=server, name="second") as second:
            await second.call("client.capabilities", server_requests=True)
            resumed = await second.call("session.resume", session_id=made["stored_session_id"])
            await second.call("prompt.submit", session_id=resumed["session_id"], text="again")
            assert (await second.event("message.complete"))["payload"]["text"] == "next"


@pytest.mark.e2e
@pytest.mark.fault("B-080")
async def test_a_question_whose_client_was_lost_is_shown_again_as_the_same(tmp_path: Path) -> None:
    work = (terminal("rm -rf nothing-here"), say("thanks"))
    async with playing(tmp_path / "home", *work, surface="gateway websocket") as (driver, _provider):
        async with http_driver("gateway websocket", driver.server) as lost:
            assert isinstance(lost, GatewayDriver)
            await lost.start("go")
            # The connection breaks without a word while the question may be on its way.
            raw = lost._socket._stream  # type: ignore[attr-defined]
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await trio.aclose_forcefully(raw)
        shown = []
        await driver.call("client.capabilities", {"server_requests": True})
        driver.session_id = lost.session_id
        for _ in range(2):
            snapshot: dict[str, Any] = {"open_requests": []}
            while not snapshot["open_requests"]:
                snapshot = await driver.call("session.activate", {"session_id": driver.session_id})
            (one,) = snapshot["open_requests"]
            shown.append(one)
        assert shown[0] == shown[1]
        await driver.send(answered(shown[0], "once"))
        assert (await driver.event("message.complete"))["params"]["payload"]["status"] == "complete"


@pytest.mark.e2e
@pytest.mark.fault("B-082")
async def test_a_question_of_a_server_that_was_ended_is_told_as_over_after_the_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(terminal("rm -rf x"), say("next"), strict=True)) as provider:
            async with driving("gateway stdio", home, model_environment(provider)) as first:
                assert isinstance(first, GatewayDriver)
                await first.start("go")
                await first.wait_for_question()
                key = next(f["result"] for f in first.frames if "stored_session_id" in f.get("result", {}))
                assert await first.server.stop() == 0
                await first.server.wait_for_output(lambda: False)
                (end,) = events(first, "message.complete")
                assert (end["status"], end["cause"]) == ("interrupted", "shutdown")
                (withdrawn,) = events(first, "request.cancel")
                assert withdrawn["reason"] != "deny" and "shut" in withdrawn["reason"], withdrawn
            async with driving("gateway stdio", home, model_environment(provider)) as second:
                assert isinstance(second, GatewayDriver)
                await second.call("client.capabilities", {"server_requests": True})
                resumed = await second.call("session.resume", {"session_id": key["stored_session_id"]})
                assert not resumed.get("running")
                assert all(one.get("interrupted") for one in resumed.get("open_requests", []))
                second.session_id = resumed["session_id"]
                await second.start("again")
                assert (await second.terminal())["status"] == "complete"
                assert len(provider.requests) == 2


@pytest.mark.e2e
@pytest.mark.fault("B-084")
@pytest.mark.parametrize("how", ["session.resume", "session.activate"])
async def test_an_answer_that_is_sent_before_the_reply_to_the_reattach_is_read_counts(how: str, tmp_path: Path) -> None:
    drop = tmp_path / "home" / "drop"
    work = (terminal(f"rm -rf {drop}"), say("thanks"))
    async with playing(tmp_path / "home", *work, surface="gateway websocket") as (driver, _provider):
        drop.mkdir()
        async with http_driver("gateway websocket", driver.server) as first:
            assert isinstance(first, GatewayDriver)
            await first.start("go")
            question = await first.find(approval)
            key = next(one["result"] for one in first.frames if "stored_session_id" in one.get("result", ()))
        session = {"session_id": first.session_id}
        attach = {"session_id": key["stored_session_id"]} if how == "session.resume" else session
        hello = {"server_requests": True}
        await driver.send({"jsonrpc": "2.0", "id": "c", "method": "client.capabilities", "params": hello})
        await driver.send({"jsonrpc": "2.0", "id": "a", "method": how, "params": attach})
        await driver.send(answered(question, "once"))
        assert (await driver.event("message.complete"))["params"]["payload"]["status"] == "complete"
        assert not drop.exists()
        assert (await driver.call("session.events.since", session))["open_requests"] == []


@pytest.mark.e2e
@pytest.mark.fault("B-086")
@pytest.mark.parametrize("how", ["interrupt", "close", "shutdown"])
async def test_a_question_that_goes_is_withdrawn_once_from_every_client(how: str, tmp_path: Path) -> None:
    async with playing(tmp_path / "home", terminal("rm -rf x"), surface="gateway websocket") as (driver, _provider):
        await driver.start("go")
        question = await driver.find(approval)
        session = {"session_id": driver.session_id}
        async with http_driver("gateway websocket", driver.server) as other:
            assert isinstance(other, GatewayDriver)
            await other.call("client.capabilities", {"server_requests": True})
            await other.call("session.activate", session)
            if how == "shutdown":
                assert await driver.server.stop() == 0
            else:
                await driver.call("session.interrupt" if how == "interrupt" else "session.close", session)
            for client in (driver, other):
                await client.event("request.cancel")
                if how == "shutdown":
                    await trio.aclose_forcefully(client._socket._stream)  # type: ignore[union-attr]
                if how != "shutdown":
                    await client.call("ping", {})
                (one,) = events(client, "request.cancel")
                assert one["id"] == question["id"] and one["reason"]


# --- the right question -----------------------------------------------------------------------------------------------


@pytest.mark.fault("B-087")
async def test_each_of_two_parallel_approvals_gets_its_own_answer_in_whatever_order(
    autojump_clock: trio.abc.Clock,
) -> None:
    rounds, order = 100, random.Random(87)
    replies, over = [], list[str]()
    for number in range(rounds):
        names = ["A", "B"] if order.random() < 0.5 else ["B", "A"]
        both = [call("ask_named", f"{name}{number}", what=name) for name in names]
        replies += [core_say("", calls=both), core_say("thanks")]
    services, _ = make_services(*replies, tools=[ASK])
    async with running_tree(services) as tree, connected(tree) as host:
        await host.call("client.capabilities", server_requests=True)
        session_id = (await host.call("session.create"))["session_id"]
        for _ in range(rounds):
            await host.call("prompt.submit", session_id=session_id, text="go")
            # Questions of parallel calls are shown one at a time; an answer to an id that is over counts for nothing.
            for _ in "AB":
                question = await host.question("approval")
                for old in over:
                    host.reply(old, {"choice": "always"})
                choice = "deny" if question["params"]["command"] == "A" else "once"
                host.reply(question["id"], {"choice": choice})
                over = [question["id"]]
            await host.event("message.complete")
        (session,) = tree.registry.live()
        results = [row.text for row in session.rows if row.role == "tool"]
        assert len(results) == 2 * rounds
        for result in results:
            assert ("'choice': 'deny'" in result) == result.startswith("A:")
            assert ("'choice': 'once'" in result) == result.startswith("B:")


@pytest.mark.fault("B-087")
async def test_the_newer_of_two_open_approvals_can_be_answered_first(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.attach(Attachment("editor", lambda method: True))
        answers: dict[str, Any] = {}

        async def ask(name: str) -> None:
            question = Question("approval", {"command": name}, choices=CHOICES, timeout=300)
            answers[name] = await session.requests.ask(question, scope=session.scope, turn_id=None)

        async with trio.open_nursery() as nursery:
            for name in "AB":
                nursery.start_soon(ask, name)
            await trio.testing.wait_all_tasks_blocked()
            ids = {one["params"]["command"]: one["id"] for one in session.requests.entries()}
            session.requests.answer_response(ids["B"], {"choice": "once"}, by="editor")
            session.requests.answer_response(ids["A"], {"choice": "deny"}, by="editor")
        assert ("once" in repr(answers["B"]), "deny" in repr(answers["A"])) == (True, True)


@pytest.mark.e2e
@pytest.mark.fault("B-089")
@pytest.mark.parametrize("pause", [0.0, 0.1])
async def test_three_approvals_of_one_turn_are_answered_one_after_the_other(pause: float, tmp_path: Path) -> None:
    home = tmp_path / "home"
    folders = [home / f"keep-{number}" for number in range(3)]
    work = (terminal(*(f"rm -rf {folder}" for folder in folders)), say("thanks"))
    async with playing(home, *work) as (driver, provider):
        for folder in folders:
            folder.mkdir(parents=True)
        await driver.start("go")
        at = driver._turn_from
        for _ in folders:
            question = await driver.find(approval, at)
            at = driver.frames.index(question) + 1
            await trio.sleep(pause)
            await driver.send(answered(question, "once"))
        assert (await driver.terminal())["status"] == "complete"
        assert not any(folder.exists() for folder in folders)
        assert len(provider.requests) == 2 and events(driver, "request.cancel") == []
