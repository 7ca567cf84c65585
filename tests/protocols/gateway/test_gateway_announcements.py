"""What everybody is told: every client gets it, in its place among the client's own frames, and it is encoded once."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from hermes.events import SkinChanged
from hermes.protocols.gateway import announcements
from tests.support.core import make_services, running_tree
from tests.support.gateway_host import connected, gateway_server


async def test_everybody_hears_and_it_is_encoded_once(autojump_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []
    real = announcements.event_frame

    def counting(wire: Any, session_id: Any) -> bytes:
        encoded.append(wire)
        return real(wire, session_id)

    monkeypatch.setattr(announcements, "event_frame", counting)
    services, _ = make_services()
    async with running_tree(services) as tree, AsyncExitStack() as stack:
        server = gateway_server(tree)
        hosts = [
            await stack.enter_async_context(connected(tree, websocket=True, name=f"c{number}", server=server))
            for number in range(20)
        ]
        for number in range(3):
            services.announce.append(SkinChanged({"name": f"skin {number}"}))
            # Together and one by one.
            if number:
                await trio.sleep(1)
        await trio.sleep(1)
        for host in hosts:
            told = [one["params"]["payload"]["name"] for one in host.frames if one["params"]["type"] == "skin.changed"]
            assert told == ["skin 0", "skin 1", "skin 2"]
        assert len(encoded) == 3
