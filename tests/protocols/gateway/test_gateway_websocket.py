"""The gateway on real WebSockets: who is let in, how it is told apart from stdio, and a client that comes back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, connect_websocket

from hermes.nurseries.services import Services
from hermes.protocols.channels.http_listener import ListenerLimits
from hermes.protocols.gateway.admission import (
    PUBLIC_SUBPROTOCOL,
    TICKET_PREFIX,
    AdmissionConfig,
    Admitted,
    Refused,
    Tickets,
    admit,
    host_allowed,
)
from hermes.protocols.gateway.websocket import WebSocketEndpoint, websocket_handler
from tests.support.core import call, make_services, running_tree, say
from tests.support.listening import Running, listening, small_app

KEY = "a-key-that-is-long-enough-for-a-server"


@dataclass
class Handshake:
    peer: str = "127.0.0.1"
    query: dict[str, str] = field(default_factory=lambda: {"token": KEY})
    subprotocols: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=lambda: {"host": "127.0.0.1:8642"})

    def header(self, name: str) -> str | None:
        return self.headers.get(name)


def verdict(tickets: Tickets | None = None, **given: Any) -> Admitted | Refused:
    config = given.pop("config", AdmissionConfig(KEY))
    return admit(Handshake(**given), config, tickets or Tickets())


def code(answer: Admitted | Refused) -> int | None:
    return answer.code if isinstance(answer, Refused) else None


# --- who is let in ---------------------------------------------------------------------------------------------------


async def test_the_key_opens_the_door_as_token_header_or_bearer() -> None:
    host = {"host": "localhost:1"}
    assert verdict() == Admitted(None)
    assert verdict(query={}, headers={**host, "x-hermes-session-token": KEY}) == Admitted(None)
    assert verdict(query={}, headers={**host, "authorization": f"Bearer {KEY}"}) == Admitted(None)
    for query in ({}, {"token": "wrong"}, {"token": ""}, {"ticket": "never minted", "token": KEY}):
        assert code(verdict(query=query)) == 4401


async def test_a_ticket_works_once_and_not_for_long(autojump_clock: Any) -> None:
    tickets = Tickets()
    ticket = tickets.mint()
    assert verdict(tickets, query={"ticket": ticket}) == Admitted(None)
    assert code(verdict(tickets, query={"ticket": ticket})) == 4401
    carried = (PUBLIC_SUBPROTOCOL, TICKET_PREFIX + tickets.mint())
    assert verdict(tickets, query={}, subprotocols=carried) == Admitted(PUBLIC_SUBPROTOCOL)
    for wrong in (
        (TICKET_PREFIX + tickets.mint(),),
        (PUBLIC_SUBPROTOCOL, TICKET_PREFIX + tickets.mint(), TICKET_PREFIX + tickets.mint()),
    ):
        assert code(verdict(tickets, query={}, subprotocols=wrong)) == 4401
    late = tickets.mint()
    await trio.sleep(31)
    assert code(verdict(tickets, query={"ticket": late})) == 4401


async def test_foreign_hosts_pages_and_peers_are_refused() -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:8642", ""):
        assert code(verdict(headers={"host": host})) == 4403
    here = {"host": "localhost:8642"}
    for origin in ("http://localhost:8642", "file://", "null", "app://desktop"):
        assert verdict(headers={**here, "origin": origin}) == Admitted(None)
    for origin in ("https://evil.example", "http://localhost:9999"):
        assert code(verdict(headers={**here, "origin": origin})) == 4403
    assert code(verdict(peer="10.0.0.9")) == 4403
    assert code(verdict(config=AdmissionConfig(KEY, enabled=False))) == 4403
    assert code(verdict(query={}, headers={"host": "evil.example"})) == 4401


async def test_a_server_for_others_answers_to_its_addresses_and_trusted_names() -> None:
    config = AdmissionConfig(KEY, host="0.0.0.0", trusted_hosts=("hermes.example",))
    assert host_allowed("192.168.1.5:8642", config)
    assert host_allowed("hermes.example:443", config)
    assert not host_allowed("evil.example", config)
    page = {"host": "192.168.1.5:8642", "origin": "https://hermes.example"}
    assert verdict(config=config, peer="10.0.0.9", headers=page) == Admitted(None)


# --- on the wire -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(services: Services) -> AsyncIterator[tuple[Running, WebSocketEndpoint]]:
    async with running_tree(services) as tree:
        endpoint = websocket_handler(tree, AdmissionConfig(KEY))
        limits = ListenerLimits(write_deadline=5)
        async with listening(small_app, websockets={"/api/ws": endpoint.handle}, limits=limits) as running:
            yield running, endpoint


class Client:
    def __init__(self, connection: WebSocketConnection) -> None:
        self.connection = connection
        self.frames: list[dict[str, Any]] = []
        self.calls = 0

    async def next(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self.connection.get_message())
        self.frames.append(frame)
        return frame

    async def call(self, method: str, **params: Any) -> Any:
        self.calls += 1
        await self.say({"id": self.calls, "method": method, "params": params})
        while (frame := await self.next()).get("id") != self.calls:
            pass
        return frame["result"] if "result" in frame else frame["error"]["code"]

    async def event(self, type: str) -> dict[str, Any]:
        while (frame := await self.next()).get("params", {}).get("type") != type:
            pass
        params: dict[str, Any] = frame["params"]
        return params

    async def say(self, frame: Any) -> None:
        await self.connection.send_message(json.dumps(frame))


@asynccontextmanager
async def client_of(running: Running, query: str = f"?token={KEY}", **headers: str) -> AsyncIterator[Client]:
    extra = [(name.encode(), value.encode()) for name, value in headers.items()]
    async with trio.open_nursery() as nursery:
        connection = await connect_websocket(
            nursery, "127.0.0.1", running.port, f"/api/ws{query}", use_ssl=False, extra_headers=extra
        )
        try:
            yield Client(connection)
        finally:
            with trio.CancelScope(shield=True):
                await connection._stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("query", "expected"), [("", 4401), ("?token=wrong", 4401)])
async def test_a_refused_client_can_read_the_close_code(query: str, expected: int) -> None:
    services, _ = make_services()
    async with serving(services) as (running, _), client_of(running, query) as client:
        with pytest.raises(ConnectionClosed) as closed:
            await client.next()
        assert closed.value.reason is not None and closed.value.reason.code == expected


async def test_a_page_from_elsewhere_is_refused_although_it_has_the_key() -> None:
    services, _ = make_services()
    async with serving(services) as (running, _), client_of(running, origin="https://evil.example") as client:
        with pytest.raises(ConnectionClosed) as closed:
            await client.next()
        assert closed.value.reason is not None and closed.value.reason.code == 4403


async def test_a_client_that_comes_back_finds_its_question_and_every_missed_event() -> None:
    services, _ = make_services(say("asking", calls=[call("ask")]), say("thanks"))
    async with serving(services) as (running, endpoint):
        async with client_of(running) as first:
            assert (await first.next())["params"]["payload"]["heartbeat"] is True
            assert await first.call("gateway.ping") == {"ok": True}
            await first.call("client.capabilities", server_requests=True)
            session_id = (await first.call("session.create"))["session_id"]
            await first.call("prompt.submit", session_id=session_id, text="go")
            started = await first.event("tool.start")
            epoch = first.frames[0]["params"]["payload"]["replay_epoch"]
        async with client_of(running, f"?ticket={endpoint.tickets.mint()}") as second:
            assert (await second.next())["params"]["payload"]["replay_epoch"] == epoch
            await second.call("client.capabilities", server_requests=True)
            snapshot = await second.call("session.activate", session_id=session_id, omit_messages=True)
            assert (snapshot["status"], snapshot["running"]) == ("waiting", True)
            (question,) = snapshot["open_requests"]
            missed = await second.call("session.events.since", session_id=session_id, last_seen=started["seq"] - 1)
            assert [event["type"] for event in missed["events"]] == ["tool.start"]
            assert missed["open_requests"] == [question]
            await second.say({"id": question["id"], "result": {"choice": "once"}})
            complete = await second.event("message.complete")
            assert complete["payload"]["text"] == "thanks"
            numbers = [frame["params"]["seq"] for frame in second.frames if "seq" in frame.get("params", {})]
            assert numbers == sorted(set(numbers)) and numbers[0] > started["seq"]
