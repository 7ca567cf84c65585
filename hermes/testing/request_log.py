"""What the fake provider remembers of each model request, and the waits on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import trio

KEPT_HEADERS = frozenset(
    {"accept", "anthropic-beta", "anthropic-version", "authorization", "content-type", "user-agent", "x-api-key"}
)
SECRET_HEADERS = frozenset({"authorization", "x-api-key"})

ClosedBy = Literal["server", "client"]


@dataclass(slots=True)
class RequestRecord:
    """One model request. Times are those of the Trio clock; `closed_at` is when the answer ended, on either side.

    `answered` is set before the last piece is written: a client may hang up as soon as it has that piece, and this must
    not look like one that left in the middle."""

    id: int
    path: str
    opened_at: float
    body: Any
    headers: Mapping[str, str]
    first_byte_at: float | None = None
    closed_at: float | None = None
    closed_by: ClosedBy | None = None
    status: int | None = None
    chunks_sent: int = 0
    answered: bool = False

    def to_json(self) -> dict[str, Any]:
        """For readers in another process; keys are not told."""
        shown = {name: "***" if name in SECRET_HEADERS else value for name, value in self.headers.items()}
        return asdict(self) | {"headers": shown}


class RequestLog:
    """All model requests in order of arrival. Grows until the provider is thrown away."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self._changed = trio.Event()

    @property
    def open_count(self) -> int:
        return sum(record.closed_at is None for record in self.records)

    def open(self, path: str, body: Any, headers: Mapping[str, str]) -> RequestRecord:
        kept = {name: value for name, value in headers.items() if name in KEPT_HEADERS}
        record = RequestRecord(len(self.records) + 1, path, trio.current_time(), body, kept)
        self.records.append(record)
        self._wake()
        return record

    def first_byte(self, record: RequestRecord, status: int) -> None:
        record.first_byte_at = trio.current_time()
        record.status = status
        self._wake()

    def chunk_sent(self, record: RequestRecord) -> None:
        record.chunks_sent += 1
        self._wake()

    def close(self, record: RequestRecord, by: ClosedBy) -> None:
        """The first caller decides who ended it; what was fully answered, the server ended."""
        if record.closed_at is None:
            record.closed_at, record.closed_by = trio.current_time(), "server" if record.answered else by
            self._wake()

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
