"""Each method of the table, row by row: a good call, a missing and a mistyped parameter, a closed and a busy session.

Undeclared parameters and unknown sessions are in ``test_gateway_methods.py``. Whatever is refused has changed nothing
that lasts: no row, no session, no file, no setting.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from hermes.config import load_settings
from hermes.live_config import LiveConfig
from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.gateway.surface import STDIO_TABLE
from tests.support.core import hang, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, Refusal, connected

NAMES = tuple(name for name in STDIO_TABLE.names() if not name.startswith("browser."))
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
S = "<session>"

# What a good call says besides the session, and the number it is refused with where the world has no such thing.
GOOD: dict[str, dict[str, Any]] = {
    "agents.list": {},
    "approval.pending": {"session_id": S},
    "approval.received": {"session_id": S, "request_id": "x"},
    "approval.respond": {"session_id": S, "choice": "once"},
    "clarify.lock": {"request_id": "srq-x", "question_id": "q0", "answer": "x"},
    "clarify.respond": {"request_id": "x", "answer": "y"},
    "cli.exec": {"argv": []},
    "client.capabilities": {"server_requests": True},
    "clipboard.paste": {"session_id": S},
    "command.dispatch": {"session_id": S, "command": "/status"},
    "command.resolve": {"name": "/reset"},
    "commands.catalog": {},
    "complete.path": {"word": "@"},
    "complete.slash": {"text": "/he"},
    "config.get": {"key": "full"},
    "config.set": {"key": "busy", "value": "queue"},
    "config.show": {},
    "delegation.pause": {"paused": False},
    "delegation.status": {},
    "file.attach": {"session_id": S, "data_url": "data:text/plain;base64,aGk=", "name": "a.txt"},
    "gateway.capabilities": {},
    "image.attach": {"session_id": S, "path": "nothing.png"},
    "image.attach_bytes": {"session_id": S, "content_base64": PNG},
    "image.detach": {"session_id": S, "path": "nothing.png"},
    "input.detect_drop": {"session_id": S, "text": "plain words"},
    "insights.get": {"days": 7},
    "llm.oneshot": {"input": "x"},
    "machine.facts": {},
    "mcp.servers.list": {},
    "mcp.servers.status": {},
    "mcp.servers.test": {"name": "nothing"},
    "model.disconnect": {"slug": "anthropic"},
    "model.options": {},
    "model.save_key": {"slug": "anthropic", "api_key": "k-0123456789"},
    "paste.collapse": {"text": "a\nb"},
    "ping": {},
    "plugins.list": {},
    "process.kill": {"session_id": S, "process_id": "p"},
    "process.list": {"session_id": S},
    "process.stop": {"session_id": S},
    "profiles.list": {},
    "project.facts": {},
    "prompt.background": {"session_id": S, "text": "x"},
    "prompt.btw": {"session_id": S, "text": "x"},
    "prompt.submit": {"session_id": S, "text": "x"},
    "reload.env": {},
    "reload.mcp": {"confirm": True},
    "request.answer": {"id": "srq-x", "result": {}},
    "rollback.diff": {"session_id": S, "hash": "x"},
    "rollback.list": {"session_id": S},
    "rollback.restore": {"session_id": S, "hash": "x"},
    "scope.cancel": {"node_id": "nothing"},
    "secret.respond": {"request_id": "x", "value": "y"},
    "session.activate": {"session_id": S},
    "session.active_list": {},
    "session.archive": {"session_id": S},
    "session.branch": {"session_id": S},
    "session.branch_stored": {"parent_session_id": "<key>"},
    "session.branch_whole": {"session_id": S},
    "session.close": {"session_id": S},
    "session.compress": {"session_id": S},
    "session.context_breakdown": {"session_id": S},
    "session.create": {"cols": 100},
    "session.cwd.set": {"session_id": S, "cwd": "/tmp"},
    "session.delete": {"session_id": "<key>"},
    "session.events.since": {"session_id": S, "last_seen": 0},
    "session.events.stats": {},
    "session.history": {"session_id": S},
    "session.interrupt": {"session_id": S},
    "session.list": {},
    "session.most_recent": {},
    "session.redirect": {"session_id": S, "text": "x"},
    "session.resume": {"session_id": "<key>"},
    "session.save": {"session_id": S},
    "session.set_hidden": {"session_id": S, "hidden": True},
    "session.status": {"session_id": S},
    "session.steer": {"session_id": S, "text": "x"},
    "session.title": {"session_id": S, "title": "a name"},
    "session.undo": {"session_id": S},
    "session.undo_rewind": {"session_id": S},
    "session.usage": {"session_id": S},
    "setup.runtime_check": {},
    "setup.status": {},
    "shell.exec": {"command": "true"},
    "skills.manage": {},
    "skills.reload": {},
    "slash.exec": {"session_id": S, "command": "/help"},
    "spawn_tree.list": {},
    "spawn_tree.load": {"path": "nothing.json"},
    "spawn_tree.save": {"subagents": [{"id": 1}]},
    "subagent.interrupt": {"subagent_id": "x"},
    "subagent.list": {"session_id": S},
    "subagent.steer": {"session_id": S, "subagent_id": "x", "text": "y"},
    "subagent.tail": {"session_id": S, "subagent_id": "x"},
    "sudo.respond": {"request_id": "x", "password": "y"},
    "system.battery": {},
    "terminal.read.respond": {"request_id": "x", "text": "y"},
    "terminal.resize": {"session_id": S, "cols": 100},
    "tools.configure": {"session_id": S, "action": "disable", "names": []},
    "tools.list": {},
    "tools.show": {},
    "toolsets.list": {},
    "tree.get": {},
    "tree.subscribe": {},
}
NOTHING_THERE = {
    "clarify.respond": 4009,
    "clipboard.paste": 5027,
    "image.attach": 4016,
    "mcp.servers.test": 4064,
    "model.disconnect": 4005,
    "process.kill": 4044,
    "rollback.diff": 4014,
    "rollback.restore": 4014,
    "scope.cancel": 4044,
    "session.delete": 4023,
    "session.undo_rewind": 4018,
    "spawn_tree.load": 4044,
    "terminal.read.respond": 4009,
}
# Required parameters and the number that a call without them gets; a session is 4001, whatever is not here -32602.
MISSING = {
    ("session.resume", "session_id"): 4006,
    ("session.delete", "session_id"): 4006,
    ("approval.received", "request_id"): 4006,
    ("session.steer", "text"): 4002,
    ("session.redirect", "text"): 4002,
    ("subagent.steer", "text"): 4002,
    ("subagent.steer", "subagent_id"): 4000,
    ("subagent.interrupt", "subagent_id"): 4000,
    ("subagent.tail", "subagent_id"): 4000,
    ("prompt.background", "text"): 4012,
    ("prompt.btw", "text"): 4012,
    ("process.kill", "process_id"): 4012,
    ("session.set_hidden", "hidden"): 4021,
    ("session.cwd.set", "cwd"): 4016,
    ("clarify.lock", "request_id"): 4002,
    ("clarify.lock", "question_id"): 4002,
    ("request.answer", "id"): 4002,
    ("request.answer", "result"): 4002,
    ("clarify.respond", "request_id"): 4009,
    ("sudo.respond", "request_id"): 4009,
    ("secret.respond", "request_id"): 4009,
    ("terminal.read.respond", "request_id"): 4009,
    ("model.save_key", "slug"): 4001,
    ("model.save_key", "api_key"): 4001,
    ("model.disconnect", "slug"): 4001,
    ("config.get", "key"): 4002,
    ("config.set", "key"): 4002,
    ("cli.exec", "argv"): 4003,
    ("shell.exec", "command"): 4004,
    ("slash.exec", "command"): 4004,
    ("paste.collapse", "text"): 4004,
    ("image.attach", "path"): 4015,
    ("image.detach", "path"): 4015,
    ("rollback.diff", "hash"): 4014,
    ("rollback.restore", "hash"): 4014,
    ("spawn_tree.save", "subagents"): 4000,
    ("spawn_tree.load", "path"): 4000,
}
NEEDS_IDLE = {
    "session.undo",
    "session.undo_rewind",
    "session.compress",
    "session.cwd.set",
    "rollback.restore",
    "tools.configure",
}


@dataclass
class World:
    """One idle session with two turns, its configuration and its home."""

    tree: ServerTree
    host: GatewayHost
    home: Path
    session_id: str
    key: str

    def filled(self, params: dict[str, Any]) -> dict[str, Any]:
        return {name: {S: self.session_id, "<key>": self.key}.get(str(value), value) for name, value in params.items()}

    async def durable(self) -> Any:
        store = self.tree.services.store
        stored = await store.list_sessions(limit=100, include_hidden=True)
        rows = {one.key: await store.load_rows(one.key) for one in stored}
        files = {str(path): path.read_bytes() for path in sorted(self.home.rglob("*")) if path.is_file()}
        return stored, rows, files, self.tree.services.settings(), [one.key for one in self.tree.registry.live()]


@asynccontextmanager
async def world(home: Path, *more: Any) -> AsyncIterator[World]:
    services, _ = make_services(say("one"), say("two"), *more, home=home)
    config = LiveConfig(load_settings(environ={}, home=home))
    services = replace(services, config=config, settings=config.current)
    async with running_tree(services) as tree, connected(tree) as host:
        created = await host.call("session.create", cwd=str(home))
        made = World(tree, host, home, created["session_id"], created["stored_session_id"])
        for text in ("first", "second"):
            await host.call("prompt.submit", session_id=made.session_id, text=text)
            await host.event("message.complete")
        yield made


async def refusal(made: World, method: str, params: dict[str, Any]) -> Refusal:
    """What the call is refused with; nothing durable may have changed."""
    before = await made.durable()
    with pytest.raises(Refusal) as refused:
        await made.host.call(method, **params)
    assert await made.durable() == before
    assert await made.host.call("ping") == {"pong": True}
    return refused.value


def test_the_table_is_whole() -> None:
    assert set(GOOD) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
async def test_a_good_call(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    async with world(tmp_path) as made:
        params = made.filled(GOOD[name])
        if name in NOTHING_THERE:
            assert (await refusal(made, name, params)).code == NOTHING_THERE[name]
        else:
            await made.host.call(name, **params)


async def test_missing_parameters(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        for name in NAMES:
            method = STDIO_TABLE.find(name)
            assert method is not None and method.params is not None
            good = made.filled(GOOD[name])
            for field in [field for field, info in method.params.model_fields.items() if info.is_required()]:
                wanted = MISSING.get((name, field), 4001 if field == "session_id" else -32602)
                params = {key: value for key, value in good.items() if key != field}
                assert (await refusal(made, name, params)).code == wanted, (name, field)


async def test_mistyped_parameters(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        for name in NAMES:
            method = STDIO_TABLE.find(name)
            assert method is not None and method.params is not None
            for field, info in method.params.model_fields.items():
                kinds = (info.annotation, *get_args(info.annotation))
                if Any in kinds:
                    continue
                wrong: Any = 7 if any("dict" in str(kind) for kind in kinds) else {"an": "object"}
                code = (await refusal(made, name, {**made.filled(GOOD[name]), field: wrong})).code
                if info.is_required():
                    assert code == MISSING.get((name, field), 4001 if field == "session_id" else -32602), (name, field)
                else:
                    assert code in (-32602, -32000, 4000, 4001, 4002, 4004, 4011, 4021, 4064), (name, field)


async def test_a_closed_session_is_unknown_everywhere(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        closed = (await made.host.call("session.create"))["session_id"]
        await made.host.call("session.close", session_id=closed)
        for name in NAMES:
            if GOOD[name].get("session_id") != S:
                continue
            params = {**made.filled(GOOD[name]), "session_id": closed}
            if name == "session.close":
                assert await made.host.call(name, **params) == {"closed": False, "messages": []}
            else:
                assert (await refusal(made, name, params)).code == 4001, name


@pytest.mark.parametrize("name", [name for name in NAMES if GOOD[name].get("session_id") == S])
async def test_a_busy_session(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    async with world(tmp_path, hang()) as made:
        await made.host.call("prompt.submit", session_id=made.session_id, text="third")
        await made.host.event("message.start")
        params = made.filled(GOOD[name])
        if name in NEEDS_IDLE:
            refused = await refusal(made, name, params)
            assert refused.code == 4009 and "session busy" in refused.message
        elif name in NOTHING_THERE:
            assert (await refusal(made, name, params)).code == NOTHING_THERE[name]
        else:
            await made.host.call(name, **params)


async def test_a_rewind_of_a_busy_session_is_refused_and_queues_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, hang()) as made:
        await made.host.call("prompt.submit", session_id=made.session_id, text="third")
        await made.host.event("message.start")
        rewind = {"session_id": made.session_id, "text": "x", "truncate_before_row_id": 1, "confirm_truncate": True}
        assert (await refusal(made, "prompt.submit", rewind)).code == 4009
        assert made.tree.registry.get(made.session_id).slot.queued == ()


FLAGS = [
    (name, field)
    for name in STDIO_TABLE.names()
    for field, info in STDIO_TABLE.find(name).params.model_fields.items()  # type: ignore[union-attr]
    if bool in (info.annotation, *get_args(info.annotation)) or "Strict" in repr(info.annotation)
]


@pytest.mark.parametrize(("name", "field"), FLAGS)
def test_what_only_looks_like_yes_is_no_boolean(name: str, field: str) -> None:
    method = STDIO_TABLE.find(name)
    assert method is not None
    for value in ("yes", "true", "on", "0", 1, 0, 1.0):
        with pytest.raises(ValidationError) as caught:
            method.params.model_validate({field: value})
        assert (field,) in [error["loc"][:1] for error in caught.value.errors()]
