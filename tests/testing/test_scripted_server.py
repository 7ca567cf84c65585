"""A server in a test: what it offers, what its model can do, and that leaving it leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from hermes import testing
from hermes.agent.ports import DeltaKind, ModelRequest
from hermes.errors import ProviderError
from hermes.messages import Row
from hermes.outcomes import CancelReason, Cause, RunStatus
from hermes.testing import Reply, Script, ScriptedModel, ScriptError

REQUEST = ModelRequest("r:api:1", "fake-model", (Row("user", "hello"),))


async def ask(model: ScriptedModel) -> tuple[list[tuple[DeltaKind, str]], object]:
    deltas: list[tuple[DeltaKind, str]] = []
    finished = await model.call(REQUEST, lambda kind, text: deltas.append((kind, text)))
    return deltas, finished


async def test_one_session_goes_on_and_another_begins_anew(autojump_clock: trio.testing.MockClock) -> None:
    async with testing.server(Script(replies=[Reply.of({"echo": "you said "})], when_used_up="repeat")) as server:
        assert (await server.say("one")).text == "you said one"
        assert (await server.say("two")).text == "you said two"
        assert [row.text for row in server.session_rows()] == ["one", "you said one", "two", "you said two"]
        other = server.session(title="other")
        await server.say("three", other)
        assert [row.text for row in server.session_rows(other)] == ["three", "you said three"]
        assert server.said(other) == "you said three"
        assert server.leftovers() == []


async def test_two_runs_give_the_same_events(autojump_clock: trio.testing.MockClock) -> None:
    async def play() -> list[str]:
        async with testing.server("hello there") as server:
            await server.say("hi")
            return [type(event).__name__ for event in server.events()] + [server.session().key]

    assert await play() == await play()


async def test_leaving_the_block_stops_what_runs(autojump_clock: trio.testing.MockClock) -> None:
    async with testing.server(Reply.of({"text": "so"}, faults={"hang_after": 1})) as server:
        turn = await server.start("hi")
        await testing.until(lambda: server.said() == "so")
        assert server.leftovers() == [f"turn {turn.turn_id}", "model_call fake-model", "an open model call"]
    record = turn.ended.value
    assert record is not None
    assert (record.run_status, record.cause, record.text) == (RunStatus.INTERRUPTED, Cause.SHUTDOWN, "so")
    assert server.leftovers() == []
    assert server.model.cancelled_calls == 1


async def test_a_test_that_fails_or_is_cancelled_leaves_nothing_either(autojump_clock: trio.testing.MockClock) -> None:
    with trio.move_on_after(5) as scope:
        async with testing.server(Reply.of(faults={"hang": True})) as server:
            turn = await server.start("hi")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert turn.ended.settled and server.leftovers() == []
    with pytest.raises(KeyError):
        async with testing.server(Reply.of(faults={"hang": True})) as server:
            turn = await server.start("hi")
            raise KeyError
    assert turn.ended.settled and server.leftovers() == []


async def test_settings_are_set_by_their_names(autojump_clock: trio.testing.MockClock) -> None:
    async with testing.server(settings={"limits.max_sessions": 3}) as server:
        assert server.services.settings().limits.max_sessions == 3


async def test_a_prompt_without_a_turn_is_said_to_have_none(autojump_clock: trio.testing.MockClock) -> None:
    async with testing.server(Reply.of(faults={"hang": True})) as server:
        turn = await server.start("hi")
        waiting = turn.session.submit_nowait(testing.prompt("later"))
        turn.session.drop_queue()
        assert await waiting.wait_turn() is None
        turn.cancel(CancelReason(Cause.USER_INTERRUPT))


async def test_nothing_is_written_to_the_working_directory(
    autojump_clock: trio.testing.MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with testing.server("hi") as server:
        await server.say("hi")
    assert os.listdir(tmp_path) == []


async def test_the_model_says_each_kind_of_step(autojump_clock: trio.testing.MockClock) -> None:
    reply = Reply.of(
        {"reasoning": ["think "]},
        {"text": ["one ", "two"]},
        {"delay": 5},
        {"tool_call": {"name": "add", "arguments": {"a": 1}, "id": "x"}},
        {"usage": {"input_tokens": 7, "output_tokens": 3, "cached_tokens": 2}},
    )
    deltas, finished = await ask(ScriptedModel(reply))
    assert deltas == [
        (DeltaKind.REASONING, "think "),
        (DeltaKind.TEXT, "one "),
        (DeltaKind.TEXT, "two"),
        (DeltaKind.TOOL_NAME, "add"),
    ]
    assert trio.current_time() == 5
    shown = repr(finished)
    assert "finish_reason='tool_calls'" in shown and "input_tokens=7" in shown and "cache_read_tokens=2" in shown
    assert "ToolCall(id='x', name='add', arguments='{\"a\": 1}'" in shown


@pytest.mark.parametrize(
    ("faults", "error_class"),
    [
        ({"status": 401}, "auth"),
        ({"status": 404}, "model_not_found"),
        ({"status": 429, "retry_after": 7}, "rate_limit"),
        ({"status": 500}, "server_error"),
        ({"status": 400}, "format_error"),
        ({"error_at_200": True}, "server_error"),
        ({"drop": True}, "stream_dropped"),
        ({"drop_after": 1}, "stream_dropped"),
        ({"mid_stream_error": {"after": 1, "message": "no"}}, "server_error"),
    ],
)
async def test_a_fault_is_the_error_that_a_provider_would_raise(
    autojump_clock: trio.testing.MockClock, faults: dict[str, object], error_class: str
) -> None:
    model = ScriptedModel(Reply.of({"text": ["one ", "two"]}, faults=faults))
    with pytest.raises(ProviderError) as caught:
        await ask(model)
    assert caught.value.error_class == error_class
    assert caught.value.retry_after == faults.get("retry_after")
    assert (model.open_calls, model.cancelled_calls) == (0, 0)


async def test_a_gate_holds_a_reply_until_it_is_released(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(Reply.of({"wait_for": "go"}, {"text": "gone"}))
    with trio.move_on_after(10) as scope:
        await ask(model)
    assert scope.cancelled_caught and model.cancelled_calls == 1
    model = ScriptedModel(Reply.of({"wait_for": "go"}, {"text": "gone"}))
    model.release("go")
    assert (await ask(model))[0] == [(DeltaKind.TEXT, "gone")]


async def test_a_script_that_is_used_up_is_an_error(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(Reply.of({"text": "once"}))
    await ask(model)
    with pytest.raises(ProviderError, match="nothing more"):
        await ask(model)


async def test_a_script_is_taken_in_any_form(autojump_clock: trio.testing.MockClock, tmp_path: Path) -> None:
    text = "replies:\n  - steps:\n      - text: from yaml\n"
    (tmp_path / "script.yaml").write_text(text)
    for form, said in (
        ("just that", "just that"),
        (text, "from yaml"),
        ('[{"steps": [{"text": "from json"}]}]', "from json"),
        (tmp_path / "script.yaml", "from yaml"),
        (Reply.of({"text": "a reply"}), "a reply"),
        ([Reply.of({"text": "several"})], "several"),
        (Script.of(Reply.of({"text": "a script"})), "a script"),
        ((), "hello"),
    ):
        deltas, _ = await ask(ScriptedModel(form))
        assert "".join(piece for _, piece in deltas) == said
    with pytest.raises(ScriptError):
        ScriptedModel("replies:\n  - nonsense: true\n")


async def test_rules_see_the_conversation(autojump_clock: trio.testing.MockClock) -> None:
    replies = [
        Reply.of({"text": "weather"}, when={"last_user_contains": "rain"}),
        Reply.of({"text": "other"}, when={"last_role": "user"}),
    ]
    async with testing.server(replies) as server:
        assert (await server.say("will it RAIN?")).text == "weather"
        assert (await server.say("and you?")).text == "other"
