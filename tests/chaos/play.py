"""Rounds of trouble and rest: clients and injuries side by side for some seconds, then peace and a look at all."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from hermes.testing import FakeProvider
from tests.chaos import acp, gateway, http, injuries, peace
from tests.chaos.ledger import Ledger
from tests.chaos.lives import KINDS, Lives, home_servers
from tests.chaos.trace import Trace
from tests.chaos.words import script

SESSIONS = 6
CONFIG = {
    "limits": {"write_deadline": 3, "replay_events": 20_000, "replay_bytes": 64_000_000, "kill_grace": 0.3},
    "timeouts": {"provider": {"connect": 5, "stream_read": 2, "stream_stale": 2, "call_stale": 2}},
    "agent": {"api_max_retries": 2, "gateway_turn_lease_timeout": 1, "clarify_timeout": 30},
    "terminal": {"timeout": 5},
    "approvals": {"timeout": 20},
    "compression": {"context_timeout_seconds": 5},
}


@dataclass
class Stage:
    """What clients, injuries and checks share. ``keys``: the sessions that everybody uses, by their stored ids."""

    home: Path
    dice: random.Random
    trace: Trace
    ledger: Ledger
    lives: Lives
    provider: FakeProvider
    without: frozenset[str]
    verbose: bool = False
    keys: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    store_hurt: bool = False
    """The store was disturbed in this round: a refusal for its sake is right."""
    last_to_rest: str = ""
    quiet: trio.Event = field(default_factory=trio.Event)
    """Set when clients shall come to an end of what they do."""

    def key(self, dice: random.Random) -> str | None:
        """A session of all; None: make one."""
        alive = [key for key in self.keys if key not in self.gone]
        return dice.choice(alive) if alive and (len(alive) >= SESSIONS or dice.random() < 0.7) else None

    def dice_for(self, name: str) -> random.Random:
        """Of its own for each actor, so that one does the same whatever the others do."""
        return random.Random(f"{self.dice.random()} {name}")


Act = Callable[[Stage, str, random.Random], Awaitable[None]]
CAST: tuple[tuple[Act, str], ...] = (
    *((gateway.sockets, f"ws{number}") for number in range(6)),
    (gateway.stdio, "stdio"),
    (acp.editor, "editor"),
    *((http.caller, f"http{number}") for number in range(4)),
)


@asynccontextmanager
async def stage(home: Path, seed: int, without: frozenset[str]) -> AsyncIterator[Stage]:
    dice = random.Random(seed)
    trace = Trace()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = dice.choice(["interrupt", "queue", "steer"])
    (home / "config.yaml").write_text(json.dumps(CONFIG | {"display": {"busy_input_mode": mode}}))
    async with FakeProvider(script()) as provider:
        environ = {
            "OPENAI_BASE_URL": provider.base_url,
            "OPENAI_API_KEY": "test-key-0123456789",
            "HERMES_MODEL": "fake-model",
        }
        async with home_servers(home, environ, trace) as lives:
            ledger = Ledger(home / "sessions.db", trace)
            yield Stage(home, dice, trace, ledger, lives, provider, without)


async def _part(one: Stage, act: Act, name: str, dice: random.Random) -> None:
    await act(one, name, dice)
    one.last_to_rest = name


async def play_round(one: Stage, seconds: float) -> None:
    """Trouble for so long, then rest, then the checks."""
    one.quiet, one.store_hurt = trio.Event(), False
    began = trio.current_time()
    for kind in KINDS:
        await one.lives.ensure(kind)
    async with trio.open_nursery() as nursery:
        for act, name in CAST:
            nursery.start_soon(_part, one, act, name, one.dice_for(name))
        async with trio.open_nursery() as harm:
            harm.start_soon(injuries.all_of_them, one, one.dice_for("injuries"))
            await trio.sleep(seconds)
            # An injury that has begun is healed before anybody looks.
            one.quiet.set()
            trouble = trio.current_time()
    rest = trio.current_time()
    await peace.check(one)
    times = trouble - began, rest - trouble, trio.current_time() - rest
    one.trace.tell("play", "trouble, coming to rest, looking: {:.1f} s, {:.1f} s, {:.1f} s".format(*times))
    if one.verbose:
        words = "  trouble {:.1f} s, coming to rest {:.1f} s, looking {:.1f} s".format(*times)
        print(f"{words}; last to rest: {one.last_to_rest}", flush=True)


async def play(
    home: Path, seed: int, seconds: float, round_seconds: float, without: frozenset[str], verbose: bool = False
) -> Trace:
    """Raises what is broken, with a note of seed and trace."""
    async with stage(home, seed, without) as one:
        one.verbose = verbose
        try:
            end = trio.current_time() + seconds
            while trio.current_time() < end:
                await play_round(one, one.dice.uniform(0.5, 1.0) * round_seconds)
                one.trace.note("play", "round")
        except BaseException as error:
            error.add_note(peace.story(one, error))
            raise
        one.trace.counts["prompts"] = len(one.ledger.prompts)
        return one.trace
