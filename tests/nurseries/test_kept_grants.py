"""Grants of sessions that have ended."""

from __future__ import annotations

from hermes.nurseries.kept_grants import MOST, KeptGrants


def test_grants_are_kept_by_session_and_the_oldest_go_first() -> None:
    kept = KeptGrants()
    kept.keep("first", {"rm"})
    kept.keep("empty", set())
    for number in range(MOST):
        kept.keep(f"s{number}", {"sudo"})
    assert kept.of("first") == frozenset()
    assert kept.of("empty") == frozenset()
    assert kept.of("s0") == {"sudo"}
    kept.forget("s0")
    assert kept.of("s0") == frozenset()


def test_what_a_session_no_longer_grants_is_not_kept() -> None:
    kept = KeptGrants()
    kept.keep("s", {"rm"})
    kept.keep("s", set())
    assert kept.of("s") == frozenset()
