"""The liveness watchdog: a turn that shows nothing for too long is marked as stalled and told about (TL-4).

It ends nothing: whoever watches decides. Waiting for a human is no stall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from hermes.events import StatusUpdate
from hermes.outcomes import TurnPhase

if TYPE_CHECKING:
    from hermes.nurseries.turn import Turn


async def watch_turn(turn: Turn, since: float) -> None:
    """Run beside a turn that took its lease at ``since``: keeps the lease, and watches.

    One task sleeps until either is due first: most turns have ended by then, and tasks are what a short one is made of.
    """
    ttl, timeout = turn.settings.limits.lease_ttl, turn.settings.agent.turn_liveness.timeout_s
    await trio.sleep_until(since + (min(ttl / 3, timeout) if timeout > 0 else ttl / 3))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.session.keep_lease, turn, since, name="turn lease")
        nursery.start_soon(watch_liveness, turn, name="liveness")


async def watch_liveness(turn: Turn) -> None:
    """Run beside the turn; a turn that is silent for another span is told about again."""
    timeout = turn.settings.agent.turn_liveness.timeout_s
    if timeout <= 0:
        return
    while True:
        silent_since = turn.last_event_at
        await trio.sleep_until(silent_since + timeout)
        if turn.last_event_at != silent_since:
            turn.stalled = False
        elif turn.phase is TurnPhase.WAITING_FOR_CLIENT:
            turn.last_event_at = trio.current_time()
        else:
            turn.emit(StatusUpdate(turn.turn_id, "stalled", f"nothing has happened for {timeout:g} s"))
            turn.stalled = True
