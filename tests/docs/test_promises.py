"""The page of what a stop guarantees names tests that exist, and at least one for each promise."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path("docs/explanation/what-stop-guarantees.md")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.M)


def promises() -> dict[str, list[str]]:
    """The tests that each section names."""
    sections = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    return {title: re.findall(r"`(test_\w+)`", text) for title, text in zip(sections[::2], sections[1::2], strict=True)}


def test_every_promise_is_proved_by_a_test_that_exists() -> None:
    existing = {
        name for path in Path("tests").rglob("test_*.py") for name in DEFINED.findall(path.read_text(encoding="utf-8"))
    }
    assert [title for title, named in promises().items() if not named] == []
    assert [name for named in promises().values() for name in named if name not in existing] == []
    assert len(promises()) >= 8
