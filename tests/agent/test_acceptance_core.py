"""The acceptance scenarios of the agent core, each under its number: on the record, the rows, the events and the wire.

C11 and C17 to C19 have sweeps of their own (``test_steer_races``, ``test_prompt_cache_bytes``, ``test_model_switch``,
``test_model_catalog``); here stands the plain case of each.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.loop_settings import LoopSettings
from hermes.agent.model_catalog import check_served
from hermes.agent.model_switch import parse_model_command, resolve_switch
from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest, ToolSpec
from hermes.agent.providers.http_provider import FORMATS
from hermes.agent.providers.wire_format import Endpoint
from hermes.agent.wire_copy import WireOptions, wire_copy
from hermes.embedding.agent import open_agent
from hermes.errors import ModelNotServed, ProviderError
from hermes.events import RedirectApplied, StatusUpdate, SteerDelivered, TextDelta, ToolStarted
from hermes.messages import Prompt, Row, ToolCall
from hermes.nurseries.process_tree import read_stat
from hermes.nurseries.session import Session
from hermes.nurseries.turn import Turn
from hermes.outcomes import CancelReason, Cause, RunStatus, TurnRecord, Usage
from hermes.testing import Reply, ScriptedModel, until
from hermes.testing.fake_provider import FakeProvider
from hermes.testing.script import Script
from hermes.testing.strict import check_request
from hermes.testing.wire_frames import WireFormat
from tests.agent.test_loop_abnormal import long_history
from tests.agent.test_model_catalog import ACCEPTED, REFUSED
from tests.agent.test_model_switch import ROWS
from tests.nurseries.test_pinned import Home
from tests.nurseries.test_pinned import turn as turn_of
from tests.nurseries.test_prompt_cache_bytes import Host, assert_grows, play, rounds
from tests.support.core import call, events_of, hang, make_services, running_tree, say
from tests.support.invariants import assert_history_is_whole
from tests.support.loop_port import Say, failing
from tests.support.loop_port import call as cut
from tests.support.loop_port import play as play_loop

STOP = CancelReason(Cause.USER_INTERRUPT)
Clock = trio.testing.MockClock


@asynccontextmanager
async def stage(*replies: Any) -> AsyncIterator[tuple[Session, Any]]:
    services, model = make_services(*replies)
    async with running_tree(services) as tree:
        yield tree.registry.create(source="test", cwd="/"), model


async def begin(session: Session, text: str = "hello", **options: Any) -> Turn:
    turn = await session.submit_nowait(Prompt(text, **options)).wait_turn()
    assert turn is not None
    return turn


async def record_of(session: Session, text: str = "hello", **options: Any) -> TurnRecord:
    return await (await begin(session, text, **options)).wait_ended()


def assert_truth(record: TurnRecord, status: str) -> None:
    """Exactly one row of the truth table of §1.17, and every key there."""
    table = {
        "done": (True, False, False, False),
        "interrupted": (False, True, False, bool(record.text)),
        "failed": (False, False, True, bool(record.text)),
        "incomplete": (False, False, False, True),
    }
    assert (record.completed, record.interrupted, record.failed, record.partial) == table[status]
    assert status not in ("done", "incomplete") or record.text is not None
    assert all(hasattr(record, one.name) for one in fields(TurnRecord))
    assert record.exit_reason and record.model and record.requested_model and record.provider


async def http_session(script: Script, story: Callable[[Host, FakeProvider], Awaitable[None]]) -> list[bytes]:
    return await play("chat_completions", script, story)


# --- C1 to C8: answers, batches, errors ------------------------------------------------------------------------------


async def test_c1_text_only(autojump_clock: Clock) -> None:
    async with stage(say("Hello", " there")) as (session, _):
        record = await record_of(session)
        assert_truth(record, "done")
        assert (record.text, record.exit_reason) == ("Hello there", "text_response(finish_reason=stop)")
        assert [(row.role, row.text) for row in session.rows] == [("user", "hello"), ("assistant", "Hello there")]
        assert (record.usage.input_tokens, record.usage.output_tokens, record.api_calls) == (10, 5, 1)
        assert record.run_status is RunStatus.COMPLETED


async def test_c2_two_reads_a_write_and_a_command_in_one_batch() -> None:
    batch = [
        cut("read_file", {"path": "/a"}),
        cut("read_file", {"path": "/b"}),
        cut("write_file", {"path": "/a"}),
        cut("terminal", {"command": "ls"}),
    ]
    played = await play_loop(Say("", batch), Say("done"))
    assert played.port.segments == [["read_file", "read_file"], ["write_file"], ["terminal"]]
    results = [row.tool_name for row in played.rows if row.role == "tool"]
    assert results == ["read_file", "read_file", "write_file", "terminal"]


async def test_c3_an_unknown_tool_beside_a_known_one(autojump_clock: Clock) -> None:
    async with stage(say(calls=[call("nowhere", "c1"), call("nap", "c2")]), say("done")) as (session, _):
        assert_truth(await record_of(session), "done")
        unknown, known = (row for row in session.rows if row.role == "tool")
        assert "nap" in unknown.text and "error" in unknown.text
        assert known.text == "rested"


async def test_c4_a_call_that_was_cut_is_asked_for_again() -> None:
    played = await play_loop(
        Say("", [cut("terminal", '{"command": "l')], finish="length"),
        Say("", [cut("terminal", {"command": "ls"})]),
        Say("ok"),
    )
    assert played.setup.progress.api_calls == 3
    assert [one.arguments for row in played.rows for one in row.tool_calls] == ['{"command": "ls"}']
    assert len(played.port.named(StatusUpdate)) == 1
    first, second = played.model.requests[:2]
    assert (second.max_output_tokens or 0) > (first.max_output_tokens or 0)


async def test_c5_a_stream_that_drops_in_mid_text_is_continued() -> None:
    pieces = ["The quick brown fox ", "jumps over the lazy dog ", "and then it "]
    script = Script.of(
        Reply.of({"text": [*pieces, "vanishes"]}, faults={"drop_after": 4}),
        Reply.of({"text": "comes home."}),
        strict=True,
    )

    async def story(host: Host, fake: FakeProvider) -> None:
        record = await host.turn("tell me")
        assert_truth(record, "done")
        shown = "".join(event.text for event in events_of(host.session) if isinstance(event, TextDelta))
        assert record.text == shown
        assert shown.startswith(pieces[0]) and shown.endswith("comes home.")
        assert shown.count("quick") == 1
        assert [row.role for row in host.session.rows] == ["user", "assistant"]
        assert record.api_calls == len(fake.requests) == 2

    await http_session(script, story)


async def test_c6_a_rate_limit_waits_as_long_as_it_says(autojump_clock: Clock) -> None:
    async def limited(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        await trio.lowlevel.checkpoint()
        raise ProviderError("slow down", error_class="rate_limit", status=429, retry_after=7)

    async with stage(limited, say("done")) as (session, model):
        began = trio.current_time()
        assert_truth(await record_of(session), "done")
        assert trio.current_time() - began == pytest.approx(7, abs=0.1)
        (status,) = [event for event in events_of(session) if isinstance(event, StatusUpdate)]
        assert status.details is not None
        assert (status.details["class"], status.details["delay_s"]) == ("rate_limit", 7.0)
        assert len(model.requests) == 2


async def test_c7_a_format_error_fails_whole_and_the_next_turn_works() -> None:
    async def story(host: Host, fake: FakeProvider) -> None:
        record = await host.turn("first")
        assert_truth(record, "failed")
        assert record.exit_reason == "provider_error(format_error)"
        closing = host.session.rows[-1]
        assert (closing.role, closing.display_kind) == ("assistant", "failed_turn")
        assert closing.api_content is not None and closing.api_content.startswith("[")
        assert (await host.turn("second")).text == "fine"

    await http_session(Script.of(Reply.of(faults={"status": 400}), Reply.of({"text": "fine"}), strict=True), story)


async def test_c8_an_overflow_is_compressed_and_succeeds() -> None:
    played = await play_loop(
        failing("context_overflow", status=400),
        Say("Earlier: twenty questions."),
        Say("ok"),
        history=long_history(20, 4_000),
        prompt=Prompt("the newest question"),
    )
    place = next(index for index, row in enumerate(played.rows) if row.compacted_summary)
    assert played.rows[place].display_kind == "hidden"
    assert "the newest question" in [row.text for row in played.rows[place + 1 :]]
    assert played.port.session_key == "s1"


# --- C9: interrupts --------------------------------------------------------------------------------------------------


async def _broken(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
    await trio.lowlevel.checkpoint()
    raise ProviderError("busy", error_class="overloaded")


_TWO_NAPS = [call("nap", seconds=60), call("nap", "c2", seconds=60)]
MOMENTS: dict[str, tuple[Any, float, str, str | None, str]] = {
    "before the first delta": (hang(), 1, "interrupted_during_api_call", None, "failed_turn"),
    "in mid-text": (say("half ", "of it", pause=2), 3, "interrupted_during_api_call", "half ", ""),
    "in a tool": (say(calls=_TWO_NAPS), 1, "interrupted_by_user", None, "hidden"),
    "in an approval": (say(calls=[call("ask"), call("nap", "c2")]), 1, "interrupted_by_user", None, "hidden"),
    "in a backoff": (_broken, 1, "interrupted_by_user", None, "failed_turn"),
}  # fmt: skip


@pytest.mark.parametrize("moment", list(MOMENTS))
async def test_c9_an_interrupt_at_every_moment(moment: str, autojump_clock: Clock) -> None:
    reply, after, reason, text, kind = MOMENTS[moment]
    async with stage(reply, say("next")) as (session, model):
        turn = await begin(session)
        await trio.sleep(after)
        stopped_at = len(events_of(session))
        began = trio.current_time()
        result = await session.interrupt_nowait(STOP).wait_settled(0.9)
        assert result.settled and trio.current_time() - began <= 0.3
        record = await turn.wait_ended()
        assert_truth(record, "interrupted")
        assert (record.exit_reason, record.text) == (reason, text)
        assert_history_is_whole(session.rows)
        assert (session.rows[-1].display_kind or "") == kind
        if text is not None:
            assert (session.rows[-1].display_metadata or {})["interrupted"] is True
        assert not any(isinstance(event, ToolStarted) for event in events_of(session)[stopped_at:])
        assert model.open == 0
        skipped = [row for row in session.rows if row.tool_call_id == "c2"]
        assert all(row.effect_disposition in ("none", "unknown") for row in skipped)
        assert (await record_of(session, "again")).text == "next"


async def test_c9_an_interrupt_between_the_answer_and_its_calls(autojump_clock: Clock) -> None:
    async def answer(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        on_delta(DeltaKind.TEXT, "I will look")
        session.interrupt_nowait(STOP)
        return ModelFinished("I will look", tool_calls=(call("nap"),), finish_reason="tool_calls")

    async with stage(answer) as (session, _):
        record = await record_of(session)
        assert_truth(record, "interrupted")
        assert record.text == "I will look"
        assert all(not row.tool_calls for row in session.rows)


async def test_c9_a_command_that_is_interrupted_takes_its_processes_along(tmp_path: Path) -> None:
    script = "sleep 300 & echo $! > child; echo $$ > shell; wait"
    reply = Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": script}}})
    with trio.fail_after(20):
        async with open_agent(home=tmp_path, models=ScriptedModel([reply]), cwd=str(tmp_path)) as agent:
            conversation = agent.begin("go")
            await until(lambda: all(_number(tmp_path / name) for name in ("child", "shell")))
            pids = [_number(tmp_path / name) for name in ("child", "shell")]
            result = await agent.session.interrupt_nowait(STOP).wait_settled(5)
            assert result.settled
            await conversation.turn.wait_ended()
            assert not any(_lives(pid) for pid in pids)
            (row,) = [row for row in agent.session.rows if row.role == "tool"]
            assert json.loads(row.text)["exit_code"] == 130


def _number(path: Path) -> int:
    return int(path.read_text().strip() or 0) if path.exists() else 0


def _lives(pid: int) -> bool:
    """A zombie, which whoever adopted it has not collected yet, does not."""
    stat = read_stat(pid)
    return stat is not None and stat.running


# --- C10 to C12: steers and redirects --------------------------------------------------------------------------------


async def test_c10_a_steer_during_a_batch(autojump_clock: Clock) -> None:
    async with stage(say(calls=[call("nap", "c1", seconds=2), call("nap", "c2", seconds=3)]), say("done")) as (
        session,
        model,
    ):
        turn = await begin(session)
        await trio.sleep(1)
        assert session.steer("look at b too")
        assert_truth(await turn.wait_ended(), "done")
        assert [row.role for row in session.rows] == ["user", "assistant", "tool", "tool", "user", "assistant"]
        row = session.rows[4]
        assert (row.text, row.display_kind) == ("look at b too", "steer")
        sent = model.requests[1].messages[-1].text
        assert sent.startswith("[Message from the user") and "\nlook at b too\n" in sent
        (event,) = [event for event in events_of(session) if isinstance(event, SteerDelivered)]
        assert (event.text, event.row_id, event.iteration) == ("look at b too", row.row_id, 1)


async def test_c11_a_steer_during_the_final_text_and_one_before_a_hard_stop(autojump_clock: Clock) -> None:
    async with stage(say("all ", "done", pause=2), hang()) as (session, _):
        turn = await begin(session)
        await trio.sleep(3)
        assert session.steer("too late")
        assert (await turn.wait_ended()).pending_steer == "too late"
        assert not session.steer("nothing runs")
        turn = await begin(session, "again")
        await trio.sleep(1)
        assert session.steer("before the stop")
        result = await session.interrupt_nowait(STOP).wait_settled(0.9)
        assert result.pending_steer == "before the stop"
        assert (await turn.wait_ended()).pending_steer == "before the stop"


async def test_c12_a_redirect_in_mid_text(autojump_clock: Clock) -> None:
    async with stage(say("I think ", "that", pause=2), say("as you say")) as (session, model):
        turn = await begin(session)
        await trio.sleep(3)
        assert session.redirect("rather so") == "redirected"
        record = await turn.wait_ended()
        assert_truth(record, "done")
        assert [(row.role, row.text) for row in session.rows] == [
            ("user", "hello"),
            ("assistant", "I think "),
            ("user", "rather so"),
            ("assistant", "as you say"),
        ]
        assert (session.rows[1].display_metadata or {})["interrupted"] is True
        assert (record.iterations, record.api_calls, record.user_intervened) == (1, 2, True)
        assert sum(isinstance(event, RedirectApplied) for event in events_of(session)) == 1
        assert "rather so" in model.requests[1].messages[-1].text


# --- C17 to C19, C24 to C27 ------------------------------------------------------------------------------------------


async def test_c17_twenty_requests_of_which_each_begins_with_the_one_before() -> None:
    async def story(host: Host, fake: FakeProvider) -> None:
        host.steers = ["and c"]
        assert_truth(await host.turn("go"), "done")

    assert_grows(await play("anthropic_messages", Script.of(*rounds(), strict=True), story), "anthropic_messages")


def test_c18_the_matrix_of_model_lines() -> None:
    assert len(ROWS) >= 80
    lines = {line for _, line, _ in ROWS}
    assert {"openrouter:anthropic/claude-opus-4.5", "qwen3:8b", "opus", "custom:lab:m2"} <= lines
    for world, line, expected in ROWS:
        switch = resolve_switch(parse_model_command(line), world)
        assert switch.success is (expected[0] != "!"), line


def test_c19_the_matrix_of_the_offline_guard() -> None:
    assert len(ACCEPTED) + len(REFUSED) >= 40
    for model, provider, _ in ACCEPTED:
        check_served(model, provider)
    for model, provider in REFUSED:
        with pytest.raises(ModelNotServed):
            check_served(model, provider)


async def test_c24_three_hosts_in_sequence(autojump_clock: Clock) -> None:
    home, key = Home(), ""
    for source in ("tui", "acp", "api_server"):
        async with running_tree(home.process()) as tree:
            session = await tree.registry.resume(key) if key else tree.registry.create(source=source, cwd="/")
            await turn_of(session, source)
            key = session.key
    assert len({"\n\n".join(request.system).encode() for request in home.requests}) == 1


async def test_c25_a_budget_of_two_with_endless_tools() -> None:
    tail = Say("", [cut("terminal", {"command": "again"})])
    steps = [replace(tail), replace(tail), Say("I did a lot.")]
    played = await play_loop(*steps, settings=LoopSettings(max_iterations=2))
    assert played.end.exit_reason == "max_iterations_reached(2/2)"
    outcome = played.end.outcome
    assert (getattr(outcome, "incomplete", None), outcome.text) == (True, "I did a lot.")
    assert played.model.requests[-1].tool_choice == "none"
    assert [row.role for row in played.rows] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("host", ["api.anthropic.com", "other.example"])
def test_c26_signed_thinking_goes_to_its_issuer_only(host: str) -> None:
    item = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    rows = [
        Row("user", "go"),
        Row(
            "assistant",
            "look",
            tool_calls=(ToolCall("c1", "nap", "{}"),),
            reasoning_details=[item],
            replay_items=[{"issuer": "api.anthropic.com", "items": [item]}],
        ),
        Row("tool", "rested", tool_call_id="c1", tool_name="nap"),
    ]
    endpoint = Endpoint("p", f"https://{host}", api_key="k", api_mode="anthropic_messages")
    nap = ToolSpec("nap", "rest", {"type": "object", "properties": {}})
    request = ModelRequest(
        "r", "claude-sonnet-4-6", wire_copy(rows, WireOptions()), tools=(nap,), reasoning_effort="high"
    )
    body = FORMATS["anthropic_messages"].body(request, endpoint, frozenset())
    check_request(WireFormat.MESSAGES, body)
    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert kinds == (["thinking"] if host == "api.anthropic.com" else []) + ["text", "tool_use"]


@pytest.mark.parametrize("faults", [
    {"same_tool_index": True},
    {"missing_tool_ids": True},
    {"integer_tool_ids": True},
    {"same_tool_index": True, "missing_tool_ids": True},
    {"no_tool_index": True, "integer_tool_ids": True},
])  # fmt: skip
async def test_c27_calls_of_small_servers_are_kept_apart(faults: dict[str, Any]) -> None:
    calls = [{"tool_call": {"name": "note", "arguments": {"n": n}, "id": 7 + n}} for n in range(2)]

    async def story(host: Host, fake: FakeProvider) -> None:
        assert_truth(await host.turn("go"), "done")
        (row,) = [row for row in host.session.rows if row.tool_calls]
        assert [json.loads(one.arguments) for one in row.tool_calls] == [{"n": 0}, {"n": 1}]
        ids = [one.id for one in row.tool_calls]
        assert len(set(ids)) == 2 and all(ids)
        assert [row.tool_call_id for row in host.session.rows if row.role == "tool"] == ids

    await http_session(Script.of(Reply.of(*calls, faults=faults), Reply.of({"text": "done"}), strict=True), story)


async def test_usage_of_what_was_interrupted_is_estimated_and_says_so(autojump_clock: Clock) -> None:
    async with stage(say("half ", "of it", pause=2)) as (session, _):
        turn = await begin(session)
        await trio.sleep(3)
        session.interrupt_nowait(STOP)
        usage: Usage = (await turn.wait_ended()).usage
        assert usage.estimated and usage.output_tokens > 0
