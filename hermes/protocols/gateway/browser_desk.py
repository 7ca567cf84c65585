"""BrowserDesk: the browsers that one gateway connection controls (api-server §7.7).

The connection is authenticated already, so there is no ticket: a controller is registered for a session that this
connection watches, gets its commands as events of that session, and only this connection may answer them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from hermes.events import BrowserAsked
from hermes.nurseries.browser_broker import BrowserBroker, Controller, ControllerIdentity, Lane, Send
from hermes.nurseries.session import Session
from hermes.records import dataclass

FAMILY = "cloud-ticket-ws"
PROFILE = "default"
PROVIDER, USER = "server-key", "owner"
"""The one identity that the one key of this server stands for."""


def principal() -> str:
    digest = hashlib.sha256(f"{PROVIDER}\0{USER}".encode()).hexdigest()
    return f"principal:dashboard:{digest[:32]}"


def lane_of(session: Session) -> Lane:
    return Lane(principal(), PROFILE, session.key, FAMILY)


@dataclass(frozen=True, slots=True)
class Held:
    """One controller, and the very function that stands for this connection at the broker."""

    controller: Controller
    send: Send


class BrowserDesk:
    """Parameters: ``name``, the connection's. What its browsers are asked stands in the logs of their sessions."""

    def __init__(self, broker: BrowserBroker, name: str) -> None:
        self._broker = broker
        self._name = name
        self._held: dict[str, Held] = {}

    def register(self, session: Session, controller_id: str, browser_profile_id: str, able: frozenset[str]) -> None:
        def send(event: str, payload: Mapping[str, Any]) -> None:
            session.emit(BrowserAsked(event.rpartition(".")[2], payload, controller_id, self._name))

        identity = ControllerIdentity(lane_of(session), controller_id, browser_profile_id)
        self._held[session.runtime_id] = Held(self._broker.attach(identity, able, send), send)

    def controller(self, runtime_id: str) -> Controller | None:
        """The controller of this session, if it is still this connection's."""
        held = self._held.get(runtime_id)
        return held.controller if held is not None and self._broker.owns(held.controller, held.send) else None

    def wants(self, runtime_id: str, event: BrowserAsked) -> bool:
        """Whether this connection was asked, or has the controller now that was asked on a former one."""
        if event.asked == self._name:
            return True
        controller = self.controller(runtime_id)
        return controller is not None and controller.identity.controller_id == event.controller_id

    def detach(self, runtime_id: str) -> None:
        controller = self.controller(runtime_id)
        self._held.pop(runtime_id, None)
        if controller is not None:
            self._broker.detach(controller)

    def connection_lost(self) -> None:
        """Its controllers are offline; what they were asked waits for a reconnect until its own deadline."""
        for held in self._held.values():
            self._broker.lost(held.controller, held.send)
        self._held.clear()
