"""The documentation as a whole: every page can be reached, every link leads somewhere, what is made is fresh."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from hermes.cli.turn_states import markdown

DOCS = Path("docs")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
MACHINES = ("gateway-client.ts", "gateway-openrpc.json", "gateway-schemas.json")


def pages_in(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    assert not isinstance(values, str)
    return [page for value in values for page in pages_in(value)]  # type: ignore[attr-defined]


def test_the_navigation_has_every_page_once() -> None:
    config = YAML(typ="safe").load(Path("mkdocs.yml").read_text(encoding="utf-8").replace("!!python/name:", ""))
    listed = pages_in(config["nav"])
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", [Path("README.md"), *sorted(DOCS.rglob("*.md"))], ids=str)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if ":" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=str)
def test_a_page_has_one_title_and_no_line_that_is_left_to_write(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert len(re.findall(r"^# .", text, re.M)) == 1
    assert re.search(r"\b(TODO|FIXME|TBD|coming soon)\b", text) is None


def test_the_states_of_a_turn_are_drawn_from_the_tables() -> None:
    assert (DOCS / "explanation" / "turn-states.md").read_text(encoding="utf-8") == markdown(), "run `make docs`"


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed: pip install '.[docs]'")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    # Not --quiet: then warnings are neither shown nor counted.
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "explanation" / "what-stop-guarantees" / "index.html").is_file()
    for name in MACHINES:
        assert (tmp_path / "site" / "reference" / name).is_file()
