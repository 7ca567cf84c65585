"""The async face: turns, stops, callbacks and questions of an agent in a program that runs on Trio."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import hermes
from hermes.agent.store.sqlite import SqliteStore
from hermes.embedding.agent import Agent, open_agent, open_server
from hermes.errors import EmptyText, InvalidParams, InvalidValue, SessionBusy
from hermes.events import TextDelta, TurnEnded
from hermes.messages import Prompt
from hermes.testing import Reply, ScriptedModel, until

SAY = Reply.of({"text": ["Hel", "lo"]})
WAITS = Reply.of({"text": "so far"}, {"wait_for": "go"}, {"text": " and on"})


@asynccontextmanager
async def agent_saying(home: Path, *replies: Reply, **arguments: Any) -> AsyncIterator[tuple[Agent, ScriptedModel]]:
    model = ScriptedModel(replies)
    with trio.fail_after(30):
        async with open_agent(home=home, models=model, cwd=str(home), **arguments) as agent:
            yield agent, model


def run_in(script: str) -> dict[str, Any]:
    return {"tool_call": {"name": "terminal", "arguments": {"command": script}}}


async def test_a_conversation_goes_on_over_several_turns(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, SAY, Reply.of({"echo": "again: "})) as (agent, model):
        record = await agent.run_conversation("hi")
        assert (record["final_response"], record["completed"], record["session_id"]) == (
            "Hello",
            True,
            agent.session_id,
        )
        assert await agent.chat("more") == "again: more"
        assert [message["content"] for message in record["messages"]] == ["hi", "Hello"]
        assert [row.text for row in model.requests[1].messages] == ["hi", "Hello", "more"]
        assert (agent.model, agent.provider) == ("fake-model", "scripted")
        assert agent.counters()["session_api_calls"] == 2
        agent.reset_session_state()
        assert agent.counters()["session_total_tokens"] == 0
    assert model.open_calls == 0


async def test_nothing_is_written_unless_a_database_is_named(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, SAY) as (agent, _):
        await agent.chat("hi")
    assert list(tmp_path.iterdir()) == []


async def test_a_conversation_in_a_database_can_be_taken_up_again(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    async with agent_saying(tmp_path, SAY, session_db=path, session_id="mine") as (agent, _):
        await agent.chat("hi")
        assert agent.session_id == "mine"
    async with agent_saying(tmp_path, Reply.of({"text": "back"}), session_db=str(path), session_id="mine") as (
        agent,
        _,
    ):
        record = await agent.run_conversation("again")
        assert [message["content"] for message in record["messages"]] == ["hi", "Hello", "again", "back"]
        assert record["current_turn_user_idx"] == 2
    async with await SqliteStore.open(path) as store:
        assert len(await store.load_rows("mine")) == 4


async def test_the_homes_own_database_is_used_when_asked_for(tmp_path: Path) -> None:
    home = tmp_path / "new home"
    async with agent_saying(home, SAY, session_db=True) as (agent, _):
        await agent.chat("hi")
    assert (home / "sessions.db").exists()


async def test_a_second_turn_at_the_same_time_is_busy(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, WAITS) as (agent, model):
        running = agent.begin("hi")
        with pytest.raises(SessionBusy):
            await agent.run_conversation("me too")
        await until(lambda: bool(model.requests))
        model.release("go")
        assert (await agent.finish(running))["final_response"] == "so far and on"


async def test_an_interrupt_stops_the_turn_and_hands_its_message_back(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, WAITS, SAY) as (agent, _):
        assert not agent.interrupt()
        running = agent.begin("hi")
        await until(lambda: (agent.inflight() or {}).get("assistant") == "so far")
        assert agent.steer("mind") and agent.pending_prompts() == []
        assert agent.interrupt("do this instead")
        assert agent.is_interrupted and not agent.interrupt()
        record = await agent.finish(running)
        assert (record["interrupted"], record["final_response"]) == (True, "so far")
        assert (record["interrupt_message"], record["pending_steer"]) == ("do this instead", "mind")
        assert (await agent.run_conversation("next"))["interrupt_message"] is None
        assert not agent.is_interrupted


async def test_an_interrupt_right_behind_the_prompt_reaches_it(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, SAY) as (agent, model):
        running = agent.begin("hi")
        assert agent.hard_interrupt()
        assert (await agent.finish(running))["interrupted"]
        assert model.requests == []


async def test_whoever_cancels_the_call_stops_the_turn(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, WAITS, SAY) as (agent, model):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run_conversation, "hi")
            await until(lambda: model.open_calls == 1)
            nursery.cancel_scope.cancel()
        assert await agent.chat("next") == "Hello"
        assert (model.open_calls, model.cancelled_calls) == (0, 1)


async def test_a_redirect_replaces_what_is_being_said(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, WAITS, Reply.of({"text": "differently"})) as (agent, _):
        assert not agent.redirect("nothing runs")
        running = agent.begin("hi")
        await until(lambda: (agent.inflight() or {}).get("assistant") == "so far")
        with pytest.raises(EmptyText):
            agent.steer("  ")
        assert agent.redirect("other")
        record = await agent.finish(running)
        assert (record["final_response"], record["user_intervened"]) == ("differently", True)


async def test_what_the_caller_brings_along_is_what_the_model_reads(tmp_path: Path) -> None:
    prefill = [{"role": "user", "content": "example"}, {"role": "assistant", "content": "like this"}]
    async with agent_saying(
        tmp_path, SAY, SAY, SAY, prefill_messages=prefill, ephemeral_system_prompt="be brief", pass_session_id=True
    ) as (agent, model):
        record = await agent.run_conversation("meant", system_message="of the caller", persist_user_message="shown")
        assert [row.text for row in model.requests[0].messages][:2] == ["example", "like this"]
        assert "meant" in str(model.requests[0].messages[2])
        assert [message["content"] for message in record["messages"]] == ["shown", "Hello"]
        system = "\n".join(model.requests[0].system)
        assert "be brief" in system and agent.session_id in system and "of the caller" in system
        history = [{"role": "user", "content": "theirs"}, {"role": "assistant", "content": "answer"}]
        record = await agent.run_conversation("new", conversation_history=history)
        assert [message["content"] for message in record["messages"]] == ["theirs", "answer", "new", "Hello"]
        parts = [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aA=="}},
        ]
        record = await agent.run_conversation(parts, task_id="ignored")
        assert record["messages"][-2]["content"] == parts


async def test_a_wrong_argument_of_a_turn_changes_nothing(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, SAY) as (agent, _):
        with pytest.raises(TypeError, match="colour"):
            await agent.run_conversation("hi", colour="red")
        with pytest.raises(InvalidParams):
            await agent.run_conversation([{"type": "smell"}])
        assert await agent.chat("hi") == "Hello"


async def test_a_prompt_of_our_own_form(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, SAY) as (agent, _):
        reader = agent.events()
        record = await agent.run_turn(Prompt("hi", unattended=True))
        assert record.text == "Hello"
        told = [entry.event for entry in reader.next_nowait()]
        assert "".join(event.text for event in told if isinstance(event, TextDelta)) == "Hello"
        assert any(isinstance(event, TurnEnded) for event in told)


async def test_callbacks_tell_the_turn_in_order(tmp_path: Path) -> None:
    told: list[tuple[str, Any]] = []

    def note(name: str) -> Any:
        return lambda *args, **options: told.append((name, args[0]))

    names = ("tool_start", "tool_complete", "tool_gen", "stream_delta", "interim_assistant", "step", "reasoning")
    callbacks: dict[str, Any] = {f"{name}_callback": note(name) for name in names}
    replies = (
        Reply.of({"reasoning": "hm"}, {"text": "I look."}, run_in("echo $((40 + 2))")),
        Reply.of({"text": "It is 42."}, when={"tool_result_contains": "42"}),
    )
    async with agent_saying(tmp_path, *replies, **callbacks) as (agent, _):
        streamed: list[str] = []
        record = await agent.run_conversation("compute", stream_callback=streamed.append)
        assert record["final_response"] == "It is 42."
    assert [name for name, _ in told] == [
        "step", "reasoning", "stream_delta", "tool_gen", "interim_assistant", "stream_delta", "tool_start",
        "tool_complete", "step", "stream_delta", "stream_delta",
    ]  # fmt: skip
    deltas = [value for name, value in told if name == "stream_delta"]
    assert deltas.index(None) < len(deltas) - 1 and deltas[-1] is None
    assert "".join(streamed).replace("\n", "") == "I look.It is 42."


async def test_every_event_can_be_had_as_plain_data(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    async with agent_saying(tmp_path, SAY, event_callback=lambda name, data: told.append((name, data))) as (agent, _):
        await agent.chat("hi")
    names = [name for name, _ in told]
    assert names.index("turn_started") < names.index("text_delta") < names.index("turn_ended")
    assert dict(told)["turn_ended"]["record"]["exit_reason"].startswith("text_response")


async def test_a_callback_that_raises_is_left_out_for_the_rest_of_the_turn(tmp_path: Path) -> None:
    calls: list[str] = []

    def broken(text: str | None) -> None:
        calls.append(str(text))
        raise RuntimeError("in the host")

    async with agent_saying(tmp_path, SAY, SAY, stream_delta_callback=broken) as (agent, _):
        assert await agent.chat("hi") == "Hello"
        assert len(calls) == 1
        assert await agent.chat("hi") == "Hello"
        assert len(calls) == 2


async def test_a_slow_callback_holds_nothing_up_and_misses_no_text(tmp_path: Path) -> None:
    gate = threading.Event()
    told: list[str] = []

    def slow(text: str | None) -> None:
        gate.wait(10)
        told.append(text or "")

    words = [f"w{number} " for number in range(500)]
    async with agent_saying(tmp_path, Reply.of({"text": words}), stream_delta_callback=slow) as (agent, _):
        running = agent.begin("hi")
        await running.turn.wait_ended()
        gate.set()
        await agent.finish(running)
    assert "".join(told) == "".join(words)
    assert len(told) < 20, "what piled up was merged"


async def test_an_approval_is_asked_for_and_its_answer_holds(tmp_path: Path) -> None:
    asked: list[Any] = []

    def approve(question: dict[str, Any], choices: tuple[str, ...]) -> str:
        asked.append((question["command"], choices))
        return "once" if len(asked) == 1 else "deny"

    victim = tmp_path / "victim"
    victim.mkdir()
    replies = [Reply.of(run_in(f"rm -rf {victim}")), Reply.of({"text": "done"})]
    async with agent_saying(tmp_path, *replies, *replies, approval_callback=approve) as (agent, _):
        await agent.chat("clean")
        assert not victim.exists()
        victim.mkdir()
        await agent.chat("again")
        assert victim.exists()
    assert asked[0][0] == f"rm -rf {victim}" and "deny" in asked[0][1]


async def test_without_somebody_to_ask_what_is_dangerous_is_not_done(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    replies = [Reply.of(run_in(f"rm -rf {victim}")), Reply.of({"text": "done"})]
    async with agent_saying(tmp_path, *replies) as (agent, model):
        await agent.chat("clean")
        assert "clarify" not in [tool.name for tool in model.requests[0].tools]
    assert victim.exists()


async def test_an_approval_callback_that_raises_denies(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()

    def broken(*_: Any) -> str:
        raise RuntimeError("in the host")

    replies = [Reply.of(run_in(f"rm -rf {victim}")), Reply.of({"text": "done"})]
    async with agent_saying(tmp_path, *replies, approval_callback=broken) as (agent, _):
        await agent.chat("clean")
    assert victim.exists()


async def test_questions_of_the_model_are_answered_one_by_one(tmp_path: Path) -> None:
    asked: list[Any] = []

    def answer(question: str, choices: list[str]) -> str:
        asked.append((question, choices))
        return "blue"

    questions = {"questions": [{"question": "Which colour?", "choices": ["red", "blue"]}, {"question": "Why?"}]}
    replies = [Reply.of({"tool_call": {"name": "clarify", "arguments": questions}}), Reply.of({"text": "ok"})]
    async with agent_saying(tmp_path, *replies, clarify_callback=answer) as (agent, _):
        record = await agent.run_conversation("paint")
    assert [question for question, _ in asked] == ["Which colour?", "Why?"]
    assert "blue" in next(message["content"] for message in record["messages"] if message["role"] == "tool")


async def test_the_model_can_be_changed_and_the_conversation_shortened(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, SAY, SAY) as (agent, model):
        await agent.chat("hi")
        assert await agent.switch_model("other") == "other"
        await agent.chat("again")
        assert [request.model for request in model.requests] == ["fake-model", "other"]
        told = await agent.compress(preview=True, keep_last=1, focus_topic="colours")
        assert (told["removed"], told["summary"]["noop"]) == (0, True)


async def test_several_agents_share_a_server(tmp_path: Path) -> None:
    model = ScriptedModel([Reply.of({"text": "one"}), Reply.of({"text": "two"})])
    with trio.fail_after(30):
        async with open_server(home=tmp_path, models=model, settings={"limits.max_sessions": 9}) as server:
            first = await server.agent(cwd=str(tmp_path))
            second = await server.agent(platform="mine", parent_session_id=first.session_id)
            assert [await first.chat("a"), await second.chat("b")] == ["one", "two"]
            assert (await server.agent(session_id=first.session_id)).session is first.session
            sessions = server.snapshot()["children"][0]["children"]
            assert [node["kind"] for node in sessions] == ["session", "session"]
            with pytest.raises(InvalidParams, match="base_url"):
                await server.agent(base_url="http://x")


async def test_a_wrong_setting_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"limits\.no_such"):
        async with open_agent(home=tmp_path, settings={"limits.no_such": 1}):
            raise AssertionError


async def test_what_an_agent_runs_ends_with_it(tmp_path: Path) -> None:
    async with agent_saying(tmp_path, Reply.of(run_in("sleep 300"))) as (agent, _):
        running = agent.begin("wait")
        await until(lambda: bool((agent.inflight() or {}).get("tools")))
    record = running.turn.ended.value
    assert record is not None and record.interrupted


def test_everything_is_there_under_the_name_of_the_package() -> None:
    assert hermes.open_agent is open_agent
    assert hermes.TextDelta is TextDelta
    assert {hermes.__getattr__(name) for name in hermes.__all__}
    for name in ("no_such", "_private", "replace"):
        with pytest.raises(AttributeError):
            getattr(hermes, name)


async def test_steps_and_tools_are_told_in_the_order_in_which_they_happen(tmp_path: Path) -> None:
    told: list[Any] = []
    look = Reply.of({"reasoning": "hm"}, {"text": "I look."}, run_in("echo hi"))
    callbacks: dict[str, Any] = {
        "step_callback": lambda number, results: told.append(
            ("step", number, [(one["name"], one["arguments"], "hi" in one["result"]) for one in results])
        ),
        "tool_gen_callback": lambda name: told.append(("gen", name)),
        "interim_assistant_callback": lambda text, already_streamed: told.append(("interim", text)),
        "tool_start_callback": lambda call_id, name, args: told.append(("start", name)),
        "tool_complete_callback": lambda call_id, name, args, result: told.append(("complete", name)),
        "tool_progress_callback": lambda kind, name, preview, args: told.append((kind, name)),
    }
    async with agent_saying(tmp_path, look, SAY, **callbacks) as (agent, _):
        await agent.run_conversation("go")
    assert [one for one in told if one[0] != "tool.progress"] == [
        ("step", 1, []),
        ("gen", "terminal"),
        ("reasoning.available", ""),
        ("interim", "I look."),
        ("tool.started", "terminal"),
        ("start", "terminal"),
        ("tool.completed", "terminal"),
        ("complete", "terminal"),
        ("step", 2, [("terminal", {"command": "echo hi"}, True)]),
    ]


@pytest.mark.parametrize("given", [{"model": 5}, {"base_url": b"x"}, {"api_key": []}, {"fallback_model": "x"}])
async def test_an_argument_that_cannot_be_meant_is_a_type_error(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        async with open_agent(home=tmp_path, **given):
            pass


@pytest.mark.parametrize("history", ["nope", ["text"], [{"role": "user", "content": 5}], [{"role": "judge"}]])
async def test_a_history_that_is_none_is_refused(tmp_path: Path, history: Any) -> None:
    async with agent_saying(tmp_path) as (agent, _):
        with pytest.raises(InvalidParams):
            await agent.run_conversation("hi", conversation_history=history)


async def test_arguments_of_old_calls_may_be_objects(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": {"a": 1}}}
    history = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "assistant", "content": "b"},
    ]
    async with agent_saying(tmp_path, SAY) as (agent, model):
        await agent.run_conversation("hi", conversation_history=history)
    assert model.requests[0].messages[1].tool_calls[0].arguments in ('{"a": 1}', '{"a":1}')
