"""Deltas of one read become one, in order; a tool's name and a change of kind stand between."""

from __future__ import annotations

from hermes.agent.ports import DeltaKind
from hermes.agent.providers.delta_runs import DeltaRuns

TEXT, REASONING, NAME = DeltaKind.TEXT, DeltaKind.REASONING, DeltaKind.TOOL_NAME


def test_what_comes_before_a_flush_is_joined_and_what_comes_after_is_not() -> None:
    got: list[tuple[DeltaKind, str]] = []
    runs = DeltaRuns(lambda kind, text: got.append((kind, text)))
    for piece in ("a", "b", "c"):
        runs(TEXT, piece)
    assert got == []
    runs.flush()
    runs(TEXT, "d")
    runs.flush()
    runs.flush()
    assert got == [(TEXT, "abc"), (TEXT, "d")]


def test_the_order_of_kinds_is_kept() -> None:
    got: list[tuple[DeltaKind, str]] = []
    runs = DeltaRuns(lambda kind, text: got.append((kind, text)))
    for kind, piece in ((REASONING, "r"), (REASONING, "s"), (TEXT, "a"), (NAME, "tool"), (TEXT, "b"), (REASONING, "t")):
        runs(kind, piece)
    runs.flush()
    assert got == [(REASONING, "rs"), (TEXT, "a"), (NAME, "tool"), (TEXT, "b"), (REASONING, "t")]
