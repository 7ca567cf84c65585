"""BrowserBroker: browsers that let the agent act in them, and the commands that are on their way (api-server §7).

A controller is one browser extension, attached through a connection. It serves one lane: one principal, one session,
one side of the network. A command goes to exactly one controller and its answer is final: there is no other browser to
fall back to. State changes are synchronous; a frame is handed to the connection in the same breath, so a cancel never
overtakes its command.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from hermes.nurseries.settlement import Settlement

TICKET_SECONDS = 30.0
COMMAND_SECONDS = 30.0
MAX_DEFERRED = 512
MAX_TICKETS = 256
MAX_CONTROLLERS = 256

Send = Callable[[str, Mapping[str, Any]], None]
"""``send(method, params)``: hand a frame to the controller's connection. Never waits, never raises."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Whose commands a controller takes."""

    principal_id: str
    profile_id: str
    session_id: str
    transport_family: str


@dataclass(frozen=True, slots=True)
class ControllerIdentity:
    lane: Lane
    controller_id: str
    browser_profile_id: str

    def scope(self, capabilities: frozenset[str]) -> dict[str, Any]:
        """As a controller is told it (api-server §7.3)."""
        return {
            "principal_id": self.lane.principal_id,
            "profile_id": self.lane.profile_id,
            "session_id": self.lane.session_id,
            "controller_id": self.controller_id,
            "browser_profile_id": self.browser_profile_id,
            "transport_family": self.lane.transport_family,
            "capabilities": sorted(capabilities),
        }


class BrowserFailure(Exception):
    """A command did not succeed. ``kind``: unavailable, cancelled, timeout, rejected."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(f"browser {kind}: {message}")


@dataclass(slots=True)
class Command:
    """A command on its way."""

    command_id: str
    action: str
    tool_call_id: str
    answer: Settlement[Mapping[str, Any] | BrowserFailure] = field(default_factory=Settlement)


class Controller:
    """One attached (or lately attached) browser."""

    def __init__(self, identity: ControllerIdentity) -> None:
        self.identity = identity
        self.capabilities: frozenset[str] = frozenset()
        self.send: Send | None = None
        self.pending: dict[str, Command] = {}
        self._deferred: deque[Mapping[str, Any]] = deque(maxlen=MAX_DEFERRED)

    @property
    def online(self) -> bool:
        return self.send is not None

    def connect(self, send: Send, capabilities: frozenset[str]) -> None:
        """A connection for it. Cancels that could not be told are told before it takes commands again."""
        self.capabilities = capabilities
        while self._deferred:
            send("browser.controller.cancel", self._deferred.popleft())
        self.send = send

    def tell_cancel(self, command: Command) -> None:
        params = {"command_id": command.command_id, "tool_call_id": command.tool_call_id}
        if self.send is not None:
            self.send("browser.controller.cancel", params)
        else:
            self._deferred.append(params)

    def fail_pending(self, why: str) -> None:
        """Nobody waits for its answers any more. A browser that is still connected is told: it must not go on acting
        for an action that has been reported as cancelled."""
        for command in list(self.pending.values()):
            command.answer.settle(BrowserFailure("cancelled", why))
            if self.send is not None:
                self.tell_cancel(command)
        self.pending.clear()


@dataclass(frozen=True, slots=True)
class Ticket:
    identity: ControllerIdentity
    capabilities: frozenset[str]
    expires_at: float


class BrowserBroker:
    """All controllers of the process. Everything is synchronous but ``dispatch``.

    Parameters: ``allows``, whether an action may be asked of a browser at this moment.
    """

    def __init__(self, allows: Callable[[str], bool] = lambda _action: True) -> None:
        self._allows = allows
        self._controllers: dict[Lane, Controller] = {}
        self._tickets: dict[str, Ticket] = {}

    # --- tickets ---

    def mint_ticket(self, identity: ControllerIdentity, capabilities: frozenset[str]) -> str:
        """A single-use ticket for one connection, good for ``TICKET_SECONDS``."""
        now = trio.current_time()
        for name in [name for name, ticket in self._tickets.items() if ticket.expires_at <= now]:
            del self._tickets[name]
        while len(self._tickets) >= MAX_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        name = secrets.token_urlsafe(32)
        self._tickets[name] = Ticket(identity, capabilities, now + TICKET_SECONDS)
        return name

    def redeem(self, name: str) -> Ticket | None:
        """The ticket, once; None if it is unknown, used or too old."""
        ticket = self._tickets.pop(name, None)
        return ticket if ticket is not None and ticket.expires_at > trio.current_time() else None

    # --- controllers ---

    def attach(self, identity: ControllerIdentity, capabilities: frozenset[str], send: Send) -> Controller:
        """The controller is connected. The same identity goes on with its pending commands; another one in the same
        lane is replaced, and what it was asked is cancelled."""
        known = self._controllers.get(identity.lane)
        if known is not None and known.identity != identity:
            known.fail_pending("another browser took over this conversation")
            known.send = None
            known = None
        if known is None:
            known = self._controllers[identity.lane] = Controller(identity)
            while len(self._controllers) > MAX_CONTROLLERS:
                oldest = next(iter(self._controllers))
                self._controllers.pop(oldest).fail_pending("too many browsers are registered")
        known.connect(send, capabilities)
        return known

    def owns(self, controller: Controller, send: Send) -> bool:
        """Whether this connection still speaks for the controller."""
        return controller.send is send and self._controllers.get(controller.identity.lane) is controller

    def lost(self, controller: Controller, send: Send) -> None:
        """The connection is gone; pending commands wait for a reconnect until their own deadline."""
        if controller.send is send:
            controller.send = None

    def detach(self, controller: Controller) -> None:
        """The controller gives the conversation up."""
        controller.send = None
        controller.fail_pending("the browser was detached")
        if self._controllers.get(controller.identity.lane) is controller:
            del self._controllers[controller.identity.lane]

    def answered(self, controller: Controller, command_id: object, answer: Mapping[str, Any] | BrowserFailure) -> bool:
        """A result. False for a command that is not pending any more."""
        command = controller.pending.pop(command_id, None) if isinstance(command_id, str) else None
        return command is not None and command.answer.settle(answer)

    def gave_up(self, controller: Controller, tool_call_id: object) -> None:
        """The controller cancels a command by its tool call."""
        for command in list(controller.pending.values()):
            if command.tool_call_id == tool_call_id:
                self.answered(controller, command.command_id, BrowserFailure("cancelled", "the browser gave up"))

    # --- commands ---

    def registered(self, lane: Lane) -> frozenset[str] | None:
        """The capabilities of the lane's controller, online or not; None if there never was one."""
        controller = self._controllers.get(lane)
        return None if controller is None else controller.capabilities

    async def dispatch(
        self,
        lane: Lane,
        action: str,
        arguments: Mapping[str, Any],
        tool_call_id: str,
        *,
        within: float = COMMAND_SECONDS,
    ) -> Mapping[str, Any]:
        """Have the lane's controller do it. Raises ``BrowserFailure``. When the wait is cancelled, the controller is
        told in the same breath."""
        controller = self._controllers.get(lane)
        if controller is None or controller.send is None:
            raise BrowserFailure("unavailable", "the browser of this conversation is not connected")
        if not self._allows(action):
            raise BrowserFailure("unavailable", f"{action} has been switched off")
        if action not in controller.capabilities:
            raise BrowserFailure("unavailable", f"the browser does not offer {action}")
        command = Command(secrets.token_hex(16), action, tool_call_id)
        controller.pending[command.command_id] = command
        controller.send(
            "browser.controller.command",
            {
                "command_id": command.command_id,
                "action": action,
                "arguments": dict(arguments),
                "controller_id": controller.identity.controller_id,
                "browser_profile_id": controller.identity.browser_profile_id,
                "tool_call_id": tool_call_id,
            },
        )
        try:
            with trio.move_on_after(within):
                await command.answer.wait()
        finally:
            if controller.pending.pop(command.command_id, None) is not None:
                controller.tell_cancel(command)
        answer = command.answer.value
        if answer is None:
            raise BrowserFailure("timeout", f"no answer within {within:g} s")
        if isinstance(answer, BrowserFailure):
            raise answer
        return answer
