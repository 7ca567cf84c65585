"""The offline guard, reasoning levels and facts, row by row."""

from __future__ import annotations

import pytest

from hermes.agent.model_catalog import (
    EFFORTS,
    anthropic_thinking,
    check_served,
    curated_models,
    effort_options,
    family_head,
    fit_effort,
    is_chat_model,
    max_output_tokens,
    model_facts,
    native_spelling,
)
from hermes.agent.model_rows import CATALOG, FAMILIES, MODEL_ALIASES
from hermes.agent.provider_rows import PROVIDER_ROWS, find_row
from hermes.errors import ModelNotServed

ACCEPTED: list[tuple[str | None, str | None, str]] = [
    (None, "anthropic", "no model"),
    ("", "anthropic", "no model"),
    ("gpt-5.5", None, "no provider"),
    ("gpt-5.5", "custom", "custom"),
    ("gpt-5.5", "custom:foo", "custom"),
    ("gpt-5.5", "ollama", "custom alias"),
    ("gpt-5.5", "openrouter", "aggregator"),
    ("anything/at-all", "openrouter", "aggregator"),
    ("gpt-5.5", "or", "aggregator alias"),
    ("gpt-5.5", "nous", "aggregator"),
    ("gpt-5.5", "huggingface", "aggregator"),
    ("gpt-5.5", "lmstudio", "local"),
    ("gpt-5.5", "nope", "unknown provider"),
    ("gpt-5.5", "demo", "unknown provider"),
    ("gpt-5.5", "stepfun", "no curated list"),
    ("claude-sonnet-4-6", "anthropic", "listed"),
    ("claude-opus-4-5-20251101", "anthropic", "listed alias"),
    ("gpt-5.5", "openai-api", "listed"),
    ("gpt-5.5", "openai", "listed, provider alias"),
    ("grok-4", "xai", "listed"),
    ("grok-4-latest", "xai", "listed alias"),
    ("claude-sonnet-4", "anthropic", "own family"),
    ("claude-next-99", "anthropic", "own family"),
    ("CLAUDE-NEXT", "anthropic", "own family, case"),
    ("gpt-6", "openai", "own family"),
    ("o3-pro", "openai", "own family"),
    ("gpt-9-codex", "openai-codex", "own family of a strict provider"),
    ("codex-mini", "openai-codex", "strict beginning"),
    ("o4-mini", "openai-codex", "strict beginning"),
    ("grok-9", "xai-oauth", "own family of a strict provider"),
    ("gemini-9", "gemini", "own family"),
    ("zzz", "anthropic", "nobody knows it"),
    ("zzz-unknown", "anthropic", "nobody knows it"),
    ("openrouter:anthropic/claude-sonnet-4.6", "anthropic", "not split here"),
    ("gemini-2.5-pro", "anthropic", "no list has exactly this name"),
    ("claude-sonnet-4.6", "openai", "no vendor lists this spelling"),
    ("zzz", "xai", "nobody knows it"),
    ("my-finetune", "deepseek", "nobody knows it"),
    ("anthropic/unheard-of", "anthropic", "nobody knows it"),
]
REFUSED: list[tuple[str, str]] = [
    ("gpt-5.5", "anthropic"),
    ("gpt-5.5", "claude"),
    ("deepseek-chat", "anthropic"),
    ("gemini-3-pro-preview", "anthropic"),
    ("grok-4", "anthropic"),
    ("glm-4.6", "anthropic"),
    ("kimi-k2.5", "anthropic"),
    ("MiniMax-M2", "anthropic"),
    ("qwen3-max", "anthropic"),
    ("anthropic/claude-sonnet-4.6", "anthropic"),
    ("openai/gpt-5.5", "anthropic"),
    ("claude-sonnet-4-6", "openai"),
    ("claude-sonnet-4-6", "gemini"),
    ("gpt-5.5", "xai"),
    ("deepseek-chat", "gemini"),
    ("claude-opus-4-5", "deepseek"),
    ("claude-sonnet-4", "openai-codex"),
    ("zzz-unknown", "openai-codex"),
    ("grok-4", "codex"),
    ("zzz-unknown", "xai-oauth"),
    ("gpt-5.5", "xai-oauth"),
    ("moonshotai/kimi-k2.5", "kimi-coding"),
]


@pytest.mark.parametrize(("model", "provider", "why"), ACCEPTED)
def test_the_guard_accepts(model: str | None, provider: str | None, why: str) -> None:
    check_served(model, provider)


@pytest.mark.parametrize(("model", "provider"), REFUSED)
def test_the_guard_refuses_with_up_to_five_suggestions(model: str, provider: str) -> None:
    with pytest.raises(ModelNotServed) as caught:
        check_served(model, provider)
    data = caught.value.data
    assert data is not None
    assert (data["model"], data["provider"]) == (model, provider)
    row = find_row(provider)
    assert row is not None
    assert 1 <= len(data["suggestions"]) <= 5
    assert set(data["suggestions"]) <= set(CATALOG[row.id])
    assert all(name in caught.value.message for name in (model, provider, *data["suggestions"]))


def test_suggestions_are_close_names_or_the_first_ones() -> None:
    with pytest.raises(ModelNotServed) as close:
        check_served("anthropic/claude-sonnet-4.6", "anthropic")
    assert close.value.data is not None
    assert close.value.data["suggestions"][0] == "claude-sonnet-4-6"
    with pytest.raises(ModelNotServed) as far:
        check_served("qwen3-max", "deepseek")
    assert far.value.data is not None
    assert far.value.data["suggestions"] == list(CATALOG["deepseek"])


# --- the data


def test_names_and_aliases_of_providers_are_unique() -> None:
    names = [name for row in PROVIDER_ROWS for name in (row.id, *row.aliases)]
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)


def test_every_usable_provider_can_be_reached_and_configured() -> None:
    for row in PROVIDER_ROWS:
        if row.available:
            assert row.host, row.id
            assert row.key_variables, row.id


def test_the_catalogue_speaks_of_known_providers_and_chat_models_only() -> None:
    assert set(CATALOG) <= {row.id for row in PROVIDER_ROWS}
    assert set(MODEL_ALIASES) <= set(CATALOG)
    for models in CATALOG.values():
        assert len(models) == len(set(models))
        assert all(is_chat_model(model) for model in models)


def test_family_names_are_written_as_they_are_compared() -> None:
    assert all(name == name.lower() and "." not in name and "/" not in name for name in FAMILIES)


def test_aliases_lead_to_listed_models() -> None:
    assert all(target in CATALOG[row] for row, names in MODEL_ALIASES.items() for target in names.values())


# --- facts


@pytest.mark.parametrize(
    ("model", "context", "price"),
    [
        ("claude-sonnet-4-5", 200_000, 3.0),
        ("claude-sonnet-4.5", 200_000, 3.0),
        ("anthropic/claude-sonnet-4.5", 200_000, 3.0),
        ("claude-sonnet-4-5-20250929", 200_000, 3.0),
        ("anthropic/claude-haiku-4.5:beta", 200_000, 1.0),
        ("gpt-5-mini", 400_000, 0.25),
        ("gpt-5", 400_000, 1.25),
        ("gpt-5.5", 400_000, None),
        ("gpt-4o", 128_000, 2.5),
        ("o3", 200_000, 2.0),
        ("deepseek-chat", 128_000, 0.28),
        ("qwen3:8b", 131_072, None),
        ("never-heard-of", 256_000, None),
    ],
)
def test_facts_are_found_by_any_spelling(model: str, context: int, price: float | None) -> None:
    facts = model_facts(model)
    assert (facts.context, facts.input_price) == (context, price)


@pytest.mark.parametrize(
    "model", ["text-embedding-3-large", "dall-e-3", "whisper-1", "gpt-image-1", "tts-1", "gpt-4o-mini-tts"]
)
def test_models_that_do_not_chat_are_known(model: str) -> None:
    assert not is_chat_model(model)


def test_heads_of_names() -> None:
    assert [family_head(name) for name in ("claude-x", "GPT-5", "o3-mini", "anthropic/claude", "")] == [
        "claude",
        "gpt",
        "o3",
        "anthropic",
        "",
    ]


@pytest.mark.parametrize(
    ("provider", "model", "spelled"),
    [
        ("anthropic", "claude-opus-4.5", "claude-opus-4-5"),
        ("anthropic", "anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("anthropic", "claude-opus-4-5-20251101", "claude-opus-4-5-20251101"),
        ("openrouter", "gpt-5.2", "openai/gpt-5.2"),
        ("openrouter", "claude-opus-4-5", "anthropic/claude-opus-4.5"),
        ("openrouter", "openai/gpt-5.2", "openai/gpt-5.2"),
        ("openrouter", "evil/gpt-5.2", None),
        ("minimax", "minimax-m2", "MiniMax-M2"),
        ("openai", "gpt-5.2", "gpt-5.2"),
        ("openai", "claude-x", None),
        ("custom", "m", None),
    ],
)
def test_a_provider_has_its_own_spelling(provider: str, model: str, spelled: str | None) -> None:
    assert native_spelling(provider, model) == spelled


def test_lists_are_found_by_alias() -> None:
    assert curated_models("claude") == CATALOG["anthropic"]
    assert curated_models("nope") == ()


# --- reasoning


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("gpt-5.2", None, None),
        ("gpt-5.2", "bogus", None),
        ("gpt-5.2", "ultra", "xhigh"),
        ("gpt-5.2", "minimal", "low"),
        ("gpt-5.2", "none", "none"),
        ("gpt-5", "none", "minimal"),
        ("o3", "none", "low"),
        ("o3", "ultra", "high"),
        ("deepseek-reasoner", "none", "high"),
        ("deepseek-reasoner", "low", "high"),
        ("gemini-3-pro-preview", "medium", "low"),
        ("gpt-4o", "high", None),
        ("gpt-4o", "none", None),
        ("unknown-model", "ultra", "ultra"),
        ("unknown-model", "none", "none"),
    ],
)
def test_a_level_is_lowered_to_the_nearest_and_never_to_none(model: str, effort: str | None, sent: str | None) -> None:
    assert fit_effort(model, effort) == sent


def test_no_level_above_none_ever_switches_reasoning_off() -> None:
    for model in FAMILIES:
        for effort in EFFORTS[1:]:
            assert fit_effort(model, effort) != "none"
            fitted = fit_effort(model, effort)
            assert fitted is None or fitted in effort_options(model)


def test_claude_models_think_by_budget_or_by_effort() -> None:
    older, newer = anthropic_thinking("claude-opus-4-5", "high"), anthropic_thinking("claude-opus-4-6", "high")
    assert older is not None
    assert newer is not None
    assert (older.budget, older.adaptive, newer.budget, newer.adaptive) == (16_000, False, None, True)
    assert anthropic_thinking("claude-opus-4-6", None) is None
    assert anthropic_thinking("claude-opus-4-6", "none") is None


def test_a_ceiling_is_always_known() -> None:
    assert max_output_tokens("claude-opus-4-1") == 32_000
    assert max_output_tokens("never-heard-of") == 16_384
