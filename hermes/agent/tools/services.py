"""What the tools of all sessions share, handed in once: environment, homes, and where permanent grants are written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol

from hermes.agent.command_targets import Scene
from hermes.agent.path_rules import PathPolicy
from hermes.agent.tools.read_memory import Writers
from hermes.records import dataclass


async def _remember_nothing(key: str) -> None:
    """Without a configuration file a permanent grant lasts as long as the session."""


class StoredVariables(Protocol):
    """Variables that people have given to tools by their names; they lie in the home's ``.env``."""

    def known(self) -> Mapping[str, str]:
        """All of them, as they are now."""
        ...

    def reserved(self, name: str) -> bool:
        """True for names that mean something to the server itself: no tool may ask for them or pass them on."""
        ...

    async def store(self, changes: Mapping[str, str]) -> None:
        """Keep these values. Raises ``HermesError``."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionTarget:
    """Something outside that tools can be connected to. ``required`` are the variables that it has not got yet."""

    name: str
    kind: str
    state: str
    required: tuple[str, ...] = ()


class Connections(Protocol):
    """What the server is configured to connect to."""

    def targets(self) -> Sequence[ConnectionTarget]: ...

    async def connect(self, name: str, within: float) -> str | None:
        """Try it now, at most ``within`` seconds; what went wrong, or None if it is connected."""
        ...


@dataclass(frozen=True, slots=True)
class ToolServices:
    """``environment`` is the server's own; ``secret_names`` are variables in it that no command may see.

    ``remember_permanently(key)`` adds one pattern key to ``command_allowlist`` in the configuration, merging with what
    is on disk. ``redact`` is fixed here, at start, so that no tool can switch it off. ``own_pids`` are the pids and the
    process group of the server.
    """

    environment: Mapping[str, str]
    user_home: Path
    agent_home: Path
    remember_permanently: Callable[[str], Awaitable[None]] = _remember_nothing
    secret_names: frozenset[str] = frozenset()
    own_pids: frozenset[int] = frozenset()
    shell: str = "/bin/bash"
    redact: bool = True
    ripgrep: str | None = None
    ignore_case: bool = False
    permanent: set[str] = field(default_factory=set)
    """Keys that were granted for good since the start; the settings of a turn may be older than the grant."""
    sudo_password: Callable[[], str | None] = field(default=lambda: None)
    """The one that is configured (``SUDO_PASSWORD``)."""
    variables: StoredVariables | None = None
    connections: Connections | None = None
    child: tuple[str, ...] | None = None
    """The command that runs a Python function in a process of its own; what may take for ever, is done there."""

    writers: Writers = field(default_factory=Writers)

    def scene(self, cwd: str) -> Scene:
        return Scene(cwd, str(self.user_home), str(self.agent_home), self.own_pids)

    def path_policy(self, write_safe_root: str, *, protect_instructions: bool) -> PathPolicy:
        root = Path(write_safe_root).expanduser().resolve() if write_safe_root else None
        # Followed like the paths that are held against it: the home may be reached through a link.
        home = self.agent_home.resolve()
        return PathPolicy(self.user_home, home, root, protect_instructions, self.ignore_case)
