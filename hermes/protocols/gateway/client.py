"""GatewayClient: one connected client: what it has declared, which sessions it watches, and the way to it.

What a session's log holds is passed on in one breath, by the tasks of the watches (``fan_out.py``) or by a handler that
is about to answer (``catch_up``): so an answer never overtakes an event that came before it, and a snapshot taken then
has exactly the events before it on the wire and all later ones behind it.
"""

from __future__ import annotations

from typing import Any, Final

from hermes.errors import InvalidParams
from hermes.events import (
    BrowserAsked,
    ClientRequestClosed,
    ClientRequestOpened,
    RedirectApplied,
    SessionEvent,
    SessionInfoChanged,
    SteerAccepted,
    SteerDelivered,
    ToolProgress,
)
from hermes.nurseries.client_requests import Attachment
from hermes.nurseries.containment import PooledTask
from hermes.nurseries.session import Session
from hermes.protocols.gateway.backlog import Entry, run_frame
from hermes.protocols.gateway.browser_desk import BrowserDesk
from hermes.protocols.gateway.client_requests import LEGACY_METHODS, QuestionDesk
from hermes.protocols.gateway.events import WireEvent, event_frame
from hermes.protocols.gateway.fan_out import Watch
from hermes.protocols.gateway.legacy import legacy_info
from hermes.protocols.gateway.server import BRIDGED_REQUESTS, SERVER_REQUESTS, GatewayServer
from hermes.protocols.gateway.shapes import live_info
from hermes.protocols.rpc.dispatcher import RpcConnection

LARGEST_WINDOW: Final = 10_000
STEERS: Final = (SteerAccepted, SteerDelivered, RedirectApplied)


class GatewayClient:
    """The context that every method of this surface gets.

    Parameters: ``is_websocket``, the transport on which questions are gated by a declaration (gateway §7.4) and
    sessions outlive the connection.
    """

    def __init__(
        self, server: GatewayServer, connection: RpcConnection[GatewayClient], *, is_websocket: bool = False
    ) -> None:
        self.server = server
        self.connection = connection
        self.is_websocket = is_websocket
        self.declared: bool | None = None
        self.legacy_declared = False
        self.progress_declared = False
        self.steers_declared = False
        self.turns_declared = False
        self.current: str | None = None
        """Runtime id of the session that this client made, resumed or activated last."""
        self.columns = 80
        self.lines = 24
        self.pastes = 0
        self.early_steers: dict[str, list[str]] = {}
        """What a client of the older dialect steered before a turn ran, by runtime id: its next turn gets it."""
        self.known_skills: frozenset[str] | None = None
        self.questions = QuestionDesk(self)
        self.browsers = BrowserDesk(server.tree.browsers, connection.name)
        self.tree_watch: PooledTask | None = None
        self._watches: dict[str, Watch] = {}

    @property
    def name(self) -> str:
        return self.connection.name

    def take_size(self, columns: int | None, lines: int | None = None) -> None:
        """Its window, as far as a terminal can have such a size."""
        if columns is not None:
            self.columns = min(max(columns, 1), LARGEST_WINDOW)
        if lines is not None:
            self.lines = min(max(lines, 1), LARGEST_WINDOW)

    # --- what it can show ---

    @property
    def reads_requests(self) -> bool:
        """Questions go to it as requests: always, unless it has asked for the older dialect alone."""
        return self.declared is True or not self.legacy_declared

    @property
    def reads_legacy(self) -> bool:
        """Questions go to it as events of the older dialect."""
        if self.legacy_declared:
            return True
        legacy = self.server.legacy_requests or (self.is_websocket and self.server.settings.gateway.legacy_prompts)
        return legacy and self.declared is not True

    @property
    def older(self) -> bool:
        """Its results have the shapes of the older dialect: it asked for that, or its process was started so."""
        return self.declared is not True and (self.legacy_declared or self.server.legacy_requests)

    def answers(self, method: str, source: str = "") -> bool:
        """Whether it can answer such a question: a host on stdio always, a WebSocket client when it has said so.
        ``source`` is what made the session: a terminal has no windows to look into."""
        if method in BRIDGED_REQUESTS and self.declared is True:
            return source not in ("", "tui")
        if self.reads_legacy and method in LEGACY_METHODS:
            return True
        return method in SERVER_REQUESTS and (self.declared is True or (not self.is_websocket and self.reads_requests))

    def wants(self, session: Session, event: SessionEvent) -> bool:
        """Output of running tools comes often and most hosts have no use for it: it goes to those who asked for it.
        So does what others say to a running turn, which hosts of the protocol's older days do not know. What a browser
        is asked goes to whom it belongs."""
        if isinstance(event, ToolProgress):
            return self.progress_declared
        if isinstance(event, BrowserAsked):
            return self.browsers.wants(session.runtime_id, event)
        return self.steers_declared or not isinstance(event, STEERS)

    # --- sessions ---

    def session(self, runtime_id: str) -> Session:
        """The live session; raises ``SessionNotFound``."""
        return self.server.registry.get(runtime_id)

    def watching(self, session: Session) -> bool:
        return session.runtime_id in self._watches

    @property
    def watched(self) -> tuple[Session, ...]:
        return tuple(watch.session for watch in self._watches.values())

    def watch(self, session: Session) -> None:
        """Attach this client, once; from now on it gets every later event. Everything earlier is on the wire."""
        if session.runtime_id in self._watches:
            self.catch_up(session)
            return
        if not self.connection.is_running:
            # Its request goes on without it (``keyed.py``).
            return
        source = session.stored.source
        session.attach(Attachment(self.name, lambda method: self.answers(method, source), "gateway"))
        session.parks = session.parks or self.is_websocket
        watch = self._watches[session.runtime_id] = Watch(
            self, session, self.server.fan_outs.of(session, self.server.shown)
        )
        self.connection.start_companion(watch.run, name=f"{self.name} events of {session.key}")
        self.questions.expect_open(session)

    def make_current(self, session: Session) -> None:
        self.watch(session)
        self.current = session.runtime_id

    def unwatch(self, watch: Watch) -> None:
        if self._watches.get(watch.session.runtime_id) is watch:
            del self._watches[watch.session.runtime_id]
            watch.session.detach(self.name)
            self.questions.forget(watch.session)

    def catch_up(self, session: Session) -> None:
        """Queue every event of the session that came before this moment. Called right before an answer is given."""
        watch = self._watches.get(session.runtime_id)
        if watch is not None:
            watch.catch_up()

    def catch_up_all(self) -> None:
        for watch in list(self._watches.values()):
            watch.catch_up()

    # --- sending ---

    def send_run(self, session: Session, run: list[Entry]) -> None:
        event = run[0].event
        if isinstance(event, ClientRequestOpened):
            self.questions.opened(session, event)
            return
        if isinstance(event, ClientRequestClosed) and not self.questions.closed(session, event):
            return
        if not self.wants(session, event):
            return
        if isinstance(event, SessionInfoChanged) and self.older:
            facts = WireEvent("session.info", legacy_info(live_info(event.info)))
            self.send_event(event_frame(facts, session.runtime_id, run[0].seq))
            return
        frame = run_frame(run, session.runtime_id, self.server.shown, turns=self.turns_declared)
        if frame:
            self.connection.send_frame(frame)

    def send_event(self, frame: bytes) -> None:
        self.connection.send_frame(frame)

    def guess_session(self, runtime_id: str | None) -> Session:
        """The named session, else the current one, else the only one that is live (gateway §8.4)."""
        if runtime_id is not None:
            return self.session(runtime_id)
        if self.current is not None:
            return self.session(self.current)
        live = self.server.registry.live()
        if len(live) == 1:
            return live[0]
        return self.session("")


def text_of(value: Any, name: str) -> str:
    """A parameter that must be text. Raises ``InvalidParams``."""
    if not isinstance(value, str):
        raise InvalidParams(f"{name} must be a string")
    return value
