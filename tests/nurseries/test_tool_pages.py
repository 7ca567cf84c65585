"""The examples of the pages about tools and MCP servers do what the pages say."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from ruamel.yaml import YAML

from hermes.agent.ports import Tool, ToolFailure
from hermes.nurseries.mcp_config import configured_servers
from hermes.nurseries.mcp_server import State
from hermes.nurseries.mcp_tools import tool_name
from hermes.nurseries.plugin_process import PluginHost
from hermes.nurseries.plugin_tools import adapt_plugins
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from tests.support.process_probe import PATH

PAGES = Path("docs/how-to")


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


class Limits:
    kill_grace = 0.5


class PlainSettings:
    limits = Limits()


class PlainMemory:
    cwd = "/"


class PlainContext:
    settings = PlainSettings()
    memory = PlainMemory()
    session_key = turn_id = ""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def progress(self, preview: str) -> None:
        self.shown.append(preview)


def tools_of(source: str, tmp_path: Path) -> tuple[Tool, ...]:
    names: dict[str, Any] = {}
    exec(compile(source, "example", "exec"), names)
    made = names["make"](None)
    supervisor = ProcessSupervisor(owner_tag(str(tmp_path)))
    host = PluginHost(supervisor, lambda: {"PATH": PATH, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"})
    return adapt_plugins(made if isinstance(made, list) else [made], host)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_tools_of_the_page_work(tmp_path: Path) -> None:
    counting, napping, hashing, functions = blocks("write-a-tool.md", "python")
    (tmp_path / "my_functions.py").write_text(functions)
    ctx: Any = PlainContext()
    with trio.fail_after(30):
        (count,) = tools_of(counting, tmp_path)
        assert await count.run(ctx, {"to": 2}) == "counted to 2"
        with pytest.raises(ToolFailure, match="too far"):
            await count.run(ctx, {"to": 101})
        (nap,) = tools_of(napping, tmp_path)
        assert await nap.run(ctx, {}) == "rested"
        (digest,) = tools_of(hashing, tmp_path)
        assert str(await digest.run(ctx, {"text": ""})).startswith("e3b0c442")
    assert ctx.shown == ["1 of 2", "2 of 2", "hashing"]


def test_the_servers_of_the_page_are_servers() -> None:
    (example,) = blocks("mcp-servers.md", "yaml")
    files, tickets, old = configured_servers(YAML(typ="safe").load(example)["mcp_servers"])
    assert [server.problem for server in (files, tickets, old)] == ["", "", ""]
    assert (files.transport, files.offers("read_all"), files.offers("read_secret")) == ("stdio", True, False)
    assert (tickets.transport, tickets.parallel, old.enabled) == ("http", True, False)
    page = (PAGES / "mcp-servers.md").read_text(encoding="utf-8")
    assert tool_name("files", "read_all") in page
    assert all(f"`{state}`" in page for state in State.__args__)  # type: ignore[attr-defined]
