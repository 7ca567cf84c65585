"""How things end: the transition table, the truth table of a turn's record, reasons and sums of usage."""

from __future__ import annotations

from itertools import product

import pytest

from hermes.outcomes import (
    MAX_REASON_CHARS,
    PHASE_STATUS,
    SYSTEM_ISSUERS,
    TERMINAL_STATUSES,
    TURN_TRANSITIONS,
    Cancelled,
    CancelReason,
    Cause,
    Completed,
    Failed,
    RunStatus,
    TurnOutcome,
    TurnPhase,
    TurnRecord,
    Usage,
)

P = TurnPhase
ALLOWED = {
    (P.QUEUED, P.RUNNING),
    (P.QUEUED, P.STOPPING),
    (P.QUEUED, P.ENDED),
    (P.RUNNING, P.WAITING_FOR_CLIENT),
    (P.RUNNING, P.STOPPING),
    (P.RUNNING, P.ENDED),
    (P.WAITING_FOR_CLIENT, P.RUNNING),
    (P.WAITING_FOR_CLIENT, P.STOPPING),
    (P.WAITING_FOR_CLIENT, P.ENDED),
    (P.STOPPING, P.ENDED),
}


@pytest.mark.parametrize(("before", "after"), list(product(TurnPhase, TurnPhase)))
def test_a_phase_follows_another_only_where_the_table_says_so(before: TurnPhase, after: TurnPhase) -> None:
    assert (after in TURN_TRANSITIONS[before]) is ((before, after) in ALLOWED)


def test_no_arrow_leaves_the_end_and_every_other_phase_can_end() -> None:
    assert TURN_TRANSITIONS[TurnPhase.ENDED] == frozenset()
    assert all(TurnPhase.ENDED in TURN_TRANSITIONS[phase] for phase in TurnPhase if phase is not TurnPhase.ENDED)


def test_every_phase_that_is_not_the_end_has_a_run_status_that_is_not_terminal() -> None:
    assert set(PHASE_STATUS) == set(TurnPhase) - {TurnPhase.ENDED}
    assert not any(status.terminal for status in PHASE_STATUS.values())
    assert {status for status in RunStatus if status.terminal} == TERMINAL_STATUSES


def test_every_cause_but_a_persons_own_stop_names_its_issuer() -> None:
    assert set(SYSTEM_ISSUERS) == set(Cause) - {Cause.USER_INTERRUPT, Cause.RUN_STOP}


def record(outcome: TurnOutcome) -> TurnRecord:
    return TurnRecord("t", "s", outcome, "unknown")


STOP = CancelReason(Cause.USER_INTERRUPT, "enough")


@pytest.mark.parametrize(
    ("outcome", "flags"),
    [
        # completed, interrupted, failed, partial
        (Completed("text"), (True, False, False, False)),
        (Cancelled(STOP), (False, True, False, False)),
        (Cancelled(STOP, ""), (False, True, False, False)),
        (Cancelled(STOP, "half"), (False, True, False, True)),
        (Failed("no", "auth"), (False, False, True, False)),
        (Failed("no", "auth", "half"), (False, False, True, True)),
        (Failed("no", "truncated", "half", incomplete=True), (False, False, False, True)),
        (Failed("no", "empty_response", incomplete=True), (False, False, False, True)),
    ],
)
def test_exactly_one_row_of_the_truth_table_applies(outcome: TurnOutcome, flags: tuple[bool, bool, bool, bool]) -> None:
    ended = record(outcome)
    assert (ended.completed, ended.interrupted, ended.failed, ended.partial) == flags


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Completed("x"), RunStatus.COMPLETED),
        (Cancelled(STOP), RunStatus.CANCELLED),
        (Cancelled(CancelReason(Cause.SHUTDOWN)), RunStatus.INTERRUPTED),
        (Cancelled(CancelReason(Cause.DEADLINE)), RunStatus.CANCELLED),
        (Failed("x", "auth"), RunStatus.FAILED),
        (Failed("x", "truncated", incomplete=True), RunStatus.FAILED),
    ],
)
def test_a_run_is_never_completed_unless_the_turn_was(outcome: TurnOutcome, status: RunStatus) -> None:
    assert record(outcome).run_status is status
    assert record(outcome).run_status.terminal


def test_a_record_tells_text_cause_and_error_of_its_outcome() -> None:
    stopped = record(Cancelled(STOP, "half"))
    assert (stopped.text, stopped.cause, stopped.reason_text, stopped.error) == (
        "half", Cause.USER_INTERRUPT, "enough", None,
    )  # fmt: skip
    failed = record(Failed("broken", "auth"))
    assert (failed.text, failed.cause, failed.reason_text, failed.error) == (None, None, None, "broken")


def test_a_reason_is_cut_to_its_bound_and_reads_well() -> None:
    assert CancelReason(Cause.RUN_STOP, "x" * 500).text == "x" * MAX_REASON_CHARS
    assert str(CancelReason(Cause.RUN_STOP)) == "run_stop"
    assert str(STOP) == "user_interrupt: enough"


def test_usage_adds_up_and_its_cost_is_unknown_only_when_both_are() -> None:
    first = Usage(1, 2, 3, 4, 5, calls=1, cost_usd=0.5)
    second = Usage(10, 20, 30, 40, 50, calls=2, estimated=True)
    total = first.plus(second)
    assert total == Usage(11, 22, 33, 44, 55, calls=3, cost_usd=0.5, estimated=True)
    assert (total.prompt_tokens, total.total_tokens) == (11 + 33 + 44, 11 + 33 + 44 + 22)
    assert Usage().plus(Usage()).cost_usd is None
    assert first.plus(first).cost_usd == 1.0
