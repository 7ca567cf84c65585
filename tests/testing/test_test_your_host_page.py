"""The page for host authors: every example in it is a test that passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_examples import python_blocks, run_tests_of

PAGE = Path("docs/how-to/test-your-host.md")


@pytest.mark.parametrize("number", range(len(python_blocks(PAGE))))
def test_an_example_of_the_page_passes(number: int) -> None:
    assert run_tests_of(python_blocks(PAGE)[number], PAGE)
