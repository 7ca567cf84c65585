"""Runs a command of ours inside the test's own process: exit code, standard output, standard error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli import main

Run = Callable[..., tuple[int, str, str]]


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> Run:
    """``run("sessions", "list")`` with this home."""
    monkeypatch.setenv("HERMES_HOME", str(home))
    monkeypatch.setattr("hermes.cli.loading.set_up_logging", lambda *_, **__: None)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        out, err = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, out, err

    return run
