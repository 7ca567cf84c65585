"""Rewinds against rows that are only shown, stale targets, stores that refuse, and clients that come and go."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from hermes.settings import Settings
from hermes.testing import FakeProvider, Script
from tests.support.core import hang, make_services, running_tree
from tests.support.core import say as core_say
from tests.support.drivers import GatewayDriver, http_driver
from tests.support.fault_play import LIMIT, model_environment, playing, say, stream, terminal, user_texts
from tests.support.gateway_host import Refusal, connected, gateway_server
from tests.support.mortal_server import mortal_servers
from tests.support.server_process import HttpServer

CONFIRMED = {"confirm_truncate": True, "confirm_empty_truncate": True, "confirm_deep_truncate": True}


async def talk(driver: GatewayDriver, text: str) -> None:
    await driver.start(text)
    assert (await driver.terminal())["status"] == "complete"


async def rows_of(driver: GatewayDriver) -> list[Any]:
    rows: list[Any] = (await driver.call("session.history", {"session_id": driver.session_id}))["messages"]
    return rows


def stored(home: Path) -> list[Any]:
    """Every stored row, whatever any process shows of it."""
    database = sqlite3.connect(f"file:{home / 'sessions.db'}?mode=ro", uri=True)
    try:
        return database.execute("SELECT * FROM messages ORDER BY id").fetchall()
    finally:
        database.close()


@pytest.mark.e2e
@pytest.mark.fault("B-115")
@pytest.mark.parametrize("surface", ["gateway stdio", "gateway websocket"])
async def test_a_refused_cut_changes_nothing_that_is_stored(surface: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with playing(home, say("1"), say("2"), say("again"), surface=surface) as (driver, provider):
        await talk(driver, "one")
        await talk(driver, "two")
        shown, durable = await rows_of(driver), stored(home)
        first = next(row["row_id"] for row in shown if row["role"] == "user")
        asked = {"session_id": driver.session_id, "text": "anew"}
        for target in ({"truncate_before_user_ordinal": 0}, {"truncate_before_row_id": first}):
            for confirmed, code in (({}, 4029), ({"confirm_truncate": True}, 4028)):
                refused = await driver.request("prompt.submit", {**asked, **target, **confirmed})
                assert refused["error"]["code"] == code, refused
                assert await rows_of(driver) == shown and stored(home) == durable
        assert len(provider.requests) == 2
        driver._turn_from = len(driver.frames)
        await driver.call("prompt.submit", {**asked, "truncate_before_user_ordinal": 0, **CONFIRMED})
        assert (await driver.terminal())["status"] == "complete"
        assert user_texts(provider.requests[-1]) == ["anew"]


@pytest.mark.e2e
@pytest.mark.fault("B-117")
@pytest.mark.parametrize("by", [(0,), (1,), (0, 1)], ids=["the number", "the row", "both"])
async def test_a_number_and_a_row_name_the_same_turn_whatever_was_put_between(
    by: tuple[int, ...], tmp_path: Path
) -> None:
    config = {"agent": {"personalities": {"pirate": "Talk like a pirate."}}}
    work = terminal("true", background=True, notify=True)
    replies = (say("0"), say("1"), work, say("2"), say("noticed"), say("3"), *[say("edited")] * 4)
    async with playing(tmp_path / "home", *replies, config=config) as (driver, provider):
        await talk(driver, "user 0")
        named = {"session_id": driver.session_id}
        await driver.call("config.set", {**named, "key": "model", "value": "other-model"})
        await talk(driver, "user 1")
        await driver.call("config.set", {**named, "key": "personality", "value": "pirate"})
        await driver.start("user 2")
        # The process's end begins a turn of its own behind this one.
        while not any(row.get("text") == "noticed" for row in await rows_of(driver)):
            await trio.sleep(0.01)
        while (await driver.call("session.activate", {**named, "omit_messages": True}))["running"]:
            await trio.sleep(0.01)
        await talk(driver, "user 3")
        rows = await rows_of(driver)
        kinds = {row["display_kind"] for row in rows if row.get("display_kind")}
        assert kinds >= {"model_switch", "process_complete"}, rows
        visible = [row for row in rows if row["role"] == "user" and "display_kind" not in row]
        assert [row["text"] for row in visible] == [f"user {number}" for number in range(4)]
        asked = {**named, "text": "edited", **CONFIRMED}
        for index in (3, 2, 1, 0):
            target = {"truncate_before_user_ordinal": index, "truncate_before_row_id": visible[index]["row_id"]}
            if index:
                other = {**target, "truncate_before_user_ordinal": index - 1}
                assert (await driver.request("prompt.submit", {**asked, **other}))["error"]["code"] == 4030
            driver._turn_from = len(driver.frames)
            names = [list(target)[which] for which in by]
            await driver.call("prompt.submit", {**asked, **{name: target[name] for name in names}})
            await driver.terminal()
            lines = "\n".join(user_texts(provider.requests[-1])).split("\n")
            said = [line for line in lines if line.startswith(("user", "edited"))]
            assert said == [f"user {number}" for number in range(index)] + ["edited"]


@pytest.mark.e2e
@pytest.mark.fault("B-119")
@pytest.mark.parametrize("trouble", ["locked", "killed"])
async def test_a_rewind_that_is_not_stored_has_not_happened(trouble: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(say("1"), say("2"), say("3"), say("4"), strict=True)) as provider:
            async with mortal_servers(home, model_environment(provider)) as servers:
                server = await servers.start("gateway")
                made = await server.call("session.create", {})
                named = {"session_id": made["session_id"]}
                for text in ("one", "two"):
                    at = len(server.frames)
                    await server.call("prompt.submit", {**named, "text": text})
                    await server.event("message.complete", after=at)
                before = (await server.call("session.history", named))["messages"]
                other = sqlite3.connect(home / "sessions.db", isolation_level=None)
                other.execute("BEGIN IMMEDIATE")
                cut = {**named, "text": "anew", "truncate_before_user_ordinal": 0, **CONFIRMED}
                if trouble == "locked":
                    refused = await server.request("prompt.submit", cut)
                    assert refused["error"]["code"] in (5008, 5071), refused
                else:
                    # Accepted and not stored yet: the moment between the phases.
                    await server.send({"jsonrpc": "2.0", "id": 900, "method": "prompt.submit", "params": cut})
                    await server.call("ping", {})
                    await servers.kill(server)
                other.execute("ROLLBACK")
                other.close()
                assert len(provider.requests) == 2
                if trouble == "locked":
                    assert (await server.call("session.history", named))["messages"] == before
                    await servers.kill(server)
                second = await servers.start("gateway")
                back = await second.call("session.resume", {"session_id": made["stored_session_id"]})
                assert [row["text"] for row in back["messages"]] == [row["text"] for row in before]
                at = len(second.frames)
                cut["session_id"] = back["session_id"]
                await second.call("prompt.submit", cut)
                await second.event("message.complete", after=at)
                assert user_texts(provider.requests[-1]) == ["anew"]


@pytest.mark.e2e
@pytest.mark.fault("B-110")
async def test_who_stays_sees_one_sequence_and_only_who_asked_is_answered(tmp_path: Path) -> None:
    # What is said in two halves; one client leaves between them.
    replies = (stream(*[f"w{n} " for n in range(20)], gate="half"), say("x"))
    async with playing(tmp_path / "home", *replies, surface="gateway websocket") as (a, provider):
        server = cast(HttpServer, a.server)
        async with http_driver("gateway websocket", server) as third:
            c = cast(GatewayDriver, third)
            async with http_driver("gateway websocket", server) as second:
                b = cast(GatewayDriver, second)
                await a.start("go")
                for name, client in (("b", b), ("c", c)):
                    params = {"session_id": a.session_id, "omit_messages": True}
                    await client.send({"jsonrpc": "2.0", "id": name, "method": "session.activate", "params": params})
                    await client.find(lambda one, name=name: one.get("id") == name)
            provider.release("half")
            await a.terminal()
            await c.event("message.complete")
            c._turn_from = a._turn_from = max(len(a.frames), len(c.frames))
            at = {client: len(client.frames) for client in (a, c)}
            await a.call("prompt.submit", {"session_id": a.session_id, "text": "again"})
            for client in (a, c):
                await client.event("message.complete", at[client])

            def turn(client: GatewayDriver) -> list[Any]:
                found = [one["params"] for one in client.frames[at[client] :] if "seq" in one.get("params", {})]
                end = next(n for n, one in enumerate(found) if one["type"] == "message.complete")
                begin = next(n for n, one in enumerate(found) if one["type"] == "message.start")
                return found[begin : end + 1]

            assert turn(a) == turn(c)
            answers = {client: [one["id"] for one in client.frames if "method" not in one] for client in (a, b, c)}
            assert (answers[b], answers[c]) == (["b"], ["c"])
            assert set(answers[a]).isdisjoint({"b", "c"}) and len(answers[a]) == len(set(answers[a]))


GRACE = 20.0


@pytest.mark.fault("B-114")
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "a turn runs"])
@pytest.mark.parametrize("away", [0.1, 1.0, GRACE - 0.01, GRACE + 0.01])
async def test_the_only_client_comes_back_to_a_session_or_to_a_closed_one_and_to_nothing_between(
    away: float, busy: bool, autojump_clock: trio.abc.Clock
) -> None:
    settings = Settings.model_validate({"dashboard": {"ws_orphan_reap_grace_s": GRACE}})
    replies = (core_say("one"), hang() if busy else core_say("two"), core_say("three"))
    services, model = make_services(*replies, settings=settings)
    async with running_tree(services) as tree:
        server = gateway_server(tree)
        async with connected(tree, websocket=True, server=server, name="first") as first:
            made = await first.call("session.create")
            await first.call("prompt.submit", session_id=made["session_id"], text="one")
            await first.event("message.complete")
            if busy:
                await first.call("prompt.submit", session_id=made["session_id"], text="two")
                await first.event("message.start")
        await trio.sleep(away)
        survives = busy or away < GRACE
        async with connected(tree, websocket=True, server=server, name="second") as second:
            if survives:
                shown = await second.call("session.activate", session_id=made["session_id"])
                assert shown["running"] is busy
            else:
                with pytest.raises(Refusal) as refused:
                    await second.call("session.activate", session_id=made["session_id"])
                assert refused.value.code == 4001
                assert list(tree.registry.live()) == []
            back = await second.call("session.resume", session_id=made["stored_session_id"])
            assert (back["session_id"] == made["session_id"]) is survives
            assert len(tree.registry.live()) == 1
            if busy:
                assert model.open == 1
                stopped = await second.call("session.interrupt", session_id=back["session_id"])
                assert stopped["settled"] is True
            await second.call("prompt.submit", session_id=back["session_id"], text="three")
            while (await second.event("message.complete"))["payload"]["status"] != "complete":
                pass
