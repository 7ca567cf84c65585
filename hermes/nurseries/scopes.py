"""ReasonScope: a cancel scope with a name, a parent and a typed reason; together they are the live tree.

A node exists from its creation until its ``with`` block has been left. The first reason wins. ``scope.reason`` is its
own reason or that of the nearest cancelled ancestor: so a turn that a shutdown cancelled knows why. The reason is also
given to Trio, where it reads well in tracebacks; no logic depends on that text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol

import trio

from hermes.errors import NodeNotFound
from hermes.outcomes import CancelReason, Cause


class NodeObserver(Protocol):
    """Told of every node when it appears and when it is over. Neither method may wait or raise."""

    def started(self, node: ReasonScope) -> None: ...

    def ended(self, node: ReasonScope, outcome: str, reason: CancelReason | None) -> None:
        """``outcome``: completed, failed, cancelled, dropped (it never ran), or a word of the node's own kind;
        ``reason``: why, where it did not run to its end."""


class LiveTree:
    """All nodes by id, and a counter that moves with every change, so that a watcher knows when to look again."""

    def __init__(self) -> None:
        self.observers: list[NodeObserver] = []
        self._nodes: dict[str, ReasonScope] = {}
        self._last_id = 0
        self._version = 0
        self._watchers = trio.lowlevel.ParkingLot()

    @property
    def version(self) -> int:
        return self._version

    def get(self, node_id: str) -> ReasonScope:
        """The node of this id; raises ``NodeNotFound``."""
        node = self._nodes.get(node_id)
        if node is None:
            raise NodeNotFound
        return node

    def __len__(self) -> int:
        return len(self._nodes)

    async def changed(self, since: int) -> int:
        """Wait until the version is past ``since``; returns the version."""
        if self._version > since:
            await trio.lowlevel.checkpoint()
        while self._version <= since:
            await self._watchers.park()
        return self._version

    def new_id(self) -> str:
        self._last_id += 1
        return f"n{self._last_id}"

    def added(self, node: ReasonScope) -> None:
        self._nodes[node.node_id] = node
        self.touched()
        for observer in self.observers:
            observer.started(node)

    def removed(self, node: ReasonScope) -> None:
        self._nodes.pop(node.node_id, None)
        self.touched()

    def ended(self, node: ReasonScope, outcome: str, reason: CancelReason | None) -> None:
        for observer in self.observers:
            observer.ended(node, outcome, reason)

    def touched(self) -> None:
        self._version += 1
        if self._watchers:
            self._watchers.unpark_all()


class ReasonScope:
    """A node of the live tree.

    Parameters: ``kind`` (server, session, turn, model_call, tool_call, question, process, background …), ``name`` for
    people, ``parent``, ``deadline`` in Trio's clock. ``details`` are redacted facts shown with the node; ``phase`` and
    ``pids`` are asked when the tree is printed.

    ``on_cancel``, when given, is called synchronously instead of cancelling the scope at once: a node with work to do
    before its end (a turn: phase, questions) routes every cancel through one door.

    ``limit``: when the work of the node will end itself (a command's timeout, a question's), shown as its deadline.

    ``outcome``, when set inside the block, is the word for its end that observers are told; ``told_by_owner``: the
    owner calls ``tell_end`` itself, because how the node has ended is settled only after its block.

    ``seen_from_below``, when given, says what a reason from above is called below this node: a delegated agent is
    stopped by its parent, whoever stopped that one.
    """

    __slots__ = (
        "_own_reason",
        "_scope",
        "children",
        "deadline",
        "details",
        "entered",
        "kind",
        "limit",
        "name",
        "node_id",
        "on_cancel",
        "outcome",
        "parent",
        "phase",
        "pids",
        "seen_from_below",
        "started_at",
        "told_by_owner",
        "tree",
    )

    def __init__(
        self,
        kind: str,
        name: str,
        parent: ReasonScope | None,
        *,
        tree: LiveTree | None = None,
        deadline: float = float("inf"),
        details: Mapping[str, Any] | None = None,
        phase: Callable[[], str] | None = None,
        pids: Callable[[], list[int]] | None = None,
    ) -> None:
        if tree is None:
            if parent is None:
                raise ValueError("a root scope needs its tree")
            tree = parent.tree
        self.kind = kind
        self.name = name
        self.parent = parent
        self.tree: LiveTree = tree
        self.node_id = tree.new_id()
        self.children: dict[str, ReasonScope] = {}
        self.details = details
        self.phase = phase
        self.pids = pids
        self.deadline = deadline
        self.limit = float("inf")
        self.started_at = trio.current_time()
        self.on_cancel: Callable[[CancelReason], bool] | None = None
        self.seen_from_below: Callable[[CancelReason], CancelReason] | None = None
        self.entered = False
        self.outcome = ""
        self.told_by_owner = False
        self._own_reason: CancelReason | None = None
        self._scope = trio.CancelScope(deadline=deadline)
        if parent is not None:
            parent.children[self.node_id] = self
        tree.added(self)

    @property
    def own_reason(self) -> CancelReason | None:
        return self._own_reason

    @property
    def reason(self) -> CancelReason | None:
        """Why this node is cancelled: its own reason, or the nearest cancelled ancestor's."""
        node: ReasonScope | None = self
        boundaries: list[Callable[[CancelReason], CancelReason]] = []
        while node is not None:
            reason = node._known_reason()
            if reason is not None:
                for rename in reversed(boundaries):
                    reason = rename(reason)
                return reason
            if node.seen_from_below is not None:
                boundaries.append(node.seen_from_below)
            node = node.parent
        return None

    def _known_reason(self) -> CancelReason | None:
        # Few nodes have a deadline, and every event asks: the clock is read for those only.
        if self._own_reason is not None or self.deadline == float("inf"):
            return self._own_reason
        passed = self.deadline <= trio.current_time() and self._scope.cancel_called
        return CancelReason(Cause.DEADLINE) if passed else None

    @property
    def cancelled(self) -> bool:
        return self._own_reason is not None or self._scope.cancel_called

    @property
    def caught(self) -> bool:
        """After the ``with`` block: this scope's own cancellation ended it (never an ancestor's)."""
        return self._scope.cancelled_caught

    def request_cancel(self, reason: CancelReason) -> bool:
        """Cancel through the node's own door, if it has one. True if this call was the one that stopped it."""
        if self.on_cancel is not None:
            return self.on_cancel(reason)
        return self.cancel(reason)

    def cancel_children(self, reason: CancelReason) -> bool:
        """For the door of a place that goes on: what is in it is stopped. True if this call has stopped something."""
        stopped = [child.request_cancel(reason) for child in list(self.children.values())]
        return any(stopped)

    def cancel(self, reason: CancelReason) -> bool:
        """Cancel everything below. True for the first reason only; later calls change nothing."""
        if self._own_reason is not None:
            return False
        self._own_reason = reason
        self._scope.cancel(reason=str(reason))
        self.tree.touched()
        return True

    def set_deadline(self, at: float) -> None:
        """In Trio's clock; for work that first had to wait for its turn, and for time that does not count."""
        self.deadline = at
        self._scope.deadline = at

    def close(self) -> None:
        """Take the node out of the tree. For nodes that never ran; a ``with`` block does it by itself."""
        self._leave_tree()
        self.tree.ended(self, "dropped", self.reason)

    def _leave_tree(self) -> None:
        if self.parent is not None:
            self.parent.children.pop(self.node_id, None)
        self.tree.removed(self)

    def tell_end(self, outcome: str, reason: CancelReason | None) -> None:
        """What the owner of a ``told_by_owner`` node says in the end, once."""
        self.tree.ended(self, outcome, reason)

    def __enter__(self) -> ReasonScope:
        self.entered = True
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            swallowed = self._scope.__exit__(kind, error, traceback)
            if self._scope.cancelled_caught and self._own_reason is None:
                # Nobody called cancel(): only the deadline can have done it.
                self._own_reason = CancelReason(Cause.DEADLINE)
            return swallowed
        finally:
            self._leave_tree()
            if not self.told_by_owner:
                self._tell_observed_end(error)

    def _tell_observed_end(self, error: BaseException | None) -> None:
        if not self.tree.observers:
            return
        reason = self.reason if self.caught or error is not None else None
        if reason is not None:
            self.tree.ended(self, "cancelled", reason)
        elif error is None:
            self.tree.ended(self, self.outcome or "completed", None)
        else:
            self.tree.ended(self, "cancelled" if _is_cancellation(error) else "failed", None)

    def walk(self) -> Iterator[ReasonScope]:
        """This node and everything below it, parents first."""
        yield self
        for child in list(self.children.values()):
            yield from child.walk()

    def snapshot(self) -> dict[str, Any]:
        """This node and everything below it as JSON data."""
        now = trio.current_time()
        reason = self.reason if self.cancelled else None
        node: dict[str, Any] = {
            "node_id": self.node_id,
            "kind": self.kind,
            "name": self.name,
            "state": self._state(),
            "age_s": round(now - self.started_at, 3),
        }
        if reason is not None:
            node["cause"], node["reason"] = reason.cause.value, reason.text
        deadline = min(self.deadline, self.limit)
        if deadline != float("inf"):
            node["deadline_in_s"] = round(deadline - now, 3)
        if self.details:
            node["details"] = dict(self.details)
        if self.pids is not None:
            node["pids"] = self.pids()
        node["children"] = [child.snapshot() for child in list(self.children.values())]
        return node

    def _state(self) -> str:
        if self.cancelled:
            return "stopping"
        if self.phase is not None:
            return self.phase()
        return "running" if self.entered else "starting"


def _is_cancellation(error: BaseException) -> bool:
    """True for a cancellation by a scope that is no node."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)
