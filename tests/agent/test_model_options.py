"""The payload of the model pickers."""

from __future__ import annotations

import orjson

from hermes.agent.model_options import PickerState, capabilities, featured, model_options, pricing, providers_to_probe
from hermes.agent.model_switch import UserProvider
from hermes.agent.provider_rows import PROVIDER_ROWS

LAB = UserProvider("custom:lab", "lab", ("m1", "openai/gpt-5.2"), "m1", "http://127.0.0.1:9000/v1")
STATE = PickerState(
    "m1", "custom:lab", frozenset({"openrouter", "anthropic"}), (LAB,), probed={"custom:lab": ("m1", "m2")}
)


def slugs(payload: dict[str, object]) -> list[object]:
    rows = payload["providers"]
    assert isinstance(rows, list)
    return [row["slug"] for row in rows]


def test_the_users_own_row_has_its_declared_and_its_listed_models() -> None:
    payload = model_options(STATE)
    assert (payload["model"], payload["provider"]) == ("m1", "custom:lab")
    row = payload["providers"][-1]
    assert row == {
        "slug": "custom:lab",
        "name": "lab",
        "is_current": True,
        "is_user_defined": True,
        "models": ["m1", "openai/gpt-5.2", "m2"],
        "total_models": 3,
        "source": "user-config",
        "api_url": "http://127.0.0.1:9000/v1",
        "native_catalog_empty": False,
        "authenticated": True,
        "aliases": ["custom:lab", "lab"],
        "featured_models": [],
        "capabilities": {
            "m1": {"fast": False, "reasoning": True, "can_disable_reasoning": True},
            "openai/gpt-5.2": {"fast": False, "reasoning": True, "can_disable_reasoning": True},
            "m2": {"fast": False, "reasoning": True, "can_disable_reasoning": True},
        },
        "pricing": {},
    }


def test_rows_stand_in_the_canonical_order_with_the_users_own_last() -> None:
    assert slugs(model_options(STATE)) == ["openrouter", "anthropic", "custom:lab"]
    everything = slugs(model_options(STATE, include_unconfigured=True))
    order = [row.id for row in PROVIDER_ROWS if row.available]
    assert everything == [*order, "custom:lab"]
    assert slugs(model_options(STATE, explicit_only=True)) == ["custom:lab"]


def test_a_skeleton_says_how_to_configure_it() -> None:
    payload = model_options(STATE, include_unconfigured=True)
    row = next(row for row in payload["providers"] if row["slug"] == "deepseek")
    assert (row["source"], row["authenticated"], row["models"], row["key_env"]) == (
        "canonical",
        False,
        [],
        "DEEPSEEK_API_KEY",
    )
    assert "DEEPSEEK_API_KEY" in row["warning"]


def test_the_current_provider_without_credentials_stays_visible() -> None:
    payload = model_options(PickerState("gpt-5.5", "openai-api"))
    row = payload["providers"][0]
    assert (row["slug"], row["is_current"], row["source"], row["authenticated"]) == (
        "openai-api",
        True,
        "configured-current",
        False,
    )


def test_what_the_user_serves_is_taken_out_of_aggregators() -> None:
    rows = {row["slug"]: row for row in model_options(STATE)["providers"]}
    assert "openai/gpt-5.2" not in rows["openrouter"]["models"]
    assert rows["openrouter"]["total_models"] == len(rows["openrouter"]["models"])


def test_only_aggregators_feature_models_and_five_per_vendor() -> None:
    rows = {row["slug"]: row for row in model_options(STATE)["providers"]}
    assert rows["anthropic"]["featured_models"] == []
    assert rows["openrouter"]["featured_models"]
    assert featured([f"a/{n}" for n in range(7)] + ["b/1"]) == ["a/0", "a/1", "a/2", "a/3", "a/4", "b/1"]


def test_prices_are_texts_or_absent() -> None:
    assert pricing("claude-sonnet-4-5") == {"input": "3", "output": "15", "cache": "0.3", "free": False}
    assert pricing("gpt-5.5") is None


def test_reasoning_is_assumed_where_nothing_is_known() -> None:
    assert capabilities("never-heard-of")["reasoning"] is True
    assert capabilities("gpt-4o") == {"fast": False, "reasoning": False}
    assert capabilities("o3") == {"fast": False, "reasoning": True, "can_disable_reasoning": False}


def test_a_normal_open_asks_the_current_endpoint_only() -> None:
    other = UserProvider("custom:other", "other", (), None, "http://127.0.0.1:9001/v1")
    state = PickerState("m1", "custom:lab", frozenset({"anthropic"}), (LAB, other), custom_url="http://127.0.0.1:9/v1")
    assert providers_to_probe(state, refresh=False) == ("custom:lab",)
    assert providers_to_probe(state, refresh=True) == ("custom:lab", "custom:other", "custom")
    anthropic = PickerState("claude-opus-4-5", "anthropic", frozenset({"anthropic"}), (LAB,))
    assert providers_to_probe(anthropic, refresh=False) == ()
    assert providers_to_probe(anthropic, refresh=True) == ("custom:lab", "anthropic")


def test_a_dead_endpoint_keeps_its_configured_models() -> None:
    row = model_options(PickerState("m1", "custom:lab", user_providers=(LAB,)))["providers"][-1]
    assert row["models"] == ["m1", "openai/gpt-5.2"]


def test_the_bare_custom_endpoint_and_the_demonstration_have_rows() -> None:
    custom = model_options(
        PickerState("m", "custom", custom_url="http://127.0.0.1:9/v1", probed={"custom": ("m", "n")})
    )
    assert (custom["providers"][-1]["slug"], custom["providers"][-1]["models"]) == ("custom", ["m", "n"])
    demo = model_options(PickerState("demo", "demo"))
    assert (demo["providers"][-1]["slug"], demo["providers"][-1]["source"]) == ("demo", "virtual")


def test_the_payload_is_json() -> None:
    assert orjson.loads(orjson.dumps(model_options(STATE, include_unconfigured=True)))["model"] == "m1"
