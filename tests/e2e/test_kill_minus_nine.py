"""SIGKILL at any moment of a busy server: what was accepted is there, nothing is half done, nothing is run again.

Three sessions stream, run tools, rewind and compress while the server is killed. The next server of the home opens the
database, ends the tools that were left, and takes the next prompt of each session. Each round aims at one thing that a
session may be doing, so that the short ones are hit too; what was hit is counted and printed. ``PROOF=1`` runs all the
rounds; ``KILL_SEED`` throws the same dice again.
"""

from __future__ import annotations

import json
import os
import random
import re
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
AIMS = {
    "stream": 0.2,
    "tool": 0.3,
    "rewind": 0.012,
    "compress": 0.06,
    "summary": 0.02,
    "interrupt": 0.03,
    "anything": 0.9,
}
"""What a round waits for, and how long after its begin at the latest it kills. A summary begins when the model has
given it: what follows is its storing."""
PHASES = ("stream", "tool", "rewind", "compress", "interrupt")
AIM_WITHIN = 3.0
POINTS = "; ".join(f"point {number} says {number * 7919 % 997}" for number in range(60))
LONG_ANSWER = ["It is said here ", "at some length, ", "piece by piece: ", POINTS, ", and then it ends."]


@dataclass
class Conversation:
    """One session as its client knows it. ``doing`` is what was asked and not answered when the server died."""

    key: str = ""
    runtime: str = ""
    prompts: list[tuple[int, str]] = field(default_factory=list)
    doing: tuple[Any, ...] = ()
    before: list[int] = field(default_factory=list)
    """The rows of the history when a rewind or a compression was asked for."""
    phase: str = "nothing"
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
            "AND cut_id IS NULL AND role = 'user' AND display_kind IS NULL AND compacted_summary = 0 "
            "ORDER BY position, id",
            (key,),
        )
        return [(row["id"], row["content"]) for row in found]

    def history(self, key: str) -> list[sqlite3.Row]:
        return self._db.execute(
            "SELECT * FROM messages WHERE session_key = ? AND active = 1 ORDER BY position, id", (key,)
        ).fetchall()

    def compacted(self, key: str) -> set[int]:
        found = self._db.execute(
            "SELECT id FROM messages WHERE session_key = ? AND active = 0 AND compacted = 1", (key,)
        )
        return {row["id"] for row in found}

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
        self.hit: Counter[str] = Counter()
        self.phase_changed = trio.Event()

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
            await self.aim()
            assert server.process.poll() is None, f"it has ended by itself with {server.process.returncode}"
            assert server.stray == []
            # In one go, so that no client takes the kill for an end of its own.
            server.process.kill()
            nursery.cancel_scope.cancel()
        self.hit.update(session.phase for session in self.sessions)
        await self.deaths.kill(server)
        self.seen["tools left running"] += sum("sleep" in line for line in children_of(server).values())

    async def aim(self) -> None:
        """Return at the moment of the kill."""
        target = self.dice.choice(sorted(AIMS))
        delay = self.dice.uniform(0.0, AIMS[target])
        with trio.move_on_after(AIM_WITHIN):
            if target == "summary":
                await self.summary_given()
            while target in PHASES and target not in [session.phase for session in self.sessions]:
                await self.phase_changed.wait()
        await trio.sleep(delay)

    async def summary_given(self) -> None:
        """Only requests for a summary come without tools. Looked at often: its storing takes milliseconds."""
        seen = len(self.provider.requests)
        while not any(one.answered and "tools" not in one.body for one in self.provider.requests[seen:]):
            await trio.sleep(0.001)

    def enter(self, session: Conversation, phase: str) -> None:
        session.phase = phase
        self.phase_changed.set()
        self.phase_changed = trio.Event()

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
        session.doing, session.asked, session.phase = (), 0, "nothing"
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
        match session.doing:
            case ("prompt", _text):
                self.seen[f"prompt {'stored' if texts == outcomes[1] else 'not stored'}"] += 1
            case ("rewind", index, _text):
                done = texts == outcomes[1]
                self.check_rewind(session, stored, session.prompts[index][0] if done else None)
                self.seen[f"rewind {'stored' if done else 'not stored'}"] += 1
            case ("compress",):
                done = self.check_compression(session, stored)
                self.seen[f"summary {'stored' if done else 'not stored'}"] += 1
        return found

    def check_rewind(self, session: Conversation, stored: Stored, target: int | None) -> None:
        """The rows before the target are the same, and it and all behind it are gone; or nothing has changed."""
        rows = [row["id"] for row in stored.history(session.key)]
        kept = session.before if target is None else session.before[: session.before.index(target)]
        assert rows[: len(kept)] == kept, "rows are gone that nobody cut"
        assert not set(rows[len(kept) :]) & set(session.before), "half of a cut"
        assert target is not None or rows == kept

    def check_compression(self, session: Conversation, stored: Stored) -> bool:
        """Nothing has changed, or what is gone from the history has a summary in its place. True: the latter."""
        history = stored.history(session.key)
        rows = [row["id"] for row in history]
        if rows == session.before:
            return False
        fresh = [row for row in history if row["id"] not in session.before]
        assert any(row["compacted_summary"] for row in fresh), "rows are gone without a summary"
        kept = [row for row in rows if row in session.before]
        assert kept == [row for row in session.before if row in kept]
        assert rows[-1] == session.before[-1], "the end of the history is not kept"
        assert set(session.before) - set(kept) <= stored.compacted(session.key)
        return True

    # --- a busy client ---

    async def work(self, server: ServerProcess, session: Conversation, number: int, index: int) -> None:
        while session.asked < PROMPTS_PER_ROUND:
            what = self.dice.choice(["stream", "tool", "tool", "rewind", "compress", "interrupt"])
            text = f"tool-{number:03}-{index}-{session.asked:02}."
            session.asked += 1
            if what == "compress":
                await self.compress(server, session)
            elif what == "rewind":
                await self.say(server, session, text, rewind=True)
            elif what == "interrupt":
                await self.submit(server, session, text)
                await trio.sleep(self.dice.uniform(0, 0.05))
                self.enter(session, "interrupt")
                stopped = await server.call("session.interrupt", {"session_id": session.runtime})
                assert stopped["settled"]
            else:
                await self.say(server, session, text if what == "tool" else f"stream {text[4:]}", patience=0.5)
            self.enter(session, "nothing")

    async def compress(self, server: ServerProcess, session: Conversation) -> None:
        session.compressed = True
        session.before = self.rows(session)
        session.doing = ("compress",)
        self.enter(session, "compress")
        response = await server.request("session.compress", {"session_id": session.runtime, "focus_topic": "here 1"})
        session.doing = ()
        self.seen[
            f"compressions answered {response['result']['status'] if 'result' in response else 'as refused'}"
        ] += 1

    def rows(self, session: Conversation) -> list[int]:
        stored = Stored(self.home / "sessions.db")
        rows = [row["id"] for row in stored.history(session.key)]
        stored.close()
        return rows

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
            session.before = self.rows(session)
            session.doing = ("rewind", index, text)
        self.enter(session, "rewind" if rewind else "prompt")
        result = await server.call("prompt.submit", params)
        if rewind:
            assert len(result["survivor_user_row_ids"]) == index
        session.prompts[index:] = [(result["user_row_id"], text)]
        session.doing = ()
        self.enter(session, text.partition(" ")[0].partition("-")[0])

    # --- at the end ---

    def check_effects(self) -> None:
        """No call has run twice: whatever ran so often was asked for so often, and each call stored before it ran.

        The model may ask twice: behind a summary the words of an older prompt stand beside the new ones.
        """
        text = self.effects.read_text() if self.effects.exists() else ""
        # A command that is killed may have written its word and not yet the end of its line.
        runs = Counter(re.findall(r"tool-\d+-\d+-\d+\.", text))
        stored = Stored(self.home / "sessions.db")
        calls = stored.calls()
        stored.close()
        for name, count in runs.items():
            asked = sum(f"echo {name} " in arguments for arguments in calls)
            assert count <= asked, f"{name} ran {count} times and was asked for {asked} times"
            self.seen["commands asked for twice"] += asked > 1
        self.seen["commands run"] = sum(runs.values())


@pytest.mark.fault("B-034", "B-119")
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
        print(f" [{ROUNDS} kills, seed {seed}, sessions hit in: {dict(ordeal.hit)}; {dict(ordeal.seen)}]", end="")
    assert ordeal.hit["rewind"] >= ROUNDS // 30, "the kills have missed the rewinds"
    assert ordeal.hit["compress"] >= ROUNDS // 30, "the kills have missed the compressions"
