"""What must always hold, whatever was cancelled and when: one helper for every sweep and every end-to-end case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hermes.events import (
    ClientRequestClosed,
    ClientRequestOpened,
    SessionEvent,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRefused,
    TurnStarted,
)
from hermes.messages import Row
from hermes.nurseries.event_log import LogEntry

TURN_EVENTS_AFTER_END = ("SessionInfoChanged", "SessionTitled", "SessionClosed", "BackgroundEnded", "ProcessEnded")


def assert_events_are_well_formed(events: Sequence[SessionEvent]) -> None:
    """One terminal event per turn and nothing of the turn behind it; every tool and question opened is closed once."""
    begun = [event.turn_id for event in events if isinstance(event, TurnStarted)]
    ended = [event.turn_id for event in events if isinstance(event, (TurnEnded, TurnRefused))]
    assert max(Counter(ended).values(), default=1) == 1, f"a turn ended twice: {ended}"
    assert set(begun) <= set(ended), f"a turn has not ended: {begun} {ended}"
    over: set[str] = set()
    for event in events:
        turn_id = getattr(event, "turn_id", None)
        if turn_id in over:
            raise AssertionError(f"{type(event).__name__} came after the end of its turn")
        if isinstance(event, (TurnEnded, TurnRefused)):
            over.add(event.turn_id)
    tools = Counter(event.call_id for event in events if isinstance(event, ToolStarted))
    done = Counter(event.call_id for event in events if isinstance(event, ToolEnded))
    assert tools == done, f"tool calls begun and ended differ: {tools} {done}"
    opened = Counter(event.request_id for event in events if isinstance(event, ClientRequestOpened))
    closed = Counter(event.request_id for event in events if isinstance(event, ClientRequestClosed))
    assert opened == closed, f"questions opened and closed differ: {opened} {closed}"
    assert max(opened.values(), default=1) == 1


def assert_history_is_whole(rows: Sequence[Row]) -> None:
    """The grammar of agent-core §1.3 (TL-5) for a history between turns."""
    open_calls: list[str] = []
    previous: Row | None = None
    for row in rows:
        if row.role == "tool":
            assert row.tool_call_id in open_calls, f"a result without its call: {row}"
            open_calls.remove(row.tool_call_id)
        else:
            assert not open_calls, f"calls without results before {row}: {open_calls}"
            if row.role == "assistant":
                assert previous is None or previous.role != "assistant", f"two assistant rows: {previous} {row}"
                open_calls = [call.id for call in row.tool_calls]
        previous = row
    assert not open_calls, f"calls without results at the end: {open_calls}"
    assert not rows or rows[-1].role == "assistant", f"the last turn has no closing row: {rows[-1]}"


def assert_replay_equals_live(
    live: Sequence[LogEntry[SessionEvent]], retained: Sequence[LogEntry[SessionEvent]]
) -> None:
    """Numbers without a gap, and the same entries whether read live or afterwards."""
    numbers = [entry.seq for entry in live]
    assert numbers == list(range(1, len(numbers) + 1)), f"a gap or a duplicate: {numbers}"
    assert [entry.seq for entry in retained] == numbers[len(numbers) - len(retained) :]
    assert [entry.event for entry in retained] == [entry.event for entry in live][len(numbers) - len(retained) :]
