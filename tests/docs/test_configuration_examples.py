"""Every piece of configuration that a page shows is taken by the server without a complaint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes.config import load_settings

PAGES = [Path("README.md"), *sorted(Path("docs/how-to").glob("*.md"))]
YAML_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.M | re.S)
EXAMPLES = [(page, block) for page in PAGES for block in YAML_BLOCK.findall(page.read_text(encoding="utf-8"))]
SET = re.compile(r"`hermes config set ([a-z_.]+) ([^`<]+)`")


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=[f"{page.stem}-{n}" for n, (page, _) in enumerate(EXAMPLES)])
def test_an_example_of_a_configuration_file_is_valid(page: Path, block: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(block, encoding="utf-8")
    assert load_settings(environ={}, home=tmp_path).warnings == ()


def test_settings_that_pages_set_by_command_can_be_set(tmp_path: Path) -> None:
    pages = [*PAGES, *sorted(Path("docs").rglob("*.md"))]
    given = {pair for page in pages for pair in SET.findall(page.read_text(encoding="utf-8"))}
    assert len(given) >= 2
    for key, value in given:
        loaded = load_settings(environ={}, home=tmp_path, overrides={key: value})
        assert loaded.warnings == ()
