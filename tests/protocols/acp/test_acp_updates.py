"""Events to updates and ends to answers, one at a time."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hermes.errors import HermesError, ProviderNotConfigured, SessionBusy, StoreUnavailable, TurnFailed, Unauthorized
from hermes.events import (
    HistoryCompressed,
    InterimText,
    Notice,
    ReasoningAvailable,
    ReasoningDelta,
    SessionEvent,
    SessionInfo,
    SubagentProgress,
    TextDelta,
    ThinkingStatus,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageUpdated,
)
from hermes.messages import FileDiff, ImagePart, Row, ToolCall, ToolResult
from hermes.nurseries.tool_batch import tool_row
from hermes.outcomes import Cancelled, CancelReason, Cause, Completed, Failed, TurnOutcome, TurnRecord, Usage
from hermes.protocols.acp.prompt_end import prompt_result
from hermes.protocols.acp.replay import replay_frames
from hermes.protocols.acp.schemas import ClientCapabilities
from hermes.protocols.acp.tool_calls import ended_call, has_failed
from hermes.protocols.acp.updates import Translator, message_id
from tests.support.acp_schema import check_update

NOTHING = ClientCapabilities()
INFO = SessionInfo("s", "r", "m", "p", "/work")


def record(outcome: TurnOutcome, **more: Any) -> TurnRecord:
    return TurnRecord("t", "s", outcome, "", **more)


def translated(
    *events: SessionEvent, able: ClientCapabilities = NOTHING, terminals: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    translator = Translator(
        "s",
        info=INFO,
        capabilities=lambda: able,
        options=list,
        commands=list,
        own_turn=lambda _turn: True,
        terminal_of=(terminals or {}).get,
    )
    frames = [frame for event in events for frame in translator.frames(event)]
    return [_update(frame) for frame in (*frames, *translator.flush())]


def _update(frame: bytes) -> dict[str, Any]:
    update: dict[str, Any] = json.loads(frame)["params"]["update"]
    check_update(update)
    return update


def texts(updates: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(u["sessionUpdate"].split("_")[1], u["content"]["text"]) for u in updates if "chunk" in u["sessionUpdate"]]


STARTED = TurnStarted("t", "hi", 1, "acp")
CALL = ToolStarted("t", "c", "terminal", {"command": "ls"}, "ls")
DONE = ToolEnded("t", "c", "terminal", {"command": "ls"}, ToolResult("c", "terminal", '{"output":"","exit_code":0}'), 0)


def test_a_call_in_a_terminal_of_the_client_shows_the_terminal_and_in_words_only_what_went_wrong() -> None:
    shown = {"type": "terminal", "terminalId": "term-1"}
    running = ToolProgress("t", "c", "terminal", "running there")
    failed = ToolEnded(
        "t", "c", "terminal", {"command": "ls"},
        ToolResult("c", "terminal", '{"output":"","exit_code":1,"error":"no"}'), 0,
    )  # fmt: skip
    for end, more in ((DONE, 0), (failed, 1)):
        updates = translated(STARTED, CALL, running, running, end, terminals={"c": "term-1"})
        contents = [u["content"] for u in updates if u["sessionUpdate"] == "tool_call_update" and "content" in u]
        assert [content[0] for content in contents] == [shown, shown]
        assert len(contents[-1]) == 1 + more


def test_what_piled_up_without_end_is_more_than_one_chunk() -> None:
    updates = translated(STARTED, TextDelta("t", "x" * 600_000))
    assert [len(text) for _, text in texts(updates)] == [262_144, 262_144, 75_712]
    assert len({u["messageId"] for u in updates}) == 1


def test_deltas_that_have_piled_up_are_one_chunk_whatever_they_hold() -> None:
    updates = translated(STARTED, TextDelta("t", 'a"\n'), TextDelta("t", "é\u2028\U0001f600"), TextDelta("t", "\ud800"))
    assert texts(updates) == [("message", 'a"\né\u2028\U0001f600\ufffd')]


def test_messages_and_thoughts_have_ids_of_their_own() -> None:
    updates = translated(
        STARTED, ReasoningDelta("t", "hm"), TextDelta("t", "a"), ReasoningDelta("t", "so"), TextDelta("t", "b"),
        replace(STARTED, turn_id="t2"), TextDelta("t2", "c"),
    )  # fmt: skip
    assert texts(updates) == [
        ("thought", "hm"),
        ("message", "a"),
        ("thought", "so"),
        ("message", "b"),
        ("message", "c"),
    ]
    assert len({update["messageId"] for update in updates}) == 5


def test_text_after_a_tool_is_a_new_message_without_the_joining_blank_line() -> None:
    updates = translated(STARTED, TextDelta("t", "a"), CALL, DONE, TextDelta("t", "\n\nb"))
    assert texts(updates) == [("message", "a"), ("message", "b")]


def test_an_answer_is_said_once_however_it_came() -> None:
    streamed = translated(STARTED, TextDelta("t", " Done"), TurnEnded("t", record(Completed("Done"))))
    whole = translated(STARTED, TurnEnded("t", record(Completed("Done"))))
    interim = translated(STARTED, InterimText("t", "First", already_streamed=False), CALL, DONE, TextDelta("t", "Done"))
    assert texts(streamed) == [("message", " Done")]
    assert texts(whole) == [("message", "Done")]
    assert texts(interim) == [("message", "First"), ("message", "Done")]
    assert translated(STARTED, InterimText("t", "First", already_streamed=True)) == []


def test_reasoning_that_did_not_stream_is_shown_whole_and_status_lines_are_not() -> None:
    assert texts(translated(STARTED, ReasoningAvailable("t", "why"))) == [("thought", "why")]
    assert texts(translated(STARTED, ReasoningDelta("t", "why"), ReasoningAvailable("t", "why"))) == [
        ("thought", "why")
    ]
    assert translated(STARTED, ThinkingStatus("t", "pondering")) == []


def test_a_stopped_turn_says_nothing_more_and_a_halted_one_explains_itself() -> None:
    stopped = record(Cancelled(CancelReason(Cause.USER_INTERRUPT), "part"))
    assert texts(translated(STARTED, TextDelta("t", "part"), TurnEnded("t", stopped))) == [("message", "part")]
    halted = record(Failed("in circles", "guardrail_halt", "I stopped.", incomplete=True))
    assert texts(translated(STARTED, TextDelta("t", "x"), TurnEnded("t", halted))) == [
        ("message", "x"), ("message", "I stopped."),
    ]  # fmt: skip


def test_a_call_left_open_by_its_turn_is_closed_as_failed() -> None:
    updates = translated(STARTED, CALL, TurnEnded("t", record(Completed("x"))))
    assert [u["status"] for u in updates if "status" in u] == ["pending", "in_progress", "failed"]


def test_what_a_client_did_not_announce_is_not_sent() -> None:
    events = (HistoryCompressed(10, 2, 100, 20), Notice("careful\nvery", "warn"))
    assert translated(*events) == []
    compaction, notice = translated(*events, able=ClientCapabilities(notices=True, compaction=True))
    assert (compaction["sessionUpdate"], compaction["status"]) == ("compaction_update", "completed")
    assert {k: notice[k] for k in ("severity", "title", "description")} == {
        "severity": "warning", "title": "careful", "description": "very",
    }  # fmt: skip
    (pruned,) = translated(HistoryCompressed(10, 10, 100, 20), able=ClientCapabilities(compaction=True))
    assert pruned["summary"][0]["text"] == "Old tool results are left out of what the model reads."


def test_usage_is_told_only_where_the_window_is_known() -> None:
    assert translated(UsageUpdated("t", Usage(cost_usd=0.5), None, None)) == []
    (update,) = translated(UsageUpdated("t", Usage(cost_usd=0.5), 10, 100))
    assert update == {
        "sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": {"amount": 0.5, "currency": "USD"},
    }  # fmt: skip


def test_subagents_are_lines_of_the_call_that_delegates() -> None:
    call = ToolStarted("t", "d", "delegate_task", {"goal": "look"}, "look")
    first = SubagentProgress("t", "tool", {"subagent_id": "1", "goal": "look", "tool_name": "read_file"})
    second = SubagentProgress("t", "start", {"subagent_id": "2", "goal": "find", "status": "running"})
    updates = translated(STARTED, call, first, second)
    assert updates[-1]["content"][-1]["content"]["text"] == "look: read_file\nfind: running"
    assert translated(STARTED, first) == []


@pytest.mark.parametrize(
    ("content", "failed"),
    [
        ('{"output":"","exit_code":0}', False),
        ('{"output":"x","exit_code":2}', True),
        ('{"success":false}', True),
        ('{"error":"no"}', True),
        ('{"error":"partly","content":"x"}', False),
        ("plain text", False),
        ('{"exit_code":1}\n\n[note: said before]', True),
    ],
)
def test_a_result_fails_by_what_it_says(content: str, failed: bool) -> None:
    assert has_failed(ToolResult("c", "x", content)) is failed


def test_a_deleted_file_is_a_diff_to_nothing_at_an_absolute_path() -> None:
    result = ToolResult("c", "patch", "{}", diffs=(FileDiff("a/../b.txt", "old", None),))
    update = ended_call("c", "patch", {}, result, "/work")
    check_update(update)
    assert update["content"] == [{"type": "diff", "path": "/work/b.txt", "oldText": "old", "newText": ""}]


# --- the end of a turn


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Completed("x"), "end_turn"),
        (Cancelled(CancelReason(Cause.USER_INTERRUPT)), "cancelled"),
        (Cancelled(CancelReason(Cause.SHUTDOWN)), "cancelled"),
        (Cancelled(CancelReason(Cause.NODE_CANCEL)), "cancelled"),
        (Cancelled(CancelReason(Cause.DEADLINE)), "max_turn_requests"),
        (Cancelled(CancelReason(Cause.BUDGET)), "max_turn_requests"),
        (Failed("x", "truncated", incomplete=True), "max_tokens"),
        (Failed("x", "max_iterations", incomplete=True), "max_turn_requests"),
        (Failed("x", "budget_exhausted", incomplete=True), "max_turn_requests"),
        (Failed("x", "content_policy_blocked"), "refusal"),
        (Failed("x", "guardrail_halt", incomplete=True), "end_turn"),
    ],
)
def test_each_end_has_its_stop_reason(outcome: TurnOutcome, word: str) -> None:
    assert prompt_result(record(outcome))["stopReason"] == word


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("provider_not_configured", ProviderNotConfigured),
        ("auth", Unauthorized),
        ("rate_limit", TurnFailed),
        ("empty_response", TurnFailed),
        ("session_busy", SessionBusy),
        ("session_persistence_failed:full", StoreUnavailable),
    ],
)
def test_a_failed_turn_is_an_error_of_its_prompt(reason: str, error: type[HermesError]) -> None:
    with pytest.raises(error, match="because"):
        prompt_result(record(Failed("because", reason)))


def test_a_stop_that_was_accepted_before_the_end_was_told_is_the_answer() -> None:
    assert prompt_result(record(Completed("all of it")), stop_was_accepted=True)["stopReason"] == "cancelled"


def test_unknown_usage_is_left_out() -> None:
    assert "usage" not in prompt_result(record(Completed("x")))


# --- replay


def test_a_replay_skips_what_is_damaged_closes_what_is_open_and_marks_summaries() -> None:
    rows = [
        Row("user", "what was", compacted_summary=True, row_id=1),
        Row("user", "was, and do it", compacted_summary=True, display_metadata={"holds_prompt": True}, row_id=9),
        Row("user", "hi", row_id=2),
        Row("assistant", "", tool_calls=(ToolCall("a", "terminal", "{broken"), ToolCall("b", "x", "{}")), row_id=3),
        Row("tool", "{}", tool_call_id="a", tool_name="terminal", display_metadata={"diffs": [7]}, row_id=4),
        Row("tool", "lost", tool_call_id="nobody", row_id=5),
        Row("user", 7, row_id=6),  # type: ignore[arg-type]
        Row("assistant", "secret", display_kind="hidden", row_id=7),
        Row("assistant", "bye", reasoning="thinking", row_id=8),
    ]
    updates = [_update(frame) for frame in replay_frames("s", rows, (), cwd="/work", running=False)]
    assert texts(updates) == [
        ("message", "what was"), ("message", "was, and do it"), ("message", "hi"), ("thought", "thinking"),
        ("message", "bye"),
    ]  # fmt: skip
    assert updates[0]["_meta"] == {"hermes": {"compactionSummary": True}}
    assert updates[1]["_meta"] == {"hermes": {"containsCompactionSummary": True}}
    statuses = {u["toolCallId"]: u["status"] for u in updates if "toolCallId" in u}
    assert statuses == {"a": "completed", "b": "failed"}


def test_the_id_of_a_message_is_a_uuid_of_what_it_is_made_of() -> None:
    namespace = uuid.UUID("6f1c0c0e-2f43-5d0e-9d6c-6b1d0a5c9b11")
    assert message_id("s", "t", 1) == str(uuid.uuid5(namespace, "s\0t\x001"))


def test_a_replayed_result_fails_and_shows_pictures_as_the_live_one_did() -> None:
    picture = ImagePart("image/png", "aGk=")
    calls = (ToolCall("a", "mcp__s__find", "{}"), ToolCall("b", "browser_snapshot", "{}"))
    live = (
        ToolResult("a", "mcp__s__find", "not found", is_error=True, status="error"),
        ToolResult("b", "browser_snapshot", "a page", images=(picture,)),
    )
    rows = [Row("assistant", "", tool_calls=calls, row_id=1)]
    rows += [tool_row(result, 0.0).with_id(number) for number, result in enumerate(live, 2)]
    updates = [_update(frame) for frame in replay_frames("s", rows, (), cwd="/work", running=False)]
    assert updates[2:] == [ended_call(result.call_id, result.name, {}, result, "/work") for result in live]
    assert [update["status"] for update in updates[2:]] == ["failed", "completed"]
    assert [update["kind"] for update in updates[:2]] == ["other", "read"]
    assert [update["rawOutput"] for update in updates[2:]] == ["not found", "a page"]
