"""Every slash command that a coding host expects: it works under its name and its aliases, or it is plainly unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes.nurseries.command_runner import HANDLERS
from tests.protocols.gateway.test_gateway_commands import _talked, configured
from tests.support.core import make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, Refusal, connected

WORKS: dict[str, tuple[str, ...]] = {
    "help": (),
    "history": (),
    "save": ("export",),
    "title": ("rename",),
    "branch": ("fork",),
    "compress": ("compact",),
    "undo": (),
    "retry": (),
    "rollback": (),
    "model": (),
    "reasoning": ("effort",),
    "fast": (),
    "personality": (),
    "yolo": (),
    "approvals": (),
    "busy": (),
    "queue": ("q",),
    "steer": ("s",),
    "bg": ("background",),
    "btw": (),
    "stop": (),
    "agents": ("tasks",),
    "plan": (),
    "init": (),
    "learn": (),
    "refine": (),
    "review": (),
    "status": (),
    "usage": (),
    "context": ("ctx",),
    "insights": (),
    "whoami": (),
    "profile": (),
    "version": ("v",),
    "debug": (),
    "diff": (),
    "tools": (),
    "toolsets": (),
    "skills": (),
    "memory": (),
    "plugins": (),
    "reload": (),
    "reload-mcp": ("reload_mcp",),
    "reload-skills": ("reload_skills",),
    "config": (),
    "verbose": (),
    "focus": (),
    "footer": (),
    "statusbar": ("sb",),
    "indicator": (),
    "skin": (),
    "timestamps": ("ts",),
    "battery": (),
    "mouse": (),
    "density": (),
    "models": (),
}
"""Commands whose effect is the server's, with their aliases."""

NEEDS = {"steer": "more", "queue": "list", "bg": "count", "btw": "why"}

HOSTS: dict[str, tuple[str, ...]] = {
    "new": ("reset",),
    "clear": (),
    "resume": (),
    "sessions": (),
    "image": (),
    "paste": (),
    "copy": (),
    "logs": (),
    "quit": ("exit",),
}
"""Commands that a host does by itself; the server lists them and says so."""

UNKNOWN = (
    # Turns that go on by themselves.
    *("goal", "subgoal", "loop", "heartbeat"),
    # Boards, schedules and collections of other products.
    *("moa", "bundles", "cron", "kanban", "curator", "suggestions", "blueprint"),
    *("worktree", "snapshot", "handoff", "browser", "voice", "update", "import"),
    *("pet", "hatch", "wake", "subscription", "topup", "login", "egress", "platforms", "codex-runtime", "journey"),
)
"""Commands of others that this server does not offer: neither listed nor half done."""


@asynccontextmanager
async def running_host() -> AsyncIterator[GatewayHost]:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        yield host


def names(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(written, name) for name, aliases in table.items() for written in (name, *aliases)]


async def test_the_catalogue_is_these_commands_and_no_others(tmp_path: Path) -> None:
    async with running_host() as host:
        catalogue = await host.call("commands.catalog")
        assert {pair[0] for pair in catalogue["pairs"]} == {f"/{name}" for name in (*WORKS, *HOSTS)}
        aliases = {f"/{written}": f"/{name}" for written, name in [*names(WORKS), *names(HOSTS)] if written != name}
        assert catalogue["canon"] == aliases
        assert set(HANDLERS) == set(WORKS)


async def test_each_command_of_the_server_runs_under_each_of_its_names(tmp_path: Path) -> None:
    services, _ = configured(tmp_path, *[say("x") for _ in range(200)])
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, "first", "second", "third", "fourth", "fifth", "sixth")
        for written, name in names(WORKS):
            arg = NEEDS.get(name, "")
            resolved = await host.call("command.resolve", name=f"/{written.upper()}")
            assert resolved["canonical"] == name
            result = await host.call("command.dispatch", name=written, arg=arg, session_id=session_id)
            said = result.get("output", result.get("message"))
            assert said and "unknown command" not in said and "is done by the host" not in said, written


async def test_what_a_host_does_by_itself_is_said_to_be_so(tmp_path: Path) -> None:
    async with running_host() as host:
        session_id = (await host.call("session.create"))["session_id"]
        for written, name in names(HOSTS):
            assert (await host.call("command.resolve", name=written))["canonical"] == name
            if name != "image":
                done = await host.call("slash.exec", command=f"/{written}", session_id=session_id)
                assert done["output"] == f"/{name} is done by the host"


@pytest.mark.parametrize("name", UNKNOWN)
async def test_what_is_not_offered_is_unknown_everywhere(name: str) -> None:
    async with running_host() as host:
        session_id = (await host.call("session.create"))["session_id"]
        for method, params in (("command.resolve", {}), ("command.dispatch", {"session_id": session_id})):
            with pytest.raises(Refusal) as refused:
                await host.call(method, name=name, **params)
            assert refused.value.code in (4011, 4018) and "unknown command" in refused.value.message
        told = await host.call("slash.exec", command=f"/{name} now", session_id=session_id)
        assert "unknown command" in told["output"]
