"""Clients of the gateway, over WebSockets that come and go and over standard input: they do anything at any time."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio
import trio_websocket

from tests.chaos.gateway_frames import PATIENCE, GatewayClient
from tests.chaos.ledger import Fate
from tests.chaos.lives import Gone, Life
from tests.chaos.trace import Violation
from tests.chaos.words import EVERY_WORD

if TYPE_CHECKING:
    from tests.chaos.play import Stage

Frame = dict[str, Any]
STORE_CODES = (5008, 5070, 5071, 5072)
ELSEWHERE = (4001, 4007, 4090, 5035)
"""Refusals that have nothing to do with us: the session is closed, deleted or used by another process; draining."""


class SocketClient(GatewayClient):
    def __init__(self, one: Stage, name: str, dice: random.Random, life: Life, ws: trio_websocket.WebSocketConnection):
        super().__init__(one, name, dice, life)
        self.ws = ws
        self.reading = trio.Event()
        self.reading.set()

    async def send(self, frame: Frame) -> None:
        try:
            await self.ws.send_message(json.dumps(frame))
        except trio_websocket.ConnectionClosed as closed:
            raise Gone(str(closed)) from closed

    async def pump(self) -> None:
        try:
            while True:
                await self.reading.wait()
                self.take(json.loads(await self.ws.get_message()))
        except trio_websocket.ConnectionClosed as closed:
            self.lose(str(closed.reason))

    def reset(self) -> None:
        """RST instead of a closing handshake."""
        raw: socket.socket = self.ws._stream.socket  # type: ignore[attr-defined]
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()


class StdioClient(GatewayClient):
    async def send(self, frame: Frame) -> None:
        try:
            await self.life.send(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as closed:
            raise Gone("its input is closed") from closed


async def sockets(one: Stage, name: str, dice: random.Random) -> None:
    """One device after the other."""
    number = 0
    while not one.quiet.is_set():
        life = one.lives.current.get("serve")
        if life is None or not life.alive:
            await trio.sleep(0.05)
            continue
        number += 1
        await _one_socket(one, f"{name}.{number}", dice, life)


async def _one_socket(one: Stage, name: str, dice: random.Random, life: Life) -> None:
    url = f"ws://127.0.0.1:{life.port}/api/ws?token={life.key}"
    async with trio.open_nursery() as nursery:
        try:
            with trio.fail_after(PATIENCE):
                ws = await trio_websocket.connect_websocket_url(nursery, url, max_message_size=2**26)
        except (OSError, trio_websocket.HandshakeError, trio.BrokenResourceError, trio.TooSlowError) as error:
            if life.alive:
                raise Violation("connect", f"{life.name} takes no WebSocket: {error!r}") from None
            return
        client = SocketClient(one, name, dice, life, ws)
        one.trace.note(name, "connect", detail=life.name)
        try:
            nursery.start_soon(client.pump)
            client.answering = nursery
            await visits(client)
            await _leave(client)
        finally:
            await trio.aclose_forcefully(ws._stream)
            nursery.cancel_scope.cancel()


async def _leave(client: SocketClient) -> None:
    """A closing handshake, an end without a word, or a reader that falls asleep and is dropped."""
    how = client.dice.choice(["close", "fin", "reset", "stall"])
    if not client.connected:
        return
    client.one.trace.note(client.name, f"disconnect: {how}")
    client.left = True
    if how == "close":
        with trio.move_on_after(10):
            await client.ws.aclose()
    elif how == "reset":
        client.reset()
    elif how == "stall":
        client.reading = trio.Event()
        with trio.move_on_after(client.dice.uniform(0.5, 5)):
            await client.one.quiet.wait()


async def stdio(one: Stage, name: str, dice: random.Random) -> None:
    while not one.quiet.is_set():
        life = one.lives.current.get("gateway")
        if life is None or not life.alive:
            await trio.sleep(0.05)
            continue
        client = StdioClient(one, name, dice, life)
        async with trio.open_nursery() as nursery:
            client.answering = nursery
            life.hear = client.take
            nursery.start_soon(client.watch_end)
            await visits(client)
            await _stop_all(client)
            client.left = True
            nursery.cancel_scope.cancel()


async def _stop_all(client: GatewayClient) -> None:
    """At the end of a round its sessions rest; the process lives on."""
    try:
        for view in list(client.views.values()):
            await _quiet_request(client, "session.interrupt", {"session_id": view.runtime})
        await client.request("process.stop", {})
    except Gone as gone:
        client.check_gone(str(gone))


async def visits(client: GatewayClient) -> None:
    """Take up a session, do some things with it, take up another; until the connection or the round is over."""
    one, dice = client.one, client.dice
    try:
        await client.call("client.capabilities", {"server_requests": True})
        for _ in range(dice.randint(1, 6)):
            runtime = await _enter(client)
            for _ in range(dice.randint(2, 8)):
                if one.quiet.is_set() or runtime is None:
                    break
                name = dice.choices(list(ACTS), [weight for weight, _ in ACTS.values()])[0]
                await ACTS[name][1](client, runtime)
                await trio.sleep(dice.choice([0, 0, 0.01, 0.1, 0.4]))
            if one.quiet.is_set():
                break
    except Gone as gone:
        client.check_gone(str(gone))


async def _enter(client: GatewayClient) -> str | None:
    one = client.one
    key = one.key(client.dice)
    if key is None:
        answer = await client.request("session.create", {"cwd": str(one.home)})
        if "error" in answer:
            client.refused(answer, "session.create", "", STORE_CODES, ELSEWHERE)
        return None
        key = answer["result"]["stored_session_id"]
        client.meet(answer["result"]["session_id"], key, running=False)
        return await _first_prompt(client, answer["result"]["session_id"], key)
    answer = await client.request("session.resume", {"session_id": key, "omit_messages": True}, key)
    if "error" in answer:
        client.refused(answer, "session.resume", key, STORE_CODES, ELSEWHERE)
        return None
    runtime: str = answer["result"]["session_id"]
    client.meet(runtime, key, running=answer["result"]["running"])
    client.see_questions(runtime, answer["result"]["open_requests"])
    return runtime


async def _first_prompt(client: GatewayClient, runtime: str, key: str) -> str | None:
    """Only a session with a prompt is stored, and can be shared with the others."""
    prompt = client.one.ledger.write(key, "say")
    answer = await client.request("prompt.submit", {"session_id": runtime, "text": prompt.text}, key)
    if "error" in answer:
        client.one.ledger.settle(prompt, Fate.REFUSED)
        client.refused(answer, "prompt.submit", key, STORE_CODES, ELSEWHERE)
        return None
    stored = answer["result"].get("user_row_id") is not None
    client.one.ledger.settle(prompt, Fate.ACCEPTED if stored else Fate.PERHAPS)
    client.one.keys.append(key)
    return runtime


# --- what they do -----------------------------------------------------------------------------------------------------


async def submit(client: GatewayClient, runtime: str, word: str | None = None, **more: Any) -> Frame:
    key = client.key_of(runtime)
    prompt = client.one.ledger.write(key, word or client.dice.choice(EVERY_WORD))
    client.one.trace.note(client.name, "prompt", key, f"{prompt.text} {more or ''}")
    answer = await client.request("prompt.submit", {"session_id": runtime, "text": prompt.text, **more}, key)
    if "error" in answer:
        client.one.ledger.settle(prompt, Fate.REFUSED)
        client.refused(answer, "prompt.submit", key)
    else:
        # Without a row its turn was stopped before it began; an ``error`` event says so.
        stored = answer["result"].get("user_row_id") is not None
        client.one.ledger.settle(prompt, Fate.ACCEPTED if stored else Fate.PERHAPS)
    return answer


async def prompt(client: GatewayClient, runtime: str) -> None:
    more: dict[str, Any] = client.dice.choice([{}, {}, {}, {"queued": True}, {"deadline_s": 0.5}])
    await submit(client, runtime, **more)


async def interrupt(client: GatewayClient, runtime: str) -> None:
    """And at once the next prompt: it is accepted at the first try."""
    key = client.key_of(runtime)
    client.one.trace.note(client.name, "interrupt", key)
    answer = await client.request("session.interrupt", {"session_id": runtime, "reason": "chaos"}, key)
    if "error" in answer:
        client.refused(answer, "session.interrupt", key)
        return
    result = answer["result"]
    if result.get("settled") and client.dice.random() < 0.7:
        after = await submit(client, runtime, "say")
        if "error" in after and after["error"]["code"] not in (*STORE_CODES, *ELSEWHERE):
            raise Violation("I3", f"refused behind a settled interrupt: {after['error']}", key)


async def twice(client: GatewayClient, runtime: str) -> None:
    """Interrupts in one go: every one is answered."""
    client.one.trace.note(client.name, "interrupts at once", client.key_of(runtime))
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(_quiet_request, client, "session.interrupt", {"session_id": runtime})


async def _quiet_request(client: GatewayClient, method: str, params: Frame) -> None:
    key = client.key_of(params["session_id"])
    try:
        answer = await client.request(method, params, key)
    except Gone:
        return
    if "error" in answer:
        client.refused(answer, method, key)


async def rewind(client: GatewayClient, runtime: str) -> None:
    """To the beginning, with and without the confirmations."""
    confirm: dict[str, Any] = {"confirm_truncate": True, "confirm_empty_truncate": True}
    more = client.dice.choice([confirm, confirm, {}, {"confirm_truncate": True}])
    await submit(client, runtime, "say", truncate_before_user_ordinal=client.dice.choice([0, 1, 2, 99]), **more)


def _plain(method: str, **params: Any) -> Callable[[GatewayClient, str], Awaitable[None]]:
    async def act(client: GatewayClient, runtime: str) -> None:
        client.one.trace.note(client.name, method, client.key_of(runtime))
        await _quiet_request(client, method, {"session_id": runtime, **params})

    return act


async def cancel_node(client: GatewayClient, runtime: str) -> None:
    answer = await client.request("tree.get", {})
    if "error" in answer:
        client.refused(answer, "tree.get", "")
        return
    nodes = [node for node in walk(answer["result"]["tree"]) if node["kind"] in CANCELLED]
    if nodes:
        node = client.dice.choice(nodes)
        client.one.trace.note(client.name, "scope.cancel", detail=f"{node['kind']} {node['name']}")
        told = await client.request("scope.cancel", {"node_id": node["node_id"], "reason": "chaos"})
        if "error" in told:
            client.refused(told, "scope.cancel", "")


CANCELLED = (
    *("turn", "model_call", "backoff", "tool_group", "tool_call", "question", "subagent", "delegation", "background"),
    *("process", "held"),
)


def walk(node: Frame) -> list[Frame]:
    return [node, *(below for child in node.get("children", ()) for below in walk(child))]


async def replay(client: GatewayClient, runtime: str) -> None:
    """What was missed, held against what was heard."""
    await client.check_replay(runtime)


Act = Callable[[GatewayClient, str], Awaitable[None]]
ACTS: dict[str, tuple[int, Act]] = {
    "prompt": (24, prompt),
    "interrupt": (10, interrupt),
    "twice": (2, twice),
    "rewind": (3, rewind),
    "steer": (4, _plain("session.steer", text="steer: use tabs")),
    "redirect": (2, _plain("session.redirect", text="redirect: the other way")),
    "undo": (2, _plain("session.undo")),
    "undo_rewind": (1, _plain("session.undo_rewind")),
    "compress": (2, _plain("session.compress")),
    "branch": (1, _plain("session.branch")),
    "background": (2, _plain("prompt.background", text="<stream> aside")),
    "btw": (2, _plain("prompt.btw", text="<say> by the way")),
    "close": (1, _plain("session.close", reason="chaos")),
    "title": (1, _plain("session.title")),
    "status": (2, _plain("session.status")),
    "history": (2, _plain("session.history")),
    "processes": (1, _plain("process.stop")),
    "unknown": (1, _plain("session.history", wrong=1)),
    "node": (5, cancel_node),
    "replay": (4, replay),
}
