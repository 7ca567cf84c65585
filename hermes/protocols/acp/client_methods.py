"""The client's own file system and terminals, as capabilities of its sessions (``session.client_tools``).

A tool asks for one by the method's name and gets None where the client has none, answers with an error, or does not
answer in time: then the tool does the work itself. A client that is silent never holds a turn up.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from hermes.nurseries.session import Session
from hermes.nurseries.settlement import Settlement
from hermes.protocols.acp.schemas import ClientCapabilities
from hermes.protocols.rpc.dispatcher import RpcConnection
from hermes.protocols.wire.peer import Reply

logger = logging.getLogger(__name__)

FILE_WITHIN: Final = 5.0
TERMINAL_WITHIN: Final = 10.0

# Method → (the capability that offers it, seconds it may take; None: as long as the call that asks lives).
METHODS: Final[Mapping[str, tuple[Callable[[ClientCapabilities], bool], float | None]]] = {
    "fs/read_text_file": (lambda client: client.read_text_file, FILE_WITHIN),
    "fs/write_text_file": (lambda client: client.write_text_file, FILE_WITHIN),
    "terminal/create": (lambda client: client.terminal, TERMINAL_WITHIN),
    "terminal/output": (lambda client: client.terminal, TERMINAL_WITHIN),
    "terminal/wait_for_exit": (lambda client: client.terminal, None),
    "terminal/kill": (lambda client: client.terminal, TERMINAL_WITHIN),
    "terminal/release": (lambda client: client.terminal, TERMINAL_WITHIN),
}

CLEAN_UP: Final = ("terminal/kill", "terminal/release")
"""Not taken back when nobody waits for the answer any more: the terminal shall go."""

AFTER_ITS_CALL: Final = ("fs/read_text_file", "fs/write_text_file", "terminal/create")
"""Sent when the client knows of the call that they serve."""

Ask = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]


def offer_client_tools(
    session: Session,
    connection: RpcConnection[Any],
    client: ClientCapabilities,
    wait_told: Callable[[], Awaitable[None]],
) -> None:
    """Give the session what the client announced, and nothing else.

    ``wait_told``: waits until the client was sent all that has happened in the session so far."""
    for method, (offered, within) in METHODS.items():
        session.client_tools.pop(method, None)
        if offered(client):
            session.client_tools[method] = _asker(session, connection, method, within, wait_told)


def _asker(
    session: Session,
    connection: RpcConnection[Any],
    method: str,
    within: float | None,
    wait_told: Callable[[], Awaitable[None]],
) -> Ask:
    async def ask(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        request_id = session.services.ids("client")
        answer: Settlement[Reply] = Settlement()
        whole = {"sessionId": session.key, **params}
        if method in AFTER_ITS_CALL:
            # A client that does not read is one that does not answer: its deadline is met below.
            with trio.move_on_after(FILE_WITHIN):
                await wait_told()
        if not connection.ask(request_id, method, whole, lambda reply: _settle(answer, reply)):
            return None
        silent = False
        try:
            silent = not await answer.wait_at_most(float("inf") if within is None else within)
        finally:
            if not answer.settled:
                connection.withdraw(request_id)
                if method not in CLEAN_UP:
                    connection.notify("$/cancel_request", {"requestId": request_id})
        if silent:
            # Once is enough: every further call would cost the turn the same wait.
            logger.warning("the client did not answer %s in time and is not asked again", method)
            session.client_tools.pop(method, None)
            if method.startswith("terminal/"):
                # A command whose output or end is not told is better run here.
                session.client_tools.pop("terminal/create", None)
        return _result(method, answer.value)

    return ask


def _settle(answer: Settlement[Reply], reply: Reply) -> None:
    answer.settle(reply)


def _result(method: str, reply: Reply | None) -> Mapping[str, Any] | None:
    if reply is None:
        return None
    if reply.error is not None:
        logger.info("the client refused %s: %s", method, reply.error.message)
        return None
    if reply.result is None:
        return {}
    if not isinstance(reply.result, Mapping):
        logger.warning("the client answered %s with something else than an object", method)
        return None
    return reply.result
