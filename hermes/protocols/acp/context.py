"""AcpContext: what the handlers of one connection share: the server, what the client can do, the sessions it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import trio

from hermes.agent.ports import StoredSession
from hermes.errors import Draining, HermesError, NotFound, ProviderNotConfigured, SessionNotFound
from hermes.nurseries import session_options
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.session import Session
from hermes.nurseries.session_registry import SessionRegistry
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.acp import offers
from hermes.protocols.acp.client_methods import offer_client_tools
from hermes.protocols.acp.late_prompts import LatePrompts
from hermes.protocols.acp.schemas import ClientCapabilities
from hermes.protocols.acp.session_view import SessionView
from hermes.protocols.acp.updates import update_frame, usage_update
from hermes.protocols.rpc.dispatcher import RpcConnection

SOURCE = "acp"
MAX_ANCESTORS = 32


class McpStarter(Protocol):
    """Connects the servers a client wants for a session; starts the work and returns."""

    def __call__(self, session: Session, servers: tuple[dict[str, Any], ...], /) -> None: ...


class AcpContext:
    """One connection's state. ``start_mcp`` is None where no MCP servers can be connected."""

    def __init__(self, tree: ServerTree, *, start_mcp: McpStarter | None = None) -> None:
        self.tree = tree
        self.start_mcp = start_mcp
        self.client = ClientCapabilities()
        self.version: int | None = None
        self.late_prompts = LatePrompts()
        self._views: dict[str, SessionView] = {}
        self._connection: RpcConnection[AcpContext] | None = None

    @property
    def connection(self) -> RpcConnection[AcpContext]:
        assert self._connection is not None
        return self._connection

    def connected(self, connection: RpcConnection[AcpContext]) -> None:
        self._connection = connection

    @property
    def registry(self) -> SessionRegistry:
        return self.tree.registry

    @property
    def views(self) -> Mapping[str, SessionView]:
        return self._views

    # --- credentials -------------------------------------------------------------------------------------------------

    def usable_provider(self) -> str | None:
        """The provider that answers a session which names none; the demonstration counts. None without any."""
        models = self.tree.services.models
        try:
            provider = models.default_provider()
        except HermesError:
            return None
        return provider if provider == "demo" or models.has_credentials(provider) else None

    def require_credentials(self) -> None:
        """Raises ``ProviderNotConfigured`` with words that help a person at an editor."""
        if self.usable_provider() is None:
            raise ProviderNotConfigured(f"no model provider is configured. {offers.SETUP_HINT}")

    def refuse_when_draining(self) -> None:
        if self.tree.draining.is_set():
            raise Draining

    # --- sessions ----------------------------------------------------------------------------------------------------

    def view(self, session_id: str) -> SessionView | None:
        """The view of a live session, made if this connection has none; None if the session is not live."""
        session = self.registry.by_key(session_id)
        if session is None:
            return None
        view = self.open_view(session)
        view.start()
        return view

    async def wait_view(self, session_id: str) -> SessionView:
        """The same, loading a stored session that is not live: the client need not know that it made room for others.

        Raises ``SessionNotFound``."""
        live = self.view(session_id)
        if live is not None:
            await trio.lowlevel.checkpoint()
            return live
        session = await self.load(session_id)
        session_options.restore_mode(session)
        view = self.open_view(session)
        view.start()
        return view

    async def load(self, session_id: str) -> Session:
        """The stored session, live and marked as in use again. Raises ``SessionNotFound``."""
        self.refuse_when_draining()
        try:
            session = await self.registry.resume(session_id)
        except NotFound:
            raise SessionNotFound(f"there is no session {session_id}") from None
        await session_options.reopen(session)
        return session

    async def ancestors(self, stored: StoredSession) -> list[str]:
        """The keys of the sessions it was forked from, nearest first."""
        keys: list[str] = []
        above: StoredSession | None = stored
        while above is not None and above.parent_key is not None and above.parent_key not in keys:
            keys.append(above.parent_key)
            above = await self.tree.services.store.get_session(above.parent_key) if len(keys) < MAX_ANCESTORS else None
        return keys

    def open_view(self, session: Session) -> SessionView:
        """A view that does not send anything yet: ``start`` it when the client knows the session's id."""
        known = self._views.get(session.key)
        if known is not None and known.session is session and not known.ended.is_set():
            return known
        session.reopens = True
        view = self._views[session.key] = SessionView(
            session,
            self.connection,
            capabilities=lambda: self.client,
            options=self.config_options,
            commands=offers.commands,
            on_end=self._view_ended,
        )
        offer_client_tools(session, self.connection, self.client, view.wait_told)
        return view

    def meet(self, client: ClientCapabilities) -> None:
        """What the client can do from now on, in its open sessions too."""
        self.client = client
        for view in self._views.values():
            offer_client_tools(view.session, self.connection, client, view.wait_told)

    def forget_view(self, session_id: str) -> None:
        view = self._views.pop(session_id, None)
        if view is not None:
            view.detach()

    def _view_ended(self, view: SessionView) -> None:
        if self._views.get(view.session.key) is view:
            self.forget_view(view.session.key)

    def config_options(self, session: Session) -> list[dict[str, Any]]:
        return offers.config_options(session.info(), self._provider_rows(session))

    def answer(self, session: Session, *, with_id: bool) -> dict[str, Any]:
        rows = self._provider_rows(session)
        return offers.session_answer(session.info(), rows, session.key if with_id else None)

    def _provider_rows(self, session: Session) -> offers.ProviderRows:
        view = self._views.get(session.key)
        return () if view is None else view.provider_rows

    def announce(self, session: Session) -> None:
        """What a client is told right after it got to know a session: commands, then usage."""
        self.update(session, {"sessionUpdate": "available_commands_update", "availableCommands": offers.commands()})
        self.tell_usage(session)

    def tell_usage(self, session: Session) -> None:
        info = session.info()
        for update in usage_update(info.usage, info.context_used or 0, info.context_max):
            self.update(session, update)

    def update(self, session: Session, update: Mapping[str, Any]) -> None:
        self.connection.send_frame(update_frame(session.key, update))

    def close_all(self, reason: str) -> list[Session]:
        """The client is gone: its sessions end with it."""
        closing = [view.session for view in self._views.values() if not view.session.closing]
        for session in closing:
            self.registry.close_nowait(session, CancelReason(Cause.CLIENT_DISCONNECT, reason))
        return closing
