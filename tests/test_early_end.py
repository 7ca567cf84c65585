"""The echo of a signal is told from a second signal, and only where there is a launcher that makes echoes."""

from __future__ import annotations

import signal

from hermes.early_end import ECHO_SECONDS, Echoes


def test_the_same_signal_again_at_once_is_an_echo_in_a_one_file_build() -> None:
    echoes = Echoes(launched=True)
    assert [echoes.is_echo(signal.SIGINT, at) for at in (10.0, 10.0 + ECHO_SECONDS / 2)] == [False, True]


def test_one_signal_has_one_echo() -> None:
    echoes = Echoes(launched=True)
    assert [echoes.is_echo(signal.SIGINT, 10.0) for _ in range(4)] == [False, True, False, True]


def test_a_second_signal_of_a_person_is_no_echo() -> None:
    echoes = Echoes(launched=True)
    assert [echoes.is_echo(signal.SIGINT, at) for at in (10.0, 10.0 + 2 * ECHO_SECONDS)] == [False, False]


def test_another_signal_is_no_echo() -> None:
    echoes = Echoes(launched=True)
    assert [echoes.is_echo(number, 10.0) for number in (signal.SIGINT, signal.SIGTERM)] == [False, False]


def test_without_a_launcher_nothing_is_an_echo() -> None:
    echoes = Echoes()
    assert [echoes.is_echo(signal.SIGINT, 10.0) for _ in range(3)] == [False, False, False]
