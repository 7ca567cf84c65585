"""The reference page shows a script that loads, and names every fault, step and rule that exists."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from hermes.testing import Faults, Script
from hermes.testing.script import StepSpec, When

PAGE = Path(str(files("hermes"))).parent / "docs" / "reference" / "fake-provider.md"


def test_the_example_script_of_the_page_loads() -> None:
    example = PAGE.read_text("utf-8").split("```yaml\n")[1].split("```")[0]
    script = Script.parse(example)
    assert (script.strict, len(script.replies), script.replies[2].faults.retry_after) == (True, 3, 3)


def test_the_page_names_every_key_of_the_format() -> None:
    page = PAGE.read_text("utf-8")
    keys = [*Faults.model_fields, *StepSpec.model_fields, *When.model_fields]
    assert [key for key in keys if key not in page] == []
