"""An editor: one process, several sessions at a time, prompts that are cancelled, permissions that are given or not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import trio

from tests.chaos.gateway_frames import PATIENCE
from tests.chaos.ledger import Fate
from tests.chaos.lives import Gone, Life
from tests.chaos.trace import Violation
from tests.chaos.words import EVERY_WORD

if TYPE_CHECKING:
    from tests.chaos.play import Stage

Frame = dict[str, Any]
STOPS = ("end_turn", "cancelled", "max_tokens", "max_turn_requests", "refusal")
CALL_ENDS = ("completed", "failed")


class EditorClient:
    """Checks that each prompt is answered once, and that nothing of its turn comes behind the answer."""

    def __init__(self, one: Stage, name: str, dice: random.Random, life: Life, nursery: trio.Nursery) -> None:
        self.one, self.name, self.dice, self.life, self.nursery = one, name, dice, life, nursery
        self.connected = True
        self.running: dict[str, int] = {}
        self.calls: dict[str, set[str]] = {}
        self.own: set[str] = set()
        self._last_id = 0
        self._waiting: dict[int, tuple[trio.Event, str]] = {}
        self._answers: dict[int, Frame] = {}

    # --- saying

    async def write(self, *frames: Frame) -> None:
        try:
            await self.life.send(*({"jsonrpc": "2.0", **frame} for frame in frames))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as closed:
            raise Gone("its input is closed") from closed

    async def request(self, method: str, params: Frame, session: str = "", also: Frame | None = None) -> Frame:
        """``also``: one more frame in the same write."""
        if not self.connected:
            raise Gone("ended")
        self._last_id += 1
        number, arrived = self._last_id, trio.Event()
        self._waiting[number] = arrived, session
        await self.write({"id": number, "method": method, "params": params}, *([also] if also else []))
        with trio.move_on_after(PATIENCE + 30) as waiting:
            await arrived.wait()
        if waiting.cancelled_caught and self.life.alive:
            raise Violation("I4", f"{self.name}: {method} was never answered", session)
        if number not in self._answers:
            raise Gone("ended")
        answer = self._answers.pop(number)
        self.one.trace.tell(self.name, f"  {method} -> {answer.get('error') or answer['result']}", session)
        if "log_id" in ((answer.get("error") or {}).get("data") or {}):
            raise Violation("crash", f"{self.name}: {method}: {answer}", session)
        return answer

    # --- hearing

    def take(self, frame: Frame) -> None:
        if "method" not in frame:
            arrived, _ = self._waiting.pop(frame["id"], (None, ""))
            if arrived is None:
                raise Violation("I4", f"{self.name}: a second answer, or one to nothing: {frame}")
            self._answers[frame["id"]] = frame
            arrived.set()
        elif "id" in frame:
            self.nursery.start_soon(self._answer, frame)
        elif frame["method"] == "session/update":
            self._follow(frame["params"]["sessionId"], frame["params"]["update"])

    def _follow(self, session: str, update: Frame) -> None:
        kind = update["sessionUpdate"]
        open_calls = self.calls.setdefault(session, set())
        if kind == "tool_call":
            open_calls.add(update["toolCallId"])
        if kind in ("tool_call", "tool_call_update") and update.get("status") in CALL_ENDS:
            open_calls.discard(update["toolCallId"])

    async def _answer(self, frame: Frame) -> None:
        session = frame["params"].get("sessionId", "")
        self.one.trace.note(self.name, f"asked: {frame['method']}", session)
        await trio.sleep(self.dice.choice([0, 0.05, 1]))
        how = self.dice.choice(["allow_once", "allow_once", "reject_once", "cancelled", "nonsense", "never"])
        options = {option["kind"]: option["optionId"] for option in frame["params"].get("options", [])}
        if how == "never" or not self.connected:
            return
        outcome: Frame = {"outcome": "cancelled"}
        if how in options:
            outcome = {"outcome": "selected", "optionId": options[how]}
        elif how == "nonsense":
            outcome = {"outcome": "selected", "optionId": "no such option"}
        self.one.trace.note(self.name, f"permission: {how}", session)
        try:
            await self.write({"id": frame["id"], "result": {"outcome": outcome}})
        except Gone:
            return

    def lose(self) -> None:
        self.connected = False
        for arrived, _ in self._waiting.values():
            arrived.set()
        self._waiting.clear()

    async def watch_end(self) -> None:
        await self.life.over.wait()
        self.lose()


async def editor(one: Stage, name: str, dice: random.Random) -> None:
    while not one.quiet.is_set():
        life = one.lives.current.get("acp")
        if life is None or not life.alive:
            await trio.sleep(0.05)
            continue
        async with trio.open_nursery() as nursery:
            client = EditorClient(one, name, dice, life, nursery)
            life.hear = client.take
            nursery.start_soon(client.watch_end)
            try:
                await client.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
                async with trio.open_nursery() as panes:
                    for _ in range(3):
                        panes.start_soon(pane, client)
                for session in sorted(client.own):
                    await client.request("session/close", {"sessionId": session}, session)
            except Gone as gone:
                _check_gone(client, str(gone))
            nursery.cancel_scope.cancel()
        if life.alive and one.quiet.is_set():
            # The next round has a new process: what this one has started ends with it.
            await one.lives.hang_up(life)


async def pane(client: EditorClient) -> None:
    """One conversation in the editor."""
    one, dice = client.one, client.dice
    try:
        while not one.quiet.is_set():
            session = await _open(client)
            for _ in range(dice.randint(1, 5)):
                if session is None or one.quiet.is_set():
                    break
                await talk(client, session)
                await trio.sleep(dice.choice([0, 0, 0.05, 0.3]))
            await trio.sleep(0.02)
    except Gone as gone:
        _check_gone(client, str(gone))


async def _open(client: EditorClient) -> str | None:
    one = client.one
    key = one.key(client.dice)
    where: Frame = {"cwd": str(one.home), "mcpServers": []}
    if key is None:
        answer = await client.request("session/new", where)
        if "error" in answer:
            return None
        key = answer["result"]["sessionId"]
        one.keys.append(key)
    else:
        method = client.dice.choice(["session/load", "session/resume"])
        one.trace.note(client.name, method, key)
        if "error" in await client.request(method, {"sessionId": key, **where}, key):
            return None
    client.own.add(key)
    return key


async def talk(client: EditorClient, session: str) -> None:
    """A prompt, and perhaps a cancel: in the same write, soon, or late."""
    one, dice = client.one, client.dice
    prompt = one.ledger.write(session, dice.choice(EVERY_WORD))
    how = dice.choice(["wait", "wait", "cancel", "cancel", "at once", "request"])
    one.trace.note(client.name, f"prompt, {how}", session, prompt.text)
    cancel: Frame = {"method": "session/cancel", "params": {"sessionId": session}}
    if how in ("cancel", "request"):
        client.nursery.start_soon(_cancel_soon, client, session, cancel, how)
    # What a person does who waits no longer.
    client.nursery.start_soon(_cancel_when_quiet, client, cancel)
    params = {"sessionId": session, "prompt": [{"type": "text", "text": prompt.text}]}
    answer = await client.request("session/prompt", params, session, cancel if how == "at once" else None)
    if "error" in answer:
        one.trace.counts[f"acp error {answer['error']['code']}"] += 1
        if "loop_error" in str(answer) and (crash := client.life.last_crash()):
            raise Violation("crash", f"{client.name}: {answer}\n{crash}", session)
        one.ledger.settle(prompt, Fate.PERHAPS)
        return
    reason = answer["result"]["stopReason"]
    one.trace.note(client.name, f"prompt {reason}", session)
    if reason not in STOPS:
        raise Violation("I1", f"{client.name}: {answer}", session)
    one.ledger.settle(prompt, Fate.ACCEPTED if reason == "end_turn" else Fate.PERHAPS)


async def _cancel_soon(client: EditorClient, session: str, cancel: Frame, how: str) -> None:
    await trio.sleep(client.dice.choice([0, 0.01, 0.1, 0.5, 2]))
    number = client._last_id
    frame = cancel if how == "cancel" else {"method": "$/cancel_request", "params": {"requestId": number}}
    client.one.trace.note(client.name, str(frame["method"]), session)
    try:
        await client.write(frame)
    except Gone:
        return


async def _cancel_when_quiet(client: EditorClient, cancel: Frame) -> None:
    await client.one.quiet.wait()
    await trio.sleep(1)
    try:
        await client.write(cancel)
    except Gone:
        return


def _check_gone(client: EditorClient, why: str) -> None:
    if client.life.alive:
        raise Violation("connection", f"{client.name}: {client.life.name} ended: {why}")
