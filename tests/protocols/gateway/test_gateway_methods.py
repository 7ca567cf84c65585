"""Every method of the table: what all of them promise, row by row."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from hermes import errors, events
from hermes.nurseries.event_log import EventLog
from hermes.protocols import error_table
from hermes.protocols.gateway.backlog import entry_frame
from hermes.protocols.gateway.events import Shown, translate
from hermes.protocols.gateway.surface import ALWAYS, STDIO_TABLE, WEBSOCKET_TABLE
from tests.support.core import make_services, running_tree
from tests.support.gateway_host import Refusal, connected

METHODS = tuple(STDIO_TABLE)
TIER_S = """
approval.respond clarify.lock cli.exec client.capabilities clipboard.paste command.dispatch command.resolve
commands.catalog config.get config.set delegation.status gateway.capabilities image.attach model.options ping
process.stop prompt.background prompt.submit reload.env reload.mcp session.activate session.active_list
session.branch session.close session.compress session.create session.events.since session.history
session.interrupt session.list session.resume session.status session.steer session.title session.usage
spawn_tree.list spawn_tree.load spawn_tree.save subagent.interrupt subagent.steer terminal.resize
clarify.respond sudo.respond secret.respond terminal.read.respond
""".split()  # noqa: SIM905
TIER_A = """
agents.list approval.pending approval.received complete.path complete.slash config.show delegation.pause
file.attach image.attach_bytes image.detach input.detect_drop mcp.servers.list mcp.servers.status
paste.collapse plugins.list process.kill process.list project.facts prompt.btw request.answer rollback.diff
rollback.list rollback.restore session.branch_whole session.context_breakdown session.cwd.set session.delete
session.most_recent session.redirect session.save session.undo setup.runtime_check setup.status shell.exec
skills.manage skills.reload slash.exec subagent.list subagent.tail tools.configure tools.list tools.show
toolsets.list
""".split()  # noqa: SIM905
OURS = """
session.undo_rewind tree.get tree.subscribe scope.cancel session.archive session.set_hidden
""".split()  # noqa: SIM905
FILL: dict[str, Any] = {
    "text": "x",
    "title": "x",
    "request_id": "x",
    "question_id": "x",
    "process_id": "x",
    "subagent_id": "x",
    "path": "x",
    "hash": "x",
    "cwd": "/tmp",
    "command": "help",
    "hidden": True,
    "controller_id": "c",
    "browser_profile_id": "b",
    "command_id": "0",
}


@pytest.mark.parametrize("name", [*TIER_S, *TIER_A, *OURS])
def test_the_method_exists(name: str) -> None:
    assert STDIO_TABLE.find(name) is not None


def test_only_websocket_clients_have_the_gateway_ping() -> None:
    assert STDIO_TABLE.find("gateway.ping") is None
    assert WEBSOCKET_TABLE.find("gateway.ping") is not None


def test_what_is_always_taken_are_methods() -> None:
    assert set(WEBSOCKET_TABLE.names()) >= ALWAYS


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_declares_what_it_takes_and_gives(method: Any) -> None:
    assert method.params is not None and method.result is not None


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_an_undeclared_key_is_named(autojump_clock: Any, method: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        with pytest.raises(Refusal) as refused:
            await host.call(method.name, nonsense=1)
        assert refused.value.code == 4000 and "nonsense" in refused.value.message


LIVE = [
    method
    for method in METHODS
    if method.params is not None
    and method.params.model_fields.get("session_id") is not None
    and method.params.model_fields["session_id"].is_required()
    and method.name not in ("session.close", "session.resume", "session.delete")
]


@pytest.mark.parametrize("method", LIVE, ids=lambda method: method.name)
async def test_a_session_that_is_not_live_is_4001(autojump_clock: Any, method: Any) -> None:
    services, _ = make_services()
    required = {name: FILL.get(name) for name, field in method.params.model_fields.items() if field.is_required()}
    async with running_tree(services) as tree, connected(tree) as host:
        for session_id in ("00000000", 7):
            with pytest.raises(Refusal) as refused:
                await host.call(method.name, **{**required, "session_id": session_id})
            assert refused.value.code == 4001
        if required.keys() == {"session_id"}:
            with pytest.raises(Refusal) as missing:
                await host.call(method.name)
            assert missing.value.code == 4001


async def test_only_the_default_profile_is_known(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        assert await host.call("ping", profile="default") == {"pong": True}
        with pytest.raises(Refusal) as refused:
            await host.call("ping", profile="other")
        assert refused.value.code == 4064


async def test_framing_errors_and_notifications(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        frames: list[Any] = [
            b"{",
            b"[]",
            {"id": 1},
            {"id": 2, "method": "ping", "params": []},
            {"id": 3, "method": "no.such"},
            {"method": "ping"},
            {"id": "srq-none", "result": {}},
            {"id": 4, "method": "session.create", "params": {"cols": "wide"}},
            {"id": 5, "method": "ping"},
        ]
        host.channel.say(*frames)
        await host.until(lambda frame: frame.get("id") == 5)
        answers = [(frame["id"], frame.get("error", {}).get("code")) for frame in host.frames[1:]]
        assert answers == [
            (None, -32700),
            (None, -32600),
            (1, -32600),
            (2, -32602),
            (3, -32601),
            (None, None),
            (4, -32000),
            (5, None),
        ]


def test_every_domain_error_has_a_row_of_its_own_or_of_its_class() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HermesError)]
    for kind in kinds:
        if kind is not errors.HermesError:
            assert any(base in error_table.TABLE for base in kind.__mro__), kind.__name__


def test_an_unknown_exception_is_told_by_a_log_id_alone(caplog: pytest.LogCaptureFixture) -> None:
    fault = error_table.gateway_error(RuntimeError("secret /path"), "ping")
    assert fault.code == -32000
    assert "secret" not in fault.message and fault.data["log_id"] in fault.message
    assert "secret /path" in caplog.text


def test_every_session_event_has_a_translation() -> None:
    translated = {"HistoryRewound", "SessionClosed", "TurnStopping"}
    assert translated <= {kind.__name__ for kind in get_args(events.SessionEvent)}
    for event in (
        events.HistoryRewound((), ()),
        events.SessionClosed("x"),
        events.TurnStopping("t", "user_interrupt", None),
        events.CommandsChanged(),
    ):
        assert translate(event, Shown()) is None


def test_one_event_is_encoded_once_for_all_readers() -> None:
    log: EventLog[Any] = EventLog(cost=events.event_cost, clock=lambda: 0.0)
    log.append(events.TextDelta("t", "hello"))
    (entry,), _ = log.since(0)
    first = entry_frame(entry, "1a2b3c4d", Shown)
    assert entry_frame(entry, "1a2b3c4d", Shown) is first
    assert b'"type":"message.delta"' in first and b'"seq":1' in first
