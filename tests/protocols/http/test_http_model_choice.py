"""Which model a request gets: aliases, providers, bare names, options, and side prompts of frontends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from hermes.agent.ports import Provider, ResolvedModel
from hermes.errors import InvalidValue, ModelNotServed, ProviderNotConfigured
from hermes.settings import Settings
from tests.support.core import hang, say
from tests.support.http_surface import Surface, http_surface

ASK = {"messages": [{"role": "user", "content": "hi"}]}


@dataclass(frozen=True)
class Entry:
    id: str


class PickyModels:
    """A gateway whose endpoint lists two models, with one more provider that lacks its key."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    async def resolve(self, model: str | None, provider: str | None) -> ResolvedModel:
        await trio.lowlevel.checkpoint()
        if provider == "keyless":
            raise ProviderNotConfigured("set KEYLESS_API_KEY")
        if provider not in (None, "custom", "other", "route:fast"):
            raise InvalidValue(f"unknown model provider: {provider}")
        if provider == "other" and model == "ghost":
            raise ModelNotServed("ghost", "other", ("spirit",))
        return ResolvedModel(model or "default-1", provider or "custom")

    async def served_models(self, provider: str, *, refresh: bool = False) -> Sequence[Entry]:
        await trio.lowlevel.checkpoint()
        return (Entry("default-1"), Entry("small-1"))

    def provider_for(self, resolved: ResolvedModel) -> Provider:
        return self.provider

    def fallbacks(self) -> Sequence[ResolvedModel]:
        return ()

    def auxiliary(self, current: ResolvedModel) -> ResolvedModel:
        return current


def picky(surface: Surface) -> None:
    gateway: Any = PickyModels(surface.model)
    object.__setattr__(surface.tree.services, "models", gateway)


async def ran(surface: Surface, path: str = "/v1/chat/completions", **body: Any) -> tuple[str, str]:
    """The model that ran and the name that was echoed."""
    answer = await surface.post(path, {**ASK, "input": "hi", **body})
    assert answer.status_code == 200, answer.text
    return surface.model.requests[-1].model, answer.json()["model"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_bare_name_is_honoured_when_it_is_served_and_a_label_when_not(path: str) -> None:
    async with http_surface() as surface:
        picky(surface)
        assert await ran(surface, path) == ("default-1", "hermes-agent")
        assert await ran(surface, path, model="hermes-agent") == ("default-1", "hermes-agent")
        assert await ran(surface, path, model="small-1") == ("small-1", "small-1")
        assert await ran(surface, path, model="gpt-4o") == ("default-1", "gpt-4o")
        assert await ran(surface, path, model="gpt-4o", provider="other") == ("gpt-4o", "gpt-4o")


async def test_the_header_tells_which_model_ran() -> None:
    async with http_surface() as surface:
        picky(surface)
        answer = await surface.post("/v1/chat/completions", {**ASK, "model": "gpt-4o"})
        assert answer.headers["x-hermes-model"] == "default-1"


async def test_bare_names_can_be_switched_off() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"direct_model_requests": False}}})
    async with http_surface(settings=settings) as surface:
        picky(surface)
        assert (await ran(surface, model="small-1"))[0] == "default-1"


async def test_runs_mean_every_name_they_give() -> None:
    async with http_surface() as surface:
        picky(surface)
        answer = await surface.post("/v1/runs", {"input": "x", "model": "gpt-4o"})
        status = await surface.ended(answer.json()["run_id"])
        assert surface.model.requests[-1].model == "gpt-4o"
        assert status["runtime"]["route_source"] == "raw_request"
        assert status["runtime"]["requested"] == {"provider": "", "model": "gpt-4o"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"provider": "nowhere"}, 400, "invalid_provider"),
        ({"provider": "keyless"}, 502, "provider_auth_failed"),
        ({"provider": "other", "model": "ghost"}, 400, "model_not_served"),
        ({"provider": 5}, 400, "invalid_request"),
        ({"model": "fast", "provider": "custom"}, 400, "model_route_conflict"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_choice_that_cannot_be_served_is_refused_before_the_stream(
    body: Any, status: int, code: str, stream: bool
) -> None:
    routes = {"fast": {"model": "small-1", "provider": "other"}}
    settings = Settings.model_validate({"gateway": {"api_server": {"model_routes": routes}}})
    async with http_surface(settings=settings) as surface:
        picky(surface)
        answer = await surface.post("/v1/chat/completions", {**ASK, **body, "stream": stream})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert surface.model.requests == []


async def test_an_alias_runs_its_model_and_is_listed_without_its_secrets() -> None:
    routes = {"fast": {"model": "small-1", "api_key": "sk-secret"}}
    settings = Settings.model_validate({"gateway": {"api_server": {"model_routes": routes}}})
    async with http_surface(settings=settings) as surface:
        picky(surface)
        assert await ran(surface, model="fast") == ("small-1", "fast")
        listed = await surface.get("/v1/models")
        assert [entry["id"] for entry in listed.json()["data"]] == ["hermes-agent", "fast"]
        assert "sk-secret" not in listed.text
        one = await surface.openai(lambda client: client.models.retrieve("fast"))
        assert one.id == "fast"
        for body in ({"model": "fast", "provider": "other"}, {"model": "large-1", "provider": "route:fast"}):
            assert (await surface.post("/v1/chat/completions", {**ASK, **body})).status_code == 400


@pytest.mark.parametrize(
    ("body", "effort"),
    [
        ({"model_options": {"reasoning": {"effort": "high"}}}, "high"),
        ({"model_options": {"reasoning_effort": "low"}}, "low"),
        ({"model_options": {"reasoning": {"enabled": False}}}, "none"),
        ({"reasoning_effort": "medium"}, "medium"),
        ({"model_options": {"reasoning_effort": "enormous"}}, None),
    ],
)
async def test_reasoning_effort_may_be_said_in_any_of_its_forms(body: Any, effort: str | None) -> None:
    async with http_surface() as surface:
        default = Settings().agent.reasoning_effort or None
        await ran(surface, **body)
        assert surface.model.requests[-1].reasoning_effort == (effort or default)


TITLE = {"messages": [{"role": "user", "content": "### Task:\nGenerate a title as JSON."}]}


async def test_a_side_prompt_is_one_model_call_without_tools_or_a_session() -> None:
    async with http_surface(say('{"title": "x"}')) as surface:
        answer = await surface.post("/v1/chat/completions", {**TITLE, "max_completion_tokens": 1000})
        assert answer.json()["choices"][0]["message"]["content"] == '{"title": "x"}'
        assert surface.model.requests[0].tools == ()
        assert len(surface.tree.registry.live()) == 0


@pytest.mark.parametrize("how", ["stream", "setting", "history"])
async def test_a_prompt_that_only_looks_like_one_is_a_turn(how: str) -> None:
    setting = {"gateway": {"api_server": {"auxiliary_requests": "agent"}}} if how == "setting" else {}
    async with http_surface(settings=Settings.model_validate(setting)) as surface:
        body: dict[str, Any] = {**TITLE, "stream": how == "stream"}
        if how == "history":
            body["messages"] = [{"role": "user", "content": "a"}, *TITLE["messages"]]
        await surface.post("/v1/chat/completions", body)
        assert surface.model.requests[0].tools != ()


async def test_another_header_may_name_the_conversation() -> None:
    setting = {"gateway": {"api_server": {"session_key_headers": ["X-OpenWebUI-Chat-Id"]}}}
    async with http_surface(settings=Settings.model_validate(setting)) as surface:
        answer = await surface.post("/v1/chat/completions", ASK, X_OpenWebUI_Chat_Id="chat-9")
        assert answer.headers["x-hermes-session-key"] == "chat-9"


async def test_a_side_prompt_whose_client_leaves_ends_its_model_call() -> None:
    async with http_surface(hang()) as surface:
        body = {"messages": [{"role": "user", "content": "### Task:\nGenerate a title"}]}
        stream = await surface.raw("POST", "/v1/chat/completions", body)
        await surface.until(lambda: surface.model.open == 1)
        stream.socket.close()
        with trio.fail_after(1):
            await surface.until(lambda: surface.model.open == 0)
        await surface.until(lambda: surface.surface.api.runs.active == 0)
