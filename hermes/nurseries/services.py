"""What every session shares: the adapters behind their ports, the clock, the ids, and the settings of the moment.

Built once in the composition root and handed down; nothing here is looked up globally.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hermes.agent.context_files import DirectoryHints
from hermes.agent.cooldowns import Cooldowns
from hermes.agent.ports import (
    IdSource,
    LeaseOwner,
    ModelGateway,
    ResolvedModel,
    Tool,
    ToolSet,
    TranscriptStore,
    WallClock,
)
from hermes.events import ServerEvent
from hermes.nurseries.event_log import EventLog
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.replay_memory import ReplayMemory
from hermes.nurseries.scopes import LiveTree
from hermes.nurseries.stored_changes import StoredChanges
from hermes.nurseries.turn_lease import Leases
from hermes.outcomes import TurnRecord
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.local_model import LocalModelServer
    from hermes.nurseries.mcp_servers import McpServers
    from hermes.nurseries.session import Session


class ToolBuilder(Protocol):
    """Builds the tools of one session.

    ``extra`` are tools that belong to the session alone (MCP servers of an editor); ``answers`` says which kinds of
    question an attached client shows right now, for tools that exist only while one does. ``pinned`` is the stored
    list of names that keeps the order (TL-8).
    """

    def __call__(
        self,
        session: Session,
        *,
        allow_clarify: bool,
        depth: int,
        answers: Callable[[str], bool],
        pinned: Sequence[str] | None,
        extra: Sequence[Tool],
    ) -> ToolSet: ...


class PromptBuilder(Protocol):
    """Builds the pinned system prompt of a session, in tiers (agent-core §1.5). May read files in a thread."""

    async def __call__(
        self, session: Session, *, tools: ToolSet, resolved: ResolvedModel, system_extra: str | None
    ) -> tuple[str, ...]: ...


class ConfigPort(Protocol):
    """The configuration as surfaces may change it. ``change`` raises ``InvalidValue``; then nothing has changed."""

    def current(self) -> Any: ...

    async def change(self, key: str, value: Any, *, save: bool = True) -> Any: ...

    async def reload(self) -> tuple[str, ...]: ...

    async def reload_variables(self) -> int: ...

    async def pick_up_credentials(self) -> bool:
        """Take provider keys again that were edited on disk. Raises ``InvalidValue``."""
        ...


class DelegationSwitch:
    """Whether new child agents may be started in this server (gateway §9.5)."""

    def __init__(self) -> None:
        self.paused = False


@dataclass(frozen=True, slots=True)
class Services:
    """The shared adapters. ``settings()`` gives the Settings of the moment; nobody keeps them across a turn."""

    store: TranscriptStore
    models: ModelGateway
    settings: Callable[[], Any]
    home: Path
    supervisor: ProcessSupervisor
    ids: IdSource
    clock: WallClock
    random: Callable[[], float]
    owner: LeaseOwner
    tree: LiveTree
    build_tools: ToolBuilder
    build_prompt: PromptBuilder
    announce: EventLog[ServerEvent]
    config: ConfigPort | None = None
    """None where nothing can be changed (tests, embedding without a home)."""
    cooldowns: Cooldowns = field(default_factory=Cooldowns)
    replay: ReplayMemory = field(default_factory=ReplayMemory)
    leases: Leases = field(default_factory=Leases)
    stored_changes: StoredChanges = field(default_factory=StoredChanges)
    delegation: DelegationSwitch = field(default_factory=DelegationSwitch)
    owner_lives: Callable[[LeaseOwner], bool] = field(default=lambda _owner: False)
    """Whether another process that had left a note in the store may still be there."""
    mcp: McpServers | None = None
    """The configured MCP servers, shared by all sessions."""
    local_model: LocalModelServer | None = None
    """Runs the packaged model while somebody uses it."""
    close_connections: Callable[[], Awaitable[None]] | None = None
    """Closes what adapters keep open between calls (idle connections to providers); the last thing a server does."""
    spill: Callable[[str, str], str | None] | None = None
    """``spill(call_id, text)`` writes an oversize tool result away and returns the path to tell."""
    directory_hints: Callable[[str], DirectoryHints | None] | None = None
    """``directory_hints(cwd)`` makes the finder of instruction files for a session that works there; both read the
    disk (TL-11)."""
    turn_observers: list[Callable[[TurnRecord], None]] = field(default_factory=list)
    """Told of the end of every turn of every session. They must not wait or raise."""
    redact: Callable[[str], str] = field(default=lambda text: text)
    tool_summary: Callable[[str, Mapping[str, Any]], str] = field(default=lambda name, _args: name)
