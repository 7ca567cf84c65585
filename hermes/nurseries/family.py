"""Who must know that a child session was born: so that it can be found by its key while it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hermes.nurseries.session import Session


class Family(Protocol):
    """Implemented by the registry. Synchronous; must not raise."""

    def child_born(self, child: Session) -> None: ...

    def child_gone(self, child: Session) -> None: ...


class NoFamily:
    """For a session that nobody has registered."""

    def child_born(self, child: Session) -> None:
        return

    def child_gone(self, child: Session) -> None:
        return
