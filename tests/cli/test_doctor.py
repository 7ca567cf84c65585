"""What ``hermes doctor`` finds in homes that are broken in one way each, and that it changes nothing unasked."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.cli import doctor_checks
from hermes.cli.doctor_checks import Finding, Level
from hermes.nurseries.process_tree import TAG_VARIABLE, OwnerTag, owner_tag
from hermes.start import DATABASE
from hermes.testing.seed import seed
from tests.support.command_line import Run, runner
from tests.support.server_process import free_port


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> Run:
    monkeypatch.setenv("API_SERVER_PORT", str(free_port()))
    return runner(monkeypatch, capsys, home)


def examined(run: Run, *options: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    code, out, _ = run("doctor", "--json", *options)
    topics: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(out):
        topics.setdefault(finding["topic"], []).append(finding)
    return code, topics


def snapshot(home: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mode, path.read_bytes()) for path in home.iterdir() if path.is_file()}


def test_a_fresh_home_has_nothing_wrong_and_stays_empty(run: Run, home: Path) -> None:
    code, topics = examined(run)
    assert code == 0
    assert [topic for topic, found in topics.items() if any(item["level"] == "wrong" for item in found)] == []
    assert topics["model"][0]["level"] == "warning"
    assert list(home.iterdir()) == []


def test_a_home_that_is_missing_is_not_made(run: Run, home: Path) -> None:
    code, topics = examined(run, "--home", str(home / "elsewhere"))
    assert (code, topics["home"][0]["level"]) == (0, "warning")
    assert not (home / "elsewhere").exists()


def test_a_home_that_is_a_file_is_wrong(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("HERMES_HOME", str(home / "file"))
    code, topics = examined(run)
    assert (code, topics["home"][0]["level"]) == (1, "wrong")


def test_files_open_to_others_are_named_and_repaired_only_on_request(run: Run, home: Path) -> None:
    (home / ".env").write_text("OPENAI_API_KEY=sk-0123456789\n")
    (home / ".env").chmod(0o644)
    before = snapshot(home)
    code, topics = examined(run, "--offline")
    assert code == 1
    assert [finding["advice"] for finding in topics["file mode"]] == [f"chmod 600 {home / '.env'} (or --fix)"]
    assert snapshot(home) == before
    code, topics = examined(run, "--offline", "--fix")
    assert (code, topics["file mode"][0]["level"]) == (0, "ok")
    assert (home / ".env").stat().st_mode & 0o777 == 0o600


def test_a_configuration_that_is_no_yaml_is_wrong_and_the_rest_is_still_looked_at(run: Run, home: Path) -> None:
    (home / "config.yaml").write_text("model: [unclosed\n")
    code, topics = examined(run)
    assert (code, topics["configuration"][0]["level"]) == (1, "wrong")
    assert "database" in topics
    assert "leftovers" in topics


def test_invalid_settings_are_warnings(run: Run, home: Path) -> None:
    (home / "config.yaml").write_text("limits:\n  kill_grace: soon\nnonsense: 1\n")
    (home / "config.yaml").chmod(0o600)
    code, topics = examined(run)
    assert (code, [finding["level"] for finding in topics["configuration"]]) == (0, ["warning", "warning"])


def test_a_whole_database_is_said_to_be_whole(run: Run, home: Path) -> None:
    trio.run(seed, home, 12)
    code, topics = examined(run)
    assert topics["database"] == [
        {"level": "ok", "topic": "database", "text": "whole; 1 session", "advice": ""},
    ]
    assert code == 0


def test_a_damaged_database_is_wrong(run: Run, home: Path) -> None:
    trio.run(seed, home, 400)
    with closing(sqlite3.connect(home / DATABASE)) as connection, connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = home / DATABASE
    data = bytearray(path.read_bytes())
    for start in range(8192, len(data), 4096):
        data[start : start + 512] = b"\xff" * 512
    path.write_bytes(data)
    code, topics = examined(run)
    assert (code, topics["database"][0]["level"]) == (1, "wrong")


@pytest.mark.parametrize("content", [b"", b"this is no database, but it is here anyway" * 40])
def test_another_file_in_the_place_of_the_database_is_wrong_and_untouched(content: bytes, run: Run, home: Path) -> None:
    (home / DATABASE).write_bytes(content)
    (home / DATABASE).chmod(0o600)
    before = snapshot(home)
    code, topics = examined(run)
    assert (code, topics["database"][0]["level"]) == (1, "wrong")
    assert snapshot(home) == before


def test_a_turn_that_died_with_its_server_is_told(run: Run, home: Path) -> None:
    key = trio.run(seed, home, 4)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with closing(sqlite3.connect(home / DATABASE)) as connection, connection:
        connection.execute(
            "INSERT OR REPLACE INTO turn_leases (session_key, host, pid, start_time, nonce, expires_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (key, os.uname().nodename, gone.pid, 1, "n", 4e9),
        )
    connection.close()
    code, topics = examined(run)
    assert code == 0
    assert topics["database"][1]["text"] == f"{key}: its last turn died with process {gone.pid}"


def test_a_weak_server_key_is_wrong(run: Run, home: Path) -> None:
    (home / "server.key").write_text("short\n")
    (home / "server.key").chmod(0o600)
    code, topics = examined(run)
    assert (code, topics["server key"][0]["level"]) == (1, "wrong")


@pytest.fixture
def other_program() -> Iterator[int]:
    """A port that somebody holds who says nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_that_another_program_holds_is_wrong(
    run: Run, other_program: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "ASK_WITHIN", 0.2)
    monkeypatch.setenv("API_SERVER_PORT", str(other_program))
    code, topics = examined(run)
    assert code == 1
    assert topics["port"][0]["text"] == f"another program holds 127.0.0.1:{other_program}"


def test_an_endpoint_that_does_not_answer_is_wrong_and_offline_does_not_ask(run: Run, home: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}/v1"
    (home / "config.yaml").write_text(f"model:\n  default: m\n  provider: custom\n  base_url: {address}\n")
    (home / "config.yaml").chmod(0o600)
    code, topics = examined(run)
    assert (code, topics["model"][0]["level"]) == (1, "wrong")
    code, topics = examined(run, "--offline")
    assert (code, topics["model"][0]["level"]) == (0, "ok")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_processes_of_a_dead_server_are_named_and_killed_only_on_request(run: Run, home: Path) -> None:
    mine = owner_tag(str(home))
    dead = OwnerTag(2**22 + 1, 1, mine.home, "dead")
    leftover = subprocess.Popen(["sleep", "300"], env={**os.environ, TAG_VARIABLE: f"{dead}.1"})
    try:
        code, topics = examined(run)
        assert code == 1
        assert str(leftover.pid) in topics["leftovers"][0]["text"]
        assert leftover.poll() is None
        code, topics = examined(run, "--fix")
        assert (code, topics["leftovers"][0]["level"]) == (0, "ok")
        assert leftover.wait(10) == -signal.SIGKILL
    finally:
        leftover.kill()
        leftover.wait()


def test_people_see_signs_and_a_verdict(run: Run, home: Path) -> None:
    (home / "server.key").write_text("short\n")
    (home / "server.key").chmod(0o600)
    code, out, _ = run("doctor", "--offline")
    assert code == 1
    assert "server.key is too short" in out
    assert out.endswith("\n1 wrong.\n")


def test_a_finding_is_data() -> None:
    assert Finding(Level.OK, "a", "b") == Finding(Level.OK, "a", "b", "")
