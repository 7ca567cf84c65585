"""Who may open a WebSocket: credential first, then host, origin and peer (gateway §1.3.2, §1.3.3).

Pure decisions over what the handshake says; the tickets are the only state. A refusal is a close code, so that clients
can tell a wrong key from a wrong page.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from typing import Final, Protocol
from urllib.parse import urlsplit

import trio

from hermes.protocols.channels.websocket import CLOSE_FORBIDDEN, CLOSE_UNAUTHENTICATED
from hermes.records import dataclass

PUBLIC_SUBPROTOCOL: Final = "hermes-gateway-v1"
TICKET_PREFIX: Final = "hermes-gateway-ticket."
TICKET_SECONDS: Final = 30.0
MAX_TICKETS: Final = 1024
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})


class Handshake(Protocol):
    """What is known of a client before it is let in."""

    @property
    def peer(self) -> str: ...

    @property
    def query(self) -> Mapping[str, str]: ...

    @property
    def subprotocols(self) -> tuple[str, ...]: ...

    def header(self, name: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class AdmissionConfig:
    """``key`` is the server's one secret; ``host`` the bound address; ``trusted_hosts`` further names of the server,
    with or without a port; ``enabled`` False closes the endpoint."""

    key: str
    host: str = "127.0.0.1"
    trusted_hosts: tuple[str, ...] = ()
    enabled: bool = True

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


class Tickets:
    """Single-use passes for browsers, which cannot set headers on a WebSocket. Valid for 30 seconds (§1.3.2)."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def mint(self) -> str:
        self._forget_old()
        while len(self._until) >= MAX_TICKETS:
            del self._until[next(iter(self._until))]
        ticket = secrets.token_urlsafe(32)
        self._until[ticket] = trio.current_time() + TICKET_SECONDS
        return ticket

    def redeem(self, ticket: str) -> bool:
        """True once for a valid ticket; a ticket is gone after its first use, valid or not."""
        until = self._until.pop(ticket, None)
        return until is not None and trio.current_time() <= until

    def _forget_old(self) -> None:
        now = trio.current_time()
        for ticket in [ticket for ticket, until in self._until.items() if until < now]:
            del self._until[ticket]


@dataclass(frozen=True, slots=True)
class Admitted:
    """``subprotocol`` is what the server echoes, if the client offered it."""

    subprotocol: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    code: int
    reason: str


def admit(request: Handshake, config: AdmissionConfig, tickets: Tickets) -> Admitted | Refused:
    """Let a client in or say why not. A ticket that was shown is used up, whatever the answer."""
    has_credential = _has_credential(request, config, tickets)
    if not has_credential:
        return Refused(CLOSE_UNAUTHENTICATED, "a valid token or ticket is required")
    if not config.enabled:
        return Refused(CLOSE_FORBIDDEN, "this endpoint is disabled")
    if not host_allowed(request.header("host"), config):
        return Refused(CLOSE_FORBIDDEN, "this host name is not served here")
    if not origin_allowed(request.header("origin"), request.header("host"), config):
        return Refused(CLOSE_FORBIDDEN, "this origin is not allowed")
    if config.is_loopback and not is_loopback(request.peer):
        return Refused(CLOSE_FORBIDDEN, "only local clients may connect")
    offered = PUBLIC_SUBPROTOCOL if PUBLIC_SUBPROTOCOL in request.subprotocols else None
    return Admitted(offered)


def _has_credential(request: Handshake, config: AdmissionConfig, tickets: Tickets) -> bool:
    carried = [name.removeprefix(TICKET_PREFIX) for name in request.subprotocols if name.startswith(TICKET_PREFIX)]
    if len(carried) > 1 or (carried and PUBLIC_SUBPROTOCOL not in request.subprotocols):
        return False
    ticket = carried[0] if carried else request.query.get("ticket")
    if ticket is not None:
        return tickets.redeem(ticket)
    token = request.query.get("token") or request.header("x-hermes-session-token") or _bearer(request)
    return bool(token) and hmac.compare_digest(token.encode(), config.key.encode())


def _bearer(request: Handshake) -> str:
    scheme, _, value = (request.header("authorization") or "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def host_allowed(host: str | None, config: AdmissionConfig) -> bool:
    """The ``Host`` header names the bound address or a trusted name: a page that rebinds its DNS name does not."""
    if host is None:
        return False
    name = host_name(host)
    if host.lower() in config.trusted_hosts or name in config.trusted_hosts:
        return True
    if config.is_loopback:
        return name in LOOPBACK_NAMES
    return name == config.host.lower() or (config.host in ("0.0.0.0", "::") and _is_address(name))


def origin_allowed(origin: str | None, host: str | None, config: AdmissionConfig) -> bool:
    """No origin and origins of other schemes (files, apps) may; a web page must come from this very server."""
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https"):
        return True
    own = parts.netloc.lower()
    if own in config.trusted_hosts or host_name(own) in config.trusted_hosts:
        return True
    return host is not None and own == host.lower() and host_allowed(host, config)


def host_name(host: str) -> str:
    """The name without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(address: str) -> bool:
    if address.lower() in LOOPBACK_NAMES:
        return True
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
