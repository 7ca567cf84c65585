"""A store that knows leases only: until when each is ours, who has taken one away, and how they were renewed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import trio

from hermes.agent.ports import LeaseOwner, TranscriptStore
from hermes.errors import StoreUnavailable
from hermes.nurseries.turn_lease import Held, Leases

OWNER = LeaseOwner("host", 1, 1, "nonce")
TTL = 30.0


class Ledger:
    """What the store knows: until when each lease is ours."""

    def __init__(self, delay: float = 0.0) -> None:
        self.until: dict[str, float] = {}
        self.taken: set[str] = set()
        self.writes: list[int] = []
        self.is_full = False
        self.delay = delay

    async def refresh_leases(self, keys: Sequence[str], owner: LeaseOwner, *, ttl: float) -> frozenset[str]:
        await trio.sleep(self.delay)
        self.writes.append(len(keys))
        if self.is_full:
            raise StoreUnavailable("the disk is full", cause="full")
        ours = (frozenset(keys) - self.taken) & self.until.keys()
        for key in ours:
            assert trio.current_time() <= self.until[key], f"{key} had expired"
            self.until[key] = trio.current_time() + ttl
        return ours

    async def run(self, leases: Leases) -> None:
        await leases.run(cast(TranscriptStore, self), OWNER)

    async def hold(self, leases: Leases, key: str, lost: list[str] | None = None, ttl: float = TTL) -> None:
        self.until[key] = trio.current_time() + ttl
        await leases.wait_lost(Held(key, ttl, trio.current_time()))
        assert lost is not None, f"{key} was lost"
        lost.append(key)
