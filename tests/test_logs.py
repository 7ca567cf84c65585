"""Where log records go and what they carry."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from hermes.logs import FACTS, DescriptorHandler, LogFields, LogOptions, current_log_fields, log_fields, set_up_logging


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raise_exceptions = root.handlers[:], root.level, logging.raiseExceptions
    yield
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        if handler not in handlers:
            handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(False)
    logging.raiseExceptions = raise_exceptions


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def hide(text: str) -> str:
    return text.replace("hunter2", "***")


def test_a_text_record_names_its_session_and_turn(pipe: tuple[int, int]) -> None:
    set_up_logging(LogOptions(), hide, stderr=pipe[1])
    with log_fields(session="s1"), log_fields(turn="t1"):
        logging.getLogger("hermes.x").info("password %s", "hunter2")
    line = os.read(pipe[0], 4096).decode()
    assert line.endswith("INFO hermes.x [session=s1 turn=t1] password ***\n")
    assert current_log_fields() == LogFields()


def test_a_json_record_is_one_line_with_its_traceback_redacted(pipe: tuple[int, int]) -> None:
    set_up_logging(LogOptions(json=True), hide, stderr=pipe[1])
    with log_fields(request="r1"):
        try:
            raise ValueError("hunter2\nsecond line")
        except ValueError:
            logging.getLogger("hermes.x").exception("failed")
    line = os.read(pipe[0], 8192).decode()
    entry = json.loads(line)
    assert line.count("\n") == 1
    assert (entry["level"], entry["message"], entry["request"]) == ("error", "failed", "r1")
    assert "ValueError: ***" in entry["traceback"]
    assert "hunter2" not in line


def test_the_facts_of_a_record_are_fields_of_a_json_line_and_redacted(pipe: tuple[int, int]) -> None:
    set_up_logging(LogOptions(json=True), hide, stderr=pipe[1])
    facts = {"event": "turn_ended", "duration_s": 1.5, "reason": "hunter2", "cause": None}
    with log_fields(session="s1", turn="t1", request="r1"):
        logging.getLogger("hermes.x").info("done", extra={FACTS: facts})
    entry = json.loads(os.read(pipe[0], 4096))
    assert {name: entry[name] for name in facts} == facts | {"reason": "***"}
    assert (entry["session"], entry["turn"], entry["request"]) == ("s1", "t1", "r1")


def test_a_level_filters_records(pipe: tuple[int, int]) -> None:
    set_up_logging(LogOptions(level="WARNING"), stderr=pipe[1])
    logging.getLogger("hermes.x").info("quiet")
    logging.getLogger("hermes.x").warning("loud")
    assert b"quiet" not in os.read(pipe[0], 4096)


def test_files_are_private_rotate_and_split_errors(tmp_path: Path) -> None:
    set_up_logging(LogOptions(to_files=True, directory=tmp_path / "logs", max_bytes=400, backups=2), hide)
    for number in range(20):
        logging.getLogger("hermes.x").info("line %d hunter2", number)
    logging.getLogger("hermes.x").error("broken")
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == ["agent.log", "agent.log.1", "agent.log.2", "errors.log"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "logs").iterdir()} == {0o600}
    assert "hunter2" not in (tmp_path / "logs" / "agent.log").read_text()
    assert (tmp_path / "logs" / "errors.log").read_text().count("\n") == 1


def test_a_reader_that_does_not_read_never_makes_a_log_call_wait(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    handler = DescriptorHandler(writer)
    record = logging.LogRecord("hermes.x", logging.INFO, "", 0, "x" * 1000, None, None)
    for _ in range(200):
        handler.emit(record)
    assert len(os.read(reader, 1 << 20)) <= 1 << 16
    handler.emit(logging.LogRecord("hermes.x", logging.INFO, "", 0, "again", None, None))
    text = os.read(reader, 4096).decode()
    assert "log records dropped" in text
    assert text.endswith("again\n")


def test_a_reader_that_is_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    handler = DescriptorHandler(writer)
    os.close(reader)
    handler.emit(logging.LogRecord("hermes.x", logging.INFO, "", 0, "text", None, None))
    os.close(writer)


async def test_tasks_inherit_fields_and_do_not_leak_them() -> None:
    seen: dict[str, LogFields] = {}

    async def child(name: str) -> None:
        with log_fields(turn=name):
            await trio.lowlevel.checkpoint()
            seen[name] = current_log_fields()

    with log_fields(session="s"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child, "a")
            nursery.start_soon(child, "b")
        assert current_log_fields() == LogFields(session="s")
    assert seen == {"a": LogFields("s", "a"), "b": LogFields("s", "b")}
