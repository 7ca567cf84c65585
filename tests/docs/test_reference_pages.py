"""Reference pages that people write are held against the code: every thing has its entry, every entry its thing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hermes.agent.provider_rows import ProviderRow
from hermes.agent.providers.http_provider import FORMATS
from hermes.outcomes import Cause
from hermes.protocols.http.metrics import GAUGES, Metrics
from hermes.settings import every_setting

REFERENCE = Path("docs/reference")
MAKERS = {"ReasonScope": 0, "below": 1}
"""The functions that make a node, and the place of its kind among their arguments."""


def node_kinds() -> set[str]:
    kinds = set()
    for path in Path("hermes").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in MAKERS:
                continue
            kind = call.args[MAKERS[call.func.id]]
            if isinstance(kind, ast.Constant):
                kinds.add(str(kind.value))
    return kinds


def test_every_kind_of_node_has_a_heading_and_every_heading_a_kind() -> None:
    page = (REFERENCE / "tree.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### `(\w+)`$", page, re.M)) == sorted(node_kinds())


def test_every_metric_is_on_its_page_and_every_row_of_the_page_is_a_metric() -> None:
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    text = Metrics(lambda: 0.0).exposition(dict.fromkeys(GAUGES, 0.0)).decode()
    served = set()
    for family in text_string_to_metric_families(text):
        # What the client library adds: its own process figures, and when each counter was made.
        if not family.name.startswith("process_") and not family.name.endswith("_created"):
            served.add(f"{family.name}_total" if family.type == "counter" else family.name)
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == served


def test_the_causes_of_a_cancellation_are_told_completely() -> None:
    page = Path("docs/explanation/cancellation.md").read_text(encoding="utf-8")
    told = page.partition("## Causes")[2].partition(". The set is closed")[0]
    assert re.findall(r"`(\w+)`", told) == [cause.value for cause in Cause]


SETTING = re.compile(r"`((?:limits|approvals|logging|host|gateway\.api_server)\.[a-z_.]+)(?:: \w+)?`")


def test_every_setting_that_a_page_names_exists() -> None:
    known = {item.key for item in every_setting()}
    named = [
        (str(page), name) for page in Path("docs").rglob("*.md") for name in SETTING.findall(page.read_text("utf-8"))
    ]
    assert len(named) > 50
    assert [(page, name) for page, name in named if name not in known] == []


def test_the_page_about_providers_names_the_dialects_and_the_places() -> None:
    page = Path("docs/how-to/add-a-provider.md").read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"`{name}`" not in page] == []
    for place in re.findall(r"`(hermes/[\w/]+\.py)`", page):
        assert Path(place).is_file()
    assert ProviderRow.__module__ == "hermes.agent.provider_rows"


def test_the_page_about_the_fake_provider_names_every_key_of_a_script() -> None:
    from hermes.testing.script import Faults, Reply, Script

    page = (REFERENCE / "fake-provider.md").read_text(encoding="utf-8")
    fields = [field for kind in (Script, Reply, Faults) for field in kind.model_fields.items()]
    keys = [str(field.alias or name) for name, field in fields]
    assert [name for name in keys if not re.search(rf"\b{name}\b", page)] == []
