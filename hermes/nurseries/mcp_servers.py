"""McpServers: the MCP servers of the process, or of one session; their tools, their status, their reload.

The configured servers are shared by all sessions, one connection each. The servers that an editor brings along are
another ``McpServers`` that lives in its session and ends with it. Servers start in the background, when they are first
of use; nobody waits for a slow one. The tools that a session has seen stay as they were until a reload, because its
tool list is pinned (TL-8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from hermes.agent.ports import SessionMemory, Tool
from hermes.errors import NotFound
from hermes.nurseries.mcp_config import McpServerConfig, client_servers, configured_servers, revision
from hermes.nurseries.mcp_server import McpServer, ServerHost
from hermes.nurseries.mcp_tools import notice_of, shown
from hermes.nurseries.mcp_transport import TransportHost
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.services import Services
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

log = logging.getLogger(__name__)

RELOAD_WAIT = 30.0
OWN = "mcp_own"
STATUS = "mcp_servers"
"""Key in the session's memory: what ``session.info()`` shows."""
CONFIRM_RELOAD = (
    "Reloading the MCP servers changes the list of tools and with it the beginning of every prompt: the provider's "
    "prompt cache is lost once. Reload now?"
)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reloaded:
    """``revision`` is what is loaded now; ``coalesced``: another caller's reload did it."""

    revision: str
    coalesced: bool = False


class McpServers:
    """A set of servers with one lifetime. ``run`` must be running before a server can start.

    Parameters: ``transport``, what their connections need; ``label``, the name of the set, different for each set that
    one session sees.
    """

    def __init__(self, transport: TransportHost, *, label: str = "mcp servers") -> None:
        self.label = label
        self.on_change: Callable[[], None] | None = None
        """Called when a status or a list of tools is different; must not raise or wait."""
        self.loaded_revision = ""
        self._scope: ReasonScope | None = None
        self._nursery: trio.Nursery | None = None
        self._not_yet_started: list[tuple[Callable[[], Any], str]] = []
        self._servers: dict[str, McpServer] = {}
        self._generation = 0
        self._reloads = 0
        self._reloading = trio.Lock()
        self._host = ServerHost(transport, self._start, self._node, self._changed)

    async def run(self, parent: ReasonScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the servers below ``parent`` until cancelled; nothing of them is left afterwards."""
        scope = self._scope = ReasonScope("mcp_servers", self.label, parent)
        scope.on_cancel = scope.cancel_children
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    for fn, name in self._not_yet_started:
                        nursery.start_soon(fn, name=name)
                    self._not_yet_started.clear()
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            self._nursery = None
            for server in self._servers.values():
                server.stop()

    # --- which servers ---

    def configure(self, configs: Sequence[McpServerConfig], *, loaded: str = "") -> None:
        """Have exactly these servers: new and changed ones as new servers, unchanged ones tried or listed again.

        Synchronous and whole. Nothing starts that was not in use: see ``warm``.
        """
        old = self._servers
        self._servers = {}
        for config in configs:
            known = old.pop(config.name, None)
            if known is not None and known.config == config:
                self._servers[config.name] = known
                continue
            server = self._servers[config.name] = McpServer(config, self._host, before=known)
            if known is not None:
                known.after = server
                known.stop()
        for server in old.values():
            server.stop()
        self._generation += 1
        self.loaded_revision = loaded
        self._changed()

    def configure_from(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """``configure`` with the ``mcp_servers`` setting."""
        self.configure(configured_servers(settings), loaded=revision(settings))

    def warm(self) -> None:
        """Start all servers that have not been tried yet, in the background."""
        for server in self._servers.values():
            if server.state == "configured":
                server.want()

    async def wait_ready(self, within: float) -> bool:
        """Give the servers that are connecting a moment; true if all of them are ready or have failed."""
        with trio.move_on_after(within):
            for server in list(self._servers.values()):
                await server.wait_ready()
            return True
        return False

    async def wait_young(self, within: float) -> None:
        """Give each server that began to connect less than ``within`` seconds ago the rest of that time."""
        for server in list(self._servers.values()):
            await server.wait_ready_since_start(within)

    async def reload(
        self, settings: Callable[[], Mapping[str, Mapping[str, Any]]], *, wanted: str | None = None
    ) -> Reloaded:
        """Load the setting anew and wait for the servers, within a bound. One caller at a time does the work; one that
        waited for another's takes its result, if that loaded what it ``wanted`` (gateway §9.4)."""
        seen = self._reloads
        async with self._reloading:
            if self._reloads > seen and wanted in (None, self.loaded_revision):
                return Reloaded(self.loaded_revision, coalesced=True)
            self.configure_from(settings())
            for server in self._servers.values():
                server.retry_now()
            await self.wait_ready(RELOAD_WAIT)
            self._generation += 1
            self._reloads += 1
        self._changed()
        return Reloaded(self.loaded_revision)

    # --- what they offer ---

    def tools(self) -> tuple[Tool, ...]:
        """All tools known now, in the order of the configuration. Also those of a server that is down at the moment."""
        found: dict[str, Tool] = {}
        for server in self._servers.values():
            for tool in server.tools:
                found.setdefault(tool.spec.name, tool)
        return tuple(found.values())

    def tools_for(self, memory: SessionMemory, *, fixed: bool) -> tuple[Tool, ...]:
        """The tools of one session. ``fixed``: as they were when this was last asked for before, until a reload.
        Starts the servers."""
        self.warm()
        key = f"mcp_tools:{self.label}"
        seen = memory.extras.get(key)
        if not fixed or seen is None or seen[0] != self._generation:
            seen = memory.extras[key] = (self._generation, self.tools())
        tools: tuple[Tool, ...] = seen[1]
        return tools

    def status(self) -> list[dict[str, Any]]:
        """``[{name, status, tool_count, error?, notice?}]`` for ``SessionInfo.mcp_servers``."""
        return [server.status() | notice for server, notice in self._with_notices()]

    async def try_one(self, name: str, within: float) -> dict[str, Any]:
        """Connect to one server now and say what came of it (``mcp.servers.test``). Raises ``NotFound``."""
        server = self._servers.get(name)
        if server is None:
            raise NotFound(f"there is no MCP server {name!r}")
        server.retry_now()
        server.want()
        with trio.move_on_after(within):
            await server.wait_ready()
        is_up = server.state == "connected"
        tools = [{"name": tool.spec.name, "description": tool.spec.description} for tool in server.tools]
        result: dict[str, Any] = {"ok": is_up, "tools": tools if is_up else [], "oauth_needed": False}
        if is_up and server.notice:
            result["notice"] = server.notice
        if not is_up:
            result["error"] = server.error or f"the server is {server.state}"
        return result

    def summaries(self) -> list[dict[str, Any]]:
        """The rows of ``mcp.servers.list``."""
        return [server.config.summary() for server in self._servers.values()]

    def runtime_rows(self) -> list[dict[str, Any]]:
        """The rows of ``mcp.servers.status``."""
        return [
            {
                "name": server.config.name,
                "transport": server.config.transport,
                "tools": len(server.tools),
                "connected": server.state == "connected",
                "disabled": server.state == "disabled",
                "status": server.state,
                "source": "config",
                **notice,
            }
            for server, notice in self._with_notices()
        ]

    def _with_notices(self) -> Iterator[tuple[McpServer, dict[str, str]]]:
        """Each server with ``{notice}``, if some of its tools cannot be used: for what they are, or because an earlier
        server has that name."""
        owners: dict[str, str] = {}
        for server in self._servers.values():
            taken = [tool for tool in server.tools if tool.spec.name in owners]
            clashes = [
                f"{shown(tool.remote_name)} (server {owners[tool.spec.name]} has {tool.spec.name})" for tool in taken
            ]
            owners |= {tool.spec.name: server.config.name for tool in server.tools if tool.spec.name not in owners}
            words = "; ".join(filter(None, (server.notice, notice_of(clashes))))
            yield server, {"notice": words} if words else {}

    # --- for the servers ---

    def _start(self, fn: Callable[[], Any], name: str) -> None:
        if self._nursery is None:
            self._not_yet_started.append((fn, name))
        else:
            self._nursery.start_soon(fn, name=name)

    def _node(self) -> ReasonScope:
        assert self._scope is not None
        return self._scope

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


# --- servers and sessions --------------------------------------------------------------------------------------------


def needs_confirmation(confirm: bool | None, *, ask: bool) -> bool:
    """Whether ``reload.mcp`` only asks: ``ask`` is the setting ``approvals.mcp_reload_confirm``."""
    return ask and confirm is not True


def editor_servers(
    services: Services, environment: Callable[[], Mapping[str, str]], shared: McpServers | None
) -> Callable[[Session, Sequence[Mapping[str, Any]]], None]:
    """What starts the servers that an editor brings along: they live in the session, in its directory, and end with it.

    A second list (load, resume) replaces the first. ``environment()`` is the server's own, secrets already taken out.
    """

    def start(session: Session, servers: Sequence[Mapping[str, Any]]) -> None:
        own: McpServers | None = session.memory.extras.get(OWN)
        if own is None:
            if not servers:
                return
            host = TransportHost(services.supervisor, environment, session.memory.cwd, session.key, services.redact)
            own = session.memory.extras[OWN] = McpServers(host, label="editor's mcp servers")
            tell_sessions(own, lambda: [session], shared)
            session.start_soon(own.run, session.scope, name=own.label)
        own.configure(client_servers(servers))
        own.warm()

    return start


def session_tools(session: Session, shared: McpServers | None) -> tuple[Tool, ...]:
    """The MCP tools of a session, the editor's own servers first; for ``build_tools``.

    They are fixed with the system prompt: what arrives before the first turn is there, what comes later is not (TL-8).
    """
    fixed = session.pinned_prompt is not None
    tools = tuple(tool for one in _sets_of(session, shared) for tool in one.tools_for(session.memory, fixed=fixed))
    # Of servers that were up before the session was, nothing is different from now on, and so nothing would be told.
    session.memory.extras.setdefault(STATUS, _status_of(session, shared))
    return tools


async def wait_session_ready(session: Session, shared: McpServers | None, within: float) -> None:
    """Before the first turn: give servers that are on their way a moment, so that their tools are there. One that has
    had its moment while nobody prompted gets no second one."""
    if session.pinned_prompt is None:
        with trio.move_on_after(within):
            for one in _sets_of(session, shared):
                one.warm()
                await one.wait_young(within)


def publish_status(session: Session, shared: McpServers | None) -> None:
    """Put the status where ``session.info()`` reads it, and tell the session's watchers if it is different."""
    rows = _status_of(session, shared)
    if not session.closing and session.memory.extras.get(STATUS, []) != rows:
        session.memory.extras[STATUS] = rows
        session.announce_info()


def tell_sessions(servers: McpServers, sessions: Callable[[], Sequence[Session]], shared: McpServers | None) -> None:
    """From now on these sessions are told when something about the servers is different."""

    def changed() -> None:
        for session in sessions():
            publish_status(session, shared)

    servers.on_change = changed


def _status_of(session: Session, shared: McpServers | None) -> list[dict[str, Any]]:
    return [row for one in _sets_of(session, shared) for row in one.status()]


def _sets_of(session: Session, shared: McpServers | None) -> list[McpServers]:
    own: McpServers | None = session.memory.extras.get(OWN)
    return [one for one in (own, shared) if one is not None]
