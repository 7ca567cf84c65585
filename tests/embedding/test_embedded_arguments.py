"""The constructor's arguments: each sets what its name says; the ones for other hosts do no harm."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.config import load_settings
from hermes.embedding import arguments
from hermes.embedding.arguments import Arguments, check, limits, model_options, overrides, system_extra


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({"base_url": "http://localhost:1/v1"}, "model.base_url", "http://localhost:1/v1"),
        ({"api_key": "k"}, "model.api_key", "k"),
        ({"api_mode": "anthropic_messages"}, "model.api_mode", "anthropic_messages"),
        ({"provider": "p"}, "model.provider", "p"),
        ({"requested_provider": "p"}, "model.provider", "p"),
        ({"model": "m"}, "model.default", "m"),
        ({"max_tokens": 9}, "model.max_tokens", 9),
        ({"max_iterations": 7}, "agent.max_turns", 7),
        ({"run_budget_seconds": 5.0}, "agent.run_budget_seconds", 5.0),
        ({"enabled_toolsets": ("file",)}, "toolsets", ["file"]),
        ({"disabled_toolsets": ["memory"]}, "agent.disabled_toolsets", ["memory"]),
        ({"skip_context_files": True}, "host.ignore_rules", True),
        ({"skip_memory": True}, "memory.memory_enabled", False),
        ({"fallback_model": {"provider": "p", "model": "m"}}, "fallback_providers", [{"provider": "p", "model": "m"}]),
        ({"fallback_model": [{"model": "m"}]}, "fallback_providers", [{"model": "m"}]),
        ({"settings": {"limits.max_sessions": 3}}, "limits.max_sessions", 3),
    ],
)
def test_an_argument_becomes_its_setting(given: dict[str, Any], key: str, value: Any, tmp_path: Any) -> None:
    chosen = overrides(check(given))
    assert chosen[key] == value
    load_settings(chosen, {}, tmp_path)


def test_what_is_not_given_sets_nothing() -> None:
    assert overrides(check({})) == {}
    assert overrides(check({"model": None, "skip_memory": False, "skip_context_files": False})) == {}


def test_arguments_for_other_hosts_are_ignored_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="hermes.embedding.arguments"):
        assert check(dict.fromkeys(arguments.IGNORED, "x") | {"chat_id": 1, "checkpoints_enabled": True}) == {}
    (line,) = caplog.records
    assert "chat_id" in line.getMessage() and "save_trajectories" in line.getMessage()


def test_a_name_that_nobody_knows_is_a_slip_of_the_pen() -> None:
    with pytest.raises(TypeError, match="'modell'"):
        check({"modell": "m"})


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {}),
        ({"reasoning_config": {"effort": "high"}}, {"reasoning_effort": "high"}),
        ({"reasoning_config": {"enabled": False}}, {"reasoning_effort": "none"}),
        ({"request_overrides": {"top_p": 0.5}, "service_tier": "flex"}, {"top_p": 0.5, "service_tier": "flex"}),
    ],
)
def test_options_of_a_request(given: Arguments, options: dict[str, Any]) -> None:
    assert model_options(given) == options


@pytest.mark.parametrize(
    ("budget", "iterations"),
    [(None, None), (5, 5), (SimpleNamespace(remaining=4, max_total=9), 4), (SimpleNamespace(max_total=9), 9)],
)
def test_a_budget_is_a_number_or_an_object_with_one(budget: Any, iterations: int | None) -> None:
    assert limits({"iteration_budget": budget}).max_iterations == iterations


def test_the_text_that_is_never_stored() -> None:
    assert system_extra({}, "s") is None
    assert system_extra({"ephemeral_system_prompt": "be kind", "pass_session_id": True}, "s1") == (
        "be kind\n\nSession id: s1"
    )
