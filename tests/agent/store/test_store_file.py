"""The file: who may open it, how it is created and migrated, and what is said when it cannot be used."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import trio

from hermes.agent.ports import StoredSession
from hermes.agent.store import history
from hermes.agent.store.rows import encode_row
from hermes.agent.store.schema import MIGRATIONS, connect, migrate, prepare_file, read_version
from hermes.agent.store.sqlite import SqliteStore
from hermes.errors import StoreUnavailable
from hermes.messages import RewindIntent, Row, ToolCall


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "sessions.db"


async def filled(path: Path, rows: int = 200) -> None:
    async with await SqliteStore.open(path) as store:
        await store.create_session(StoredSession("s"))
        await store.append_rows("s", [Row("user", f"row {number} " * 20, 1.0) for number in range(rows)])


async def refusal(path: Path, **options: float) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as refused:
        await SqliteStore.open(path, **options)  # type: ignore[arg-type]
    assert str(path.parent) not in refused.value.message
    return refused.value


async def test_the_file_is_for_its_owner_alone_and_nothing_else_is_left_beside_it(path: Path) -> None:
    await filled(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["sessions.db"]
    path.chmod(0o644)
    async with await SqliteStore.open(path):
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


async def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    await filled(path)
    async with await SqliteStore.open(path) as store:
        assert len(await store.load_rows("s")) == 200


async def test_a_foreign_database_is_refused_and_left_untouched(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER)")
        connection.execute("INSERT INTO schema_version VALUES (31)")
    connection.close()
    before = path.read_bytes()
    assert (await refusal(path)).cause == "foreign"
    assert path.read_bytes() == before


async def test_a_newer_database_is_refused_and_left_untouched(path: Path) -> None:
    await filled(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE schema_version SET version = 99")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    assert (await refusal(path)).cause == "newer"
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["head", "middle", "cut"])
async def test_a_damaged_database_is_refused(path: Path, damage: str) -> None:
    await filled(path, rows=2000)
    data = bytearray(path.read_bytes())
    match damage:
        case "head":
            data[:64] = random.Random(1).randbytes(64)
        case "middle":
            data[4096:] = random.Random(1).randbytes(len(data) - 4096)
        case _:
            del data[len(data) // 2 :]
    path.write_bytes(data)
    assert (await refusal(path)).cause == "corrupt"


async def test_damage_found_later_is_named_and_the_store_goes_on(path: Path) -> None:
    await filled(path, rows=2000)
    async with await SqliteStore.open(path) as store:
        data = bytearray(path.read_bytes())
        data[8192:] = b"\xff" * (len(data) - 8192)
        path.write_bytes(data)
        with pytest.raises(StoreUnavailable) as refused:
            await store.load_rows("s")
        assert refused.value.cause == "corrupt"


async def test_migrations_run_in_order_once_and_keep_the_data(path: Path) -> None:
    await filled(path)
    steps = (*MIGRATIONS, ("ALTER TABLE sessions ADD COLUMN extra TEXT DEFAULT 'x'",), ("CREATE TABLE added (a)",))
    for _ in range(2):
        prepare_file(path, lock_timeout=1, migrations=steps)
        connection = connect(path, lock_timeout=1)
        assert read_version(connection) == len(MIGRATIONS) + 2
        assert connection.execute("SELECT extra FROM sessions").fetchall() == [("x",)]
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (200,)
        connection.close()


async def test_a_migration_that_fails_leaves_the_version_before_it(path: Path) -> None:
    await filled(path)
    connection = connect(path, lock_timeout=1)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (*MIGRATIONS, ("CREATE TABLE added (a)", "CREATE TABLE added (a)")))
    assert read_version(connection) == len(MIGRATIONS)
    assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'added'").fetchone() is None
    connection.close()
    async with await SqliteStore.open(path) as store:
        assert len(await store.load_rows("s")) == 200


# --- failing writes --------------------------------------------------------------------------------------------------


async def conversation(store: SqliteStore) -> tuple[Row, ...]:
    await store.create_session(StoredSession("s"))
    await store.append_rows("s", [Row("user", "a"), Row("assistant", "A"), Row("user", "b"), Row("assistant", "B")])
    return await store.load_rows("s")


async def expect_failure(store: SqliteStore, cause: str, before: tuple[Row, ...]) -> None:
    """Appends and rewinds fail with the cause, and change nothing."""
    big = "x" * 1_000_000
    for attempt in (
        lambda: store.append_rows("s", [Row("user", big)]),
        lambda: store.rewind("s", RewindIntent(ordinal=1), [Row("user", big)]),
    ):
        with pytest.raises(StoreUnavailable) as refused:
            await attempt()
        assert refused.value.cause == cause
    assert await store.load_rows("s") == before


async def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        before = await conversation(store)
        size = await store.writer.run(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
        await store.writer.run(lambda db: db.execute(f"PRAGMA max_page_count = {size + 4}").fetchone())
        await expect_failure(store, "full", before)
        await store.writer.run(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchone())
        result = await store.rewind("s", RewindIntent(ordinal=1), [Row("user", "x" * 1_000_000)])
        assert await store.load_rows("s") == before[:2] + result.new_rows


async def test_who_fits_still_passes_when_another_write_fills_the_disk(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        await conversation(store)
        size = await store.writer.run(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
        await store.writer.run(lambda db: db.execute(f"PRAGMA max_page_count = {size + 20}").fetchone())
        refused: list[str] = []

        async def append(text: str) -> None:
            try:
                await store.append_rows("s", [Row("user", text)])
            except StoreUnavailable as error:
                refused.append(error.cause)

        async with trio.open_nursery() as nursery:
            for text in ("one", "x" * 1_000_000, "two"):
                nursery.start_soon(append, text)
        assert refused == ["full"]
        assert sorted(row.text for row in (await store.load_rows("s"))[4:]) == ["one", "two"]


async def test_a_read_only_database_is_read_and_not_written(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        before = await conversation(store)
        await store.writer.run(lambda db: db.execute("PRAGMA query_only = 1"))
        await expect_failure(store, "read_only", before)


@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not bind this user")
async def test_a_file_without_write_permission_is_refused_as_read_only(path: Path) -> None:
    await filled(path)
    path.chmod(0o400)
    path.parent.chmod(0o500)
    assert (await refusal(path)).cause == "read_only"


async def test_a_database_locked_by_another_program_is_read_and_written_again_afterwards(path: Path) -> None:
    async with await SqliteStore.open(path, lock_timeout=0.05) as store:
        before = await conversation(store)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await expect_failure(store, "locked", before)
        async with await SqliteStore.open(path, lock_timeout=0.05) as second:
            assert await second.load_rows("s") == before
        other.execute("ROLLBACK")
        other.close()
        await store.append_rows("s", [Row("user", "c")])


async def test_a_write_waits_for_a_short_lock(path: Path) -> None:
    async with await SqliteStore.open(path, lock_timeout=20) as store:
        await conversation(store)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append_rows, "s", [Row("user", "c")])
            await trio.sleep(0)
            other.execute("COMMIT")
        other.close()
        assert len(await store.load_rows("s")) == 5


async def test_two_stores_on_one_file_number_their_rows_without_collision(path: Path) -> None:
    async with await SqliteStore.open(path) as one, await SqliteStore.open(path) as two:
        await one.create_session(StoredSession("s"))

        async def append(store: SqliteStore) -> None:
            for number in range(100):
                await store.append_rows("s", [Row("user", str(number))])

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(append, one)
                nursery.start_soon(append, two)
        rows = await one.load_rows("s")
        assert len({row.row_id for row in rows}) == 200
        assert rows == await two.load_rows("s")


async def test_many_processes_may_create_the_same_file_at_once(path: Path) -> None:
    path.parent.mkdir()

    async def create() -> None:
        await trio.to_thread.run_sync(lambda: prepare_file(path, lock_timeout=10))

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(create)
    async with await SqliteStore.open(path) as store:
        await store.create_session(StoredSession("s"))
    assert [file.name for file in path.parent.iterdir()] == ["sessions.db"]


async def test_a_closed_store_says_so(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.aclose()
    await store.aclose()
    for attempt in (
        lambda: store.get_session("s"),
        lambda: store.load_rows("s"),
        lambda: store.append_rows("s", []),
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            await attempt()


async def test_a_cancelled_scan_gives_up_its_caller_and_keeps_the_store_usable(path: Path) -> None:
    await filled(path, rows=3000)
    async with await SqliteStore.open(path, readers=1) as store:
        for number in range(20):
            with trio.CancelScope() as scope:
                scope.deadline = trio.current_time() + number * 0.001
                await store.load_rows("s")
        with trio.fail_after(20):
            assert len(await store.load_rows("s")) == 3000


async def test_loading_many_rows_takes_at_most_four_times_what_plain_sqlite_and_json_take(
    path: Path, tmp_path: Path
) -> None:
    rows = []
    for number in range(1250):
        call = ToolCall(f"c{number}", "read_file", '{"path":"a"}')
        rows += [
            Row("user", f"question {number} " * 10, 1.0),
            Row("assistant", "I look", 1.0, tool_calls=(call,), finish_reason="tool_calls"),
            Row("tool", "out " * 50, 1.0, tool_call_id=call.id, tool_name="read_file"),
            Row("assistant", "answer " * 30, 1.0, finish_reason="stop"),
        ]
    plain = sqlite3.connect(tmp_path / "plain.db")
    plain.execute("CREATE TABLE m (id INTEGER PRIMARY KEY, body TEXT)")
    documents = [
        {"role": row.role, "content": row.content, "timestamp": row.timestamp, "tool_call_id": row.tool_call_id}
        | {"tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in row.tool_calls]}
        for row in rows
    ]
    plain.executemany("INSERT INTO m (body) VALUES (?)", [(json.dumps(document),) for document in documents])
    plain.commit()
    async with await SqliteStore.open(path) as store:
        await store.create_session(StoredSession("s"))
        await store.append_rows("s", rows)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(9):
            start = time.perf_counter()
            assert len([json.loads(body) for (body,) in plain.execute("SELECT body FROM m ORDER BY id")]) == 5000
            theirs.append(time.perf_counter() - start)
            start = time.perf_counter()
            assert len(await store.load_rows("s")) == 5000
            ours.append(time.perf_counter() - start)
    plain.close()
    assert min(ours) <= 4 * min(theirs)


async def test_a_database_of_the_first_version_is_brought_to_this_one(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    prepare_file(path, lock_timeout=1, migrations=MIGRATIONS[:1])
    with closing(connect(path, lock_timeout=1)) as connection:
        connection.execute("INSERT INTO sessions (key, source) VALUES ('s', 'tui')")
        connection.execute("INSERT INTO messages (session_key, position, role, content) VALUES ('s', 1, 'user', 'old')")
    async with await SqliteStore.open(path) as store:
        assert [row.text for row in await store.load_transcript("s")] == ["old"]
        result = await store.rewind("s", RewindIntent(ordinal=0, confirm_empty=True), [Row("user", "new", 1.0)])
        assert [row.text for row in result.removed] == ["old"]


async def test_a_rewind_costs_what_it_cuts_however_long_the_session_is(path: Path) -> None:
    """Counted in steps of the database's machine."""

    def cost(key: str) -> int:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        with closing(connect(path, lock_timeout=1)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.set_progress_handler(count, 1)
            row = encode_row(Row("user", "again", 1.0))
            history.rewind(connection, key, RewindIntent(ordinal=3), [row], expected_version=None)
            connection.set_progress_handler(None, 0)
            connection.execute("ROLLBACK")
        return steps

    async with await SqliteStore.open(path) as store:
        for key, length in (("short", 5), ("long", 500)):
            await store.create_session(StoredSession(key))
            for number in range(4):
                calls = [ToolCall(f"{number}.{call}", "x", "{}") for call in range(length if number < 3 else 5)]
                work = [Row("tool", "y", 1.0, tool_call_id=call.id) for call in calls]
                prompt, answer = (
                    Row("user", f"prompt {number}", 1.0),
                    Row("assistant", None, 1.0, tool_calls=tuple(calls)),
                )
                await store.append_rows(key, [prompt, answer, *work, Row("assistant", "done", 1.0)])
    assert cost("long") < 1.1 * cost("short")
