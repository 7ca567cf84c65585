"""A question against everything: answers from two clients by different ways, its timeout, an interrupt, a client that
leaves. In every seeded schedule it has one outcome, and every client but the one that answered hears of it once.

``PROOF=1`` plays ten times as many."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

from hermes.agent.ports import ToolContext
from hermes.events import ClientRequestClosed, ClientRequestOpened
from hermes.messages import Answered, ClientAnswer, Question
from hermes.nurseries.session import Session
from hermes.testing import run_seeded
from tests.support.core import PlainTool, call, events_of, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected, gateway_server

RACES = 5_000 if os.environ.get("PROOF") else 500
CHOICES = ("once", "session", "always", "deny")


@dataclass
class Told:
    """What one schedule made of the question."""

    got: list[ClientAnswer] = field(default_factory=list)
    closed: list[ClientAnswer] = field(default_factory=list)
    cancels: dict[str, int] = field(default_factory=dict)
    left: bool = False


class Race:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.timeout = self.dice.choice((2.0, 3.0, 600.0))
        self.told = Told()

    async def _ask(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        answer = await ctx.ask(Question("approval", {"command": "x", "choices": list(CHOICES)}, CHOICES, self.timeout))
        self.told.got.append(answer)
        return repr(answer)

    async def run(self) -> Told:
        services, _ = make_services(
            say("", calls=[call("race", "c1")]), say("end"), tools=[PlainTool("race", self._ask)]
        )
        async with running_tree(services) as tree:
            server = gateway_server(tree)
            async with (
                connected(tree, websocket=True, server=server, name="a") as a,
                connected(tree, websocket=True, server=server, name="b") as b,
                connected(tree, websocket=True, server=server, name="c") as c,
            ):
                hosts = {"a": a, "b": b, "c": c}
                for host in hosts.values():
                    await host.call("client.capabilities", server_requests=True)
                session_id = (await a.call("session.create"))["session_id"]
                for host in (b, c):
                    await host.call("session.activate", session_id=session_id)
                session = tree.registry.get(session_id)
                await c.call("prompt.submit", session_id=session_id, text="go")
                question = (await c.question("approval"))["id"]
                assert [one["id"] for one in session.requests.entries()] == [question]
                await self._race(hosts, session, session_id, question)
                await c.event("message.complete")
                snapshot = await c.call("session.activate", session_id=session_id)
                assert snapshot["open_requests"] == []
                await b.call("ping")
                await trio.testing.wait_all_tasks_blocked()
                self._collect(hosts, session, question)
        return self.told

    async def _race(self, hosts: dict[str, GatewayHost], session: Session, session_id: str, question: str) -> None:
        a, b, c = hosts.values()
        respond = {"session_id": session_id, "choice": "deny"}
        ways = [
            lambda: self._allow(a, question),
            lambda: b.start("approval.respond", **respond),
            lambda: b.reply(question, {"choice": "deny"}),
            lambda: b.start("request.answer", id=question, result={"choice": "session"}),
            lambda: c.start("session.interrupt", session_id=session_id),
            lambda: self._leave(a),
        ]
        chosen = self.dice.sample(ways, self.dice.randint(1, 4))
        async with trio.open_nursery() as nursery:
            for way in chosen:
                nursery.start_soon(self._at, (self.dice.randint(1, 3), self.dice.randint(0, 12)), way)
        if len(session.requests):
            # Only the client has left; the question waits for the others, or for its end.
            assert [one["id"] for one in session.requests.entries()] == [question]
            if self.timeout == 600.0:
                c.reply(question, {"choice": "deny"})

    async def _at(self, moment: tuple[int, int], act: Any) -> None:
        await trio.sleep(moment[0])
        for _ in range(moment[1]):
            await trio.lowlevel.checkpoint()
        act()

    def _allow(self, host: GatewayHost, question: str) -> None:
        if not self.told.left:
            host.reply(question, {"choice": "once"})

    def _leave(self, host: GatewayHost) -> None:
        self.told.left = True
        host.channel.hang_up()

    def _collect(self, hosts: dict[str, GatewayHost], session: Session, question: str) -> None:
        opened = [event for event in events_of(session) if isinstance(event, ClientRequestOpened)]
        assert [event.request_id for event in opened] == [question]
        self.told.closed = [event.answer for event in events_of(session) if isinstance(event, ClientRequestClosed)]
        for name, host in hosts.items():
            cancels = [
                frame["params"]["payload"]
                for frame in host.frames
                if frame.get("params", {}).get("type") == "request.cancel"
            ]
            assert all(payload["id"] == question for payload in cancels)
            self.told.cancels[name] = len(cancels)


def check(told: Told) -> str:
    """The one outcome, as a word."""
    assert len(told.closed) == 1, told.closed
    (answer,) = told.closed
    assert told.got in ([], [answer]), "the tool was told something else"
    by = answer.by if isinstance(answer, Answered) else ""
    for name, count in told.cancels.items():
        if name == "a" and told.left:
            assert count <= 1
        elif by.endswith(name):
            assert count <= 1, f"{name} answered, and heard of it {count} times"
        else:
            assert count == 1, f"{name} heard {count} times of the end by {by or answer}"
    return f"answered by {by}" if by else f"{type(answer).__name__} {getattr(answer, 'reason', '')}".strip()


def test_a_question_has_one_outcome_in_every_schedule() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(RACES):
        told = run_seeded(Race(seed).run, seed)
        try:
            outcomes[check(told)] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    # The schedules meet each kind of end, or the race proves nothing.
    words = " ".join(outcomes)
    assert all(word in words for word in ("answered by", "TimedOut", "Withdrawn interrupted")), outcomes
