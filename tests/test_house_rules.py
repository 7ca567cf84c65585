"""The house rules that are not about which module imports which."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from tests.support import house_rules as rules

PACKAGE = Path(str(files("hermes")))


@pytest.fixture(scope="module")
def package() -> list[rules.Module]:
    return rules.modules(PACKAGE)


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__.strip("_"))
def test_the_package_keeps_the_rule(rule: rules.Rule, package: list[rules.Module]) -> None:
    violations = [violation for module in package for violation in rule(module)]
    assert violations == [], "\n".join(violations)


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (rules.nurseries_and_scopes, "agent/x.py", "async with trio.open_nursery() as n: pass"),
        (rules.nurseries_and_scopes, "agent/x.py", "from trio import CancelScope"),
        (rules.asyncio, "agent/x.py", "import asyncio.subprocess"),
        (rules.asyncio, "nurseries/turn.py", "import trio_asyncio"),
        (rules.threads, "agent/x.py", "from threading import Lock"),
        (rules.sleeping, "agent/x.py", "import time\ntime.sleep(1)"),
        (rules.sleeping, "agent/x.py", "from time import sleep"),
        (rules.environment, "agent/x.py", "import os\nos.environ['A']"),
        (rules.environment, "cli/x.py", "from os import getenv"),
        (rules.printing, "agent/x.py", "print(1)"),
        (rules.file_locations, "agent/x.py", "HERE = __file__"),
        (rules.globals_, "agent/x.py", "def f():\n    global x"),
        (rules.module_state, "agent/x.py", "cache = {}"),
        (rules.module_state, "agent/x.py", "CACHE: dict[str, int] = dict()"),
        (rules.module_state, "agent/x.py", "IDS = itertools.count()"),
        (rules.module_state, "agent/x.py", "TABLE = {}\ndef f():\n    TABLE['a'] = 1"),
        (rules.module_state, "agent/x.py", "TABLE = []\ndef f():\n    TABLE.append(1)"),
        (rules.lazy_imports, "agent/x.py", "def f():\n    import json"),
        (rules.lazy_imports, "agent/x.py", "import importlib\nimportlib.import_module('x')"),
        (rules.broad_handlers, "agent/x.py", "try: pass\nexcept Exception: raise"),
        (rules.broad_handlers, "agent/x.py", "try: pass\nexcept (ValueError, Exception): raise"),
        (rules.broad_handlers, "agent/x.py", "try: pass\nexcept* Exception: pass"),
        (rules.broad_handlers, "agent/x.py", "try: pass\nexcept: pass"),
        (rules.broad_handlers, "nurseries/containment.py", "try: pass\nexcept BaseException: pass"),
        (rules.broad_handlers, "agent/x.py", "with suppress(Exception): pass"),
        (rules.error_codes, "protocols/http/runs.py", "STATUS = 404"),
        (rules.error_codes, "protocols/gateway/x.py", "code = 4009"),
        (rules.error_codes, "nurseries/x.py", "code = -32602"),
        (rules.sizes, "agent/x.py", "x = 1\n" * 501),
        (rules.sizes, "agent/x.py", "def f():\n" + "    x = 1\n" * 60),
        (rules.opening_docstrings, "agent/x.py", "x = 1"),
        (rules.unfinished_words, "agent/x.py", "x = 1  # TODO"),
        (rules.unfinished_words, "agent/x.py", '"""Good enough for now."""'),
    ],
)
def test_a_rule_sees_what_it_forbids(rule: rules.Rule, name: str, source: str) -> None:
    assert list(rule(rules.parse(name, source))) != []


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (rules.nurseries_and_scopes, "agent/x.py", "with trio.move_on_after(1): pass"),
        (rules.nurseries_and_scopes, "nurseries/x.py", "with trio.CancelScope(): pass"),
        (rules.module_state, "agent/x.py", "TABLE = {'a': 1}\n__all__ = ['x']\n_WORDS = frozenset({'a'})"),
        (rules.lazy_imports, "agent/tools/x.py", "def f():\n    import mcp.client"),
        (rules.lazy_imports, "cli/x.py", "def f():\n    from hermes import app"),
        (rules.broad_handlers, "agent/x.py", "try: pass\nexcept BaseException:\n    x()\n    raise"),
        (rules.error_codes, "agent/providers/x.py", "RETRIED = (429, 503)"),
        (rules.error_codes, "protocols/error_table.py", "BUSY = 4009"),
        (rules.error_codes, "protocols/channels/x.py", "CHUNK = 4096"),
        (rules.unfinished_words, "agent/x.py", "x = 'todo_list'  # the todo list"),
    ],
)
def test_a_rule_leaves_alone_what_is_allowed(rule: rules.Rule, name: str, source: str) -> None:
    assert list(rule(rules.parse(name, source))) == []
