"""Many clients of one session: one of them leads, deltas are spaced, nothing else waits, and nobody misses a thing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from hermes.events import StatusUpdate, TextDelta
from hermes.nurseries.session import Session
from hermes.protocols.gateway.fan_out import MOST_SPACE, SPACED_EVENTS, UNSPACED_CLIENTS, space
from hermes.protocols.gateway.server import GatewayServer
from tests.support.core import make_services, running_tree
from tests.support.gateway_host import GatewayHost, connected, gateway_server

MANY = UNSPACED_CLIENTS + 2


@asynccontextmanager
async def audience(count: int) -> AsyncIterator[tuple[Session, list[GatewayHost], GatewayServer, trio.Nursery]]:
    """Clients of one session; each ends with its own task's scope, in ``host.leave``."""
    services, _ = make_services()
    async with running_tree(services) as tree:
        server = gateway_server(tree)
        session = tree.registry.create(source="tui", cwd="/tmp")
        async with trio.open_nursery() as nursery:
            hosts = [await nursery.start(_one, tree, server, session, f"c{number}") for number in range(count)]
            yield session, hosts, server, nursery
            nursery.cancel_scope.cancel()


async def _one(tree: Any, server: GatewayServer, session: Session, name: str, *, task_status: Any) -> None:
    async with connected(tree, websocket=True, name=name, server=server) as host:
        await host.call("session.activate", session_id=session.runtime_id)
        task_status.started(host)
        await trio.sleep_forever()


def deltas(host: GatewayHost) -> list[str]:
    return [
        frame["params"]["payload"]["text"]
        for frame in host.frames
        if frame.get("method") == "event" and frame["params"]["type"] == "message.delta"
    ]


def test_few_clients_are_not_spaced_and_many_by_ten_milliseconds_at_most() -> None:
    assert space(1) == space(UNSPACED_CLIENTS) == 0
    assert 0 < space(UNSPACED_CLIENTS + 1) < space(50) < space(100) <= MOST_SPACE == space(10_000) <= 0.010


async def test_the_first_delta_goes_out_at_once_and_its_followers_go_together(autojump_clock: Any) -> None:
    async with audience(MANY) as (session, hosts, _, _):
        await trio.sleep(1)
        for text in ("a", "b", "c", "d"):
            session.emit(TextDelta("t", text))
            await trio.sleep(0)
            await trio.testing.wait_all_tasks_blocked()
        assert [deltas(host) for host in hosts] == [["a"]] * MANY
        await trio.sleep(2 * space(MANY))
        assert [deltas(host) for host in hosts] == [["a", "bcd"]] * MANY


@pytest.mark.parametrize("count", [1, UNSPACED_CLIENTS])
async def test_a_delta_to_few_clients_is_passed_on_where_it_is_said(count: int, autojump_clock: Any) -> None:
    async with audience(count) as (session, hosts, _, _):
        await trio.sleep(1)
        queued = [len(host.channel._outbox._frames) for host in hosts]
        with trio.testing.assert_no_checkpoints():
            session.emit(TextDelta("t", "a"))
            assert [len(host.channel._outbox._frames) - before for host, before in zip(hosts, queued, strict=True)] == [
                1
            ] * count
            # What is said in the same breath goes together, by the task that leads.
            for text in ("b", "c", "d"):
                session.emit(TextDelta("t", text))
        await trio.testing.wait_all_tasks_blocked()
        assert [deltas(host) for host in hosts] == [["a", "bcd"]] * count


async def test_what_is_no_delta_does_not_wait_and_takes_the_waiting_deltas_along(autojump_clock: Any) -> None:
    async with audience(MANY) as (session, hosts, _, _):
        await trio.sleep(1)
        before = trio.current_time()
        session.emit(TextDelta("t", "a"))
        await trio.testing.wait_all_tasks_blocked()
        session.emit(TextDelta("t", "b"))
        await trio.testing.wait_all_tasks_blocked()
        session.emit(StatusUpdate(None, "status", "busy"))
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == before
        for host in hosts:
            assert deltas(host) == ["a", "b"] and host.types()[-1] == "status.update"


async def test_a_burst_is_passed_on_before_the_log_forgets_it(autojump_clock: Any) -> None:
    async with audience(MANY) as (session, hosts, _, _):
        await trio.sleep(1)
        for number in range(3 * SPACED_EVENTS):
            session.emit(TextDelta("t", f"{number} "))
            await trio.testing.wait_all_tasks_blocked()
        assert len(deltas(hosts[0])) > 2
        await trio.sleep(1)
        expected = "".join(f"{number} " for number in range(3 * SPACED_EVENTS))
        assert all("".join(deltas(host)) == expected for host in hosts)


@pytest.mark.parametrize("leavers", [1, 5, MANY - 1])
async def test_when_those_who_lead_hang_up_the_others_miss_nothing(leavers: int, autojump_clock: Any) -> None:
    async with audience(MANY) as (session, hosts, _, _):
        session.emit(TextDelta("t", "a"))
        for host in hosts[:leavers]:
            # Between what happens and its being passed on, and all at once.
            session.emit(TextDelta("t", host.channel.name))
            host.channel.hang_up()
        await trio.sleep(1)
        session.emit(TextDelta("t", "z"))
        await trio.sleep(1)
        expected = "a" + "".join(f"c{number}" for number in range(leavers)) + "z"
        assert all("".join(deltas(host)) == expected for host in hosts[leavers:])


async def test_a_handler_that_reads_ahead_for_one_client_costs_the_others_nothing(autojump_clock: Any) -> None:
    async with audience(3) as (session, hosts, _, _):
        for number in range(5):
            session.emit(TextDelta("t", f"{number} "))
            # Its answer is queued behind the event, before the others have been woken.
            for host in hosts[: number % 3 + 1]:
                host.start("session.activate", session_id=session.runtime_id, omit_messages=True)
            await trio.sleep(0.1)
        for host in hosts:
            assert "".join(deltas(host)) == "0 1 2 3 4 "
            numbers = [frame["params"]["seq"] for frame in host.frames if "seq" in frame.get("params", {})]
            assert numbers == sorted(set(numbers))


async def test_every_client_gets_the_same_bytes(autojump_clock: Any) -> None:
    async with audience(MANY) as (session, hosts, _, _):
        for number in range(30):
            session.emit(TextDelta("t", f"{number} "))
            if number % 7 == 0:
                session.emit(StatusUpdate(None, "status", str(number)))
            await trio.sleep(0.0005)
        await trio.sleep(1)
        heard = {json.dumps([frame for frame in host.frames if frame.get("method") == "event"]) for host in hosts}
        assert len({text.replace("gateway.ready", "") for text in heard}) == 1
