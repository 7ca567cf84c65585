"""How long a client waits and how long a turn may take are two things; its end says which of them it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.messages import Prompt, TurnLimits
from hermes.outcomes import CancelReason, Cause, TurnPhase
from tests.support.core import hang, make_services, running_tree, say
from tests.support.gateway_host import connected


@pytest.mark.fault("B-165")
async def test_a_client_that_gives_up_waiting_ends_nothing_and_the_deadline_of_the_server_ends_the_turn(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, model = make_services(hang(), say("next"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("one", limits=TurnLimits(deadline_s=10))).wait_turn()
        assert turn is not None
        began = trio.current_time()
        with trio.move_on_after(3) as patience:
            await turn.wait_ended()
        assert patience.cancelled_caught and trio.current_time() == began + 3
        assert turn.phase is not TurnPhase.ENDED and model.open == 1
        # Who asks again meanwhile is told that the first one lives.
        again = session.submit_nowait(Prompt("one, again"))
        assert again.status == "queued"
        record = await turn.wait_ended()
        assert trio.current_time() == pytest.approx(began + 10, abs=1)
        assert (record.run_status, record.cause) == ("cancelled", Cause.DEADLINE)
        second = await again.wait_turn()
        assert second is not None and (await second.wait_ended()).run_status == "completed"


@pytest.mark.fault("B-165")
@pytest.mark.parametrize(
    ("deadline", "gone_after", "cause"),
    [(10, None, "deadline"), (10, 3, "client_disconnect"), (3, 10, "deadline"), (None, 3, "client_disconnect")],
)
async def test_the_end_of_a_turn_names_the_limit_that_was_reached_first(
    deadline: float | None, gone_after: float | None, cause: str, autojump_clock: trio.abc.Clock
) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        limits: dict[str, Any] = {} if deadline is None else {"deadline_s": deadline}
        await host.call("prompt.submit", session_id=session_id, text="go", **limits)
        await host.event("message.start")
        (session,) = tree.registry.live()
        turn = session.slot.turn
        assert turn is not None
        if gone_after is not None:
            # What a route does whose client takes the turn along when it goes.
            with trio.move_on_after(gone_after):
                await turn.wait_ended()
            turn.cancel(CancelReason(Cause.CLIENT_DISCONNECT))
        end = (await host.event("message.complete"))["payload"]
        assert (end["status"], end["cause"]) == ("interrupted", cause)
        assert trio.current_time() == pytest.approx(min(deadline or 99, gone_after or 99), abs=1)


@pytest.mark.fault("B-165")
def test_a_deadline_and_a_disconnect_policy_are_documented_as_two_settings() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in Path("docs").rglob("*.md"))
    assert "deadline_s" in pages and "X-Hermes-On-Disconnect" in pages and "on_disconnect" in pages
