"""The reference page and the served methods say the same."""

from __future__ import annotations

import re
from pathlib import Path

from hermes.protocols.acp.surface import METHODS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "acp.md"


def test_every_method_has_a_heading_and_every_heading_a_method() -> None:
    headings = re.findall(r"^### (\S+)$", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(headings) == list(METHODS.names())
