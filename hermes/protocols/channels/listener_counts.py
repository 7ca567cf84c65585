"""What a listener counts, for whoever watches the server."""

from __future__ import annotations

from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class ListenerCounts:
    """``connections`` are being served now; so many more were ``turned_away`` because there were too many, and so many
    were ``cut_off`` because they did not read."""

    connections: int = 0
    turned_away: int = 0
    cut_off: int = 0
