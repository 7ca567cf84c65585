"""Session grants outlive the live session: what was allowed "for this session" holds when it is loaded again.

In memory only, so a new process asks again; by key, so no other session is touched. A session that is newly made never
finds grants of another that had its key.
"""

from __future__ import annotations

from collections import OrderedDict

MOST = 1000
"""Sessions; the one that ended first is forgotten first."""


class KeptGrants:
    def __init__(self) -> None:
        self._grants: OrderedDict[str, frozenset[str]] = OrderedDict()

    def keep(self, key: str, grants: set[str]) -> None:
        self.forget(key)
        if grants:
            self._grants[key] = frozenset(grants)
            if len(self._grants) > MOST:
                self._grants.popitem(last=False)

    def of(self, key: str) -> frozenset[str]:
        return self._grants.get(key, frozenset())

    def forget(self, key: str) -> None:
        self._grants.pop(key, None)
