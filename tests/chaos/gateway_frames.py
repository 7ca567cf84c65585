"""What every client of the gateway checks in every frame: answers, the events of turns, questions and their ends."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from tests.chaos.lives import Gone, Life
from tests.chaos.trace import Violation

if TYPE_CHECKING:
    from tests.chaos.play import Stage

Frame = dict[str, Any]
PATIENCE = 60.0
INSIDE = ("message.delta", "message.interim", "reasoning.delta", "reasoning.available", "thinking.delta")
TOOLS = ("tool.generating", "tool.start", "tool.complete", "tool.progress")
COUNTED = ("tool.complete", "subagent.complete", "background.complete", "btw.complete", "error", "request.cancel")
JOINED = ("message.delta", "reasoning.delta")


@dataclass
class View:
    """One session as one client hears it. ``in_turn``: None while it cannot know."""

    key: str
    runtime: str
    in_turn: bool | None = None
    last_seq: int = 0
    first_seq: int = 0
    heard: list[Frame] = field(default_factory=list)
    tools: set[str] = field(default_factory=set)


class GatewayClient:
    """One connection. ``send`` is given by the channel; each frame that comes goes to ``take``."""

    def __init__(self, one: Stage, name: str, dice: random.Random, life: Life) -> None:
        self.one, self.name, self.dice, self.life = one, name, dice, life
        self.views: dict[str, View] = {}
        self.questions: dict[str, str] = {}
        self.closed_questions: set[str] = set()
        self.answering: trio.Nursery | None = None
        self.connected, self.left, self.why = True, False, ""
        self._waiting: dict[int, trio.Event] = {}
        self._answers: dict[int, Frame] = {}
        self._last_id = 0
        self._lost = trio.Event()

    async def send(self, frame: Frame) -> None:
        raise NotImplementedError

    # --- asking

    async def request(self, method: str, params: Frame, session: str = "") -> Frame:
        """The response. Raises Gone if the connection ends first."""
        if not self.connected:
            raise Gone(self.why)
        self._last_id += 1
        number, arrived = self._last_id, trio.Event()
        self._waiting[number] = arrived
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        with trio.move_on_after(PATIENCE) as waiting:
            await arrived.wait()
        if waiting.cancelled_caught and self.life.alive:
            raise Violation("I4", f"{self.name}: {method} {json.dumps(params)[:200]} was never answered", session)
        if number not in self._answers:
            raise Gone(self.why)
        answer = self._answers.pop(number)
        self.one.trace.tell(self.name, f"  {method} -> {json.dumps(answer.get('error') or answer['result'])}", session)
        return answer

    async def call(self, method: str, params: Frame) -> Any:
        answer = await self.request(method, params)
        if "error" in answer:
            raise Violation("call", f"{self.name}: {method}: {answer['error']}")
        return answer["result"]

    def refused(self, answer: Frame, method: str, session: str, *allowed: tuple[int, ...]) -> None:
        """Any refusal that the table knows is right, where ``allowed`` is not given; a crash never is."""
        error = answer["error"]
        self.one.trace.counts[f"refused {error['code']}"] += 1
        if "log_id" in (error.get("data") or {}):
            raise Violation("crash", f"{method}: {error}", session)
        if allowed and error["code"] not in [code for codes in allowed for code in codes]:
            raise Violation("refused", f"{method}: {error}", session)

    # --- hearing

    def take(self, frame: Frame) -> None:
        if "method" not in frame:
            self._take_answer(frame)
        elif "id" in frame:
            self._take_question(frame)
        elif frame["method"] == "event":
            self._take_event(frame["params"])

    def _take_answer(self, frame: Frame) -> None:
        number = frame.get("id")
        arrived = self._waiting.pop(number, None) if isinstance(number, int) else None
        if arrived is None:
            raise Violation("I4", f"{self.name}: a second answer, or one to nothing: {frame}")
        self._answers[number] = frame  # type: ignore[index]
        arrived.set()

    def _take_question(self, frame: Frame) -> None:
        number, method, params = frame["id"], frame["method"], frame["params"]
        session = self.key_of(params.get("session_id", ""))
        if number in self.closed_questions:
            raise Violation("I6", f"{self.name}: {number} is asked again after its end", session)
        if number in self.questions:
            return
        self.questions[number] = params.get("session_id", "")
        self.one.trace.note(self.name, f"asked: {method}", session, number)
        if self.answering is not None:
            self.answering.start_soon(self._answer, number, method, params)

    async def _answer(self, number: str, method: str, params: Frame) -> None:
        """Soon, late, twice, with nonsense, or not at all."""
        how = self.dice.choice(["yes", "yes", "no", "nonsense", "error", "never", "twice"])
        await trio.sleep(self.dice.choice([0, 0.02, 0.5, 2]))
        if how == "never" or not self.connected:
            return
        yes: Frame = {"choice": "once"} if method == "approval" else {"answers": {"q0": "a"}}
        no: Frame = {"choice": "deny"} if method == "approval" else {}
        content = {"yes": yes, "twice": yes, "no": no, "nonsense": {"choice": 7}}.get(how)
        frame: Frame = {"jsonrpc": "2.0", "id": number}
        frame |= {"result": content} if content is not None else {"error": {"code": -32603, "message": "no"}}
        self.one.trace.note(self.name, f"answer: {how}", self.key_of(params.get("session_id", "")), number)
        self.questions.pop(number, None)
        try:
            for _ in range(2 if how == "twice" else 1):
                await self.send(frame)
        except Gone:
            return

    def see_questions(self, runtime: str, entries: list[Frame]) -> None:
        for entry in entries:
            if not entry.get("interrupted"):
                self._take_question({"id": entry["id"], "method": entry["method"], "params": entry["params"]})

    def _take_event(self, params: Frame) -> None:
        kind, runtime = params["type"], params.get("session_id", "")
        view = self.views.get(runtime)
        if kind == "request.cancel":
            self._close_question(params["payload"]["id"], view)
        if view is None:
            return
        if kind in COUNTED:
            self.one.trace.counts[kind] += 1
        if (seq := params.get("seq")) is not None:
            if seq <= view.last_seq:
                raise Violation("I7", f"{self.name}: event {seq} behind {view.last_seq}: {params}", view.key)
            view.last_seq = seq
            view.heard.append(params)
        self._follow_turn(view, kind, params.get("payload") or {})

    def _close_question(self, number: str, view: View | None) -> None:
        key = view.key if view else ""
        if number in self.closed_questions:
            raise Violation("I6", f"{self.name}: {number} is cancelled twice", key)
        self.closed_questions.add(number)
        self.questions.pop(number, None)

    def _follow_turn(self, view: View, kind: str, payload: Frame) -> None:
        if kind == "message.start":
            if view.in_turn:
                raise Violation("I1", f"{self.name}: a turn begins before the last one has ended", view.key)
            view.in_turn = True
            view.tools.clear()
        elif kind == "message.complete":
            if view.in_turn is False:
                raise Violation("I1", f"{self.name}: a second end: {payload}", view.key)
            if view.tools:
                raise Violation("I1", f"{self.name}: the turn ended before its calls {view.tools}", view.key)
            view.in_turn = False
            if payload.get("failure_reason") == "loop_error" and (crash := self.life.last_crash()):
                raise Violation("crash", f"{self.name}: {payload}\n{crash}", view.key)
            self.one.trace.note(self.name, f"turn {payload.get('status')}", view.key, str(payload.get("cause")))
        elif kind in INSIDE or kind in TOOLS:
            if view.in_turn is False:
                raise Violation("I2", f"{self.name}: {kind} outside of a turn: {payload}", view.key)
            if kind == "tool.start":
                view.tools.add(payload["tool_id"])
            elif kind == "tool.complete":
                view.tools.discard(payload["tool_id"])

    # --- sessions

    def meet(self, runtime: str, key: str, *, running: bool) -> None:
        """A session is entered: new to us, or known."""
        if runtime not in self.views:
            self.views[runtime] = View(key, runtime)

    def key_of(self, runtime: str) -> str:
        view = self.views.get(runtime)
        return view.key if view is not None else ""

    async def check_replay(self, runtime: str) -> None:
        """The events that came live are those that the log gives, deltas joined."""
        view = self.views[runtime]
        if not view.heard:
            return
        after, upto = view.heard[0]["seq"], view.last_seq
        live = [one for one in view.heard if one["seq"] > after]
        answer = await self.request("session.events.since", {"session_id": runtime, "last_seen": after}, view.key)
        self.one.trace.counts["replay"] += 1
        if "error" in answer:
            self.refused(answer, "session.events.since", view.key)
            return
        if answer["result"]["truncated"]:
            self.one.trace.counts["replay truncated"] += 1
            return
        again = [one for one in answer["result"]["events"] if one["seq"] <= upto]
        # A merged delta that reaches beyond what was heard then is left out on both sides.
        if joined(live) != joined(again) and self.connected:
            text = first_difference(joined(live), joined(again))
            raise Violation("I7", f"{self.name}: live and replay differ from {after} to {upto}: {text}", view.key)

    # --- the end

    def lose(self, why: str) -> None:
        """No more frames will come."""
        self.connected, self.why = False, why
        self._lost.set()
        for arrived in self._waiting.values():
            arrived.set()
        self._waiting.clear()

    async def watch_end(self) -> None:
        await self.life.over.wait()
        self.lose("the process has ended")

    def check_gone(self, why: str) -> None:
        """Nobody but us or the end of the server ends a connection."""
        if self.life.alive and not self.left:
            raise Violation("connection", f"{self.name}: {self.life.name} ended the connection: {why}")


def joined(events: list[Frame]) -> list[tuple[str, str]]:
    """Comparable: without numbers, text that follows text joined."""
    told: list[tuple[str, str]] = []
    for event in events:
        kind, payload = event["type"], event.get("payload") or {}
        if kind == "request.cancel" and payload.get("reason") == "resolved":
            # Whoever has answered is not told live that it is answered.
            continue
        if kind in JOINED and told and told[-1][0] == kind:
            told[-1] = (kind, told[-1][1] + payload["text"])
        else:
            told.append((kind, payload["text"] if kind in JOINED else json.dumps(payload, sort_keys=True)))
    return told


def first_difference(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> str:
    for number, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return f"at {number}: live {str(mine)[:400]} replay {str(theirs)[:400]}"
    return f"live has {len(one)} entries, replay {len(other)}: {[*one, *other][min(len(one), len(other)) :][:2]}"
