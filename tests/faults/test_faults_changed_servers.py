"""What only a changed server shows: a pause before a rename, signals that may not be sent, a store gone read-only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.drivers import SURFACES, AcpDriver, GatewayDriver, HttpDriver
from tests.support.fault_play import calls, events, playing, say, terminal, user_texts
from tests.support.plugins import changed_command
from tests.support.process_probe import Marks, running_with
from tests.support.server_process import assert_no_children, children_of

pytestmark = pytest.mark.e2e
MARKS = Marks()
ALLOWED = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
PAUSE_BEFORE_RENAME = """
import os, pathlib, time
from hermes.agent.tools import file_access
original = file_access._check_expected
def pause(write):
    original(write)
    pathlib.Path(os.environ["STAGED"]).touch()
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.005)
file_access._check_expected = pause
"""
NO_SIGNAL_TO_GROUPS = """
import os
def refused(group, number):
    raise PermissionError(1, "Operation not permitted")
os.killpg = refused
"""
NO_POLITE_SIGNAL = (
    NO_SIGNAL_TO_GROUPS
    + """
import signal
send = signal.pidfd_send_signal
def only_kill(handle, number, *more):
    if number == signal.SIGTERM:
        raise PermissionError(1, "Operation not permitted")
    return send(handle, number, *more)
signal.pidfd_send_signal = only_kill
"""
)
# What a file system that was remounted read-only gives: every statement that writes fails with that very code.
READ_ONLY_WHEN_TOLD = """
import os, sqlite3
connect = sqlite3.connect
class Guarded(sqlite3.Connection):
    told = None
    def execute(self, sql, *more):
        wanted = os.path.exists(os.environ["READ_ONLY"])
        if wanted != self.told and not self.in_transaction:
            self.told = wanted
            super().execute(f"PRAGMA query_only = {int(wanted)}")
        return super().execute(sql, *more)
def guarded(*args, **options):
    return connect(*args, **{"factory": Guarded, **options})
sqlite3.connect = guarded
"""


async def allow_until(driver: Any, path: Path) -> None:
    """Wait for the file; what an editor is asked meanwhile, it allows."""
    answered: set[Any] = set()
    while not path.exists():
        if isinstance(driver, AcpDriver):
            for one in driver.server.frames:
                if one.get("method") == "session/request_permission" and one["id"] not in answered:
                    answered.add(one["id"])
                    await driver.server.send({"jsonrpc": "2.0", "id": one["id"], "result": ALLOWED})
        await trio.sleep(0.01)


@pytest.mark.fault("B-027")
@pytest.mark.parametrize("tool", ["write_file", "patch"])
@pytest.mark.parametrize("surface", ["gateway websocket", "acp", "http run", "http chat"])
async def test_a_stop_just_before_the_rename_leaves_the_file_whoever_asked(
    surface: str, tool: str, tmp_path: Path
) -> None:
    target, staged, go_on = tmp_path / "notes.txt", tmp_path / "staged", tmp_path / "go"
    target.write_text("old\n")
    arguments = {"path": str(target), "content": "new\n"}
    if tool == "patch":
        arguments = {"path": str(target), "old_string": "old", "new_string": "new"}
    command = changed_command(tmp_path, PAUSE_BEFORE_RENAME)
    environ = {"STAGED": str(staged), "GO": str(go_on)}
    work = (calls((tool, arguments)), say("next"))
    async with playing(tmp_path / "home", *work, surface=surface, environ=environ, command=command, limit=60) as (
        driver,
        provider,
    ):
        await driver.start("go")
        await allow_until(driver, staged)
        await driver.stop()
        if isinstance(driver, AcpDriver):
            # A notification has no answer: what is answered behind it comes later than it.
            await driver.server.request("session/list", {})
        elif isinstance(driver, HttpDriver):
            while (await driver.status())["status"] == "running":
                await trio.sleep(0.01)
        go_on.touch()
        assert (await driver.terminal())["status"] == "interrupted"
        assert target.read_text() == "old\n"
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"
        (result,) = [r["content"] for r in provider.requests[1].body["messages"] if r["role"] == "tool"]
        assert "interrupted" in result or "cancelled" in result or "stopped" in result, result
        assert target.read_text() == "old\n"
        assert sorted(path.name for path in tmp_path.glob("*notes*")) == ["notes.txt"]


@pytest.mark.fault("B-173")
@pytest.mark.parametrize(
    ("surface", "change"),
    [(surface, NO_SIGNAL_TO_GROUPS) for surface in SURFACES]
    + [(surface, NO_POLITE_SIGNAL) for surface in ("gateway stdio", "acp", "http run")],
    ids=[f"{surface}, no group" for surface in SURFACES] + ["stdio, only KILL", "acp, only KILL", "run, only KILL"],
)
async def test_a_turn_ends_with_its_processes_although_signals_may_not_be_sent(
    surface: str, change: str, tmp_path: Path
) -> None:
    first, last = MARKS.next(), MARKS.next()
    work = (terminal(f"sleep {first} & sleep {last}"), say("next"))
    command = changed_command(tmp_path, change)
    async with playing(tmp_path / "home", *work, surface=surface, command=command, limit=60) as (driver, _):
        await driver.start("go")
        while not all(any(mark in line for line in children_of(driver.server).values()) for mark in (first, last)):
            await trio.sleep(0.01)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        assert [running_with(mark) for mark in (first, last)] == [[], []]
        await assert_no_children(driver.server)
        await driver.server.wait_until(lambda: "may not be sent SIGTERM" in driver.server.stderr)
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"


@pytest.mark.fault("B-119")
async def test_a_rewind_in_a_store_that_became_read_only_has_not_happened(tmp_path: Path) -> None:
    flag = tmp_path / "read-only"
    command = changed_command(tmp_path, READ_ONLY_WHEN_TOLD)
    work = [say("1"), say("2"), say("3")]
    environ = {"READ_ONLY": str(flag)}
    async with playing(tmp_path / "home", *work, environ=environ, command=command, limit=60) as (driver, provider):
        assert isinstance(driver, GatewayDriver)
        for text in ("one", "two"):
            await driver.start(text)
            assert (await driver.terminal())["status"] == "complete"
        session = {"session_id": driver.session_id}
        before = await driver.call("session.history", session)
        rewind = {"truncate_before_user_ordinal": 0, "confirm_truncate": True, "confirm_empty_truncate": True}
        flag.touch()
        refused = await driver.request("prompt.submit", {**session, "text": "anew", **rewind})
        assert refused["error"]["code"] in (5008, 5071), refused
        refused = await driver.request("prompt.submit", {**session, "text": "more"})
        assert refused["error"]["code"] == 5071 and refused["error"]["data"]["cause"] == "read_only", refused
        assert await driver.call("session.history", session) == before
        assert len(provider.requests) == 2 == len(events(driver, "message.complete"))
        flag.unlink()
        driver._turn_from = len(driver.frames)
        accepted = await driver.call("prompt.submit", {**session, "text": "anew", **rewind})
        assert accepted["status"] == "streaming"
        assert (await driver.terminal())["status"] == "complete"
        assert user_texts(provider.requests[-1]) == ["anew"]
