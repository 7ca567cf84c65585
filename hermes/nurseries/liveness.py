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
