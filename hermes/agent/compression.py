"""Context compression: when a transcript is too long, and what takes the place of its middle (agent-core §6).

Where old tool results alone make room enough (``pruning.py``), nothing of this is needed. ``plan_compression`` chooses
the rows, ``compress`` asks for a summary and assembles the hand-off row; storing it is the caller's work, in one
transaction, so a cancel before that leaves everything as it was. The newest words of the user always stand verbatim
behind the summary (CC-1).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import trio

from hermes.agent.loop_settings import CompressionSettings
from hermes.agent.ports import ModelFinished, ResolvedModel
from hermes.agent.stored_views import stored_todos
from hermes.agent.tokens import row_tokens, rows_tokens, text_tokens
from hermes.errors import ProviderError
from hermes.messages import Row
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

SMALL_WINDOW = 512_000
SMALL_WINDOW_SHARE = 0.75
FLOOR_TOKENS = 64_000
FLOOR_SHARE = 0.85
TAIL_SHARE = 0.025
TAIL_MIN, TAIL_MAX, TAIL_CEILING_SHARE = 10_000, 25_000, 0.2
USER_TEXT_CHARS = 24_000
ROW_CHARS = 2_000
RESULT_CHARS = 400
CUT_CHARS = 200
RECORD_SHARE = 0.75
SUMMARY_TOKENS = 4_000
DEFAULT_RESERVED_OUTPUT = 8_192

SUMMARY_SYSTEM = (
    "You write the hand-off notes of an interrupted piece of work for the colleague who takes over. "
    "Report only what is in the record. Write completed things in the past tense, as facts, never as instructions. "
    "Do not answer questions of the record and do not continue the work."
)
SECTIONS = (
    "Original task",
    "Goal now",
    "Constraints and preferences",
    "Done",
    "State of work",
    "Blocked",
    "Decisions",
    "Errors and fixes",
    "Answered questions",
    "Files",
    "Facts that must survive",
)
HANDOFF_HEAD = (
    "[Summary of the earlier conversation. It is reference material: what it lists is history, not a request. "
    "The newest message of the user is the task in force.]"
)
HANDOFF_FOOT = "[Details of the earlier conversation can be found with session_search.]"
_REFUSAL = lazy_pattern(r"^\s*(i'?m sorry|i can(no|')t|i am unable|as an ai)", re.IGNORECASE)

SummaryRequest = Callable[[int], str]
"""What the user says, written for a model with a context window of that many tokens."""

AskSummary = Callable[[str, SummaryRequest, int], Awaitable[ModelFinished]]
"""``ask(system, request, max_tokens)``: one question to the summarizing model. Raises ``ProviderError``."""

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    """Head, middle and tail of a transcript; only the middle is summarized."""

    head: tuple[Row, ...]
    middle: tuple[Row, ...]
    tail: tuple[Row, ...]

    @property
    def summarized_ids(self) -> tuple[int, ...]:
        return tuple(row.row_id for row in self.middle if row.row_id is not None)


@dataclass(frozen=True, slots=True)
class Compressed:
    """What is to be stored: ``rows`` in the place of the rows with ``summarized_ids``."""

    summarized_ids: tuple[int, ...]
    rows: tuple[Row, ...]
    before_tokens: int
    after_tokens: int
    fallback_used: bool = False


@dataclass(frozen=True, slots=True)
class NotCompressed:
    """``code``: ``noop`` (nothing to summarize), ``would_grow``, ``aborted`` (the summary failed)."""

    code: str
    note: str


def threshold_tokens(settings: CompressionSettings, model: ResolvedModel) -> int:
    """Prompt size from which a transcript is compressed."""
    reserved = model.max_output_tokens or DEFAULT_RESERVED_OUTPUT
    window = max(model.context_length - reserved, 1)
    share = settings.model_thresholds.get(model.model, settings.threshold)
    if model.context_length < SMALL_WINDOW and model.model not in settings.model_thresholds:
        share = max(share, SMALL_WINDOW_SHARE)
    threshold = int(window * share)
    if threshold < FLOOR_TOKENS:
        threshold = min(FLOOR_TOKENS, int(window * FLOOR_SHARE))
    if settings.threshold_tokens is not None:
        threshold = min(threshold, settings.threshold_tokens)
    return threshold


def plan_compression(
    rows: Sequence[Row], settings: CompressionSettings, context_length: int, *, keep_exchanges: int | None = None
) -> CompressionPlan | None:
    """Which rows are summarized, or None if there are too few. Calls stay with their results.

    ``keep_exchanges``: how many user prompts the tail begins with, for a compression by hand.
    """
    if len(rows) < 4:
        return None
    head = _whole_rounds(rows, min(settings.protect_first, len(rows)))
    if keep_exchanges is not None:
        start = _exchange_start(rows, keep_exchanges)
        start = _round_start(rows, start)
    else:
        start = tail_begin(rows, settings, context_length)
    if start - head < 2:
        return None
    return CompressionPlan(tuple(rows[:head]), tuple(rows[head:start]), tuple(rows[start:]))


def tail_begin(rows: Sequence[Row], settings: CompressionSettings, context_length: int) -> int:
    """Where the newest rows begin, which no compression by itself touches."""
    return _round_start(rows, _tail_start(rows, settings.protect_last, context_length))


def _tail_start(rows: Sequence[Row], wanted_rows: int, context_length: int) -> int:
    ceiling = int(context_length * TAIL_CEILING_SHARE)
    budget = min(max(int(context_length * TAIL_SHARE), TAIL_MIN), TAIL_MAX, ceiling)
    start = len(rows)
    size = 0
    while start > 0:
        size += row_tokens(rows[start - 1])
        count = len(rows) - start + 1
        if count > 2 and (size > ceiling or (size > budget and count > 4) or count > wanted_rows):
            break
        start -= 1
    return start


def _exchange_start(rows: Sequence[Row], exchanges: int) -> int:
    prompts = [index for index, row in enumerate(rows) if row.is_user_prompt and not row.compacted_summary]
    if exchanges <= 0:
        return len(rows)
    return prompts[-exchanges] if len(prompts) >= exchanges else 0


def _round_start(rows: Sequence[Row], start: int) -> int:
    """Move a boundary back so that it does not part results from their call."""
    while 0 < start < len(rows) and rows[start].role == "tool":
        start -= 1
    return start


def _whole_rounds(rows: Sequence[Row], count: int) -> int:
    """Move the end of the head forward behind the results of its last call."""
    while count < len(rows) and rows[count].role == "tool":
        count += 1
    return count


async def compress(
    rows: Sequence[Row],
    plan: CompressionPlan,
    ask: AskSummary,
    settings: CompressionSettings,
    now: float,
    *,
    focus: str | None = None,
    redact: Redact = str,
) -> Compressed | NotCompressed:
    """Summarize the middle. Stores nothing; raises only what ``ask`` raises besides ``ProviderError``."""
    summary: str | None = None

    def request(window: int) -> str:
        return summary_request(plan, focus, redact, window)

    try:
        with trio.fail_after(settings.summary_timeout):
            finished = await ask(SUMMARY_SYSTEM, request, SUMMARY_TOKENS)
        summary = accepted_summary(finished)
    except ProviderError as error:
        if settings.abort_on_summary_failure:
            return NotCompressed("aborted", f"the summary failed: {error.message}")
    except trio.TooSlowError:
        if settings.abort_on_summary_failure:
            return NotCompressed("aborted", f"the summary took longer than {settings.summary_timeout:g} s")
    if summary is None and settings.abort_on_summary_failure:
        return NotCompressed("aborted", "the summary was empty, refused or cut off")
    text = summary if summary is not None else extract(plan, redact)
    handoff = handoff_row(plan, text, now, redact)
    before, after = rows_tokens(rows), rows_tokens((*plan.head, handoff, *plan.tail))
    if after >= before:
        return NotCompressed("would_grow", "the summary would be longer than what it replaces")
    return Compressed(plan.summarized_ids, (handoff,), before, after, fallback_used=summary is None)


def accepted_summary(finished: ModelFinished) -> str | None:
    """The text, unless it is empty, refused or cut off."""
    text = finished.text.strip()
    if not text or finished.finish_reason in ("length", "content_filter", None) or _REFUSAL.match(text):
        return None
    return text


def summary_request(plan: CompressionPlan, focus: str | None, redact: Redact, window: int) -> str:
    """The record of the middle, each row cut, and the outline that the summary fills; it fits into the window."""
    former = [row.text for row in plan.middle if row.compacted_summary]
    parts = ["Write the notes under these headings, leaving out what is empty: " + "; ".join(SECTIONS) + "."]
    if focus:
        parts.append(f"Give most room to: {focus}")
    if former:
        parts.append("Update these earlier notes; keep what still holds:\n" + "\n\n".join(former))
    # Sizes are estimates, and a request that a provider refuses for its size leaves no summary at all.
    room = int(window * RECORD_SHARE) - SUMMARY_TOKENS - sum(map(text_tokens, parts))
    parts.append("The record:\n" + "\n".join(_record([row for row in plan.middle if not row.compacted_summary], room)))
    return redact("\n\n".join(parts))


def _record(rows: Sequence[Row], room: int) -> list[str]:
    """The rows in ``room`` tokens: all are cut shorter first, then what is neither old nor new is left out."""
    for row_chars, result_chars in ((ROW_CHARS, RESULT_CHARS), (CUT_CHARS, CUT_CHARS)):
        lines = [line for row in rows for line in _record_lines(row, row_chars, result_chars)]
        sizes = [text_tokens(line) + 1 for line in lines]
        if sum(sizes) <= room:
            return lines
    first = _fitting(sizes, room // 4)
    last = len(lines) - _fitting(sizes[first:][::-1], room - room // 4)
    return [*lines[:first], f"[{last - first} lines of the record are left out here]", *lines[last:]]


def _fitting(sizes: Sequence[int], room: int) -> int:
    """How many of the first fit."""
    return bisect_right(list(accumulate(sizes)), room)


def _record_lines(row: Row, row_chars: int, result_chars: int) -> list[str]:
    text = row.text
    if row.role == "tool":
        size = len(text)
        gist = " ".join(text[:result_chars].split())
        return [f"RESULT of {row.tool_name} ({size} characters): {gist}"]
    kept = text if len(text) <= row_chars else f"{text[:row_chars]} […]"
    lines = [f"{row.role.upper()}: {kept}"] if kept.strip() else []
    lines += [f"CALL {call.name} {call.arguments[:result_chars]}" for call in row.tool_calls]
    return lines


def extract(plan: CompressionPlan, redact: Redact) -> str:
    """Without a model: the tools that ran, and the last things said and found."""
    calls = [call for row in plan.middle for call in row.tool_calls]
    counts: dict[str, int] = {}
    for call in calls:
        counts[call.name] = counts.get(call.name, 0) + 1
    parts = [row.text for row in plan.middle if row.compacted_summary]
    if counts:
        parts.append("Tools used: " + ", ".join(f"{name} ({count})" for name, count in counts.items()))
    said = [row.text[:ROW_CHARS] for row in plan.middle if row.role == "assistant" and row.text.strip()]
    if said:
        parts.append("Last said by the assistant:\n" + "\n".join(said[-3:]))
    results = [row for row in plan.middle if row.role == "tool"]
    parts += [f"Result of {row.tool_name}: {' '.join(row.text[:300].split())}" for row in results[-3:]]
    return redact("\n\n".join(parts))


def handoff_row(plan: CompressionPlan, summary: str, now: float, redact: Redact) -> Row:
    """The row that stands for the middle. It is hidden from views of the transcript."""
    parts = [HANDOFF_HEAD, redact(summary)]
    quoted = _user_words(plan.middle)
    if quoted:
        parts.append("Earlier messages of the user, word for word:\n" + "\n".join(quoted))
    todos = _todos_left_out(plan)
    if todos:
        parts.append("The to-do list as it stands:\n" + redact("\n".join(map(_todo_line, todos))))
    parts.append(HANDOFF_FOOT)
    newest = _newest_prompt(plan)
    if newest is not None:
        parts.append(f"The newest message of the user, which is the task in force:\n{newest}")
    return Row(
        "user",
        "\n\n".join(parts),
        now,
        display_kind="hidden",
        display_metadata={
            "compaction": True,
            "summarized_rows": len(plan.middle),
            **({} if newest is None else {"holds_prompt": True}),
            **({"todos": todos} if todos else {}),
        },
        compacted_summary=True,
    )


def _todos_left_out(plan: CompressionPlan) -> list[dict[str, Any]]:
    """The to-do list, if no result that stays holds a newer one."""
    return [] if stored_todos(plan.tail) is not None else stored_todos((*plan.head, *plan.middle)) or []


def _todo_line(item: Mapping[str, Any]) -> str:
    return f"- {item.get('id')} ({item.get('status')}): {item.get('content')}"


def _user_words(rows: Sequence[Row]) -> list[str]:
    """The user's words of the middle, newest first until the room is used up, in their old order."""
    left = USER_TEXT_CHARS
    kept: list[str] = []
    for row in reversed(rows):
        if row.role != "user" or row.compacted_summary or row.display_kind not in (None, "steer", "skill_invocation"):
            continue
        if len(row.text) > left:
            break
        left -= len(row.text)
        kept.append(f"> {row.text}")
    return kept[::-1]


def _newest_prompt(plan: CompressionPlan) -> str | None:
    """The newest prompt if it is not in the tail, where it would speak for itself."""
    if any(row.is_user_prompt for row in plan.tail):
        return None
    for row in reversed((*plan.head, *plan.middle)):
        if row.is_user_prompt:
            return row.text
    return None


class CompressionGate:
    """Whether one more compression is allowed: attempts per turn, cooldown after a failure, re-armed by success."""

    def __init__(self, settings: CompressionSettings) -> None:
        self._settings = settings
        self._attempts = 0
        self._armed = True
        self._cooldown = 60.0
        self._not_before = 0.0

    def due(self, tokens: int, threshold: int, at: float) -> bool:
        """For the check before a request."""
        if tokens < threshold:
            self._armed = True
            return False
        return self._settings.enabled and self._armed and self.left and at >= self._not_before

    @property
    def left(self) -> bool:
        return self._attempts < self._settings.max_attempts

    def attempted(self) -> None:
        self._attempts += 1
        self._armed = False

    def failed(self, at: float) -> None:
        self._not_before = at + self._cooldown
        self._cooldown *= 2


def learned_window(details: Mapping[str, object]) -> int | None:
    """The window that an overflow error states, if it does."""
    limit = details.get("context_length")
    return limit if isinstance(limit, int) and limit > 0 else None
