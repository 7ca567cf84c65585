"""The transcript a person sees beside the context a compression has left: shown, cut, brought back, copied, deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import StoredSession, TranscriptStore
from hermes.agent.store.memory import MemoryStore
from hermes.agent.store.sqlite import SqliteStore
from hermes.errors import Conflict, NothingToUndo, StaleRewindTarget
from hermes.messages import RewindIntent, Row

OpenStore = Any


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    @asynccontextmanager
    async def opened() -> AsyncIterator[TranscriptStore]:
        store: TranscriptStore
        if request.param == "memory":
            store = MemoryStore()
        else:
            store = await SqliteStore.open(tmp_path / "home" / "sessions.db")
        try:
            with trio.fail_after(30):
                yield store
        finally:
            await store.aclose()

    return opened


def user(text: str, **fields: Any) -> Row:
    return Row("user", text, 1.0, **fields)


def assistant(text: str, **fields: Any) -> Row:
    return Row("assistant", text, 2.0, **fields)


def shown(rows: Sequence[Row]) -> str:
    """The texts; compacted ones in brackets."""
    return " ".join(f"({row.text})" if row.compacted else row.text for row in rows)


async def conversation(store: TranscriptStore, *texts: str) -> tuple[Row, ...]:
    await store.create_session(StoredSession("s"))
    for text in texts:
        await store.append_rows("s", [user(text), assistant(text.upper())])
    return await store.load_rows("s")


async def summarize(store: TranscriptStore, rows: Sequence[Row], text: str = "sum") -> tuple[Row, ...]:
    session = await store.get_session("s")
    assert session is not None
    return await store.replace_with_summary(
        "s",
        summarized_ids=[row.row_id or 0 for row in rows],
        summary_rows=[user(text, compacted_summary=True, display_kind="hidden")],
        expected_version=session.history_version,
    )


async def test_compacted_rows_are_shown_in_their_old_places_and_are_no_part_of_the_context(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c")
        assert await store.load_transcript("s") == rows
        await summarize(store, rows[2:4])
        assert shown(await store.load_rows("s")) == "a A sum c C"
        whole = await store.load_transcript("s")
        assert shown(whole) == "a A (b) (B) sum c C"
        assert [row.row_id for row in whole if not row.compacted_summary] == [row.row_id for row in rows]
        assert shown(await store.load_transcript("s", limit=3)) == "sum c C"


async def test_a_second_summary_hides_the_first_and_nothing_that_was_said(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c", "d")
        active = await summarize(store, rows[2:4], "sum")
        await summarize(store, active[2:5], "sum 2")
        assert shown(await store.load_rows("s")) == "a A sum 2 d D"
        assert shown(await store.load_transcript("s")) == "a A (b) (B) (c) (C) sum 2 d D"


async def test_a_cut_before_the_compacted_part_takes_it_along_and_its_undo_brings_it_back_as_it_was(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c")
        active = await summarize(store, rows[1:4])
        whole = await store.load_transcript("s")
        assert await store.search("b") != []
        cut = await store.rewind("s", RewindIntent(ordinal=0, confirm_empty=True), [user("a2")])
        assert (cut.removed, cut.survivors) == (whole, ())
        assert shown(await store.load_transcript("s")) == shown(await store.load_rows("s")) == "a2"
        assert await store.search("b") == []
        assert await store.undo_rewind("s") == whole
        assert await store.load_transcript("s") == whole
        assert await store.load_rows("s") == active
        assert len(await store.search("b")) == 2


async def test_a_cut_behind_the_summary_leaves_it_and_names_what_is_out_of_reach(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c", "d")
        await summarize(store, rows[2:4])
        for ordinal in (1, 4, -1):
            with pytest.raises(StaleRewindTarget):
                await store.rewind("s", RewindIntent(ordinal=ordinal, confirm_empty=True), [])
        cut = await store.rewind("s", RewindIntent(ordinal=3), [user("d2")])
        assert cut.survivors == (rows[0].row_id, None, rows[4].row_id)
        assert shown(await store.load_transcript("s")) == "a A (b) (B) sum c C d2"


async def test_a_correction_inside_the_turn_that_came_with_a_cut_is_no_newer_turn(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b")
        await store.rewind("s", RewindIntent(ordinal=1), [user("b2")])
        said = assistant("half", display_metadata={"interrupted": True, "redirected": True})
        correction = user("no, other", display_metadata={"redirect": True})
        notice = user("a notice", display_kind="internal_notification")
        await store.append_rows("s", [said, correction, notice, user("psst", display_kind="steer"), assistant("B2")])
        assert await store.undo_rewind("s") == rows


@pytest.mark.parametrize("kind", [None, "hidden", "process_complete", "skill_invocation", "auto_continue"])
async def test_any_later_turn_settles_a_cut(open_store: OpenStore, kind: str | None) -> None:
    async with open_store() as store:
        await conversation(store, "a", "b")
        await store.rewind("s", RewindIntent(ordinal=1), [user("b2")])
        await store.append_rows("s", [assistant("B2"), user("c", display_kind=kind)])
        before = await store.load_transcript("s")
        with pytest.raises(NothingToUndo):
            await store.undo_rewind("s")
        assert await store.load_transcript("s") == before


async def test_a_history_that_was_put_away_is_neither_shown_nor_found_nor_brought_back(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c")
        active = await summarize(store, rows[2:4])
        await store.replace_with_summary(
            "s", summarized_ids=[row.row_id or 0 for row in active], summary_rows=[], expected_version=1
        )
        assert await store.load_transcript("s") == await store.load_rows("s") == ()
        assert await store.search("b") == await store.search("c") == []
        with pytest.raises(NothingToUndo):
            await store.undo_rewind("s")
        await store.append_rows("s", [user("new")])
        assert shown(await store.load_transcript("s")) == "new"
        cut = await store.rewind("s", RewindIntent(ordinal=0, confirm_empty=True), [])
        assert shown(cut.removed) == "new"


async def test_a_branch_shows_what_its_parent_shows_with_ids_of_its_own(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c")
        await summarize(store, rows[2:4])
        whole = await store.load_transcript("s")
        made, active = await store.branch("s", StoredSession("t"))
        copy = await store.load_transcript("t")
        assert shown(copy) == shown(whole)
        assert shown(active) == "a A sum c C"
        assert made.message_count == 5
        assert not {row.row_id for row in copy} & {row.row_id for row in whole}
        assert await store.load_transcript("s") == whole
        with pytest.raises(StaleRewindTarget):
            await store.rewind("t", RewindIntent(ordinal=1), [])
        cut = await store.rewind("t", RewindIntent(ordinal=2), [])
        assert cut.survivors == (copy[0].row_id, None)


async def test_a_branch_that_ends_before_the_summary_has_the_old_rows_as_its_context(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c")
        await summarize(store, rows[2:4])
        made, active = await store.branch("s", StoredSession("t"), row_ids=[row.row_id or 0 for row in rows[:3]])
        assert shown(active) == "a A b"
        assert await store.load_transcript("t") == active
        assert made.message_count == 3
        cut = await store.rewind("t", RewindIntent(row_id=active[2].row_id, ordinal=1), [])
        assert cut.survivors == (active[0].row_id,)


async def test_a_row_that_was_cut_can_not_be_copied(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b")
        await store.rewind("s", RewindIntent(ordinal=1), [])
        with pytest.raises(Conflict):
            await store.branch("s", StoredSession("t"), row_ids=[row.row_id or 0 for row in rows])
        assert await store.get_session("t") is None


async def test_a_deleted_session_leaves_no_record_and_no_journal_and_others_keep_theirs(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("s"))
        await store.create_session(StoredSession("t"))
        for key in ("s", "t"):
            await store.put_record("question", f"q-{key}", {"method": "approval"}, owner=key)
            await store.put_record("session_key", f"name-{key}", {"session_id": key}, owner="me")
            await store.put_record("run", f"run-{key}", {"status": {"session_id": key}}, owner="me")
            await store.put_record("run_key", f"key-{key}", {"run_id": f"run-{key}"}, owner="me")
            await store.put_record("response", f"resp-{key}", {"session_id": key, "rows": []}, owner="me")
            await store.put_record("conversation", f"talk-{key}", {"response_id": f"resp-{key}"}, owner="me")
            await store.append_journal(f"run-{key}", [(1, b"said")])
        await store.delete_session("s")
        left = [await store.list_records(kind) for kind in ("question", "session_key", "run", "run_key", "response")]
        left.append(await store.list_records("conversation"))
        assert [[name for name, _value in found] for found in left] == [
            ["q-t"],
            ["name-t"],
            ["run-t"],
            ["key-t"],
            ["resp-t"],
            ["talk-t"],
        ]
        assert await store.read_journal("run-s", after=0) == []
        assert await store.read_journal("run-t", after=0) == [(1, b"said")]
