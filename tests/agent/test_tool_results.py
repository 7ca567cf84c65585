"""How much of a result stands in the conversation, and what is put around it (agent-core §1.10)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from hermes.agent.guardrails import Guardrails
from hermes.agent.loop_settings import GuardrailSettings, LoopSettings
from hermes.agent.ports import PlannedCall, ToolFlags
from hermes.agent.tool_results import PathHints, ResultFinisher, ResultLimits, Spill
from hermes.messages import ToolCall, ToolResult
from tests.support.core import PlainTool, plain_tools

SETTINGS = LoopSettings()


def tool(**flags: object) -> PlainTool:
    made = PlainTool("look", plain_tools()[0].run_it)
    made.flags = ToolFlags(**flags)  # type: ignore[arg-type]
    return made


def finisher(
    count: int, one: PlainTool, *, window: int = 1_000_000, spill: Spill | None = None, hints: PathHints | None = None
) -> ResultFinisher:
    planned = [PlannedCall(ToolCall(f"c{number}", "look", "{}"), one, {}) for number in range(count)]
    limits = ResultLimits.for_window(SETTINGS, window)
    guardrails = Guardrails(GuardrailSettings(), unattended=False)
    return ResultFinisher(planned, {}, limits, guardrails, preview_chars=1_500, spill=spill, hints=hints)


def result(number: int, text: str, *, failed: bool = False) -> ToolResult:
    return ToolResult(f"c{number}", "look", text, is_error=failed)


async def spilled(call_id: str, text: str) -> str | None:
    await trio.lowlevel.checkpoint()
    return f"/spill/{call_id}"


@pytest.mark.parametrize(
    ("window", "one", "batch"),
    [(1_000_000, 100_000, 200_000), (64_000, 38_400, 76_800), (8_000, 8_000, 16_000), (128_000, 76_800, 153_600)],
)
def test_small_windows_take_less_but_never_too_little(window: int, one: int, batch: int) -> None:
    assert ResultLimits.for_window(SETTINGS, window) == ResultLimits(one, batch)


async def test_the_results_of_a_batch_share_its_room_in_call_order() -> None:
    finish = finisher(4, tool(), spill=spilled)
    texts: list[str] = []
    for number in range(4):
        await finish.prepare(result(number, "x" * 80_000))
        texts.append(finish(result(number, "x" * 80_000)).content)
    assert [len(text) for text in texts[:2]] == [80_000, 80_000]
    for number in (2, 3):
        assert texts[number].startswith("x" * 1_500) and f"/spill/c{number}" in texts[number]
        assert "78500 of 80000 characters left out" in texts[number] and len(texts[number]) < 2_000


@pytest.mark.parametrize(("limit", "length", "whole"), [(50_000, 60_000, False), (None, 150_000, True)])
async def test_a_tool_may_have_a_limit_of_its_own_or_limit_itself(limit: int | None, length: int, whole: bool) -> None:
    finish = finisher(1, tool(result_limit=limit), spill=spilled)
    await finish.prepare(result(0, "x" * length))
    assert (finish(result(0, "x" * length)).content == "x" * length) is whole


async def test_what_cannot_be_written_away_or_was_not_prepared_is_cut_head_and_tail() -> None:
    text = "h" * 100_000 + "t" * 100_000

    async def full(call_id: str, text: str) -> str | None:
        await trio.lowlevel.checkpoint()
        return None

    refused, unprepared = finisher(1, tool(), spill=full), finisher(1, tool(), spill=spilled)
    await refused.prepare(result(0, text))
    for finish in (refused, unprepared):
        shown = finish(result(0, text)).content
        assert shown.startswith("h" * 70_000) and shown.endswith("t" * 30_000)
        assert "100000 of 200000 characters left out" in shown


@pytest.mark.parametrize(("text", "fenced"), [("x" * 31, False), ("x" * 32, True)])
def test_short_words_from_outside_are_not_fenced(text: str, fenced: bool) -> None:
    shown = finisher(1, tool(untrusted_output=True))(result(0, text)).content
    assert ("<untrusted_data" in shown) is fenced


async def test_hints_are_looked_for_after_successes_and_stand_behind_the_result() -> None:
    asked: list[Sequence[str]] = []

    async def near(paths: Sequence[str]) -> str | None:
        await trio.lowlevel.checkpoint()
        asked.append(paths)
        return "mind the rules"

    finish = finisher(2, tool(), hints=near)
    for number, failed in enumerate((False, True)):
        await finish.prepare(result(number, "seen", failed=failed))
    assert finish(result(0, "seen")).content == "seen\n\n[note: mind the rules]"
    assert finish(result(1, "seen", failed=True)).content == "seen"
    assert len(asked) == 1
