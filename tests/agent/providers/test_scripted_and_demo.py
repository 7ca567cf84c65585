"""The provider that says what it is told, and the demonstration built on it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
import trio
from trio.testing import MockClock

from hermes.agent.compression import Compressed, SummaryRequest, compress, plan_compression
from hermes.agent.loop_settings import CompressionSettings
from hermes.agent.ports import DeltaKind, ModelFinished, ModelRequest
from hermes.agent.providers.demo import INTRODUCTION, DemoProvider
from hermes.agent.providers.scripted import (
    Call,
    Delay,
    Fail,
    Finish,
    Hang,
    Reasoning,
    Refusal,
    ScriptedProvider,
    Step,
    Text,
)
from hermes.agent.tools.approval_gate import refusal
from hermes.errors import ProviderError
from hermes.messages import Row, ToolCall
from hermes.outcomes import Usage
from hermes.testing.seed import seeded_rows
from tests.support.provider_parsing import TERMINAL, request

Deltas = list[tuple[DeltaKind, str]]


def scripted(*answers: list[Step]) -> ScriptedProvider:
    return ScriptedProvider(answers, sleep=trio.sleep)


async def ask(
    provider: ScriptedProvider | DemoProvider, asked: ModelRequest | None = None
) -> tuple[ModelFinished, Deltas]:
    deltas: Deltas = []
    finished = await provider.call(
        asked or request(Row("user", "hello")), lambda kind, text: deltas.append((kind, text))
    )
    return finished, deltas


async def test_steps_become_deltas_and_an_answer(autojump_clock: MockClock) -> None:
    usage = Usage(1, 2, calls=1)
    provider = scripted(
        [Reasoning("hm"), Text("a "), Delay(1), Text("b"), Call("f", '{"x": 1}'), Finish("tool_calls", usage)]
    )
    finished, deltas = await ask(provider)
    assert finished == ModelFinished(
        text="a b",
        reasoning="hm",
        tool_calls=(ToolCall("call_1_0", "f", '{"x": 1}'),),
        finish_reason="tool_calls",
        usage=usage,
        served_model="m",
    )
    assert deltas == [
        (DeltaKind.REASONING, "hm"),
        (DeltaKind.TEXT, "a "),
        (DeltaKind.TEXT, "b"),
        (DeltaKind.TOOL_NAME, "f"),
    ]
    assert trio.current_time() == pytest.approx(1)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [([Text("x")], "stop"), ([Call("f")], "tool_calls"), ([Refusal("no")], "content_filter"), ([Finish(None)], None)],
)
async def test_an_answer_ends_with_its_natural_reason(steps: list[Step], reason: str | None) -> None:
    finished, _ = await ask(scripted(steps))
    assert finished.finish_reason == reason


async def test_answers_come_in_order_and_then_there_are_none() -> None:
    provider = scripted([Text("1")], [Text("2")])
    assert [(await ask(provider))[0].text for _ in range(2)] == ["1", "2"]
    with pytest.raises(ProviderError):
        await ask(provider)
    assert len(provider.requests) == 3


async def test_a_failure_is_raised_after_what_was_said() -> None:
    error = ProviderError("busy", error_class="overloaded")
    provider = scripted([Text("half"), Fail(error)])
    deltas: Deltas = []
    with pytest.raises(ProviderError) as caught:
        await provider.call(request(), lambda kind, text: deltas.append((kind, text)))
    assert caught.value is error
    assert (deltas, provider.cancelled_calls) == ([(DeltaKind.TEXT, "half")], 0)


async def test_a_hanging_answer_ends_with_its_scope(autojump_clock: MockClock) -> None:
    provider = scripted([Text("x"), Hang()])
    with trio.move_on_after(200_000) as scope:
        await ask(provider)
    assert scope.cancelled_caught
    assert provider.cancelled_calls == 1


async def test_a_hang_may_be_released() -> None:
    provider = ScriptedProvider(lambda asked: [Hang(), Text("on")], sleep=trio.sleep, hang=trio.lowlevel.checkpoint)
    assert (await ask(provider))[0].text == "on"


async def test_the_demonstration_says_first_what_it_is(autojump_clock: MockClock) -> None:
    finished, deltas = await ask(DemoProvider())
    assert finished.text.startswith("This is a demonstration")
    assert INTRODUCTION in finished.text
    assert "OPENROUTER_API_KEY" in finished.text
    words = [text for kind, text in deltas if kind is DeltaKind.TEXT]
    assert trio.current_time() == pytest.approx(0.03 * len(words))
    assert (finished.finish_reason, finished.usage is not None and finished.usage.estimated) == ("stop", True)


async def test_the_demonstration_runs_a_command_and_sums_up(autojump_clock: MockClock) -> None:
    user = Row("user", "please run: `echo hi`")
    finished, _ = await ask(DemoProvider(), request(user, tools=(TERMINAL,)))
    assert [(call.name, call.arguments) for call in finished.tool_calls] == [("terminal", '{"command":"echo hi"}')]
    assert finished.finish_reason == "tool_calls"
    assistant = Row("assistant", finished.text, tool_calls=finished.tool_calls)
    result = Row("tool", '{"output": "hi\\n", "exit_code": 0}', tool_call_id=finished.tool_calls[0].id)
    after, _ = await ask(DemoProvider(), request(user, assistant, result, tools=(TERMINAL,)))
    assert after.text == "The command ended with exit code 0. It printed 1 line:\n\nhi"
    assert after.tool_calls == ()


async def test_the_demonstration_does_not_say_that_a_refused_command_has_ended(autojump_clock: MockClock) -> None:
    call = ToolCall("c1", "terminal", '{"command":"rm -rf x"}')
    blocked = str(refusal("the user denied this."))
    asked = request(
        Row("user", "run: rm -rf x"),
        Row("assistant", "Running it.", tool_calls=(call,)),
        Row("tool", blocked, tool_call_id="c1"),
        tools=(TERMINAL,),
    )
    assert (await ask(DemoProvider(), asked))[0].text == "The command was not run: the user denied this."


async def test_the_demonstration_writes_no_summary_that_would_stand_in_the_conversation() -> None:
    rows = [row.with_id(number + 1) for number, row in enumerate(islice(seeded_rows(0.0), 100))]
    plan = plan_compression(rows, CompressionSettings(), 128_000)
    assert plan is not None

    async def asked(system: str, user: SummaryRequest, max_tokens: int) -> ModelFinished:
        return (await ask(DemoProvider(), replace(request(Row("user", user(128_000))), system=(system,))))[0]

    outcome = await compress(rows, plan, asked, CompressionSettings(), 0.0)
    assert isinstance(outcome, Compressed) and outcome.fallback_used
    assert "demonstration" not in outcome.rows[0].text
    assert "Write the notes" not in outcome.rows[0].text


async def test_the_demonstration_offers_nothing_it_cannot_do(autojump_clock: MockClock) -> None:
    finished, _ = await ask(DemoProvider(), request(Row("user", "run: ls")))
    assert finished.tool_calls == ()
