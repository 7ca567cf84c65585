"""Sessions over the gateway: what they are, who sees them, how they come back."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from tests.support.core import call, hang, make_services, running_tree, say
from tests.support.gateway_host import EPOCH, Refusal, connected


async def test_the_first_frame_is_the_greeting(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as stdio, connected(tree, websocket=True) as ws:
        assert stdio.frames[0]["params"] == {
            "type": "gateway.ready",
            "payload": {"skin": {}, "change_events": True, "replay_epoch": EPOCH},
        }
        assert ws.frames[0]["params"]["payload"]["heartbeat"] is True


async def test_a_new_session_is_ready_a_moment_later_and_leaves_no_row(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        made = await host.call("session.create", cwd="/tmp", cols=100, title="  My   plan ")
        assert (made["message_count"], made["messages"], made["info"]["lazy"]) == (0, [], True)
        assert made["info"]["title"] == "My plan"
        ready = await host.event("session.info")
        assert ready["seq"] == 1
        assert ready["payload"]["model"] == "scripted-1"
        assert "version" in ready["payload"] and "lazy" not in ready["payload"]
        assert (await host.call("session.list"))["sessions"] == []
        assert (await host.call("session.most_recent"))["session_id"] is None


async def test_a_foreign_model_is_refused_with_suggestions_and_leaves_no_session(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        with pytest.raises(Refusal) as refused:
            await host.call("session.create", model="gpt-5.5", provider="anthropic")
        assert refused.value.code == -32602
        assert refused.value.data["model"] == "gpt-5.5"
        assert 1 <= len(refused.value.data["suggestions"]) <= 5
        assert all(name in refused.value.message for name in refused.value.data["suggestions"])
        assert (await host.call("session.active_list"))["sessions"] == []


async def test_a_repeated_create_with_the_same_key_gives_the_same_session(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        first = await host.call("session.create", idempotency_key="k")
        again = await host.call("session.create", idempotency_key="k")
        other = await host.call("session.create", idempotency_key="l")
        assert first["session_id"] == again["session_id"] != other["session_id"]


async def test_seeded_messages_are_stored_at_once(autojump_clock: Any) -> None:
    services, _ = make_services()
    seeds = [
        {"role": "user", "content": "before"},
        {"role": "assistant", "text": "yes"},
        {"role": "user", "text": "secret", "display_kind": "hidden"},
    ]
    async with running_tree(services) as tree, connected(tree) as host:
        made = await host.call("session.create", messages=seeds)
        assert [message["text"] for message in made["messages"]] == ["before", "yes"]
        listed = await host.call("session.list")
        assert [row["id"] for row in listed["sessions"]] == [made["stored_session_id"]]


async def test_after_a_turn_the_session_is_listed_and_can_be_resumed_by_key_and_title(autojump_clock: Any) -> None:
    services, _ = make_services(say("Hello."))
    async with running_tree(services) as tree, connected(tree) as host:
        made = await host.call("session.create")
        session_id = made["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="say hello")
        await host.event("message.complete")
        assert (await host.call("session.title", session_id=session_id))["title"] == "say hello"
        renamed = await host.call("session.title", session_id=session_id, title="Greeting")
        assert renamed["pending"] is False
        assert (await host.call("session.close", session_id=session_id))["closed"] is True
        assert (await host.call("session.close", session_id=session_id))["closed"] is False
        by_key = await host.call("session.resume", session_id=made["stored_session_id"])
        assert by_key["session_id"] != session_id
        assert [message["text"] for message in by_key["messages"]] == ["say hello", "Hello."]
        by_title = await host.call("session.resume", session_id="Greeting", omit_messages=True)
        assert by_title["session_id"] == by_key["session_id"]
        assert (by_title["messages"], by_title["messages_omitted"]) == ([], True)
        found = await host.call("session.list", title="Greeting")
        assert found["sessions"][0]["resolved_id"] == made["stored_session_id"]
        assert (await host.call("session.most_recent"))["session_id"] == made["stored_session_id"]


async def test_resume_of_what_does_not_exist(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        with pytest.raises(Refusal) as unknown:
            await host.call("session.resume", session_id="nothing like it")
        assert unknown.value.code == 4007
        with pytest.raises(Refusal) as missing:
            await host.call("session.resume")
        assert missing.value.code == 4006
        minted = await host.call("session.resume", session_id="20300101_101500_0a1b2c")
        assert (minted["session_key"], minted["message_count"]) == ("20300101_101500_0a1b2c", 0)


async def test_titles_are_checked(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        first = await host.call("session.create", messages=[{"role": "user", "content": "x"}])
        second = await host.call("session.create")
        pending = await host.call("session.title", session_id=second["session_id"], title="Later")
        assert pending["pending"] is True
        await host.call("session.title", session_id=first["session_id"], title="Taken")
        for title, code in (("Taken", 4022), ("   ", 4021)):
            with pytest.raises(Refusal) as refused:
                await host.call("session.title", session_id=second["session_id"], title=title)
            assert refused.value.code == code


async def test_activation_during_a_turn_shows_exactly_what_was_sent_and_then_the_rest(autojump_clock: Any) -> None:
    services, _ = make_services(say("one ", "two ", "three", pause=1))
    async with running_tree(services) as tree, connected(tree) as first, connected(tree, name="second") as second:
        session_id = (await first.call("session.create"))["session_id"]
        await first.call("prompt.submit", session_id=session_id, text="count")
        await first.event("message.delta")
        snapshot = await second.call("session.activate", session_id=session_id)
        assert (snapshot["running"], snapshot["status"]) == (True, "streaming")
        assert (snapshot["inflight"]["user"], snapshot["inflight"]["assistant"]) == ("count", "one ")
        assert "display_kind" not in snapshot["inflight"]
        assert snapshot["messages"] == []
        await second.event("message.complete")
        rest = [frame["params"]["payload"]["text"] for frame in second.frames if _is(frame, "message.delta")]
        assert "".join(rest) == "two three"


async def test_replay_gives_the_missed_events_and_nothing_else(autojump_clock: Any) -> None:
    services, _ = make_services(say("a", "b", "c", pause=1))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.complete")
        await host.event("session.info")
        live = [frame["params"] for frame in host.frames if frame.get("params", {}).get("session_id") == session_id]
        for seen in range(len(live)):
            after = live[seen]["seq"]
            replay = await host.call("session.events.since", session_id=session_id, last_seen=after)
            assert replay["events"] == live[seen + 1 :]
            assert (replay["truncated"], replay["epoch"], replay["count"]) == (False, EPOCH, len(live) - seen - 1)
        stats = await host.call("session.events.stats")
        assert stats["sessions"] == 1
        for wrong in ("1", True, 1.5):
            with pytest.raises(Refusal) as refused:
                await host.call("session.events.since", session_id=session_id, last_seen=wrong)
            assert refused.value.code == -32602


async def test_two_clients_get_the_stream_and_one_of_them_may_leave(autojump_clock: Any) -> None:
    services, _ = make_services(say("x", "y", "z", pause=1))
    async with running_tree(services) as tree, connected(tree, websocket=True, name="a") as stays:
        session_id = (await stays.call("session.create"))["session_id"]
        async with connected(tree, websocket=True, name="b") as leaves:
            await leaves.call("session.activate", session_id=session_id)
            await stays.call("prompt.submit", session_id=session_id, text="go")
            await leaves.event("message.delta")
        done = await stays.event("message.complete")
        assert done["payload"]["text"] == "xyz"
        session = tree.registry.get(session_id)
        assert [attachment.name for attachment in session.requests.attached] == ["a"]


async def test_a_parked_session_goes_on_and_is_reclaimed_when_nobody_comes_back(autojump_clock: Any) -> None:
    services, _ = make_services(say("slow", pause=30))
    async with running_tree(services) as tree, connected(tree, websocket=True, name="watcher") as watcher:
        async with connected(tree, websocket=True, name="gone") as gone:
            made = await gone.call("session.create")
            await gone.call("prompt.submit", session_id=made["session_id"], text="go")
        reclaimed = await watcher.event("session.reclaimed")
        assert reclaimed["payload"] == {
            "session_id": made["session_id"],
            "stored_session_id": made["stored_session_id"],
            "reason": "ws_orphan_reap",
        }
        assert reclaimed["session_id"] == "" and "seq" not in reclaimed
        back = await watcher.call("session.resume", session_id=made["stored_session_id"])
        assert [message["text"] for message in back["messages"]] == ["go", "slow"]


async def test_status_usage_and_history_of_a_session(autojump_clock: Any) -> None:
    services, _ = make_services(say("look", calls=[call("nap", seconds=0)]), say("done"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create", cwd="/tmp"))["session_id"]
        assert (await host.call("session.usage", session_id=session_id))["total"] == 0
        await host.call("prompt.submit", session_id=session_id, text="rest")
        complete = await host.event("message.complete")
        usage = await host.call("session.usage", session_id=session_id)
        assert usage["calls"] == 2 and usage["total"] == complete["payload"]["usage"]["total"] == 30
        status = (await host.call("session.status", session_id=session_id))["output"].splitlines()
        assert "Path: /tmp" in status and "Agent Running: No" in status
        history = await host.call("session.history", session_id=session_id)
        assert [(message["role"], message.get("name")) for message in history["messages"]] == [
            ("user", None),
            ("assistant", None),
            ("tool", "nap"),
            ("assistant", None),
        ]
        assert "row_id" not in history["messages"][2]


async def test_closing_during_a_turn_ends_it_before_the_answer(autojump_clock: Any) -> None:
    services, model = make_services(hang())
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.start")
        mark = len(host.frames)
        assert (await host.call("session.close", session_id=session_id))["closed"] is True
        words = host.types(mark)
        assert words.index("message.complete") < words.index("=r3")
        assert model.open == 0
        with pytest.raises(Refusal) as refused:
            await host.call("session.activate", session_id=session_id)
        assert refused.value.code == 4001


def _is(frame: dict[str, Any], type: str) -> bool:
    return frame.get("method") == "event" and frame["params"]["type"] == type


async def test_a_prompt_is_not_refused_because_somebody_else_has_the_title_now(autojump_clock: Any) -> None:
    services, _ = make_services(say("one"), say("two"), say("three"))
    async with running_tree(services) as tree, connected(tree) as host:
        made = [await host.call("session.create", title="Mine") for _ in range(3)]
        for session in made:
            await host.call("prompt.submit", session_id=session["session_id"], text="go")
            await host.event("message.complete")
        titles = [(await host.call("session.title", session_id=one["session_id"]))["title"] for one in made]
        assert titles == ["Mine", "Mine #2", "Mine #3"]
        rows = (await host.call("session.list"))["sessions"]
        assert {row["id"]: row["title"] for row in rows} == {
            one["stored_session_id"]: title for one, title in zip(made, titles, strict=True)
        }
        stored = await services.store.get_session(made[1]["stored_session_id"])
        assert stored is not None and stored.title_source == "user"


async def test_a_session_that_cannot_be_made_with_its_history_leaves_none_behind(autojump_clock: Any) -> None:
    services, _ = make_services(say("one"))
    seeds = [{"role": "user", "text": "before"}]
    async with running_tree(services) as tree, connected(tree) as host:
        await host.call("session.create", title="Taken", messages=seeds)
        with pytest.raises(Refusal, match="4022"):
            await host.call("session.create", title="Taken", messages=seeds)
        await trio.testing.wait_all_tasks_blocked()
        assert len((await host.call("session.active_list"))["sessions"]) == 1
