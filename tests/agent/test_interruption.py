"""Stopping a turn at every wait, and repairing what a crash left."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.interruption import closing_rows, repair_rows
from hermes.agent.progress import LoopPhase
from hermes.agent.wire_copy import WireOptions, wire_copy
from hermes.messages import Row, ToolCall
from hermes.outcomes import CancelReason, Cause, Usage
from hermes.testing.strict import check_request
from hermes.testing.wire_frames import WireFormat
from tests.support.loop_port import (
    FakePort,
    Say,
    Stopped,
    assert_stored_grammar,
    call,
    chat_message,
    failing,
    finish,
    make,
)

USER = CancelReason(Cause.USER_INTERRUPT)
ASKED = Row("user", "do it", row_id=1)
CALLING = Row("assistant", "I look", row_id=2, tool_calls=(ToolCall("a", "terminal", "{}"), ToolCall("b", "x", "{}")))
RESULT_A = Row("tool", "done", row_id=3, tool_call_id="a", tool_name="terminal")


def assert_sendable(rows: Sequence[Row]) -> None:
    messages = [chat_message(row) for row in wire_copy([*rows, Row("user", "next")], WireOptions())]
    check_request(WireFormat.CHAT, {"model": "m", "messages": messages})


# phase, rows, partial, exit reason, kinds of the stored rows, content of the last
TABLE = [
    (LoopPhase.WAITING_FIRST_DELTA, [ASKED], "", "interrupted_during_api_call", ["failed_turn"]),
    (LoopPhase.STREAMING, [ASKED], "Half an", "interrupted_during_api_call", [None]),
    (LoopPhase.BETWEEN, [ASKED], "I look", "interrupted_by_user", [None]),
    (LoopPhase.TOOLS, [ASKED, CALLING], "", "interrupted_by_user", [None, None, "hidden"]),
    (LoopPhase.TOOLS, [ASKED, CALLING, RESULT_A], "", "interrupted_by_user", [None, "hidden"]),
    (LoopPhase.BACKOFF, [ASKED], "", "interrupted_by_user", ["failed_turn"]),
    (LoopPhase.COMPRESSING, [ASKED], "", "interrupted_by_user", ["failed_turn"]),
]


@pytest.mark.parametrize(("phase", "rows", "partial", "reason", "kinds"), TABLE)
def test_a_stop_closes_the_history_as_the_table_says(
    phase: LoopPhase, rows: list[Row], partial: str, reason: str, kinds: list[str | None]
) -> None:
    stored, exit_reason = closing_rows(rows, partial, "", phase, USER, 5.0)
    assert exit_reason == reason
    assert [row.display_kind for row in stored] == kinds
    assert all(row.timestamp == 5.0 for row in stored)
    assert_stored_grammar([*rows, *stored])
    assert_sendable([*rows, *stored])
    if partial:
        assert stored[-1].content == partial
        assert stored[-1].display_metadata is not None and stored[-1].display_metadata["interrupted"] is True


def test_calls_that_had_started_are_unknown_and_the_others_never_started() -> None:
    stored, _ = closing_rows([ASKED, CALLING], "", "", LoopPhase.TOOLS, USER, 0.0, started={"a"})
    assert [(row.tool_call_id, row.effect_disposition) for row in stored[:2]] == [("a", "unknown"), ("b", "none")]
    assert "may have been done" in stored[-1].text


def test_nothing_is_said_to_be_done_if_no_call_had_started() -> None:
    stored, _ = closing_rows([ASKED, CALLING], "", "", LoopPhase.TOOLS, USER, 0.0)
    assert "before anything was done" in stored[-1].text


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (Cause.USER_INTERRUPT, "interrupted_during_api_call"),
        (Cause.RUN_STOP, "interrupted_during_api_call"),
        (Cause.CLIENT_DISCONNECT, "interrupted_by_system(sse_client_disconnected)"),
        (Cause.SHUTDOWN, "interrupted_by_system(gateway_shutdown)"),
        (Cause.LEASE_LOST, "interrupted_by_system(session_turn_lease_lost)"),
    ],
)
def test_the_exit_reason_names_a_system_issuer(cause: Cause, expected: str) -> None:
    _, reason = closing_rows([ASKED], "x", "", LoopPhase.STREAMING, CancelReason(cause), 0.0)
    assert reason == expected


def test_the_text_of_a_reason_reaches_the_row_and_the_model() -> None:
    reason = CancelReason(Cause.USER_INTERRUPT, "superseded")
    partial, _ = closing_rows([ASKED], "Half", "", LoopPhase.STREAMING, reason, 0.0)
    closing, _ = closing_rows([ASKED], "", "", LoopPhase.WAITING_FIRST_DELTA, reason, 0.0)
    assert partial[0].content == "Half" and "superseded" in str(partial[0].api_content)
    assert "superseded" in closing[0].text and "superseded" in str(closing[0].api_content)


def test_a_history_that_is_closed_already_gets_nothing() -> None:
    closed = [ASKED, Row("assistant", "done")]
    assert closing_rows(closed, "", "", LoopPhase.BETWEEN, USER, 0.0)[0] == []
    assert repair_rows(closed, 0.0) == []
    assert repair_rows([], 0.0) == []


def test_a_crash_in_a_tool_is_repaired_with_an_unknown_outcome() -> None:
    repaired = repair_rows([ASKED, CALLING, RESULT_A], 9.0)
    assert [(row.role, row.tool_call_id, row.effect_disposition) for row in repaired] == [
        ("tool", "b", "unknown"),
        ("assistant", None, None),
    ]
    assert "not known" in json.loads(repaired[0].text)["error"]
    assert repaired[1].display_kind == "failed_turn"


# --- every wait of a whole turn --------------------------------------------------------------------------------------


def scenario() -> tuple[FakePort, object]:
    port, setup = make(
        failing("overloaded"),
        Say("I look around.", [call("terminal", {"command": "ls"}), call("read_file", {"path": "/a"})]),
        Say("Half of it ", finish="length"),
        Say("and the rest."),
    )
    port.during_tools = lambda _: port.steer("steer")
    return port, setup


async def test_stopped_at_any_wait_the_history_can_be_closed_and_sent_and_no_steer_is_lost() -> None:
    stop_at = 1
    while True:
        port, setup = scenario()
        port.stop_at = stop_at
        try:
            await finish(port, setup)  # type: ignore[arg-type]
        except Stopped:
            pass
        else:
            break
        progress = setup.progress  # type: ignore[attr-defined]
        said = progress.partial_text
        progress.end_unanswered_call()
        stored, reason = closing_rows(port.rows, said, progress.partial_reasoning, progress.phase, USER, 0.0)
        rows = [*port.rows, *stored]
        assert_stored_grammar(rows)
        assert_sendable(rows)
        assert reason.startswith("interrupted")
        delivered = [row for row in rows if row.display_kind == "steer"]
        ran = [row for row in port.rows if row.role == "tool"]
        assert len(delivered) + len(port.steers) >= (1 if ran else 0)
        assert port.stored_usage.plus(progress.unstored_usage) == progress.usage
        stop_at += 1
    assert stop_at > 10


async def test_stopped_in_mid_text_the_partial_text_and_estimated_tokens_are_kept() -> None:
    port, setup = make(Say("Twelve chars", stop=True))
    with pytest.raises(Stopped):
        await finish(port, setup)
    progress = setup.progress
    assert (progress.phase, progress.partial_text) == (LoopPhase.STREAMING, "Twelve chars")
    progress.end_unanswered_call()
    progress.end_unanswered_call()
    usage: Usage = progress.usage
    assert usage.estimated and usage.output_tokens == 3 and usage.calls == 1


async def test_stopped_before_the_first_delta_the_phase_says_so() -> None:
    port, setup = make(Say("", stop=True))
    with pytest.raises(Stopped):
        await finish(port, setup)
    assert setup.progress.phase is LoopPhase.WAITING_FIRST_DELTA


# --- properties ------------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Whole histories, as the loop writes them."""
    rows: list[Row] = []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        rows.append(Row("user", draw(st.sampled_from(["hello", "", "again"]))))
        for _ in range(draw(st.integers(0, 3))):
            names = draw(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3))
            calls = tuple(ToolCall(f"c{number + index}", name, "{}") for index, name in enumerate(names))
            number += len(calls)
            rows.append(Row("assistant", draw(st.sampled_from([None, "text"])), tool_calls=calls))
            rows += [Row("tool", "result", tool_call_id=one.id, tool_name=one.name) for one in calls]
            if draw(st.booleans()):
                rows.append(Row("user", "psst", display_kind="steer", api_content="[psst]"))
        rows.append(Row("assistant", "answer"))
    return rows


@given(histories(), st.data())
def test_a_history_cut_anywhere_is_repaired_to_the_grammar(rows: list[Row], data: st.DataObject) -> None:
    cut = rows[: data.draw(st.integers(1, len(rows)))]
    repaired = [*cut, *repair_rows(cut, 0.0)]
    assert_stored_grammar(repaired)
    assert repair_rows(repaired, 0.0) == []
    assert_sendable(repaired)


@given(histories(), st.sampled_from(LoopPhase), st.sampled_from(["", "partial"]), st.data())
def test_a_stop_anywhere_leaves_the_grammar(rows: list[Row], phase: LoopPhase, said: str, data: st.DataObject) -> None:
    cut = rows[: data.draw(st.integers(1, len(rows)))]
    if said and cut[-1].role == "assistant" and not cut[-1].tool_calls:
        cut = cut[:-1]
    stored, _ = closing_rows(cut, said, "", phase, USER, 0.0)
    assert_stored_grammar([*cut, *stored])
    assert_sendable([*cut, *stored])
