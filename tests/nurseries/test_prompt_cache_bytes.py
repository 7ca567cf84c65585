"""Cache stability, by the bytes on the wire: what was sent to a model once is the beginning of whatever is sent later.

A whole session runs against the strict fake provider over HTTP, in each wire format. The bodies are compared as they
left the client: everything but the conversation is the same bytes, and the conversation only grows at its end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from hermes.agent.ports import ParallelClass, ToolContext
from hermes.agent.providers.http_stream import HttpClient, HttpRequest, HttpResponse, Timeouts
from hermes.agent.providers.registry import Models, ModelSettings
from hermes.agent_settings import CompressionSettings
from hermes.messages import Prompt, TurnLimits
from hermes.nurseries.session import Session
from hermes.nurseries.turn import Turn
from hermes.outcomes import CancelReason, Cause, TurnRecord
from hermes.settings import Settings
from hermes.testing.fake_provider import FakeProvider
from hermes.testing.script import Reply, Script
from tests.support.core import PlainTool, make_services, running_tree

ROWS = {"chat_completions": b'"messages":[', "anthropic_messages": b'"messages":[', "codex_responses": b'"input":['}
STOP = CancelReason(Cause.USER_INTERRUPT)
MARKER = re.compile(rb',"cache_control":\{[^}]*\}')
"""Markers say what is to be cached; they are no part of it, and they move on with the conversation."""


class RecordingClient(HttpClient):
    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []

    async def open(self, request: HttpRequest, timeouts: Timeouts) -> HttpResponse:
        if request.method == "POST" and "/v1/" in request.url:
            self.bodies.append(request.body)
        return await super().open(request, timeouts)


def split(body: bytes, mode: str) -> tuple[bytes, bytes, bytes]:
    """What stands before the conversation, the conversation without what closes it, and what stands behind it."""
    body = MARKER.sub(b"", body)
    head, found, rest = body.partition(ROWS[mode])
    assert found
    depth, quoted, end = 1, False, 0
    for end, byte in enumerate(rest):
        character = chr(byte)
        if quoted:
            # A quote is escaped if an odd number of backslashes stands before it.
            before = rest[:end]
            quoted = character != '"' or (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
        elif character == '"':
            quoted = True
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
            if not depth:
                break
    return head, rest[:end], rest[end:]


def assert_grows(bodies: list[bytes], mode: str) -> None:
    for number, (one, other) in enumerate(itertools.pairwise(bodies), 1):
        head, rows, tail = split(one, mode)
        later_head, later_rows, later_tail = split(other, mode)
        assert head == later_head, f"request {number + 1} begins with other bytes"
        assert tail == later_tail, f"request {number + 1} ends with other bytes"
        # The last message may take in a block more; what it held stays.
        said = rows.rstrip(b']}"')
        assert later_rows.startswith(said), f"request {number + 1} is no continuation of request {number}:\n{other!r}"
        assert len(later_rows) > len(said)


def rounds() -> list[Reply]:
    """Twenty requests: tools that work, fail, do not exist or get broken arguments, some with reasoning; an answer."""
    calls: list[dict[str, Any]] = [
        {"name": "note", "arguments": {"b": 1, "a": "ä😀"}},
        {"name": "fail", "arguments": {}},
        {"name": "nothing_of_this_name", "arguments": {"x": 1}},
        {"name": "note", "arguments": '{"a": 1,, }'},
    ]
    replies = []
    for number in range(19):
        steps: list[dict[str, Any]] = [{"tool_call": {**calls[number % 4], "id": f"call_{number}"}}]
        if number % 3 == 0:
            steps.insert(0, {"text": f"step {number}"})
        if number % 2 == 0:
            steps.insert(0, {"reasoning": f"thinking {number}"})
        replies.append(Reply.of(*steps))
    return [*replies, Reply.of({"text": "done"})]


class Host:
    """A session against the fake provider, over HTTP."""

    def __init__(self, mode: str, fake: FakeProvider) -> None:
        self.client = RecordingClient()
        self.models = Models(
            ModelSettings(default="fake-model", provider="custom", base_url=fake.base_url, api_mode=mode),
            {},
            self.client,
        )
        self.session: Session
        self.steers: list[str] = []
        self.note = "noted"

    async def _note(self, ctx: ToolContext, arguments: Any) -> str:
        if self.steers:
            self.session.steer(self.steers.pop(0))
        await trio.lowlevel.checkpoint()
        return self.note

    async def turn(self, text: str, **options: Any) -> TurnRecord:
        turn = await self.begin(text, **options)
        return await turn.wait_ended()

    async def begin(self, text: str, **options: Any) -> Turn:
        turn = await self.session.submit_nowait(Prompt(text, **options)).wait_turn()
        assert turn is not None
        return turn


async def play(
    mode: str,
    script: Script,
    story: Callable[[Host, FakeProvider], Awaitable[None]],
    settings: Settings | None = None,
) -> list[bytes]:
    with trio.fail_after(60):
        async with FakeProvider(script) as fake:
            host = Host(mode, fake)
            services, _ = make_services(tools=[PlainTool("note", host._note, ParallelClass.BARRIER)], settings=settings)

            async def build_prompt(session: Session, **_: Any) -> tuple[str, ...]:
                return ("You are a test.", "# Session\n\nModel: fake-model\nProvider: custom")

            services = replace(services, models=host.models, build_prompt=build_prompt)  # type: ignore[arg-type]
            try:
                async with running_tree(services) as tree:
                    host.session = tree.registry.create(source="test", cwd="/")
                    await story(host, fake)
            finally:
                await host.client.aclose()
    return host.client.bodies


@pytest.mark.parametrize("mode", list(ROWS))
async def test_every_request_of_a_long_turn_begins_with_the_bytes_of_the_one_before(mode: str) -> None:
    async def story(host: Host, fake: FakeProvider) -> None:
        host.steers = ["look at b too", "and at c"]
        record = await host.turn("go", limits=TurnLimits(max_iterations=22))
        assert record.completed, record
        assert record.user_intervened
        assert record.iterations == len(fake.requests) == 20
        kinds = [row.display_kind for row in host.session.rows if row.role == "user"]
        assert kinds.count("steer") == 2 and kinds.count("internal_notification") == 1

    bodies = await play(mode, Script.of(*rounds(), strict=True), story)
    assert len(bodies) == 20
    assert_grows(bodies, mode)


@pytest.mark.parametrize("mode", list(ROWS))
async def test_turns_that_fail_are_stopped_or_redirected_leave_the_bytes_alone(mode: str) -> None:
    script = Script.of(
        Reply.of({"text": "one"}),
        Reply.of(faults={"status": 400}),
        Reply.of({"text": ["half of ", "it"]}, {"wait_for": "never"}),
        Reply.of({"text": ["said ", "before"]}, {"wait_for": "never"}),
        Reply.of({"text": "corrected"}),
        Reply.of({"text": "cut "}, {"finish_reason": "length"}),
        Reply.of({"text": "off"}),
        Reply.of({"text": "last"}),
        strict=True,
    )

    async def story(host: Host, fake: FakeProvider) -> None:
        assert (await host.turn("first")).completed
        assert (await host.turn("refused")).failed
        turn = await host.begin("stopped")
        await _shown(turn, "half of it")
        host.session.interrupt_nowait(STOP)
        assert (await turn.wait_ended()).interrupted
        turn = await host.begin("redirected")
        await _shown(turn, "said before")
        assert turn.redirect("rather so")
        assert (await turn.wait_ended()).completed
        assert (await host.turn("continued")).text == "cut off"
        assert (await host.turn("last")).completed

    bodies = await play(mode, script, story)
    # The request for the rest of a cut answer stands aside: its rows are in the wire copy only.
    assert len(bodies) == 8
    del bodies[6]
    assert_grows(bodies, mode)


async def _shown(turn: Turn, text: str) -> None:
    while turn.inflight()["assistant"] != text:
        await trio.sleep(0.005)


@pytest.mark.parametrize("mode", list(ROWS))
async def test_results_that_are_left_out_change_the_bytes_once_and_only_from_the_first_of_them_on(mode: str) -> None:
    calls = [Reply.of({"tool_call": {"name": "note", "arguments": {"a": n}, "id": f"call_{n}"}}) for n in range(9)]
    script = Script.of(*calls, Reply.of({"text": "done"}), Reply.of({"text": "last"}), strict=True)

    async def story(host: Host, fake: FakeProvider) -> None:
        host.note = "x" * 40_000
        assert (await host.turn("go")).completed
        assert (await host.turn("last")).completed
        assert len(fake.requests) == 11, "no summary was asked for"

    settings = Settings(compression=CompressionSettings(threshold_tokens=50_000))
    bodies = await play(mode, script, story, settings)
    starts = [0, *(at for at in range(1, len(bodies)) if len(bodies[at]) < len(bodies[at - 1])), len(bodies)]
    groups = [bodies[one:other] for one, other in itertools.pairwise(starts)]
    assert 2 <= len(groups) <= 4 and all(len(group) > 1 for group in groups)
    for group in groups:
        assert_grows(group, mode)
    for before, after in itertools.pairwise(groups):
        (head, rows, _), (later_head, later_rows, _) = split(before[-1], mode), split(after[0], mode)
        assert head == later_head
        same = next(at for at, (one, other) in enumerate(zip(rows, later_rows, strict=False)) if one != other)
        assert b"x" * 99 not in rows[:same], "what stands before the first result that is left out is the same"
        assert b"call_0" in rows[:same]
