"""The settings on the page about editors: JSON as it stands, and a command that starts the agent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hermes.protocols.acp.offers import MODES
from tests.support.server_process import COMMAND, server_process

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "editors.md"
TEXT = PAGE.read_text(encoding="utf-8")
FIELDS = {"type", "command", "args", "env"}


def settings() -> list[dict[str, Any]]:
    return [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", TEXT, re.M | re.S)]


def test_each_editor_has_its_settings_with_the_fields_it_knows() -> None:
    zed, code, jetbrains = settings()
    entries = [zed["agent_servers"]["Hermes"], code["acp.agents"]["Hermes"], jetbrains["agent_servers"]["Hermes"]]
    assert [set(entry) for entry in entries] == [FIELDS, FIELDS - {"type"}, FIELDS - {"type"}]
    assert entries[0]["type"] == "custom"
    assert {(entry["command"], *entry["args"]) for entry in entries} == {("hermes", "acp")}


def test_the_mode_that_is_named_exists() -> None:
    assert re.findall(r'"default_mode": "(\w+)"', TEXT)[0] in {mode for mode, _, _ in MODES}


@pytest.mark.e2e
async def test_the_command_answers_a_handshake(tmp_path: Path) -> None:
    entry = settings()[0]["agent_servers"]["Hermes"]
    assert COMMAND.name == entry["command"]
    async with server_process(tmp_path / "home", *entry["args"]) as server:
        assert (await server.call("initialize", {"protocolVersion": 1}))["protocolVersion"] == 1
