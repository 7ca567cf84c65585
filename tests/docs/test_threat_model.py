"""The threat model names tests that exist, and for each of the actors what defends against it."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path("docs/explanation/threat-model.md")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.M)
ACTORS = ("without the key", "browser", "with the key", "repository", "model", "MCP", "Other users", "provider")
WITHOUT_TESTS = {"What is protected", "Whom it trusts"}


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_actor_has_a_section_and_every_defence_a_test_that_exists() -> None:
    existing = {
        name for path in Path("tests").rglob("test_*.py") for name in DEFINED.findall(path.read_text(encoding="utf-8"))
    }
    found = sections()
    assert [actor for actor in ACTORS if not any(actor in title for title in found)] == []
    assert [title for title, text in found.items() if title not in WITHOUT_TESTS and "`test_" not in text] == []
    named = re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert sorted(set(named) - existing) == []
    assert len(named) >= 40


def test_who_can_do_what_and_what_is_left_out_is_said_of_every_actor() -> None:
    silent = [
        title
        for title, text in sections().items()
        if title not in WITHOUT_TESTS and title != "The provider" and "**Out of scope:" not in text
    ]
    assert silent == []
