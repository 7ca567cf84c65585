"""A turn that meets everything (a retry, reasoning, text, two tools, a second answer), stopped or redirected after each
of its scheduling steps. Every request, above all those of the turn behind it, is one that the strictest provider takes,
in all three wire formats; and the words of a correction are in exactly one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest, ToolSpec
from hermes.agent.providers.http_provider import FORMATS
from hermes.agent.providers.wire_format import Endpoint
from hermes.errors import ProviderError
from hermes.events import SteerAccepted
from hermes.messages import Prompt, Row
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause, TurnRecord, Usage
from hermes.testing import SweepRun, cancel_at_every_step
from hermes.testing.strict import check_request
from hermes.testing.wire_frames import WireFormat
from tests.support.core import ScriptedModel, call, events_of, make_services, running_tree, say
from tests.support.invariants import assert_events_are_well_formed, assert_history_is_whole

WIRES = {
    "chat_completions": WireFormat.CHAT,
    "anthropic_messages": WireFormat.MESSAGES,
    "codex_responses": WireFormat.RESPONSES,
}
WORDS = "rather do it so"


def endpoint(mode: str) -> Endpoint:
    return Endpoint(name="p", base_url="https://api.example.com/v1", api_key="k", api_mode=mode)


def signed(mode: str) -> list[Any]:
    """Reasoning as this format signs it, to be replayed to the same issuer."""
    items = {
        "anthropic_messages": [{"type": "thinking", "thinking": "hm, let me see", "signature": "sig"}],
        "codex_responses": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}],
    }
    return [{"issuer": "api.example.com", "items": items.get(mode, [])}]


def check_all_wires(request: ModelRequest, mode: str) -> None:
    specs = (ToolSpec("nap", "rest", {"type": "object", "properties": {}}),)
    for name, wire in WIRES.items():
        asked = replace(request, tools=specs)
        check_request(wire, FORMATS[name].body(asked, endpoint(name), frozenset()))


@dataclass
class Played:
    record: TurnRecord | None = None
    second: TurnRecord | None = None
    rows: tuple[Row, ...] = ()
    stored: tuple[Row, ...] = ()
    taken: bool = False
    answers: list[str] = field(default_factory=list)
    open_models: int = -1


class FullTurn:
    """One turn, stopped or redirected at some step, and a second prompt behind it."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.session: Session | None = None
        self.over = False
        self.played = Played()

    async def _refuse(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        check_all_wires(request, self.mode)
        await trio.sleep(1)
        raise ProviderError("busy", error_class="overloaded", retry_after=2)

    async def _work(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        check_all_wires(request, self.mode)
        for kind, pieces in ((DeltaKind.REASONING, ("hm, ", "let me see")), (DeltaKind.TEXT, ("I will ", "look"))):
            for piece in pieces:
                await trio.sleep(1)
                on_delta(kind, piece)
        calls = (call("nap", "c1", seconds=2), call("nap", "c2", seconds=3))
        for one in calls:
            on_delta(DeltaKind.TOOL_NAME, one.name)
        await trio.lowlevel.checkpoint()
        return ModelFinished(
            "I will look",
            "hm, let me see",
            calls,
            "tool_calls",
            Usage(input_tokens=9, output_tokens=3, calls=1),
            reasoning_details=[{"type": "thinking"}],
            replay_items=signed(self.mode),
        )

    async def _finish(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        check_all_wires(request, self.mode)
        return await say("all ", "done", pause=1)(request, on_delta)

    async def run(self) -> Played:
        played = self.played
        model = ScriptedModel(self._refuse, self._work, *[self._finish for _ in range(6)])
        services, _ = make_services(model=model)
        async with running_tree(services) as tree:
            session = self.session = tree.registry.create(source="test", cwd="/")
            turn = await session.submit_nowait(Prompt("first")).wait_turn()
            assert turn is not None
            played.record = await turn.wait_ended()
            self.over = True
            second = await session.submit_nowait(Prompt("second")).wait_turn()
            assert second is not None
            played.second = await second.wait_ended()
            played.rows = tuple(session.rows)
            played.stored = tuple(await services.store.load_rows(session.key))
            played.open_models = model.open
            assert_events_are_well_formed(events_of(session))
            played.taken = any(isinstance(event, SteerAccepted) for event in events_of(session))
        return played

    def canceller(self, level: str) -> Callable[[], None] | None:
        session = self.session
        if session is None or self.over or self.played.answers or session.slot.turn is None:
            return None

        def act() -> None:
            if level == "interrupt":
                session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, "sweep"))
                self.played.answers.append("interrupted")
            elif level == "redirect":
                self.played.answers.append(session.redirect(WORDS))
            else:
                # A correction and the stop behind it, in one tick: the words are handed back.
                self.played.answers.append(session.redirect(WORDS))
                session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, "sweep"))

        return act


def check(run: SweepRun[FullTurn, Played]) -> None:
    played = run.result
    assert played.open_models == 0
    assert_history_is_whole(played.rows)
    assert played.rows == played.stored
    assert played.record is not None and played.second is not None
    assert played.second.text == "all done"
    if not run.step:
        assert played.record.completed and played.record.api_calls == 3
        return
    if run.level == "redirect":
        assert played.record.completed or not played.answers, played.record
    else:
        assert played.record.interrupted or played.record.completed
    if run.level == "interrupt":
        return
    said = [row for row in played.rows if row.role == "user" and row.text == WORDS]
    handed_back = (played.record.pending_steer or "").split("\n").count(WORDS)
    (answer,) = played.answers
    assert len(said) + handed_back == (answer != "rejected"), f"{answer}: {len(said)} rows, {handed_back} handed back"


@pytest.mark.parametrize("level", ["interrupt", "redirect", "redirect and interrupt"])
@pytest.mark.parametrize("mode", list(WIRES))
def test_whatever_step_it_meets_the_next_turn_is_one_that_a_strict_provider_takes(mode: str, level: str) -> None:
    report = cancel_at_every_step(lambda: FullTurn(mode), check=check, level=level, seeds=(0, 1))
    assert min(report.steps.values()) > 30, report.steps
