"""Writes docs/reference/faults.md: each known fault, the tests that try it on us, and how they ended.

`make faults` runs the tagged tests and hands their JUnit report to this program. A row's result is the worst of its
tests, so that a row with one skipped test does not read as shown.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROWS = Path("tests/faults/rows.toml")
HEAD = """# Known faults, tried on this server

Agent servers and the libraries below them have public records of what went wrong. Each row is one such fault in our own
words, the kind it belongs to, and the tests that try the whole kind on this server (`pytest -m fault`). This page is
written by `make faults`; a test holds it against the tests that exist.

"""


class Row(NamedTuple):
    """One known fault."""

    id: str
    kind: str
    seen_on: str
    fault: str


class Tagged(NamedTuple):
    """One test that tries a row: `path::name`, without parameters."""

    row: str
    file: str
    name: str


def rows() -> list[Row]:
    """Every row, in the order of the file."""
    return [Row(**row) for row in tomllib.loads(ROWS.read_text(encoding="utf-8"))["row"]]


def tagged_tests(root: Path = Path("tests")) -> Iterator[Tagged]:
    """Every test function that carries `pytest.mark.fault(...)`, once for each row that it names."""
    for path in sorted(root.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.fault(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for row in _marks(node):
                    yield Tagged(row, path.as_posix(), node.name)


def _marks(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.fault":
            yield from (ast.literal_eval(argument) for argument in decorator.args)


def outcomes(report: Path) -> dict[tuple[str, str], list[str]]:
    """The outcomes of a JUnit report by (file, function); a parametrised test has several."""
    found: dict[tuple[str, str], list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname", "").replace(".", "/") + ".py"
        name = case.get("name", "").partition("[")[0]
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found.setdefault((file, name), []).append(outcome)
    return found


def result(tests: list[Tagged], found: dict[tuple[str, str], list[str]]) -> str:
    """The worst outcome of a row's tests, with how many ran."""
    ran = [outcome for test in tests for outcome in found.get((test.file, test.name), ["not run"])]
    worst = next((kind for kind in ("failed", "not run", "skipped") if kind in ran), "passed")
    return f"{worst} ({len(ran)})"


def page(found: dict[tuple[str, str], list[str]], day: str) -> str:
    """The page as Markdown, with a section for each kind of fault."""
    tests: dict[str, list[Tagged]] = {}
    for test in tagged_tests():
        tests.setdefault(test.row, []).append(test)
    kinds: dict[str, list[Row]] = {}
    for row in rows():
        kinds.setdefault(row.kind, []).append(row)
    parts = [HEAD, f"Last run: {day}. The number behind a result counts the cases that ran, parameters included.\n"]
    for kind, members in kinds.items():
        parts.append(f"\n## {kind}\n\n| row | fault | seen on | tests | result |\n| --- | --- | --- | --- | --- |\n")
        for row in members:
            mine = tests.get(row.id, [])
            names = "<br>".join(f"`{test.name}`" for test in mine)
            fault = row.fault.replace("|", "\\|")
            parts.append(f"| {row.id} | {fault} | {row.seen_on} | {names} | {result(mine, found)} |\n")
    return "".join(parts)


def outcomes_of_all(reports: Iterable[Path]) -> dict[tuple[str, str], list[str]]:
    """Of several reports; what a later one says of a test holds."""
    found: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        found.update(outcomes(report))
    return found


if __name__ == "__main__":
    sys.stdout.write(page(outcomes_of_all(map(Path, sys.argv[1:])), date.today().isoformat()))
