"""The two transactions of a turn: what begins it and what ends it is stored whole, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import LeaseOwner, StoredSession, TranscriptStore, TurnBegun
from hermes.agent.store.memory import MemoryStore
from hermes.agent.store.sqlite import SqliteStore
from hermes.errors import SessionOwnedElsewhere, StoredSessionNotFound
from hermes.messages import Prompt, Row
from hermes.outcomes import Usage
from tests.support.core import make_services, running_tree, say

OpenStore = Callable[..., Any]
ONE, TWO = LeaseOwner("here", 1, 1, "one"), LeaseOwner("elsewhere", 2, 2, "two")
HELLO, ANSWER = Row("user", "hello", 1.0), Row("assistant", "hi", 2.0)


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    @asynccontextmanager
    async def opened() -> AsyncIterator[TranscriptStore]:
        memory = request.param == "memory"
        store = MemoryStore() if memory else await SqliteStore.open(tmp_path / "sessions.db")
        try:
            with trio.fail_after(30):
                yield store
        finally:
            await store.aclose()

    return opened


async def begin(store: TranscriptStore, owner: LeaseOwner = ONE, version: int = 0, **options: Any) -> TurnBegun:
    return await store.begin_turn("s", [HELLO], owner=owner, ttl=60, expected_version=version, **options)


def texts(rows: Any) -> list[str]:
    return [row.text for row in rows]


async def test_the_first_turn_stores_its_session_its_lease_and_its_prompt_together(open_store: OpenStore) -> None:
    async with open_store() as store:
        begun = await begin(store, new_session=StoredSession("s", source="test"))
        assert begun.history_version == 0 and begun.rows is not None
        assert begun.rows == await store.load_rows("s")
        assert await store.refresh_leases(["s"], ONE, ttl=60)
        session = await store.get_session("s")
        assert (session.source, session.message_count, session.preview) == ("test", 1, "hello")


async def test_a_turn_that_may_not_begin_leaves_nothing(open_store: OpenStore) -> None:
    async with open_store() as store:
        with pytest.raises(StoredSessionNotFound):
            await begin(store)
        await begin(store, TWO, new_session=StoredSession("s"))
        with pytest.raises(SessionOwnedElsewhere):
            await begin(store)
        assert len(await store.load_rows("s")) == 1


async def test_rows_for_a_history_that_has_changed_are_not_stored_and_the_lease_is_held(open_store: OpenStore) -> None:
    async with open_store() as store:
        await begin(store, TWO, new_session=StoredSession("s"))
        await store.release_lease("s", TWO)
        begun = await begin(store)
        assert begun == TurnBegun(1, None)
        assert len(await store.load_rows("s")) == 1
        assert await store.refresh_leases(["s"], ONE, ttl=60)


async def test_the_last_rows_take_the_spending_the_columns_the_title_and_the_lease_along(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        await begin(store, new_session=StoredSession("s"))
        changes = {"title": "Hello", "title_source": "derived", "system_prompt": "be kind", "tool_names": ("a", "b")}
        finished = await store.finish_turn("s", [ANSWER], owner=ONE, usage=Usage(10, 5, calls=1), changes=changes)
        assert finished.title == "Hello"
        assert texts(await store.load_rows("s")) == ["hello", "hi"]
        session = await store.get_session("s")
        assert (session.title, session.system_prompt, session.tool_names) == ("Hello", "be kind", ("a", "b"))
        assert session.usage.total_tokens == 15
        assert not await store.refresh_leases(["s"], ONE, ttl=60)
        await begin(store, TWO, 1)


async def test_the_last_rows_take_records_along_or_leave_them_as_they_are(open_store: OpenStore) -> None:
    async with open_store() as store:
        await begin(store, new_session=StoredSession("s"))
        await store.put_records("question", [("q1", {}, "s"), ("q2", {}, "s"), ("q3", {}, "s")])
        with pytest.raises(TypeError):
            await store.finish_turn(
                "s", [ANSWER], owner=ONE, changes={"no_such_column": 1}, forget=[("question", "q1")]
            )
        await store.finish_turn("s", [ANSWER], owner=ONE, forget=[("question", "q1"), ("question", "q3")])
        assert [name for name, _ in await store.list_records("question", owner="s")] == ["q2"]


async def test_a_better_title_stands_and_a_taken_one_gets_a_number(open_store: OpenStore) -> None:
    async with open_store() as store:
        changes = {"title": "Hello", "title_source": "derived"}
        for key, title in (("named", "Mine"), ("first", None), ("second", None)):
            await store.create_session(StoredSession(key, title=title, title_source="user" if title else None))
            await store.acquire_lease(key, ONE, ttl=60)
        told = [
            (await store.finish_turn(key, [ANSWER], owner=ONE, changes=changes)).title
            for key in ("named", "first", "second")
        ]
        assert told == [None, "Hello", "Hello #2"]
        assert (await store.get_session("named")).title == "Mine"


async def test_last_rows_that_cannot_be_stored_keep_the_lease(open_store: OpenStore) -> None:
    async with open_store() as store:
        await begin(store, new_session=StoredSession("s"))
        with pytest.raises(TypeError):
            await store.finish_turn("s", [ANSWER], owner=ONE, changes={"no_such_column": 1})
        assert len(await store.load_rows("s")) == 1
        assert await store.refresh_leases(["s"], ONE, ttl=60)


async def test_a_turn_without_tools_costs_two_commits(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "sessions.db")
    services, _ = make_services(say("hi"), say("again"), store=store)
    with trio.fail_after(30):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="test", cwd="/")
            for text in ("one", "two"):
                before = store.writer.jobs
                turn = await session.submit_nowait(Prompt(text)).wait_turn()
                assert turn is not None and (await turn.wait_ended()).completed
                assert store.writer.jobs - before == 2
            stored = await store.get_session(session.key)
            assert stored is not None
            assert (stored.title, stored.tool_names, stored.message_count) == ("one", session.stored.tool_names, 4)
            assert not await store.refresh_leases([session.key], services.owner, ttl=60)
