"""Prompts by what became of them, held against the database: nothing accepted is lost, nothing refused is stored."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.chaos.trace import Trace, Violation

TOKEN = re.compile(r"\[p(\d+)\]")


class Fate(Enum):
    UNKNOWN = "sent, and not answered yet"
    ACCEPTED = "accepted: it is stored"
    PERHAPS = "it may be stored, once"
    REFUSED = "refused: it is not stored"


@dataclass(slots=True)
class Prompt:
    number: int
    session: str
    text: str
    fate: Fate = Fate.UNKNOWN


class Ledger:
    """Numbers every prompt, so that it can be found wherever it went."""

    def __init__(self, database: Path, trace: Trace) -> None:
        self.prompts: dict[int, Prompt] = {}
        self._database = database
        self._trace = trace
        self._checked = 0

    def write(self, session: str, word: str) -> Prompt:
        number = len(self.prompts) + 1
        prompt = Prompt(number, session, f"[p{number}] <{word}> please")
        self.prompts[number] = prompt
        return prompt

    def settle(self, prompt: Prompt, fate: Fate) -> None:
        prompt.fate = fate

    def forget(self, session: str) -> None:
        """The session was deleted."""
        for prompt in self.prompts.values():
            if prompt.session == session:
                prompt.fate = Fate.PERHAPS

    def check(self, *, gone: set[str]) -> None:
        """Against the database. ``gone``: sessions that were deleted."""
        connection = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)
        try:
            found = self._found(connection)
            for prompt in self.prompts.values():
                if prompt.session not in gone:
                    self._check_one(prompt, found[prompt.session, prompt.number])
            self._check_histories(connection)
            if (answer := connection.execute("PRAGMA quick_check").fetchone()[0]) != "ok":
                raise Violation("I10", f"the database is damaged: {answer}")
        finally:
            connection.close()

    def _found(self, connection: sqlite3.Connection) -> Counter[tuple[str, int]]:
        rows = connection.execute(
            "SELECT session_key, content FROM messages WHERE role = 'user' AND compacted_summary = 0"
        )
        return Counter((key, int(number)) for key, content in rows for number in set(TOKEN.findall(content or "")))

    def _check_one(self, prompt: Prompt, times: int) -> None:
        allowed = {Fate.ACCEPTED: (1,), Fate.REFUSED: (0,)}.get(prompt.fate, (0, 1))
        if times not in allowed:
            text = f"prompt {prompt.text!r} is stored {times} times; it was {prompt.fate.value}"
            raise Violation("I10", text, prompt.session, prompt.text)

    def _check_histories(self, connection: sqlite3.Connection) -> None:
        """Each result belongs to a call. Calls of the newest turn may be open: its server may have died."""
        rows = connection.execute(
            "SELECT session_key, role, tool_calls, tool_call_id FROM messages WHERE active = 1 "
            "ORDER BY session_key, position, id"
        )
        open_calls: list[str] = []
        last = ""
        for key, role, calls, call_id in rows:
            if key != last:
                open_calls, last = [], key
            if role == "tool":
                if call_id not in open_calls:
                    raise Violation("I1", f"a result without its call, {call_id}", key)
                open_calls.remove(call_id)
            elif calls:
                open_calls = [one["id"] for one in json.loads(calls)]
