"""What every ``TranscriptStore`` promises, run over the one in memory and the one in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import LeaseOwner, StoredSession, TranscriptStore
from hermes.agent.store.memory import MemoryStore
from hermes.agent.store.sqlite import SqliteStore
from hermes.errors import (
    Conflict,
    EmptyRewindNotConfirmed,
    InvalidRewind,
    NothingToBranch,
    NothingToUndo,
    RewindTargetMismatch,
    SessionOwnedElsewhere,
    StaleRewindTarget,
    StoredSessionNotFound,
    TitleTaken,
)
from hermes.messages import ImagePart, RewindIntent, Row, TextPart, ToolCall
from hermes.outcomes import Usage

OpenStore = Callable[..., Any]


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[TranscriptStore]:
        store: TranscriptStore
        if request.param == "memory":
            store = MemoryStore(**options)
        else:
            store = await SqliteStore.open(tmp_path / "home" / "sessions.db", **options)
        try:
            with trio.fail_after(30):
                yield store
        finally:
            await store.aclose()

    return opened


def user(text: str, **fields: Any) -> Row:
    return Row("user", text, **{"timestamp": 1.0, **fields})


def assistant(text: str, **fields: Any) -> Row:
    return Row("assistant", text, **{"timestamp": 2.0, **fields})


async def conversation(store: TranscriptStore, *texts: str, key: str = "s") -> tuple[Row, ...]:
    """A session of turns: each text is answered with its upper case."""
    await store.create_session(StoredSession(key))
    for text in texts:
        await store.append_rows(key, [user(text), assistant(text.upper())])
    return await store.load_rows(key)


def texts(rows: Any) -> list[str]:
    return [row.text for row in rows]


# --- rows ------------------------------------------------------------------------------------------------------------


async def test_rows_come_back_as_they_went_in(open_store: OpenStore) -> None:
    rows = [
        user("plain"),
        Row("user", (TextPart("look"), ImagePart("image/png", data="AAAA"), ImagePart("", url="http://x/y")), 3.5),
        user("\x01json:[not json", api_content=(TextPart("api"),), platform_message_id="m1"),
        user("ünïcode 漢字 \x00 nul \u2028", api_content="\x01json:"),
        Row(
            "assistant",
            None,
            4.0,
            tool_calls=(ToolCall("c1", "shell", '{"a": 1}', "call", "item"), ToolCall("c2", "shell", "{}")),
            reasoning="think",
            reasoning_content="echo",
            reasoning_details=[{"type": "x", "data": ["y"]}],
            replay_items=[{"id": 1}],
            finish_reason="tool_calls",
            token_count=7,
        ),
        Row("tool", "out", 5.0, tool_call_id="c1", tool_name="shell", effect_disposition="unknown"),
        Row("tool", "", 5.0, tool_call_id="c2", tool_name="shell", effect_disposition="none"),
        assistant("", display_kind="hidden", display_metadata={"a": {"b": None}}, compacted_summary=True),
    ]
    async with open_store() as store:
        await store.create_session(StoredSession("s"))
        stored = await store.append_rows("s", rows)
        assert [row.with_id(stored[index].row_id or 0) for index, row in enumerate(rows)] == list(stored)
        assert await store.load_rows("s") == stored


async def test_text_that_is_not_unicode_is_stored_readably_and_handed_back_as_stored(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("s"))
        stored = await store.append_rows(
            "s", [user("a\ud800b"), assistant("", tool_calls=(ToolCall("c", "t", '"\udfff"'),))]
        )
        assert stored[0].content == "a?b"
        assert stored[1].tool_calls[0].arguments == '"?"'
        assert await store.load_rows("s") == stored


async def test_ids_rise_across_sessions_and_a_limit_keeps_the_newest_rows(open_store: OpenStore) -> None:
    async with open_store() as store:
        first = await conversation(store, "a", "b", key="one")
        second = await conversation(store, "c", key="two")
        ids = [row.row_id or 0 for row in first + second]
        assert ids == sorted(set(ids))
        assert texts(await store.load_rows("one", limit=3)) == ["A", "b", "B"]


async def test_appending_to_an_unknown_session_is_refused(open_store: OpenStore) -> None:
    async with open_store() as store:
        with pytest.raises(StoredSessionNotFound):
            await store.append_rows("nobody", [user("x")])
        assert await store.load_rows("nobody") == ()


async def test_a_stored_row_is_not_stored_again(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a")
        with pytest.raises(ValueError, match="stored already"):
            await store.append_rows("s", [rows[0]])


async def test_counters_and_usage_are_added_with_the_rows(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("s", started_at=5.0))
        await store.append_rows("s", [user("  hello\n world ", timestamp=10.0)])
        await store.append_rows(
            "s",
            [assistant("", tool_calls=(ToolCall("a", "t", "{}"), ToolCall("b", "t", "{}")), timestamp=11.0)],
            usage=Usage(10, 5, 4, 3, 2, 1, 0.5),
        )
        await store.append_rows("s", [], usage=Usage(1, 1, calls=1, estimated=True))
        session = await store.get_session("s")
        assert session is not None
        assert session.usage == Usage(11, 6, 4, 3, 2, 2, 0.5, True)
        assert (session.message_count, session.tool_call_count) == (2, 2)
        assert (session.last_activity_at, session.preview) == (11.0, "hello world")


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_a_session_comes_back_whole_and_an_existing_one_is_left_alone(open_store: OpenStore) -> None:
    session = StoredSession(
        "s",
        source="acp",
        title="Title",
        title_source="user",
        model="m",
        provider="p",
        model_config={"yolo": True},
        cwd="/w",
        parent_key="root",
        started_at=1.0,
        ended_at=2.0,
        end_reason="user_exit",
        last_activity_at=3.0,
        usage=Usage(1, 2, 3, 4, 5, 6, 0.1, True),
        hidden=True,
        pinned=True,
        system_prompt="be good",
        tool_names=("a", "b"),
        user_id="u",
        principal="key1",
        interrupted_turn={"error": "x"},
    )
    async with open_store() as store:
        await store.create_session(session)
        await store.create_session(StoredSession("s", source="other"))
        assert await store.get_session("s") == session
        assert await store.get_session("t") is None
        assert await store.find_by_title("Title") == session


async def test_columns_are_changed_by_name(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("s", system_prompt="old"))
        await store.create_session(StoredSession("t", system_prompt="old"))
        await store.update_session(
            "s",
            ended_at=9.0,
            tool_names=("x",),
            model_config={"a": 1},
            system_prompt="new",
            usage=Usage(input_tokens=3),
            interrupted_turn={"user": "u"},
        )
        session = await store.get_session("s")
        other = await store.get_session("t")
        assert session is not None and other is not None
        assert (session.ended_at, session.tool_names, session.system_prompt) == (9.0, ("x",), "new")
        assert (session.usage.input_tokens, session.interrupted_turn) == (3, {"user": "u"})
        assert other.system_prompt == "old"
        await store.update_session("s", ended_at=None, interrupted_turn=None, system_prompt=None)
        session = await store.get_session("s")
        assert session is not None
        assert (session.ended_at, session.interrupted_turn, session.system_prompt) == (None, None, None)
        with pytest.raises(TypeError):
            await store.update_session("s", no_such_column=1)
        with pytest.raises(StoredSessionNotFound):
            await store.update_session("nobody", hidden=True)


async def test_a_title_that_a_person_chose_is_unique_among_sessions_not_archived(open_store: OpenStore) -> None:
    async with open_store() as store:
        for key in "abc":
            await store.create_session(StoredSession(key))
        await store.update_session("a", title="X", title_source="user")
        with pytest.raises(TitleTaken):
            await store.update_session("b", title="X", title_source="user")
        await store.update_session("a", archived=True)
        await store.update_session("b", title="X", title_source="user")
        with pytest.raises(TitleTaken):
            await store.update_session("a", archived=False)
        found = await store.find_by_title("X")
        assert found is not None and found.key == "b"


async def test_a_derived_title_gets_the_next_number_and_never_replaces_a_chosen_one(open_store: OpenStore) -> None:
    async with open_store() as store:
        for key in "abcd":
            await store.create_session(StoredSession(key))
            await store.update_session(key, title="X #2" if key == "d" else "X", title_source="derived")
        titles = [session.title for key in "abcd" if (session := await store.get_session(key))]
        assert titles == ["X", "X #2", "X #3", "X #4"]
        await store.update_session("a", title="Mine", title_source="user")
        await store.update_session("a", title="Machine's", title_source="llm", pinned=True)
        session = await store.get_session("a")
        assert session is not None
        assert (session.title, session.title_source, session.pinned) == ("Mine", "user", True)


async def test_lists_show_newest_activity_first_and_leave_out_what_is_not_a_conversation(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        for key, fields in {
            "old": {"cwd": "/a", "principal": "p"},
            "new": {"source": "acp", "title": "T"},
            "hidden": {"hidden": True},
            "archived": {"archived": True},
            "child": {"parent_key": "old"},
            "subagent": {"source": "subagent"},
            "branch": {"parent_key": "old", "model_config": {"_branched_from": "old"}},
        }.items():
            await store.create_session(StoredSession(key, **fields))  # type: ignore[arg-type]
        await store.create_session(StoredSession("empty"))
        order = ["old", "branch", "hidden", "archived", "child", "subagent", "new"]
        for index, key in enumerate(order):
            await store.append_rows(key, [user("x", timestamp=float(index + 1))])

        async def keys(**options: Any) -> list[str]:
            return [session.key for session in await store.list_sessions(**options)]

        assert await keys() == ["new", "branch", "old"]
        assert await keys(limit=1, offset=1) == ["branch"]
        everything = await keys(include_hidden=True, include_archived=True, include_children=True)
        assert everything == list(reversed(order))
        assert await keys(source="acp") == ["new"]
        assert await keys(title="T") == ["new"]
        assert await keys(cwd="/a") == await keys(principal="p") == ["old"]
        await store.create_session(StoredSession("prepared", principal="p", started_at=100.0))
        assert await keys() == await keys(empty_of="q") == ["new", "branch", "old"]
        assert await keys(empty_of="p") == ["prepared", "new", "branch", "old"]


async def test_deleting_a_session_removes_its_rows_and_detaches_its_children(open_store: OpenStore) -> None:
    async with open_store() as store:
        await conversation(store, "needle", "b")
        await store.rewind("s", RewindIntent(ordinal=1), [user("c")])
        child, _rows = await store.branch("s", StoredSession("child"))
        assert child.parent_key == "s"
        await store.delete_session("s")
        assert await store.get_session("s") is None
        assert await store.load_rows("s") == ()
        assert [hit["session_key"] for hit in await store.search("needle")] == ["child", "child"]
        orphan = await store.get_session("child")
        assert orphan is not None and orphan.parent_key is None
        with pytest.raises(StoredSessionNotFound):
            await store.delete_session("s")


# --- rewind ----------------------------------------------------------------------------------------------------------


async def test_a_rewind_archives_the_target_and_all_behind_it_and_stores_the_new_rows(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c")
        result = await store.rewind("s", RewindIntent(row_id=rows[2].row_id, ordinal=1), [user("b2")])
        assert texts(result.removed) == ["b", "B", "c", "C"]
        assert result.survivors == (rows[0].row_id,)
        assert result.new_rows[0].row_id == (rows[-1].row_id or 0) + 1
        loaded = await store.load_rows("s")
        assert loaded == rows[:2] + result.new_rows
        session = await store.get_session("s")
        assert session is not None
        assert (session.message_count, session.rewind_count) == (3, 1)
        assert session.history_version == result.history_version == 1


@pytest.mark.parametrize(
    ("intent", "error"),
    [
        (RewindIntent(row_id=999), StaleRewindTarget),
        (RewindIntent(row_id=2), StaleRewindTarget),
        (RewindIntent(row_id=5), StaleRewindTarget),
        (RewindIntent(row_id=6), StaleRewindTarget),
        (RewindIntent(row_id=999, ordinal=1), StaleRewindTarget),
        (RewindIntent(message_id="nothing"), StaleRewindTarget),
        (RewindIntent(ordinal=2), StaleRewindTarget),
        (RewindIntent(ordinal=-1), StaleRewindTarget),
        (RewindIntent(row_id=3, ordinal=0), RewindTargetMismatch),
        (RewindIntent(row_id=1), EmptyRewindNotConfirmed),
        (RewindIntent(ordinal=0), EmptyRewindNotConfirmed),
        (RewindIntent(), InvalidRewind),
    ],
    ids=str,
)
async def test_a_refused_rewind_changes_nothing(
    open_store: OpenStore, intent: RewindIntent, error: type[Exception]
) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b")
        marker = await store.append_rows("s", [user("marker", display_kind="model_switch")])
        assert marker[0].row_id == 5
        await conversation(store, "other", key="t")
        before = await store.get_session("s")
        with pytest.raises(error):
            await store.rewind("s", intent, [user("x")])
        assert await store.load_rows("s") == rows + marker
        assert await store.get_session("s") == before


async def test_a_rewind_of_an_archived_row_or_of_an_older_version_is_stale(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b")
        first = await store.rewind("s", RewindIntent(row_id=3), [user("b2")], expected_version=0)
        with pytest.raises(StaleRewindTarget):
            await store.rewind("s", RewindIntent(row_id=3), [user("b3")])
        with pytest.raises(StaleRewindTarget):
            await store.rewind("s", RewindIntent(ordinal=1), [user("b3")], expected_version=0)
        assert await store.load_rows("s") == rows[:2] + first.new_rows
        with pytest.raises(StoredSessionNotFound):
            await store.rewind("nobody", RewindIntent(ordinal=0), [])


async def test_markers_are_not_counted_and_a_history_of_markers_alone_counts_as_empty(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("s"))
        rows = await store.append_rows(
            "s",
            [
                user("marker", display_kind="personality_switch"),
                user("a"),
                assistant("A"),
                user("notice", display_kind="process_complete"),
                assistant("seen"),
                user("/skill", display_kind="skill_invocation"),
                user("also", display_kind="steer"),
                assistant("C"),
            ],
        )
        with pytest.raises(EmptyRewindNotConfirmed):
            await store.rewind("s", RewindIntent(ordinal=0), [])
        result = await store.rewind("s", RewindIntent(row_id=rows[5].row_id, ordinal=1), [])
        assert result.survivors == (rows[1].row_id,)
        result = await store.rewind("s", RewindIntent(ordinal=0, confirm_empty=True), [])
        assert (result.survivors, await store.load_rows("s")) == ((), rows[:1])


async def test_a_rewind_by_message_id_or_to_a_steer_row(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("s"))
        rows = await store.append_rows(
            "s", [user("a"), assistant("A"), user("b", platform_message_id="m2"), user("c", display_kind="steer")]
        )
        result = await store.rewind("s", RewindIntent(row_id=rows[3].row_id), [])
        assert texts(result.removed) == ["c"]
        result = await store.rewind("s", RewindIntent(message_id="m2"), [])
        assert texts(result.removed) == ["b"]


async def test_undo_brings_the_cut_back_in_exchange_for_the_turn_that_came_with_it(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b")
        await store.rewind("s", RewindIntent(ordinal=1), [user("b2")])
        await store.append_rows("s", [user("faster", display_kind="steer"), assistant("B2")])
        assert await store.undo_rewind("s") == rows
        assert await store.load_rows("s") == rows
        session = await store.get_session("s")
        assert session is not None
        assert (session.message_count, session.history_version) == (4, 2)
        with pytest.raises(NothingToUndo):
            await store.undo_rewind("s")


async def test_undo_is_refused_once_a_newer_turn_is_stored(open_store: OpenStore) -> None:
    async with open_store() as store:
        await conversation(store, "a", "b")
        await store.rewind("s", RewindIntent(ordinal=1), [user("b2")])
        await store.append_rows("s", [assistant("B2"), user("c")])
        before = await store.load_rows("s")
        with pytest.raises(NothingToUndo):
            await store.undo_rewind("s")
        assert await store.load_rows("s") == before


async def test_cuts_are_undone_one_by_one_the_last_first(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b")
        await store.rewind("s", RewindIntent(ordinal=1), [user("b2")])
        middle = await store.load_rows("s")
        await store.rewind("s", RewindIntent(ordinal=0, confirm_empty=True), [])
        assert await store.load_rows("s") == ()
        assert await store.undo_rewind("s") == middle
        assert await store.undo_rewind("s") == rows


# --- compression and branch ------------------------------------------------------------------------------------------


async def test_a_summary_takes_the_place_of_the_rows_and_kept_rows_keep_their_ids(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c")
        ids = [row.row_id or 0 for row in rows]
        summary = [user("sum", compacted_summary=True, display_kind="hidden"), assistant("ok", compacted_summary=True)]
        active = await store.replace_with_summary(
            "s", summarized_ids=ids[2:4], summary_rows=summary, expected_version=0
        )
        assert texts(active) == ["a", "A", "sum", "ok", "c", "C"]
        assert active[:2] + active[4:] == rows[:2] + rows[4:]
        assert await store.load_rows("s") == active
        session = await store.get_session("s")
        assert session is not None
        assert (session.history_version, session.compression_count, session.message_count) == (1, 1, 6)
        again = await store.replace_with_summary(
            "s",
            summarized_ids=[row.row_id or 0 for row in active[1:5]],
            summary_rows=[user("sum 2", compacted_summary=True, display_kind="hidden")],
            expected_version=1,
        )
        assert texts(again) == ["a", "sum 2", "C"]
        assert [hit["row_id"] for hit in await store.search("b")] == [ids[3], ids[2]]
        with pytest.raises(StaleRewindTarget):
            await store.rewind("s", RewindIntent(row_id=ids[2]), [])


async def test_an_ordinal_beside_a_row_id_may_count_compacted_prompts(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c")
        await store.replace_with_summary(
            "s",
            summarized_ids=[row.row_id or 0 for row in rows[2:4]],
            summary_rows=[assistant("sum", compacted_summary=True)],
            expected_version=0,
        )
        intent = RewindIntent(row_id=rows[4].row_id, ordinal=0)
        with pytest.raises(RewindTargetMismatch):
            await store.rewind("s", intent, [])
        result = await store.rewind("s", RewindIntent(row_id=rows[4].row_id, ordinal=2), [])
        assert texts(result.removed) == ["c", "C"]


async def test_a_summary_of_a_changed_history_is_refused_and_a_cut_before_it_stays_cut(open_store: OpenStore) -> None:
    async with open_store() as store:
        await conversation(store, "a", "b")
        cut = await store.rewind("s", RewindIntent(ordinal=1), [user("b2")])
        before = await store.load_rows("s")
        for ids, version in [([1, 2], 0), ([1, 3], 1), ([], 1), ([1, 999], 1)]:
            with pytest.raises(Conflict):
                await store.replace_with_summary(
                    "s", summarized_ids=ids, summary_rows=[assistant("sum")], expected_version=version
                )
        assert await store.load_rows("s") == before
        await store.replace_with_summary(
            "s", summarized_ids=[1, 2], summary_rows=[assistant("sum")], expected_version=cut.history_version
        )
        with pytest.raises(NothingToUndo):
            await store.undo_rewind("s")


async def test_what_the_model_reads_of_rows_is_shortened_in_one_go_and_nothing_else_changes(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b", "c")
        await store.create_session(StoredSession("other"))
        (foreign,) = await store.append_rows("other", [user("x")])
        ids = [row.row_id or 0 for row in rows]
        for contents, version in (
            ({ids[1]: "short"}, 7),
            ({ids[1]: "short", 999: "short"}, 0),
            ({ids[1]: "short", foreign.row_id or 0: "short"}, 0),
        ):
            with pytest.raises(Conflict):
                await store.shorten_rows("s", contents, expected_version=version)
        assert await store.load_rows("s") == rows
        short = (TextPart("an image was here"), TextPart("b"))
        await store.shorten_rows("s", {ids[1]: "short", ids[2]: short}, expected_version=0)
        after = await store.load_rows("s")
        expected = {ids[1]: "short", ids[2]: short}
        assert after == tuple(replace(row, api_content=expected.get(row.row_id or 0)) for row in rows)
        session = await store.get_session("s")
        assert session is not None and (session.history_version, session.message_count) == (1, 6)
        assert [hit["row_id"] for hit in await store.search("a")] != []
        # A cut and its undo, and a branch, carry it along.
        await store.rewind("s", RewindIntent(ordinal=0, confirm_empty=True), [user("anew")])
        assert await store.undo_rewind("s") == after
        _made, copied = await store.branch("s", StoredSession("copy"))
        assert [row.api_content for row in copied] == [row.api_content for row in after]


async def test_a_branch_is_a_copy_with_ids_of_its_own(open_store: OpenStore) -> None:
    async with open_store() as store:
        rows = await conversation(store, "a", "b")
        await store.update_session("s", title="X", model="m", system_prompt="p", usage=Usage(5), model_config={"y": 1})
        session, copy = await store.branch("s", StoredSession("t", started_at=7.0))
        assert texts(copy) == texts(rows)
        assert not {row.row_id for row in copy} & {row.row_id for row in rows}
        assert (session.title, session.model, session.system_prompt) == ("X #2", "m", "p")
        assert (session.parent_key, session.model_config) == ("s", {"y": 1, "_branched_from": "s"})
        assert (session.usage, session.message_count, session.preview) == (Usage(), 4, "a")
        await store.append_rows("t", [user("c")])
        assert await store.load_rows("s") == rows
        part, some = await store.branch("t", StoredSession("u"), row_ids=[row.row_id or 0 for row in copy[:2]])
        assert (texts(some), part.title) == (["a", "A"], "X #3")
        with pytest.raises(StaleRewindTarget):
            await store.rewind("t", RewindIntent(row_id=rows[2].row_id), [])


async def test_branches_without_history_or_onto_a_taken_key_or_title_are_refused(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("empty"))
        with pytest.raises(NothingToBranch):
            await store.branch("empty", StoredSession("t"))
        await conversation(store, "a")
        await store.update_session("s", title="X")
        with pytest.raises(Conflict):
            await store.branch("s", StoredSession("empty"))
        with pytest.raises(Conflict):
            await store.branch("s", StoredSession("t"), row_ids=[1, 999])
        with pytest.raises(TitleTaken):
            await store.branch("s", StoredSession("t", title="X", title_source="user"))
        assert await store.get_session("t") is None


# --- search ----------------------------------------------------------------------------------------------------------


async def test_search_finds_words_phrases_prefixes_and_tool_names(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("s", title="T"))
        rows = await store.append_rows(
            "s",
            [
                user("the quick brown fox"),
                assistant("lazy dog", tool_calls=(ToolCall("c", "read_file", '{"path": "notes.txt"}'),)),
                Row("tool", "contents", 1.5, tool_call_id="c", tool_name="read_file"),
                Row("user", (TextPart("picture of a zebra"), ImagePart("image/png", data="quick")), 2.0),
                user("quick secret", display_kind="hidden"),
            ],
        )

        async def hits(query: str) -> list[int]:
            return sorted(hit["row_id"] - (rows[0].row_id or 0) for hit in await store.search(query))

        assert await hits("quick") == [0]
        assert await hits('"brown fox"') == [0]
        assert await hits('"fox brown"') == []
        assert await hits("zeb*") == [3]
        assert await hits("fox OR zebra") == [0, 3]
        assert await hits("quick NOT fox") == []
        assert await hits("read_file") == [1, 2]
        assert await hits("notes.txt") == [1]
        [hit] = await store.search("brown", key="s")
        assert hit == {
            "session_key": "s",
            "row_id": rows[0].row_id,
            "role": "user",
            "snippet": "the quick brown fox",
            "timestamp": 1.0,
            "title": "T",
        }
        assert await store.search("brown", key="other") == []


async def test_search_finds_text_without_spaces_as_substrings(open_store: OpenStore) -> None:
    async with open_store() as store:
        await conversation(store, "今日は天気がいいですね", "plain")
        assert [hit["row_id"] for hit in await store.search("天気")] == [2, 1]
        assert await store.search("雨") == []


@pytest.mark.parametrize(
    "query",
    [
        '"',
        '""',
        "*",
        "AND",
        "NOT x",
        "x OR",
        "x AND AND y",
        "(",
        "a:b",
        "^x",
        "x -y",
        "NEAR(a b",
        "'; --",
        "\x00",
        "\ud800",
        "a" * 5000,
        "x " * 500,
        "{a b}: c",
        'he said "hi',
        "+",
        "col : x",
        "",
    ],
)
async def test_no_query_is_malformed(open_store: OpenStore, query: str) -> None:
    async with open_store() as store:
        await conversation(store, "x")
        assert len(await store.search(query)) <= 20


async def test_cut_rows_and_hidden_sessions_are_not_found(open_store: OpenStore) -> None:
    async with open_store() as store:
        await conversation(store, "a", "needle")
        await store.rewind("s", RewindIntent(ordinal=1), [])
        assert await store.search("needle") == []
        await conversation(store, "needle", key="t")
        await store.update_session("t", hidden=True)
        assert await store.search("needle") == []
        assert len(await store.search("needle", key="t")) == 2


# --- leases ----------------------------------------------------------------------------------------------------------

ONE = LeaseOwner("elsewhere", 1, 1, "one")
TWO = LeaseOwner("elsewhere", 2, 2, "two")


async def test_a_lease_excludes_others_until_it_is_released(open_store: OpenStore) -> None:
    async with open_store() as store:
        await conversation(store, "a")
        assert await store.acquire_lease("s", ONE, ttl=60) == 0
        assert await store.acquire_lease("s", ONE, ttl=60) == 0
        with pytest.raises(SessionOwnedElsewhere) as refused:
            await store.acquire_lease("s", TWO, ttl=60)
        assert refused.value.data is not None and refused.value.data["owner"] == "pid 1 on elsewhere"
        with pytest.raises(SessionOwnedElsewhere):
            await store.delete_session("s")
        assert not await store.refresh_leases(["s"], TWO, ttl=60)
        await store.release_lease("s", TWO)
        assert await store.refresh_leases(["s"], ONE, ttl=60)
        await store.release_lease("s", ONE)
        assert not await store.refresh_leases(["s"], ONE, ttl=60)
        with pytest.raises(StoredSessionNotFound):
            await store.acquire_lease("nobody", ONE, ttl=60)


async def test_the_version_tells_an_owner_that_somebody_else_had_the_session(open_store: OpenStore) -> None:
    async with open_store() as store:
        await conversation(store, "a")

        async def turn(owner: LeaseOwner) -> int:
            version: int = await store.acquire_lease("s", owner, ttl=60)
            await store.append_rows("s", [user("x"), assistant("y")])
            await store.release_lease("s", owner)
            return version

        assert [await turn(owner) for owner in (ONE, ONE, TWO, ONE, ONE)] == [0, 0, 1, 2, 2]


async def test_an_expired_lease_is_taken_over_and_an_expired_one_that_nobody_took_lives_on(
    open_store: OpenStore,
) -> None:
    clock = [100.0]
    async with open_store(now=lambda: clock[0]) as store:
        await conversation(store, "a")
        await store.acquire_lease("s", ONE, ttl=10)
        clock[0] = 111.0
        assert await store.refresh_leases(["s"], ONE, ttl=10)
        clock[0] = 122.0
        assert await store.acquire_lease("s", TWO, ttl=10) == 1
        assert not await store.refresh_leases(["s"], ONE, ttl=10)
        await store.release_lease("s", ONE)
        assert await store.refresh_leases(["s"], TWO, ttl=10)


async def test_who_has_lost_the_lease_without_knowing_writes_nothing(open_store: OpenStore) -> None:
    async with open_store() as store:
        await conversation(store, "a")
        await store.acquire_lease("s", ONE, ttl=10)
        await store.append_rows("s", [user("one")], owner=ONE)
        await store.release_lease("s", ONE)
        await store.acquire_lease("s", TWO, ttl=10)
        before = await store.load_rows("s")
        for _ in range(2):
            with pytest.raises(SessionOwnedElsewhere):
                await store.append_rows("s", [assistant("late")], owner=ONE)
            with pytest.raises(SessionOwnedElsewhere):
                await store.finish_turn("s", [assistant("late")], owner=ONE)
            assert await store.load_rows("s") == before
            # Nor when the other one has finished: the history has gone on without us.
            await store.release_lease("s", TWO)
        await store.append_rows("s", [assistant("mine")], owner=TWO)


# --- values, documents, journals -------------------------------------------------------------------------------------


async def test_meta_values_are_set_replaced_and_removed(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert await store.get_meta("k") is None
        await store.set_meta("k", "1")
        await store.set_meta("k", "2")
        assert await store.get_meta("k") == "2"
        await store.set_meta("k", None)
        assert await store.get_meta("k") is None


async def test_records_are_kept_by_kind_and_owner(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.put_record("run", "1", {"a": [1, None]}, owner="me")
        await store.put_record("run", "2", {"b": 1})
        await store.put_record("response", "1", {"c": 1})
        await store.put_record("run", "1", {"a": 2})
        assert await store.get_record("run", "1") == {"a": 2}
        assert await store.get_record("run", "3") is None
        assert list(await store.list_records("run")) == [("1", {"a": 2}), ("2", {"b": 1})]
        assert list(await store.list_records("run", owner="me")) == [("1", {"a": 2})]
        assert await store.delete_record("run", "1")
        assert not await store.delete_record("run", "1")
        assert await store.get_record("response", "1") == {"c": 1}


async def test_a_record_is_claimed_once(open_store: OpenStore) -> None:
    async with open_store() as store:
        won: list[int] = []

        async def claim(number: int) -> None:
            if await store.claim_record("key", "k", {"by": number}) is None:
                won.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(claim, number)
        assert len(won) == 1
        assert await store.claim_record("key", "k", {"by": 99}) == {"by": won[0]}


async def test_a_journal_keeps_the_newest_frames_and_is_read_from_a_number(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.append_journal("r", [(number, b"%d" % number) for number in range(1, 9)], keep=5)
        await store.append_journal("r", [(9, b"9"), (10, b"10")], keep=5)
        assert list(await store.read_journal("r", after=0)) == [(n, b"%d" % n) for n in range(6, 11)]
        assert list(await store.read_journal("r", after=8, limit=1)) == [(9, b"9")]
        assert list(await store.read_journal("other", after=0)) == []


async def test_old_records_are_pruned_with_their_journals(open_store: OpenStore) -> None:
    clock = [100.0]
    async with open_store(now=lambda: clock[0]) as store:
        await store.put_record("run", "old", {})
        await store.append_journal("old", [(1, b"x")])
        await store.put_record("run", "kept", {})
        clock[0] = 200.0
        await store.put_record("run", "kept", {})
        assert await store.prune_records("run", older_than=150.0) == 1
        assert [record_id for record_id, _value in await store.list_records("run")] == ["kept"]
        assert list(await store.read_journal("old", after=0)) == []


# --- cancellation ----------------------------------------------------------------------------------------------------


async def test_a_caller_cancelled_before_it_asked_has_done_nothing(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("s"))
        with trio.move_on_after(0) as scope:
            await store.append_rows("s", [user("x")])
        assert scope.cancelled_caught
        assert await store.load_rows("s") == ()


async def test_racing_cancels_leave_whole_jobs_and_known_outcomes(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.create_session(StoredSession("s"))
        done = 0

        async def job() -> None:
            nonlocal done
            await store.append_rows("s", [user("1"), user("2"), user("3")])
            done += 1

        for number in range(600):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(job)
                for _ in range(number % 4):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        assert 0 < done < 600
        assert len(await store.load_rows("s")) == 3 * done
