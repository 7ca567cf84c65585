"""The page of known faults names exactly the tests that try them, and every row is shown."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.page import outcomes, page, rows, tagged_tests

PAGE = Path("docs/reference/faults.md")
LINE = re.compile(r"^\| (B-\d+) \|.*\| ([^|]*) \| ([^|]*) \|$", re.M)


def test_the_page_names_the_tests_that_exist_and_every_row_passed() -> None:
    told = {row: (names, result) for row, names, result in LINE.findall(PAGE.read_text(encoding="utf-8"))}
    expected: dict[str, set[str]] = {row.id: set() for row in rows()}
    for test in tagged_tests():
        expected[test.row].add(test.name)
    assert {row: set(re.findall(r"`(test_\w+)`", names)) for row, (names, _) in told.items()} == expected
    assert [row for row, names in expected.items() if not names] == []
    assert [row for row, (_, result) in told.items() if not result.startswith("passed")] == []


def test_a_row_reads_as_the_worst_of_its_tests(tmp_path: Path) -> None:
    tagged = [test for test in tagged_tests() if test.row == "B-001"]
    cases = "".join(
        f'<testcase classname="{test.file[:-3].replace("/", ".")}" name="{test.name}[{way}]">{inner}</testcase>'
        for test in tagged
        for way, inner in (("a", ""), ("b", "<failure/>"))
    )
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    written = page(outcomes(report), "2026-01-01")
    found = {row: result for row, _, result in LINE.findall(written)}
    assert found["B-001"] == f"failed ({2 * len(tagged)})"
    assert found["B-003"].startswith("not run")
