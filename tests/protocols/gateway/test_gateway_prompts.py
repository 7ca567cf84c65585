"""Prompts over the gateway: turns, the busy policy, rewinds, steering and stopping."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from hermes.settings import Settings
from tests.support.core import call, hang, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, Refusal, connected

TURN = ("message.start", "message.delta", "tool.generating", "message.interim", "tool.start", "tool.complete")


async def _session(host: GatewayHost) -> str:
    session_id: str = (await host.call("session.create"))["session_id"]
    await host.event("session.info")
    return session_id


async def test_a_turn_with_a_tool_tells_its_story_in_order(autojump_clock: Any) -> None:
    services, _ = make_services(say("Let me rest.", calls=[call("nap", seconds=1)]), say("Done."))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        mark = len(host.frames)
        submitted = await host.call("prompt.submit", session_id=session_id, text="rest")
        assert submitted == {"status": "streaming", "user_row_id": 1}
        complete = await host.event("message.complete")
        after = await host.event("session.info")
        story = [word for word in host.types(mark) if word in (*TURN, "message.complete")]
        assert story == [
            "message.start",
            "message.delta",
            "tool.generating",
            "message.interim",
            "tool.start",
            "tool.complete",
            "message.delta",
            "message.complete",
        ]
        assert complete["payload"]["text"] == "Done."
        assert complete["payload"]["status"] == "complete"
        assert complete["payload"]["persisted_turn"] == {
            "row_ids": [1, 2, 3, 4],
            "complete": True,
            "user_row_id": 1,
            "final_assistant_row_id": 4,
        }
        assert after["payload"]["running"] is False
        numbers = [frame["params"]["seq"] for frame in host.frames if "seq" in frame.get("params", {})]
        assert numbers == sorted(set(numbers))
        texts = [frame["params"]["payload"]["text"] for frame in host.frames if _type(frame) == "message.delta"]
        assert "".join(texts) == "Let me rest.\n\nDone."


async def test_message_start_has_no_payload(autojump_clock: Any) -> None:
    services, _ = make_services(say("x"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        await host.call("prompt.submit", session_id=session_id, text="go")
        assert "payload" not in await host.event("message.start")


async def test_an_interrupt_answers_after_the_last_event_and_the_next_prompt_is_accepted(autojump_clock: Any) -> None:
    services, _ = make_services(hang(), say("second"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        await host.call("prompt.submit", session_id=session_id, text="first")
        await host.event("message.start")
        await host.call("prompt.submit", session_id=session_id, text="later", queued=True, client_message_id="m1")
        host.start("session.interrupt", session_id=session_id, reason="enough")
        again = host.start("prompt.submit", session_id=session_id, text="next")
        stopped = await host.answer("r4")
        assert stopped["status"] == "interrupted" and stopped["settled"] is True
        assert stopped["dropped_prompts"] == [{"text": "later", "client_message_id": "m1"}]
        assert {"turn", "model_call"} <= {node["kind"] for node in stopped["stopped"]}
        words = host.types()
        assert words.index("message.complete") < words.index("=r4")
        complete = await host.event("message.complete")
        assert complete["payload"]["status"] == "interrupted"
        assert (complete["payload"]["cause"], complete["payload"]["reason"]) == ("user_interrupt", "enough")
        assert complete["payload"]["text"] is None
        assert (await host.answer(again))["status"] in ("streaming", "queued")
        assert (await host.event("message.complete"))["payload"]["text"] == "second"
        assert await host.call("session.interrupt", session_id=session_id) == {"status": "idle", "settled": True}
        history = (await host.call("session.history", session_id=session_id))["messages"]
        assert "later" not in [message["text"] for message in history if message["role"] == "user"]


async def test_interrupt_and_rewind_in_one_write_work(autojump_clock: Any) -> None:
    services, _ = make_services(say("one"), hang(), say("three"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        await host.call("prompt.submit", session_id=session_id, text="first")
        await host.event("message.complete")
        second = await host.call("prompt.submit", session_id=session_id, text="second")
        await host.event("message.start")
        with pytest.raises(Refusal) as busy:
            await _rewind(host, session_id, second["user_row_id"])
        assert busy.value.code == 4009 and "session busy" in busy.value.message
        await host.call("session.interrupt", session_id=session_id)
        redone = await _rewind(host, session_id, second["user_row_id"])
        assert redone["survivor_user_row_ids"] == [1]
        assert redone["user_row_id"] > second["user_row_id"]


async def _rewind(host: GatewayHost, session_id: str, row_id: int, **more: Any) -> Any:
    return await host.call(
        "prompt.submit",
        session_id=session_id,
        text="again",
        truncate_before_row_id=row_id,
        confirm_truncate=True,
        **more,
    )


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"confirm_truncate": True}, 4004),
        ({"truncate_before_row_id": True, "confirm_truncate": True}, 4004),
        ({"truncate_before_row_id": "1", "confirm_truncate": True}, 4004),
        ({"truncate_before_row_id": 1.0, "confirm_truncate": True}, 4004),
        ({"truncate_before_user_ordinal": [0], "confirm_truncate": True}, 4004),
        ({"truncate_before_row_id": 3}, 4029),
        ({"truncate_before_row_id": 3, "confirm_truncate": 1}, 4029),
        ({"truncate_before_row_id": 999, "confirm_truncate": True}, 4018),
        ({"truncate_before_row_id": 2, "confirm_truncate": True}, 4018),
        ({"truncate_before_row_id": 999, "truncate_before_user_ordinal": 1, "confirm_truncate": True}, 4018),
        ({"truncate_before_row_id": 3, "truncate_before_user_ordinal": 0, "confirm_truncate": True}, 4030),
        ({"truncate_before_user_ordinal": -1, "confirm_truncate": True}, 4018),
        ({"truncate_before_user_ordinal": 2, "confirm_truncate": True}, 4018),
        ({"truncate_before_row_id": 1, "confirm_truncate": True}, 4028),
    ],
)
async def test_a_refused_rewind_changes_nothing(autojump_clock: Any, params: dict[str, Any], code: int) -> None:
    services, model = make_services(say("a"), say("b"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        for text in ("first", "second"):
            await host.call("prompt.submit", session_id=session_id, text=text)
            await host.event("message.complete")
        before = await host.call("session.history", session_id=session_id)
        with pytest.raises(Refusal) as refused:
            await host.call("prompt.submit", session_id=session_id, text="x", **params)
        assert refused.value.code == code
        if code == 4018:
            assert refused.value.data["user_turn_count"] == 2
        assert await host.call("session.history", session_id=session_id) == before
        assert len(model.requests) == 2


async def test_a_rewind_can_give_a_map_and_an_ordinal_alone_is_accepted(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        for text in ("first", "second"):
            await host.call("prompt.submit", session_id=session_id, text=text)
            await host.event("message.complete")
        result = await host.call(
            "prompt.submit",
            session_id=session_id,
            text="other",
            truncate_before_user_ordinal=1,
            confirm_truncate=True,
            rebind_survivor_row_ids=[1, 3],
        )
        assert result["survivor_row_id_map"] == {"1": 1, "3": None}
        assert "survivor_user_row_ids" not in result


async def test_prompts_during_a_turn_are_queued_steered_or_redirected(autojump_clock: Any) -> None:
    for mode, expected in (("queue", "queued"), ("interrupt", "redirected")):
        display = Settings().display.model_copy(update={"busy_input_mode": mode})
        services, _ = make_services(hang(), say("end"), settings=Settings().model_copy(update={"display": display}))
        async with running_tree(services) as tree, connected(tree) as host:
            session_id = await _session(host)
            await host.call("prompt.submit", session_id=session_id, text="first")
            await host.event("message.start")
            await trio.testing.wait_all_tasks_blocked()
            second = await host.call("prompt.submit", session_id=session_id, text="second")
            assert second["status"] == expected
            if expected == "queued":
                snapshot = await host.call("session.activate", session_id=session_id)
                assert snapshot["queued"] == {"user": "second"}


async def test_a_steer_reaches_the_model_behind_the_tool_and_is_handed_back_when_it_cannot(autojump_clock: Any) -> None:
    services, model = make_services(say("go", calls=[call("nap", seconds=5)]), say("read"), hang())
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        await host.call("prompt.submit", session_id=session_id, text="work")
        await host.event("tool.start")
        steered = await host.call("session.steer", session_id=session_id, text="look left")
        assert steered == {"status": "queued", "text": "look left"}
        await host.event("message.complete")
        assert any("look left" in row.text for row in model.requests[1].messages)
        idle = await host.call("session.steer", session_id=session_id, text="late")
        assert idle["status"] == "rejected"
        await host.call("prompt.submit", session_id=session_id, text="hang")
        await host.event("message.start")
        await host.call("session.steer", session_id=session_id, text="too late")
        stopped = await host.call("session.interrupt", session_id=session_id)
        assert stopped["pending_steer"] == "too late"
        complete = await host.event("message.complete")
        assert complete["payload"]["pending_steer"] == "too late"
        for method in ("session.steer", "session.redirect"):
            with pytest.raises(Refusal) as refused:
                await host.call(method, session_id="nowhere", text="  ")
            assert refused.value.code == 4002


async def test_limits_of_the_request_end_the_turn_as_cancelled(autojump_clock: Any) -> None:
    services, _ = make_services(say("slow", "er", pause=10))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        await host.call("prompt.submit", session_id=session_id, text="go", deadline_s=15)
        complete = await host.event("message.complete")
        assert (complete["payload"]["status"], complete["payload"]["cause"]) == ("interrupted", "deadline")
        assert (complete["payload"]["text"], complete["payload"]["partial"]) == ("slow", True)


async def test_hidden_prompts_run_and_leave_no_visible_row(autojump_clock: Any) -> None:
    services, _ = make_services(say("done"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        await host.call("prompt.submit", session_id=session_id, text="secretly", display_kind="hidden")
        await host.event("message.complete")
        history = await host.call("session.history", session_id=session_id)
        assert [message["role"] for message in history["messages"]] == ["assistant"]


async def test_who_supplies_an_author_or_an_unknown_key_is_told(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        for key, code in (("author", 4124), ("nonsense", 4000)):
            with pytest.raises(Refusal) as refused:
                await host.call("prompt.submit", session_id=session_id, text="x", **{key: "y"})
            assert refused.value.code == code and key in refused.value.message
        with pytest.raises(Refusal) as unknown:
            await host.call("prompt.submit", session_id="00000000", text="x")
        assert unknown.value.code == 4001


async def test_what_piles_up_behind_a_client_is_merged_and_stays_in_order(autojump_clock: Any) -> None:
    services, _ = make_services(say(*[f"{number} " for number in range(50)]))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.complete")
        deltas = [frame["params"] for frame in host.frames if _type(frame) == "message.delta"]
        assert "".join(delta["payload"]["text"] for delta in deltas) == "".join(f"{n} " for n in range(50))
        assert len(deltas) < 50
        replay = await host.call("session.events.since", session_id=session_id, last_seen=deltas[-1]["seq"])
        assert "message.delta" not in [event["type"] for event in replay["events"]]


def _type(frame: dict[str, Any]) -> str | None:
    return frame["params"]["type"] if frame.get("method") == "event" else None


async def test_the_same_prompt_sent_twice_is_accepted_once(autojump_clock: Any) -> None:
    services, model = make_services(hang())
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _session(host)
        first = await host.call("prompt.submit", session_id=session_id, text="go")
        again = await host.call("prompt.submit", session_id=session_id, text="go")
        assert first == again == {"status": "streaming", "user_row_id": 1}
        assert len(model.requests) == 1
