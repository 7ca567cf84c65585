"""A request that is sent again under its key is answered, not done again; another body under the key is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.errors import IdempotencyConflict
from hermes.nurseries.repeats import Repeats
from hermes.nurseries.session_options import empty
from hermes.protocols.gateway.schemas import KeyedParams
from hermes.protocols.gateway.server import GatewayServer
from hermes.protocols.gateway.surface import WEBSOCKET_TABLE
from tests.support.core import hang, make_services, running_tree, say
from tests.support.gateway_host import EPOCH, GatewayHost, Refusal, connected, gateway_server

READS = """
agents.list approval.pending approval.received client.capabilities command.resolve commands.catalog complete.path
complete.slash config.get config.show delegation.status gateway.capabilities gateway.ping insights.get llm.oneshot
machine.facts mcp.servers.list mcp.servers.status mcp.servers.test model.options ping plugins.list process.list
profiles.list project.facts rollback.diff rollback.list session.active_list session.context_breakdown
session.events.since session.events.stats session.history session.list session.most_recent session.status
session.usage setup.runtime_check setup.status skills.manage spawn_tree.list spawn_tree.load subagent.list
subagent.tail system.battery tools.list tools.show toolsets.list tree.get
""".split()  # noqa: SIM905
SETS_ITS_OWN_STATE = "session.activate session.resume terminal.resize tree.subscribe".split()  # noqa: SIM905
"""Attaching and sizes: the same call again is the same state."""


def test_every_method_that_changes_something_takes_a_key() -> None:
    without = {
        name
        for name in WEBSOCKET_TABLE.names()
        if not issubclass(WEBSOCKET_TABLE.find(name).params, KeyedParams)  # type: ignore[union-attr, arg-type]
    }
    ours = {name for name in without if not name.startswith("browser.")}
    assert ours == {*READS, *SETS_ITS_OWN_STATE}


@pytest.mark.fault("B-129")
async def test_a_repeat_gets_the_first_answer_and_changes_nothing(autojump_clock: Any) -> None:
    services, model = make_services(say("one"), say("two"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        submit = {"session_id": session_id, "text": "go", "request_key": "a"}
        first = await host.call("prompt.submit", **submit)
        await host.event("message.complete")
        assert await host.call("prompt.submit", **submit) == first
        await host.call("prompt.submit", session_id=session_id, text="go", request_key="b")
        await host.event("message.complete")
        removed = await host.call("session.undo", session_id=session_id, idempotency_key="u")
        assert await host.call("session.undo", session_id=session_id, idempotency_key="u") == removed
        assert len(model.requests) == 2
        assert len(tree.registry.get(session_id).rows) == 2


async def test_another_body_under_the_same_key_is_refused(autojump_clock: Any) -> None:
    services, model = make_services(say("one"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        other_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go", client_message_id="m")
        await host.event("message.complete")
        with pytest.raises(Refusal) as refused:
            await host.call("prompt.submit", session_id=session_id, text="stop", client_message_id="m")
        assert refused.value.code == 4009 and "session busy" not in refused.value.message
        assert len(model.requests) == 1
        await host.call("prompt.submit", session_id=other_id, text="stop", client_message_id="m")


async def test_a_key_is_meant_for_one_method_of_one_session() -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id, other_id = [(await host.call("session.create"))["session_id"] for _ in range(2)]
        key = {"request_key": "k"}
        await host.call("session.title", session_id=session_id, title="one", **key)
        moved = await host.call("session.cwd.set", session_id=session_id, cwd="/tmp", **key)
        assert moved["cwd"] == "/tmp"
        assert (await host.call("session.title", session_id=other_id, title="two", **key))["title"] == "two"
        for method, changed in (("session.title", {"title": "three"}), ("session.cwd.set", {"cwd": "/"})):
            with pytest.raises(Refusal) as refused:
                await host.call(method, session_id=session_id, idempotency_key="k", **changed)
            assert refused.value.code == 4009
        assert (await host.call("session.title", session_id=session_id))["title"] == "one"
        assert tree.registry.get(session_id).memory.cwd == "/tmp"


async def test_a_large_body_is_not_kept_with_its_key() -> None:
    repeats = Repeats()
    body = b"x" * 1_000_000
    holders = sys.getrefcount(body)
    outcome = repeats.begin(["k"], body)
    assert sys.getrefcount(body) == holders and repeats.find(["k"], body) is outcome
    with pytest.raises(IdempotencyConflict):
        repeats.find(["k"], body + b"y")


async def test_answers_are_bounded_in_bytes_and_the_newest_one_stays(autojump_clock: Any) -> None:
    repeats = Repeats(max_bytes=100)
    for name, size in (("a", 60), ("b", 40), ("c", 50), ("d", 1000)):
        repeats.settle(repeats.begin([name, f"{name} too"], b""), name, size)
        kept = [key for key in ("a", "b", "c", "d") if repeats.find([key], b"") is not None]
        assert kept == {"a": ["a"], "b": ["a", "b"], "c": ["b", "c"], "d": ["d"]}[name]
    assert repeats.find(["c too"], b"") is None


async def test_what_still_runs_is_not_forgotten_whatever_its_age_and_the_number_of_others(autojump_clock: Any) -> None:
    repeats = Repeats(seconds=300, limit=2)
    running = repeats.begin(["slow"], b"")
    await trio.sleep(400)
    for number in range(5):
        repeats.settle(repeats.begin([str(number)], b""), number, 1)
    assert repeats.find(["slow"], b"") is running
    assert [number for number in range(5) if repeats.find([str(number)], b"") is not None] == [3, 4]
    repeats.settle(running, "done", 1)
    await trio.sleep(299)
    assert repeats.find(["slow"], b"") is running
    await trio.sleep(2)
    assert repeats.find(["slow"], b"") is None


async def test_answers_of_requests_are_bounded_by_what_they_are_on_the_wire(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        server = GatewayServer(tree, EPOCH, repeats=Repeats(max_bytes=1))
        async with connected(tree, server=server) as host:
            made = {key: (await host.call("session.create", request_key=key))["session_id"] for key in ("a", "b")}
            assert (await host.call("session.create", request_key="b"))["session_id"] == made["b"]
            assert (await host.call("session.create", request_key="a"))["session_id"] != made["a"]


async def test_a_refused_request_is_judged_anew(autojump_clock: Any) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.start")
        with pytest.raises(Refusal, match="4009"):
            await host.call("session.undo", session_id=session_id, request_key="k")
        await host.call("session.interrupt", session_id=session_id)
        assert (await host.call("session.undo", session_id=session_id, request_key="k"))["removed"] > 0


async def test_a_client_that_lost_its_connection_gets_the_first_answer_on_the_next(autojump_clock: Any) -> None:
    services, model = make_services(say("one", pause=5))
    async with running_tree(services) as tree:
        server = gateway_server(tree)
        async with connected(tree, websocket=True, name="first", server=server) as host:
            session_id = (await host.call("session.create", request_key="c"))["session_id"]
            host.start("prompt.submit", session_id=session_id, text="go", client_message_id="m")
            await host.event("message.start")
        async with connected(tree, websocket=True, name="second", server=server) as host:
            assert (await host.call("session.create", request_key="c"))["session_id"] == session_id
            again = await host.call("prompt.submit", session_id=session_id, text="go", client_message_id="m")
            assert again == {"status": "streaming", "user_row_id": 1}
            assert (await host.event("message.complete"))["payload"]["text"] == "one"
            assert len(model.requests) == 1


async def test_work_that_was_begun_is_finished_without_its_client(autojump_clock: Any, tmp_path: Path) -> None:
    services, _ = make_services(home=tmp_path)
    async with running_tree(services) as tree:
        server = gateway_server(tree)
        async with connected(tree, websocket=True, name="first", server=server) as host:
            session_id = (await host.call("session.create"))["session_id"]
            await host.call("prompt.submit", session_id=session_id, text="go")
            await host.event("message.complete")
            host.start("session.branch", session_id=session_id, name="copy", request_key="b")
            await trio.lowlevel.checkpoint()
        async with connected(tree, websocket=True, name="second", server=server) as host:
            made = await host.call("session.branch", session_id=session_id, name="copy", request_key="b")
            live = (await host.call("session.active_list"))["sessions"]
            assert [item["id"] for item in live] == [session_id, made["session_id"]]
            await host.event("session.info")


@pytest.mark.fault("B-129")
async def test_a_prompt_that_another_process_stored_is_not_run_again(autojump_clock: Any) -> None:
    services, model = make_services(say("one"))

    async def submit(host: GatewayHost, text: str) -> Any:
        session_id = (await host.call("session.resume", session_id="20260101_000000_00000a"))["session_id"]
        return await host.call("prompt.submit", session_id=session_id, text=text, client_message_id="m")

    async with running_tree(services) as tree, connected(tree) as host:
        await submit(host, "go")
        await host.event("message.complete")
    async with running_tree(services) as tree, connected(tree) as host:
        assert await submit(host, "go") == {"status": "streaming", "user_row_id": 1}
        with pytest.raises(Refusal, match="4009"):
            await submit(host, "stop")
    assert len(model.requests) == 1


async def test_a_prompt_that_a_summary_stands_for_is_not_run_again(autojump_clock: Any) -> None:
    """The server that compressed knows it, and one that has loaded the session, and one that reads it anew."""
    long = "word " * 400
    services, model = make_services(*(say(long) for _ in range(5)), say("what was said"), say("new"), say("old"))
    key = "20260101_000000_00000a"

    async def submit(host: GatewayHost, text: str, name: str) -> Any:
        session_id = (await host.call("session.resume", session_id=key))["session_id"]
        answer = await host.call("prompt.submit", session_id=session_id, text=text, client_message_id=name)
        return answer["user_row_id"]

    async with running_tree(services) as tree, connected(tree) as host:
        for number in range(5):
            await submit(host, f"go {number} {long}", f"m{number}")
            await host.event("message.complete")
        session = tree.registry.by_key(key)
        assert session is not None
        await host.call("session.compress", session_id=session.runtime_id, focus_topic="here 1")
        assert [row.platform_message_id for row in session.rows if row.platform_message_id] == ["m0", "m1", "m4"]
        # Another connection's server, which has no memory of the requests themselves.
        async with connected(tree) as other:
            assert await submit(other, f"go 2 {long}", "m2") == 5
    asked = len(model.requests)
    async with running_tree(services) as tree, connected(tree) as host:
        assert await submit(host, f"go 0 {long}", "m0") == 1
        assert await submit(host, f"go 2 {long}", "m2") == 5
        with pytest.raises(Refusal, match="4009"):
            await submit(host, "go on", "m3")
        assert len(model.requests) == asked
        # What was put away is gone for good.
        await submit(host, "/new thing", "m9")
        await host.event("message.complete")
        session = tree.registry.by_key(key)
        assert session is not None
        await empty(session)
        async with connected(tree) as other:
            assert await submit(other, f"go 2 {long}", "m2") > 9


async def test_a_session_that_was_made_and_closed_is_made_again(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        first = await host.call("session.create", idempotency_key="k")
        await host.call("session.close", session_id=first["session_id"])
        again = await host.call("session.create", idempotency_key="k")
        assert again["session_id"] != first["session_id"]
