"""Settings that the documentation names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes.settings import every_setting

PAGES = [
    Path("README.md"),
    *(path for path in sorted(Path("docs").rglob("*.md")) if path.name != "configuration.md"),
]
AREAS = "approvals|compression|dashboard|database|display|host|limits|security|timeouts|tool_output"
NAMED = re.compile(rf"`((?:{AREAS})\.[a-z_.]+(?:\*)?)")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    keys = {field.key for field in every_setting()}
    named = {name.rstrip(".") for name in NAMED.findall(page.read_text(encoding="utf-8"))}
    missing = {name for name in named if name not in keys and not any(key.startswith(name.rstrip("*")) for key in keys)}
    assert missing == set()


def test_the_pages_name_some() -> None:
    assert sum(len(NAMED.findall(page.read_text(encoding="utf-8"))) for page in PAGES) > 20
