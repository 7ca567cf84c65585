"""What tools remember for one session: directory, environment, to-do list, read ranges, grants.

One plain object per session, never shared, never global: so no foreign directory, value or grant can be seen.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from hermes.records import dataclass

CLIENT_TERMINALS = "client_terminals"
"""Where the terminal tool notes it (``client_terminal.TERMINALS``)."""


@dataclass(slots=True)
class SessionMemory:
    """Implements ``ports.SessionMemory``."""

    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    todos: list[dict[str, Any]] = field(default_factory=list)
    todo_revision: int = 0
    file_reads: dict[str, Any] = field(default_factory=dict)
    grants: set[str] = field(default_factory=set)
    yolo: bool = False
    sudo_password: str | None = field(default=None, repr=False)
    denials_in_a_row: int = 0
    extras: dict[str, Any] = field(default_factory=dict)

    def client_terminal(self, call_id: str) -> str | None:
        """The attached client's terminal in which this tool call runs, if it runs in one."""
        terminal: str | None = self.extras.get(CLIENT_TERMINALS, {}).get(call_id)
        return terminal
