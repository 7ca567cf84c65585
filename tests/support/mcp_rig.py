"""MCP servers under test: the set, a tree to live in, configurations of the two server programs, and their notes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import trio

from hermes.nurseries.mcp_config import McpServerConfig
from hermes.nurseries.mcp_servers import McpServers
from hermes.nurseries.mcp_transport import TransportHost
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.scopes import LiveTree, ReasonScope
from tests.support.process_probe import PATH, no_longer_subreaper, zombie_children


class McpRig:
    """What a test holds: ``servers``, ``root`` (the node above), ``supervisor``."""

    def __init__(self, servers: McpServers, root: ReasonScope, supervisor: ProcessSupervisor, home: Path) -> None:
        self.servers = servers
        self.root = root
        self.supervisor = supervisor
        self.home = home

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, *, server: str = "x") -> Any:
        """Call a tool as the loop does, without a turn around it."""
        return await self.servers._servers[server].call(name, arguments or {}, lambda text: None)

    def notes(self) -> list[str]:
        path = self.home / "notes"
        return path.read_text().splitlines() if path.exists() else []

    async def wait_note(self, text: str) -> None:
        while text not in self.notes():
            await trio.sleep(0.01)

    def pids(self) -> dict[str, int]:
        """The pids by the names of the servers."""
        return {live.label.removeprefix("mcp "): live.pid for live in self.supervisor.live() if live.pid is not None}

    def children(self) -> list[int]:
        """The pids of server processes that run now."""
        return [live.pid for live in self.supervisor.live() if live.pid is not None]


@asynccontextmanager
async def mcp_rig(home: Path, *configs: McpServerConfig, redact: Callable[[str], str] = str) -> AsyncIterator[McpRig]:
    """The servers running below a root; at the end all are cancelled, and nothing may be left."""
    with no_longer_subreaper():
        supervisor = ProcessSupervisor(owner_tag(str(home)), kill_grace=0.2)
        supervisor.become_subreaper()
        tree = LiveTree()
        root = ReasonScope("server", "server", None, tree=tree)
        environment = {"PATH": PATH, "HOME": str(home), "SECRET_TOKEN": "hidden", "LC_ALL": "C.UTF-8"}
        servers = McpServers(TransportHost(supervisor, lambda: environment, str(home), redact=redact))
        with root:
            async with trio.open_nursery() as nursery:
                await nursery.start(servers.run, root)
                servers.configure(configs)
                yield McpRig(servers, root, supervisor, home)
                nursery.cancel_scope.cancel()
        assert supervisor.live() == []
        assert zombie_children() == []
        assert len(tree) == 0


def hostile(home: Path, behaviour: str, name: str = "x", **more: Any) -> McpServerConfig:
    program = Path(_origin("tests.support.mcp_hostile_program"))
    args = ("-I", "-S", str(program), behaviour, str(home / "notes"))
    return McpServerConfig(
        name, command=sys.executable, args=args, **{"timeout": 20.0, "connect_timeout": 20.0, **more}
    )


def specimen(home: Path, name: str = "x", **more: Any) -> McpServerConfig:
    program = _origin("tests.support.mcp_server_program")
    env = {"SPECIMEN_NOTES": str(home / "notes"), "OWN": "1"}
    return McpServerConfig(name, command=sys.executable, args=(program, "stdio"), env=env, **more)


def specimen_http(home: Path, port: int, kind: str = "http") -> tuple[tuple[str, ...], dict[str, str]]:
    """The command and the environment of the same server over HTTP (or ``sse``)."""
    program = _origin("tests.support.mcp_server_program")
    env = {"PATH": os.defpath, "SPECIMEN_NOTES": str(home / "notes")}
    return (sys.executable, program, kind, str(port)), env


def _origin(module: str) -> str:
    found = find_spec(module)
    assert found is not None and found.origin is not None
    return found.origin
