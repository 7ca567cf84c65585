"""request_secret and manage_connections: what is asked, what is stored, and that the model never reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.ports import ToolFailure, ToolOutput
from hermes.agent.tools.base import BuiltinTool
from hermes.agent.tools.connections import ManageConnections
from hermes.agent.tools.services import ConnectionTarget, ToolServices
from hermes.agent.tools.shell import Terminal
from hermes.agent.tools.skills import SkillView
from hermes.agent.tools.stored_secrets import RequestSecret
from hermes.errors import Unavailable
from hermes.messages import Answered, ClientAnswer, Declined, NoClient, TimedOut
from tests.support.tool_context import FakeToolContext, make_services


class Variables:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.broken = False

    def known(self) -> Mapping[str, str]:
        return self.values

    def reserved(self, name: str) -> bool:
        return name.startswith("HERMES_")

    async def store(self, changes: Mapping[str, str]) -> None:
        if self.broken:
            raise Unavailable("the disk is full")
        self.values.update(changes)


class Servers:
    def __init__(self, *targets: ConnectionTarget) -> None:
        self.known = targets
        self.tried: list[str] = []
        self.problem: str | None = None

    def targets(self) -> Sequence[ConnectionTarget]:
        return self.known

    async def connect(self, name: str, within: float) -> str | None:
        self.tried.append(name)
        return self.problem


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    return FakeToolContext(tmp_path, tmp_path)


async def run(services: ToolServices, ctx: FakeToolContext, kind: type[BuiltinTool], **arguments: Any) -> Any:
    output = await kind(services).run(ctx, arguments)
    assert isinstance(output, ToolOutput)
    assert "hunter2" not in output.content
    return json.loads(output.content)


async def test_a_secret_is_stored_and_commands_of_this_session_alone_find_it(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    variables = Variables()
    services = make_services(tmp_path, variables=variables)
    ctx.answers.append(Answered({"value": "hunter2 x"}))
    told = await run(services, ctx, RequestSecret, env_var="TENOR_KEY", prompt="The key of Tenor")
    assert told == {"status": "stored", "env_var": "TENOR_KEY"}
    assert variables.values == {"TENOR_KEY": "hunter2 x"}
    assert (ctx.asked[0].method, ctx.asked[0].params) == (
        "secret", {"env_var": "TENOR_KEY", "prompt": "The key of Tenor"},
    )  # fmt: skip
    found = await run(services, ctx, Terminal, command='echo "${#TENOR_KEY}"')
    other = FakeToolContext(tmp_path, tmp_path)
    foreign = await run(services, other, Terminal, command='echo "${#TENOR_KEY}"')
    assert (found["output"], foreign["output"]) == ("9\n", "0\n")


@pytest.mark.parametrize("answer", [Answered({"value": ""}), Answered({}), Answered({"value": 7})])
async def test_an_answer_without_a_value_is_skipped(ctx: FakeToolContext, tmp_path: Path, answer: ClientAnswer) -> None:
    services = make_services(tmp_path, variables=Variables())
    ctx.answers.append(answer)
    assert (await run(services, ctx, RequestSecret, env_var="A", prompt="?"))["status"] == "skipped"


@pytest.mark.parametrize(
    ("name", "answer", "message"),
    [
        ("A", TimedOut(), "in time"),
        ("A", NoClient(), "nobody can be asked"),
        ("A", Declined(), "."),
        ("A", Answered({"value": "two\nlines"}), "cannot be stored"),
        ("A", Answered({"value": "x" * 40_000}), "too long"),
        ("HERMES_HOME", None, "belongs to the server"),
        ("A=B", None, "no name"),
        ("A\n", None, "no name"),
    ],
)
async def test_what_is_not_given_is_told_and_nothing_is_stored(
    ctx: FakeToolContext, tmp_path: Path, name: str, answer: ClientAnswer | None, message: str
) -> None:
    variables = Variables()
    ctx.answers += [] if answer is None else [answer]
    with pytest.raises(ToolFailure, match=message):
        await RequestSecret(make_services(tmp_path, variables=variables)).run(ctx, {"env_var": name, "prompt": "?"})
    assert variables.values == {}
    assert len(ctx.asked) == (answer is not None)


async def test_a_secret_that_cannot_be_written_is_a_failure(ctx: FakeToolContext, tmp_path: Path) -> None:
    variables = Variables()
    variables.broken = True
    ctx.answers.append(Answered({"value": "hunter2"}))
    with pytest.raises(ToolFailure, match="disk is full"):
        await RequestSecret(make_services(tmp_path, variables=variables)).run(ctx, {"env_var": "A", "prompt": "?"})


async def test_a_skill_gets_what_it_names_except_what_is_the_servers_own(ctx: FakeToolContext, tmp_path: Path) -> None:
    folder = ctx.home / "skills" / "maps"
    folder.mkdir(parents=True)
    names = "required_environment_variables: [MAPS_KEY, HERMES_KEY, OTHER]"
    (folder / "SKILL.md").write_text(f"---\nname: maps\ndescription: d\n{names}\n---\nbody\n")
    variables = Variables()
    variables.values = {"MAPS_KEY": "hunter2", "HERMES_KEY": "hunter2", "UNNAMED": "hunter2"}
    services = make_services(tmp_path, variables=variables)
    shown = await run(services, ctx, SkillView, name="maps")
    assert (shown["setup"], shown["missing_variables"]) == ("needs_setup", ["HERMES_KEY", "OTHER"])
    found = await run(services, ctx, Terminal, command='echo "${#MAPS_KEY}|${#HERMES_KEY}|${#UNNAMED}"')
    assert found["output"] == "7|0|0\n"


# --- connections ------------------------------------------------------------------------------------------------------

UP = ConnectionTarget("up", "mcp", "connected")
DOWN = ConnectionTarget("down", "mcp", "failed")
NEEDY = ConnectionTarget("needy", "mcp", "configured", ("NEEDY_TOKEN",))


async def test_connections_are_shown_and_those_that_are_approved_are_connected(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    variables, servers = Variables(), Servers(UP, DOWN, NEEDY)
    services = make_services(tmp_path, variables=variables, connections=servers)
    ctx.answers.append(
        Answered(
            {
                "settled_by": "all_resolved",
                "targets": [
                    {"name": "needy", "status": "approved", "env": {"NEEDY_TOKEN": "hunter2", "PATH": "/evil"}},
                    {"name": "down", "status": "skipped"},
                    {"name": "unknown", "status": "approved"},
                ],
            }
        )
    )
    told = await run(services, ctx, ManageConnections, reason="to look things up")
    assert told["settled_by"] == "all_resolved"
    assert told["targets"] == [{"name": "down", "state": "skipped"}, {"name": "needy", "state": "connected"}]
    assert (servers.tried, variables.values) == (["needy"], {"NEEDY_TOKEN": "hunter2"})
    (asked,) = ctx.asked
    assert asked.method == "connection"
    assert asked.params["targets"] == [
        {"name": "down", "kind": "mcp", "action": "connect", "state": "failed"},
        {
            "name": "needy",
            "kind": "mcp",
            "action": "connect",
            "state": "not_connected",
            "required_env": ["NEEDY_TOKEN"],
        },
    ]
    assert asked.params["op_id"].startswith("op_") and asked.params["timeout_seconds"] == asked.timeout


@pytest.mark.parametrize("value", [{}, {"targets": "all"}, {"targets": [7, {"name": "down"}], "settled_by": "me"}])
async def test_a_malformed_answer_connects_nothing(ctx: FakeToolContext, tmp_path: Path, value: dict[str, Any]) -> None:
    servers = Servers(DOWN)
    ctx.answers.append(Answered(value))
    told = await run(make_services(tmp_path, connections=servers), ctx, ManageConnections)
    assert told == {"settled_by": "continue", "targets": [{"name": "down", "state": "not_connected"}]}
    assert servers.tried == []


async def test_nobody_is_asked_for_what_is_connected_and_unknown_names_are_refused(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    services = make_services(tmp_path, connections=Servers(UP, DOWN))
    told = await run(services, ctx, ManageConnections, targets=["up"])
    assert told == {"targets": [{"name": "up", "state": "connected"}]}
    with pytest.raises(ToolFailure, match="no connection 'x'"):
        await run(services, ctx, ManageConnections, targets=["x"])
    assert ctx.asked == []


async def test_a_connection_that_fails_or_is_not_decided_in_time_is_told(ctx: FakeToolContext, tmp_path: Path) -> None:
    servers = Servers(DOWN)
    servers.problem = "no such program, key sk-abcdefghijklmnopqrstuvwxyz123456"
    services = make_services(tmp_path, connections=servers)
    ctx.answers += [Answered({"targets": [{"name": "down", "status": "approved"}]}), TimedOut()]
    (failed,) = (await run(services, ctx, ManageConnections))["targets"]
    assert failed["state"] == "failed" and "klmnop" not in failed["detail"]
    expired = await run(services, ctx, ManageConnections)
    assert expired == {"settled_by": "deadline", "targets": [{"name": "down", "state": "expired"}]}
