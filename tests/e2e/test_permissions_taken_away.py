"""File permissions are taken away from a running server: it goes on, and a start afterwards has everything."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import trio

from hermes.testing import FakeProvider, Script
from tests.support.server_process import COMMAND, server_process

pytestmark = pytest.mark.e2e


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}


@pytest.fixture
def bound_command(tmp_path: Path) -> Path:
    """``hermes`` to which file permissions apply, whoever runs the tests."""
    if os.geteuid() != 0:
        return COMMAND
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("file permissions do not bind this user")
    path = tmp_path / "hermes"
    taken = "-dac_override,-dac_read_search"
    path.write_text(f'#!/bin/sh\nexec {setpriv} --bounding-set={taken} --inh-caps={taken} {COMMAND} "$@"\n')
    path.chmod(0o755)
    return path


async def test_permissions_that_are_taken_away_while_it_runs_lose_nothing(tmp_path: Path, bound_command: Path) -> None:
    """Its files are open: it goes on, and a start afterwards has everything."""
    home = tmp_path / "home"
    with trio.fail_after(60):
        async with FakeProvider(Script(strict=True)) as provider:
            environ = environment(provider)
            async with server_process(home, "gateway", environ=environ, command=bound_command) as server:
                made = await server.call("session.create", {})
                for number, text in enumerate(["one", "two", "three"]):
                    if number == 1:
                        (home / "sessions.db").chmod(0o400)
                        home.chmod(0o500)
                    if number == 2:
                        home.chmod(0o700)
                        (home / "sessions.db").chmod(0o600)
                    at = len(server.frames)
                    await server.call("prompt.submit", {"session_id": made["session_id"], "text": text})
                    end = await server.event("message.complete", after=at)
                    assert end["params"]["payload"]["status"] == "complete"
                assert await server.stop() == 0
            async with server_process(home, "gateway", environ=environ, command=bound_command) as server:
                back = await server.call("session.resume", {"session_id": made["stored_session_id"]})
                assert [message["text"] for message in back["messages"]] == [
                    text for text in ("one", "two", "three") for _ in range(2)
                ]
