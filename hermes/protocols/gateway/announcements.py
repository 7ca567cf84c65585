"""What everybody is told: one frame, made once, written to each client by its own task.

A thousand clients that each encoded it, queued it and woke a writer took 200 ms, and every stop in the middle of that
waited; this way they take a tenth of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hermes.events import ServerEvent
from hermes.nurseries.event_log import Lagged, LogClosed, LogEntry
from hermes.protocols.channels.message_channel import Frames
from hermes.protocols.gateway.events import event_frame, translate_server

if TYPE_CHECKING:
    from hermes.protocols.gateway.client import GatewayClient


KEPT: Final = 16
"""Clients are that far apart at most, or each makes its own."""


class Announcements:
    """The newest ones, as all clients of one server get them."""

    def __init__(self) -> None:
        self._made: dict[int, Frames | None] = {}

    def of(self, entry: LogEntry[ServerEvent]) -> Frames | None:
        """None where hosts are told nothing."""
        if entry.seq not in self._made:
            wire = translate_server(entry.event)
            self._made[entry.seq] = None if wire is None else Frames([event_frame(wire, "")])
            if len(self._made) > KEPT:
                del self._made[next(iter(self._made))]
        return self._made[entry.seq]


async def announce(client: GatewayClient) -> None:
    """Pass events for everybody on, until the client or the server is gone."""
    subscription = client.server.services.announce.subscribe()
    try:
        while True:
            for entry in await subscription.next():
                frames = client.server.announcements.of(entry)
                if frames is not None:
                    client.connection.send_together(frames)
            if not await client.connection.wait_room():
                return
    except LogClosed:
        return
    except Lagged:
        client.connection.close(1011, "too much is waiting to be read")
    finally:
        subscription.close()
