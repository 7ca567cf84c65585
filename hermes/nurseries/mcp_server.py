"""One configured server: its state, its tools, and its lives one after the other.

A life (process or HTTP session) begins on use and is alone: the old one is gone before the next begins, so there is
never more than one child. After failures in a row the next life waits longer, and a caller who would have to wait long
is told so at once. Everything runs below the node ``mcp`` of the live tree; cancelling that node ends the life only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import trio

from hermes.agent.ports import ToolFailure, ToolOutput
from hermes.errors import HermesError
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.mcp_config import McpServerConfig
from hermes.nurseries.mcp_connection import Listing, McpConnection, McpFailure, hold
from hermes.nurseries.mcp_tools import McpTool, Offer, tool_output, tools_from_listing
from hermes.nurseries.mcp_transport import TransportHost
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.settlement import Settlement
from hermes.records import dataclass

log = logging.getLogger(__name__)

State = Literal["configured", "connecting", "connected", "failed", "disabled"]

CALLS_AT_ONCE = 64
FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
PATIENCE = 5.0
"""A caller waits this long for the next try; else it is told when that will be."""
ENDING = 1.0
"""Seconds for a polite end of a connection, before it is cancelled."""
TRIES = 3
MAX_ERROR = 300
LONG_TEXT = 50_000


@dataclass(frozen=True, slots=True)
class ServerHost:
    """What a server needs of ``McpServers``: ``start`` runs its task, ``scope()`` is the node above it."""

    transport: TransportHost
    start: Callable[[Callable[[], Any], str], None]
    scope: Callable[[], ReasonScope]
    changed: Callable[[], None]


class Life:
    """One connection from the wish to have it until it is gone."""

    def __init__(self) -> None:
        self.began = trio.current_time()
        self.ready: Settlement[McpConnection | None] = Settlement()
        self.ended: Settlement[str] = Settlement()
        self.over = trio.Event()
        self.scope = trio.CancelScope()


class McpServer:
    """A server by its configuration. All methods but ``call`` and the waits are synchronous."""

    def __init__(self, config: McpServerConfig, host: ServerHost, before: McpServer | None = None) -> None:
        self.config = config
        self.tools: tuple[McpTool, ...] = ()
        self.notice = ""
        """Which tools of the newest listing cannot be used, and why."""
        self.error = config.problem
        self.state: State = "failed" if config.problem else "configured" if config.enabled else "disabled"
        self._host = host
        self.after: McpServer | None = None
        """The server of the same name that a reload has put in this one's place: calls of older tools go there."""
        self._before = before
        self._life: Life | None = None
        self._stopped = False
        self._failures = 0
        self._next_try = 0.0
        self._room = trio.Semaphore(CALLS_AT_ONCE)

    @property
    def usable(self) -> bool:
        return self.config.enabled and not self.config.problem and not self._stopped

    def status(self) -> dict[str, Any]:
        """The row of ``SessionInfo.mcp_servers``."""
        row: dict[str, Any] = {"name": self.config.name, "status": self.state, "tool_count": len(self.tools)}
        if self.error and self.state == "failed":
            row["error"] = self.error
        return row

    def want(self) -> None:
        """Begin a life, if there is none and there may be one."""
        if self._life is None and self.usable:
            life = self._life = Life()
            self._set("connecting")
            self._host.start(lambda: self._live(life), f"mcp {self.config.name}")

    def retry_now(self) -> None:
        """Forget the failures; a connected server lists its tools again, another one is tried at once."""
        self._failures, self._next_try = 0, 0.0
        life = self._life
        connection = life.ready.value if life is not None else None
        if connection is not None:
            connection.list_again_soon()
        else:
            self.want()

    def stop(self) -> None:
        """End for good: politely within a moment, then with a cancel."""
        self._stopped = True
        life = self._life
        if life is not None and life.ended.settle("was closed"):
            life.scope.deadline = trio.current_time() + ENDING

    async def wait_ready(self) -> None:
        """Wait until the life that has begun is ready, its tools listed, or has failed; at once if there is none."""
        life = self._life
        connection = await life.ready.wait() if life is not None else None
        if connection is not None:
            await connection.wait_listed()

    async def wait_ready_since_start(self, within: float) -> None:
        """The same, at most until the life has lasted so long: who comes late waits for what is left of it."""
        life = self._life
        if life is not None:
            with trio.move_on_at(life.began + within):
                await self.wait_ready()

    async def wait_gone(self) -> None:
        """Wait until no life is left."""
        while self._life is not None:
            await self._life.over.wait()

    # --- calls ---

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: Callable[[str], None]) -> ToolOutput:
        newest = self
        while newest.after is not None:
            newest = newest.after
        return await newest._call(tool, arguments, on_progress)

    async def _call(self, tool: str, arguments: Mapping[str, Any], on_progress: Callable[[str], None]) -> ToolOutput:
        try:
            async with self._room:
                connection = await self._connection()
                result = await connection.call(tool, arguments, on_progress)
        except McpFailure as failure:
            text = f"MCP server {self.config.name} {self._host.transport.redact(str(failure))}"
            raise ToolFailure(json.dumps({"error": text}, ensure_ascii=False)) from failure
        self._failures = 0
        return await self._redacted(tool_output(result))

    async def _redacted(self, output: ToolOutput) -> ToolOutput:
        """Without secrets, as what a command says."""
        redact = self._host.transport.redact
        if len(output.content) <= LONG_TEXT:
            return replace(output, content=redact(output.content))
        # Milliseconds for each hundred thousand characters, which others would have to wait.
        return replace(output, content=await trio.to_thread.run_sync(redact, output.content, abandon_on_cancel=True))

    async def _connection(self) -> McpConnection:
        """A connection that is up, made if need be. Raises ``McpFailure``."""
        for _ in range(TRIES):
            life = self._life
            known = life.ready.value if life is not None else None
            if life is not None and (life.ended.settled or (known is not None and known.is_over)):
                await life.over.wait()
                continue
            if life is None:
                self._refuse_if_not_now()
                self.want()
                life = self._life
            assert life is not None
            connection = await life.ready.wait()
            if connection is None:
                raise McpFailure(f"cannot be used: it {self.error}")
            await connection.wait_checked()
            if not connection.is_over:
                return connection
        raise McpFailure(f"cannot be used: it {self.error or 'is restarting'}")

    def _refuse_if_not_now(self) -> None:
        if not self.usable:
            raise McpFailure("is closed" if self._stopped else self.error or "is switched off")
        wait = self._next_try - trio.current_time()
        if wait > PATIENCE:
            raise McpFailure(f"cannot be used: it {self.error}; the next try is possible in {wait:.0f} s")

    # --- one life ---

    async def _live(self, life: Life) -> None:
        node = ReasonScope(
            "mcp", self.config.name, self._host.scope(), details=self._details(), phase=lambda: str(self.state)
        )
        # Settled before the cancel: a caller in the same tick must find this life ended.
        node.on_cancel = lambda reason: life.ended.settle(f"was stopped ({reason})") and node.cancel(reason)
        outcome: Crash | None = None
        from_above = True
        try:
            with node, life.scope:
                if self._before is not None:
                    await self._before.wait_gone()
                    self._before = None
                await trio.sleep_until(self._next_try)
                outcome = await contained(node.name, self._hold, life, log=False)
            from_above = False
        finally:
            # Also on the way out of a cancel from above: whoever waits must not wait for ever.
            self._over(life, outcome, quiet=from_above or self._stopped)

    async def _hold(self, life: Life) -> None:
        def ready(connection: McpConnection, listing: Listing) -> None:
            self._offer(tools_from_listing(self, listing))
            self.error = ""
            self._set("connected")
            life.ready.settle(connection)

        def listed(listing: Listing) -> None:
            self._offer(tools_from_listing(self, listing))
            self._host.changed()

        await hold(self.config, self._host.transport, life.ended, ready, listed)

    def _offer(self, offer: Offer) -> None:
        self.tools = offer.tools
        notice = self._host.transport.redact(offer.notice)
        if notice and notice != self.notice:
            log.warning("MCP server %s lists %s", self.config.name, notice)
        self.notice = notice

    def _over(self, life: Life, outcome: Crash | None, *, quiet: bool) -> None:
        """The one place where a life's end is decided and told. ``quiet``: it was asked to end."""
        self._life = None
        if quiet:
            self._set("configured")
        else:
            reason = life.ended.value
            self.error = self._host.transport.redact(reason if reason is not None else _text_of(outcome))
            self._failures += 1
            if self._failures > 1:
                delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self._failures - 2))
                self._next_try = trio.current_time() + delay
            log.warning("MCP server %s %s", self.config.name, self.error)
            if outcome is not None:
                log.debug("MCP server %s", self.config.name, exc_info=outcome.error)
            self._set("failed")
        life.ended.settle(self.error or "was closed")
        life.ready.settle(None)
        life.over.set()

    def _details(self) -> Mapping[str, Any]:
        return {"transport": self.config.transport}

    def _set(self, state: State) -> None:
        self.state = state
        self._host.changed()


def _text_of(outcome: Crash | None) -> str:
    if outcome is None:
        return "was stopped with the server"
    error = outcome.error
    if isinstance(error, McpFailure | HermesError):
        return str(error)
    return f"failed: {type(error).__name__}: {str(error)[:MAX_ERROR]}"
