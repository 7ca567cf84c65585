"""What a server on this machine is asked before its model is used, and what the user is told about the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest
import trio
import trio.testing

from hermes.agent.providers import local_servers
from hermes.agent.providers.http_stream import HttpClient
from hermes.agent.providers.local_servers import ServedModel, ollama_model, probe
from hermes.agent.providers.registry import Models, ModelSettings
from hermes.agent.providers.wire_format import Endpoint
from hermes.messages import Prompt
from tests.support.core import events_of, make_services, running_tree, say
from tests.support.raw_provider import Peer, raw_provider


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    shared = HttpClient()
    yield shared
    await shared.aclose()


def shown(able: int | None = 131_072, num_ctx: int | None = None) -> dict[str, Any]:
    info: dict[str, Any] = {"general.architecture": "llama"}
    if able is not None:
        info["llama.context_length"] = able
    return {"model_info": info, "parameters": f"stop <|x|>\nnum_ctx {num_ctx}" if num_ctx else "stop <|x|>"}


def running(window: int, name: str = "llama3:8b") -> dict[str, Any]:
    return {"models": [{"name": name, "model": name, "context_length": window}]}


OPTIONS = {"options": {"num_ctx": 32_768}}


@pytest.mark.parametrize(("show", "ps", "extra", "window", "warned"), [
    (shown(), running(4096), {}, 4096, True),
    (shown(), running(65_536), {}, 65_536, False),
    (shown(num_ctx=8192), None, {}, 8192, True),
    (shown(num_ctx=8192), running(16_384), {}, 16_384, True),
    (shown(num_ctx=8192), running(16_384), OPTIONS, 32_768, False),
    (shown(), None, {}, 131_072, True),
    (shown(8192), running(8192), {}, 8192, False),
    (shown(8192), None, OPTIONS, 8192, False),
    (shown(None), None, {}, None, True),
    (shown(), running(4096, "other"), {}, 131_072, True),
    (shown(), {"models": "?"}, {"options": "?"}, 131_072, True),
])  # fmt: skip
def test_the_window_is_the_one_that_the_server_gives_and_not_the_one_it_could(
    show: dict[str, Any], ps: Any, extra: Mapping[str, Any], window: int | None, warned: bool
) -> None:
    found = ollama_model("llama3:8b", show, ps, extra)
    assert found.context == window
    assert bool(found.warning) == warned
    assert not warned or "num_ctx" in found.warning


def answer(status: str, body: Any) -> bytes:
    data = orjson.dumps(body)
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


class Ollama:
    """A server of that kind: it lists its models without their windows."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.asked: list[str] = []

    async def __call__(self, peer: Peer, _number: int) -> None:
        while (request := await peer.request()) is not None:
            line = request.split(b"\r\n", 1)[0].decode()
            self.asked.append(line.removesuffix(" HTTP/1.1"))
            known = {
                "GET /v1/models": {"data": [{"id": "llama3:8b"}]},
                "POST /api/show": shown(),
                "GET /api/ps": running(self.window),
            }
            found = known.get(self.asked[-1])
            await peer.send(answer("404 Not Found", {}) if found is None else answer("200 OK", found))


async def test_a_local_server_is_asked_once_and_its_window_is_used_with_a_warning(client: HttpClient) -> None:
    ollama = Ollama(4096)
    async with raw_provider(ollama) as provider:
        registry = Models(ModelSettings(base_url=provider.base_url, provider="ollama"), {}, client)
        with trio.fail_after(20):
            first = await registry.resolve("llama3:8b", None)
            assert await registry.resolve("llama3:8b", None) == first
        assert (first.provider, first.model, first.context_length) == ("custom", "llama3:8b", 4096)
        assert "4096 tokens of the 131072" in first.warning
        assert ollama.asked.count("POST /api/show") == 1


async def test_a_window_that_is_configured_is_not_asked_for(client: HttpClient) -> None:
    ollama = Ollama(4096)
    async with raw_provider(ollama) as provider:
        settings = ModelSettings(
            default="llama3:8b", base_url=provider.base_url, provider="ollama", context_length=20_000
        )
        resolved = await Models(settings, {}, client).resolve(None, None)
        assert (resolved.context_length, resolved.warning) == (20_000, "")
        assert ollama.asked == []


async def test_a_server_that_takes_questions_and_answers_none_costs_no_more_than_the_deadline(
    client: HttpClient,
) -> None:
    async def silent(peer: Peer, _number: int) -> None:
        await peer.request()
        await peer.gone()

    async with raw_provider(silent) as provider:
        began = trio.current_time()
        endpoint = Endpoint(name="custom", base_url=provider.base_url, local=True)
        assert (await probe(client, endpoint, "m", seconds=0.2)).context is None
        assert trio.current_time() - began < 2


async def test_the_user_is_warned_once_for_a_model() -> None:
    services, _ = make_services(say("one"), say("two"))
    resolve = services.models.resolve

    async def with_warning(model: str | None, provider: str | None) -> Any:
        return replace(await resolve(model, provider), warning="too small")

    services.models.resolve = with_warning  # type: ignore[method-assign]
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        for _ in range(2):
            turn = await session.submit_nowait(Prompt("hello")).wait_turn()
            assert turn is not None
            await turn.wait_ended()
        texts = [getattr(event, "text", None) for event in events_of(session)]
        assert texts.count("too small") == 1


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"id": ["x"], "name": "named"}, ServedModel("named")),
        ({"id": 5}, None),
        ({"id": "m", "context_length": True}, ServedModel("m")),
        ({"id": "m", "context_length": "8192", "meta": {"n_ctx": 4096}}, ServedModel("m", 4096)),
    ],
)
def test_an_entry_of_a_list_that_makes_no_sense_is_left_out_or_loses_what_does_not(
    entry: dict[str, object], expected: ServedModel | None
) -> None:
    assert local_servers._served(entry) == expected
