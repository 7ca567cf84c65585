"""One life of a connection to a server: opened, initialised, listed, used, ended. The next life is a new connection.

The calls run in the tasks of their callers. A caller who is cancelled leaves at once: the cancel notification goes to
the outbox, which never waits. Afterwards the server is asked for a sign of life, and ended when it gives none while
nobody else waits for it; a server that is at work for others may be silent until their own time limits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from hermes import __version__
from hermes.nurseries.mcp_config import McpServerConfig
from hermes.nurseries.mcp_transport import TransportHost, load_client, open_transport
from hermes.nurseries.settlement import Settlement

if TYPE_CHECKING:
    from mcp import ClientSession, MCPError

log = logging.getLogger(__name__)

MAX_PAGES = 20
SIGN_OF_LIFE = 5.0
BETWEEN_LISTINGS = 1.0
END_KNOWN_WITHIN = 1.0

Listing = Sequence[Any]
"""Entries as the server has sent them, whatever they are."""


class McpFailure(Exception):
    """A server could not be used; the text says why, in a sentence that goes on after its name."""


class McpConnection:
    """A server that has been initialised. Made by ``hold``."""

    def __init__(
        self,
        config: McpServerConfig,
        session: ClientSession,
        nursery: trio.Nursery,
        ended: Settlement[str],
        entries: list[Any],
    ) -> None:
        """``entries``: where the tools of each page of a listing arrive."""
        self.config = config
        self.ended = ended
        self._session = session
        self._entries = entries
        self.closing = False
        """Set when it is being taken down, which ``ended`` need not know yet."""
        self._nursery = nursery
        self._calls = 0
        self._check: trio.Event | None = None
        self._listing_due = trio.Event()
        self._listed = trio.Event()
        self._listed.set()

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: Callable[[str], None]
    ) -> Mapping[str, Any]:
        """The result of one ``tools/call``. Raises ``McpFailure``."""
        from mcp import types

        running = True

        async def progress(done: float, total: float | None, message: str | None) -> None:
            # Its task may run after the answer has been taken; nothing is shown of a call that is over.
            if running:
                on_progress(_progress_text(done, total, message))

        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        request = types.CallToolRequest(params=params)
        answered = False
        self._calls += 1
        try:
            with trio.move_on_after(self.config.timeout):
                # Not `call_tool`: it checks the result against a schema of the server's making, whose patterns can
                # keep this thread busy for ever.
                result = await self._ask(request, types.CallToolResult, progress)
                answered = True
                return result
            raise McpFailure(f"gave no answer within {self.config.timeout:g} s; the call was cancelled")
        finally:
            running = False
            self._calls -= 1
            if not answered:
                self.check_soon()

    @property
    def is_over(self) -> bool:
        """Nothing can be called over it any more."""
        return self.closing or self.ended.settled

    async def wait_checked(self) -> None:
        """Wait until no sign of life is being waited for."""
        while self._check is not None:
            await self._check.wait()

    def check_soon(self) -> None:
        """Ask the server for a sign of life, unless it is being asked already."""
        if self._check is None and not self.is_over:
            self._check = trio.Event()
            self._nursery.start_soon(self._check_alive, self._check, name=f"check of mcp {self.config.name}")

    async def start(self) -> Listing:
        """Initialise, and list the tools. Raises ``McpFailure``."""
        from mcp import MCPError

        try:
            await self._session.initialize()
        except MCPError as error:
            raise await self._failure(error, f"refused to start: {error}") from error
        except (ValueError, RuntimeError) as error:
            raise McpFailure(f"speaks another protocol: {type(error).__name__}") from error
        return await self.list_tools()

    async def list_tools(self) -> Listing:
        from mcp import types

        found: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            self._entries.clear()
            request = types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=cursor))
            page = await self._ask(request, types.ListToolsResult, None)
            found += self._entries
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return found

    def list_again_soon(self) -> None:
        """The list of tools may be different: fetch it, in the background."""
        self._listed = trio.Event()
        self._listing_due.set()

    async def wait_listed(self) -> None:
        """Wait until no list of tools is due."""
        await self._listed.wait()

    async def keep_listing(self, on_listing: Callable[[Listing], None]) -> None:
        """List the tools again whenever that is due, with a pause after each time."""
        while True:
            await self._listing_due.wait()
            self._listing_due, listed = trio.Event(), self._listed
            try:
                with trio.move_on_after(self.config.connect_timeout):
                    on_listing(await self.list_tools())
            except McpFailure as error:
                log.warning("the tools of MCP server %s cannot be listed again: it %s", self.config.name, error)
            finally:
                listed.set()
            await trio.sleep(BETWEEN_LISTINGS)

    async def _ask(self, request: Any, kind: Any, progress: Any) -> Mapping[str, Any]:
        from mcp import MCPError

        try:
            result = await self._session.send_request(request, kind, progress_callback=progress)
        except MCPError as error:
            raise await self._failure(error, f"answered with an error: {error}") from error
        except (ValueError, RuntimeError) as error:
            raise McpFailure(f"gave an answer that is not of the protocol: {type(error).__name__}") from error
        dumped: Mapping[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return dumped

    async def _failure(self, error: MCPError, text: str) -> McpFailure:
        """The failure to report: when the connection has just ended, why it did."""
        from mcp.types import CONNECTION_CLOSED

        closed = error.error.code == CONNECTION_CLOSED and self.config.transport == "stdio"
        if closed and await self.ended.wait_at_most(END_KNOWN_WITHIN):
            return McpFailure(str(self.ended.value))
        return McpFailure(text)

    async def _check_alive(self, checked: trio.Event) -> None:
        from mcp import MCPError, types

        try:
            alive = False
            with trio.move_on_after(SIGN_OF_LIFE):
                try:
                    await self._session.send_ping()
                    alive = True
                except MCPError as error:
                    alive = self.config.transport == "stdio" or error.error.code == types.METHOD_NOT_FOUND
            if not alive and not self._calls:
                self.ended.settle("gives no sign of life")
        finally:
            self._check = None
            checked.set()


async def hold(
    config: McpServerConfig,
    host: TransportHost,
    ended: Settlement[str],
    on_ready: Callable[[McpConnection, Listing], None],
    on_listing: Callable[[Listing], None],
) -> None:
    """Live one connection: until ``ended`` is settled, by whoever is first, or a cancel. Raises ``McpFailure``,
    ``SpawnFailed``, ``Overloaded`` when it could not be made, and what the client library raises."""
    await trio.to_thread.run_sync(load_client, abandon_on_cancel=True)
    from mcp import ClientSession, types

    async with open_transport(config, host, ended.settle) as (inbox, outbox):
        async with trio.open_nursery() as nursery:
            made: list[McpConnection] = []
            entries: list[Any] = []

            async def on_message(message: Any) -> None:
                if isinstance(message, types.ToolListChangedNotification) and made:
                    made[0].list_again_soon()

            client_info = types.Implementation(name="hermes", version=__version__)
            dispatcher = _dispatcher(inbox, outbox, entries.extend)
            session = ClientSession(dispatcher=dispatcher, message_handler=on_message, client_info=client_info)
            async with session:
                connection = McpConnection(config, session, nursery, ended, entries)
                made.append(connection)
                listing = await _started(connection, nursery)
                on_ready(connection, listing)
                nursery.start_soon(connection.keep_listing, on_listing, name=f"tools of mcp {config.name}")
                try:
                    await ended.wait()
                finally:
                    # The way may have broken down: why, is told when all of it is gone. A call must not be begun now.
                    connection.closing = True
            nursery.cancel_scope.cancel(reason="the connection has ended")


def _dispatcher(inbox: Any, outbox: Any, take: Callable[[list[Any]], None]) -> Any:
    """The client library's own, except that ``take`` gets the tools of a listing: the library would refuse a whole
    listing for one tool that is not of the protocol."""
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    class Dispatcher(JSONRPCDispatcher[Any]):
        async def send_raw_request(self, method: str, params: Any, opts: Any = None, **more: Any) -> dict[str, Any]:
            result: dict[str, Any] = await super().send_raw_request(method, params, opts, **more)
            if method == "tools/list" and isinstance(result.get("tools"), list):
                take(result["tools"])
                result = {**result, "tools": []}
            return result

    return Dispatcher(inbox, outbox)


async def _started(connection: McpConnection, nursery: trio.Nursery) -> Listing:
    """Start within the time limit, and not longer than the way is open."""
    ended, limit = connection.ended, connection.config.connect_timeout
    with trio.move_on_after(limit) as scope:

        async def give_up() -> None:
            await ended.wait()
            scope.cancel(reason="the connection has ended")

        nursery.start_soon(give_up, name=f"end of mcp {connection.config.name}")
        try:
            return await connection.start()
        except McpFailure:
            # The way has ended, and knows better why.
            if ended.settled:
                raise McpFailure(str(ended.value)) from None
            raise
    raise McpFailure(str(ended.value) if ended.settled else f"was not ready within {limit:g} s")


def _progress_text(done: float, total: float | None, message: str | None) -> str:
    amount = f"{done:g}" + (f"/{total:g}" if total else "")
    return f"{amount} {message}" if message else amount
