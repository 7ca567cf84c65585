"""SIGKILL at any moment of a busy server: what was accepted is there, nothing is half done, nothing is run again.

Three sessions stream, run tools, rewind and compress while the server is killed. The next server of the home opens the
database, ends the tools that were left, and takes the next prompt of each session. ``PROOF=1`` runs all the rounds.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.mortal_server import Deaths, mortal_servers
from tests.support.server_process import ServerProcess, assert_no_children, children_of

pytestmark = pytest.mark.e2e
FULL = 300
ROUNDS = FULL if os.environ.get("PROOF") else 30
SESSIONS = 3
PROMPTS_PER_ROUND = 40
POINTS = "; ".join(f"point {number} says {number * 7919 % 997}" for number in range(60))
LONG_ANSWER = ["It is said here ", "at some length, ", "piece by piece: ", POINTS, ", and then it ends."]


@dataclass
class Conversation:
    """One session as its client knows it. ``doing`` is what was asked and not answered when the server died."""

    key: str = ""
    runtime: str = ""
    prompts: list[tuple[int, str]] = field(default_factory=list)
    doing: tuple[Any, ...] = ()
    compressed: bool = False
    asked: int = 0

    def outcomes(self) -> list[list[str]]:
        """The texts that may be stored: without and with what was being done."""
        told = [text for _row, text in self.prompts]
        match self.doing:
            case ("prompt", text):
                return [told, [*told, text]]
            case ("rewind", index, text):
                return [told, [*told[:index], text]]
        return [told]


class Stored:
    """The database, read beside the server that has it open."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self._db.row_factory = sqlite3.Row

    def close(self) -> None:
        self._db.close()

    def prompts(self, key: str) -> list[tuple[int, str]]:
        """What a person has said, what was compacted too."""
        found = self._db.execute(
            "SELECT id, content FROM messages WHERE session_key = ? AND (active = 1 OR compacted = 1) "
            "AND role = 'user' AND display_kind IS NULL AND compacted_summary = 0 ORDER BY position, id",
            (key,),
        )
        return [(row["id"], row["content"]) for row in found]

    def history(self, key: str) -> list[sqlite3.Row]:
        return self._db.execute(
            "SELECT * FROM messages WHERE session_key = ? AND active = 1 ORDER BY position, id", (key,)
        ).fetchall()

    def calls(self) -> list[str]:
        """Every call that was ever stored, those of archived turns too, as the model gave its arguments."""
        rows = self._db.execute("SELECT tool_calls FROM messages WHERE tool_calls IS NOT NULL")
        return [call["arguments"] for row in rows for call in json.loads(row["tool_calls"])]

    def unanswered(self, key: str) -> set[str]:
        """Calls without a result."""
        calls: set[str] = set()
        for row in self.history(key):
            if row["tool_calls"]:
                calls |= {call["id"] for call in json.loads(row["tool_calls"])}
            if row["role"] == "tool":
                assert row["tool_call_id"] in calls, "a result without its call"
                calls.discard(row["tool_call_id"])
        return calls


class Ordeal:
    """The rounds, their dice and what they have seen."""

    def __init__(self, home: Path, seed: int, provider: FakeProvider, deaths: Deaths) -> None:
        self.home = home
        self.dice = random.Random(seed)
        self.provider = provider
        self.deaths = deaths
        self.effects = home.parent / "effects"
        self.sessions = [Conversation() for _ in range(SESSIONS)]
        self.seen: Counter[str] = Counter()

    def script(self, number: int) -> Script:
        """Every prompt with ``tool`` in it writes its own number into a file, once; a summary takes its time."""
        replies = [
            Reply.of({"text": f"It was done. {POINTS}"}, when={"last_role": "tool"}),
            *(
                self.tool_reply(number, session, asked)
                for session in range(SESSIONS)
                for asked in range(PROMPTS_PER_ROUND)
            ),
            Reply.of(
                *(step for piece in LONG_ANSWER for step in ({"text": [piece]}, {"delay": 0.01})),
                when={"last_user_contains": "stream"},
            ),
            Reply.of({"text": f"A short answer. {POINTS}"}, when={"last_user_contains": "quick"}),
            Reply.of({"delay": 0.02}, {"text": "Goal now: go on."}, when={"last_role": "user"}),
        ]
        return Script.of(*replies, strict=True)

    def tool_reply(self, number: int, session: int, asked: int) -> Reply:
        name = f"tool-{number:03}-{session}-{asked:02}."
        nap = self.dice.choice(["0.01", "0.05", "0.3", "3017"])
        command = f"echo {name} >> {self.effects}; sleep {nap}"
        return Reply.of(
            {"tool_call": {"name": "terminal", "arguments": {"command": command}}}, when={"last_user_contains": name}
        )

    # --- one round ---

    async def round(self, number: int) -> None:
        self.provider.replace_script(self.script(number))
        server = await self.deaths.start("gateway")
        await server.event("gateway.ready")
        await assert_no_children(server)
        for session in self.sessions:
            await self.comes_back(server, session, number)
        async with trio.open_nursery() as nursery:
            for index, session in enumerate(self.sessions):
                nursery.start_soon(self.work, server, session, number, index)
            await trio.sleep(self.dice.uniform(0.0, 0.9))
            nursery.cancel_scope.cancel()
        # Its clients are gone before it is killed, so that none takes the kill for an end of its own; it works on.
        assert server.process.poll() is None, f"it has ended by itself with {server.process.returncode}"
        self.seen["tools left running"] += sum("sleep" in line for line in children_of(server).values())
        await self.deaths.kill(server)
        assert server.stray == []

    async def comes_back(self, server: ServerProcess, session: Conversation, number: int) -> None:
        """It is as it was, or with what was just being done, as a whole; and its next prompt runs."""
        if not session.key:
            made = await server.call("session.create", {"cwd": str(self.home)})
            session.key, session.runtime = made["stored_session_id"], made["session_id"]
            lost: set[str] = set()
        else:
            stored = Stored(self.home / "sessions.db")
            session.prompts, lost = self.check(session, stored), stored.unanswered(session.key)
            stored.close()
            resumed = await server.call("session.resume", {"session_id": session.key})
            session.runtime = resumed["session_id"]
            if lost:
                assert resumed["inflight"]["status"] == "error", "an open turn is shown as failed"
        session.doing, session.asked = (), 0
        end = await self.say(server, session, f"quick {number:03}")
        assert end["status"] == "complete", f"{end}\n{server.stderr[-2000:]}"
        stored = Stored(self.home / "sessions.db")
        assert stored.unanswered(session.key) == set()
        repaired = {row["tool_call_id"]: row for row in stored.history(session.key) if row["role"] == "tool"}
        for call in lost:
            assert repaired[call]["effect_disposition"] == "unknown"
        stored.close()
        self.seen["calls repaired"] += len(lost)

    def check(self, session: Conversation, stored: Stored) -> list[tuple[int, str]]:
        found = stored.prompts(session.key)
        outcomes = session.outcomes()
        texts = [text for _row, text in found]
        assert texts in outcomes, f"{texts[-4:]} is stored, not one of {[one[-4:] for one in outcomes]}"
        kept = [row for row, text in found if (row, text) in session.prompts]
        assert kept == [row for row, _text in session.prompts][: len(kept)], "ids have changed"
        self.seen["cut short, was done" if len(outcomes) > 1 and texts == outcomes[1] else "cut short, was not"] += (
            bool(session.doing)
        )
        return found

    # --- a busy client ---

    async def work(self, server: ServerProcess, session: Conversation, number: int, index: int) -> None:
        while session.asked < PROMPTS_PER_ROUND:
            what = self.dice.choice(["stream", "tool", "tool", "rewind", "compress", "interrupt"])
            text = f"tool-{number:03}-{index}-{session.asked:02}."
            session.asked += 1
            if what == "compress":
                session.compressed = True
                await server.request("session.compress", {"session_id": session.runtime, "focus_topic": "here 1"})
            elif what == "rewind":
                await self.say(server, session, text, rewind=True)
            elif what == "interrupt":
                await self.submit(server, session, text)
                await trio.sleep(self.dice.uniform(0, 0.05))
                stopped = await server.call("session.interrupt", {"session_id": session.runtime})
                assert stopped["settled"]
            else:
                await self.say(server, session, text if what == "tool" else f"stream {text[4:]}", patience=0.5)

    async def say(
        self, server: ServerProcess, session: Conversation, text: str, *, rewind: bool = False, patience: float = 20
    ) -> dict[str, Any]:
        """Submit and wait for the end; stop it when it takes too long."""
        at = len(server.frames)
        await self.submit(server, session, text, rewind=rewind)
        with trio.move_on_after(patience):
            return await self.end(server, session, at)
        stopped = await server.call("session.interrupt", {"session_id": session.runtime})
        assert stopped["settled"]
        return await self.end(server, session, at)

    async def end(self, server: ServerProcess, session: Conversation, at: int) -> dict[str, Any]:
        frame = await server.frame(
            lambda frame: (
                frame.get("params", {}).get("type") == "message.complete"
                and frame["params"]["session_id"] == session.runtime
            ),
            after=at,
        )
        payload: dict[str, Any] = frame["params"]["payload"]
        return payload

    async def submit(self, server: ServerProcess, session: Conversation, text: str, *, rewind: bool = False) -> None:
        params: dict[str, Any] = {"session_id": session.runtime, "text": text}
        index = len(session.prompts)
        session.doing = ("prompt", text)
        if rewind:
            # Behind a summary only the newest turn is sure to be there.
            index -= 1 if session.compressed else self.dice.randint(1, min(3, len(session.prompts)))
            params |= {"truncate_before_row_id": session.prompts[index][0], "confirm_truncate": True}
            params["confirm_empty_truncate"] = True
            session.doing = ("rewind", index, text)
        result = await server.call("prompt.submit", params)
        if rewind:
            assert len(result["survivor_user_row_ids"]) <= index
        session.prompts[index:] = [(result["user_row_id"], text)]
        session.doing = ()

    # --- at the end ---

    def check_effects(self) -> None:
        """No call has run twice: whatever ran so often was asked for so often, and each call stored before it ran.

        The model may ask twice: behind a summary the words of an older prompt stand beside the new ones.
        """
        runs = Counter(self.effects.read_text().split()) if self.effects.exists() else Counter()
        stored = Stored(self.home / "sessions.db")
        calls = stored.calls()
        stored.close()
        for name, count in runs.items():
            asked = sum(f"echo {name} " in arguments for arguments in calls)
            assert count <= asked, f"{name} ran {count} times and was asked for {asked} times"
            self.seen["commands asked for twice"] += asked > 1
        self.seen["commands run"] = sum(runs.values())


async def test_after_a_kill_at_any_moment_everything_accepted_is_there_and_the_next_prompt_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(2**32))
    home = tmp_path / "home"
    number = 0
    try:
        with trio.fail_after(60 + ROUNDS * 20):
            async with FakeProvider(Script()) as provider:
                environ = {
                    "OPENAI_BASE_URL": provider.base_url,
                    "OPENAI_API_KEY": "k" * 20,
                    "HERMES_MODEL": "fake-model",
                }
                async with mortal_servers(home, environ) as deaths:
                    ordeal = Ordeal(home, seed, provider, deaths)
                    for number in range(ROUNDS + 1):
                        await ordeal.round(number)
                    ordeal.check_effects()
                refused = [record.status for record in provider.requests if (record.status or 200) >= 400]
                assert refused == [], "the strict provider refused a history"
    except BaseException as error:
        error.add_note(f"KILL_SEED={seed}, round {number}")
        raise
    with capsys.disabled():
        print(f" [{ROUNDS} kills, seed {seed}: {dict(ordeal.seen)}]", end="")
