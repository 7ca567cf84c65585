"""Deltas that came with one read, as one: a fast model writes hundreds of chunks into a single packet.

Each delta costs an event, a frame and a wake-up of every reader; together they would also outrun the window in which a
reader finds them. Nothing is held back beyond the read it came with, so no delta is later than it would have been.
"""

from __future__ import annotations

from hermes.agent.ports import DeltaKind, DeltaSink


class DeltaRuns:
    """A ``DeltaSink`` before another one. ``flush`` at the end of each read."""

    def __init__(self, sink: DeltaSink) -> None:
        self._sink = sink
        self._kind = DeltaKind.TEXT
        self._pieces: list[str] = []

    def __call__(self, kind: DeltaKind, text: str) -> None:
        if kind is DeltaKind.TOOL_NAME:
            self.flush()
            self._sink(kind, text)
            return
        if kind is not self._kind:
            self.flush()
            self._kind = kind
        self._pieces.append(text)

    def flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces:
            self._sink(self._kind, pieces[0] if len(pieces) == 1 else "".join(pieces))
