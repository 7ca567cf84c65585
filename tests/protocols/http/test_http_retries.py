"""A retry with the same key gets the answer of the first request: status, words, and the truth about its end."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
import trio

from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest
from hermes.outcomes import Usage
from tests.protocols.http.test_http_chat_completions import fail
from tests.support.core import Reply, say
from tests.support.http_surface import http_surface

ROUTES = ["/v1/chat/completions", "/v1/responses"]
BODY = {"messages": [{"role": "user", "content": "x"}], "input": "x"}
OWN = ("x-hermes-", "content-type", "retry-after")


def says_and_ends(text: str, finish: str, reasoning: str = "") -> Reply:
    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        await trio.lowlevel.checkpoint()
        if reasoning:
            on_delta(DeltaKind.REASONING, reasoning)
        on_delta(DeltaKind.TEXT, text)
        usage = Usage(input_tokens=10, output_tokens=5, calls=1)
        return ModelFinished(text=text, finish_reason=finish, reasoning=reasoning, usage=usage)

    return reply


def begins_and_hangs() -> Reply:
    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        on_delta(DeltaKind.TEXT, "so far")
        await trio.sleep_forever()
        raise AssertionError

    return reply


def truth_of(answer: httpx2.Response) -> tuple[int, Any, dict[str, str]]:
    body = answer.json()
    body.pop("created", None)
    return answer.status_code, body, {name: v for name, v in answer.headers.items() if name.startswith(OWN)}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("replies", "more"),
    [
        ([says_and_ends("hi", "stop", "let me think")], {}),
        ([says_and_ends("cut", "length")] * 9, {}),
        ([says_and_ends("no", "content_filter")], {}),
        ([fail("no such key", "auth_permanent")], {}),
        ([fail("not like this", "format_error")], {}),
        ([begins_and_hangs()], {"deadline_s": 0.05}),
    ],
    ids=["completed", "cut", "blocked", "no key", "refused", "deadline"],
)
async def test_a_retry_is_told_what_the_first_request_was_told(
    route: str, replies: list[Reply], more: dict[str, Any]
) -> None:
    async with http_surface(*replies) as surface:
        first = await surface.post(route, {**BODY, **more}, Idempotency_Key="k")
        asked = len(surface.model.requests)
        again = await surface.post(route, {**BODY, **more}, Idempotency_Key="k")
        assert truth_of(again) == truth_of(first)
        assert len(surface.model.requests) == asked


@pytest.mark.parametrize("route", ROUTES)
async def test_what_is_kept_for_retries_is_bounded(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.protocols.http.chat_completions.MAX_ENDED", 2)
    async with http_surface(*[say("x")] * 5) as surface:
        for key in "abcd":
            assert (await surface.post(route, BODY, Idempotency_Key=key)).status_code == 200
        await surface.until(lambda: not surface.live_runs())
        assert len(surface.surface.api.ended) == 2
        oldest = await surface.post(route, BODY, Idempotency_Key="a")
        assert (oldest.status_code, oldest.headers["idempotency-replayed"]) == (200, "true")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "more", [{"reasoning_effort": "high"}, {"reasoning": {"effort": "low"}}, {"max_iterations": 3}, {"deadline_s": 60}]
)
async def test_what_changes_the_turn_makes_another_request(route: str, more: dict[str, Any]) -> None:
    async with http_surface(say("one"), say("two")) as surface:
        first = await surface.post(route, BODY, Idempotency_Key="k")
        other = await surface.post(route, {**BODY, **more}, Idempotency_Key="k")
        assert first.json()["id"] != other.json()["id"]
        assert "idempotency-replayed" not in other.headers
