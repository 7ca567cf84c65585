"""``/model``: what each line means in which world."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermes.agent.model_switch import (
    ModelAlias,
    ModelCommand,
    ModelSwitch,
    ModelWorld,
    UserProvider,
    parse_model_command,
    resolve_switch,
)

LAB = UserProvider("custom:lab", "lab", ("m1", "m2", "shared"), "m1", "http://127.0.0.1:9/v1")
OWN = UserProvider("custom:own", "own", ("shared", "gpt-5.2"), None, "https://own.example/v1")
CLAUDE = ModelWorld(
    "anthropic", "claude-sonnet-4-6", authenticated=frozenset({"anthropic", "openai-api", "xai", "openrouter"})
)
ROUTER = replace(CLAUDE, current_provider="openrouter", current_model="anthropic/claude-sonnet-4.6")
OPENAI = replace(CLAUDE, current_provider="openai", current_model="gpt-5.5")
ALONE = ModelWorld("anthropic", "claude-sonnet-4-6", authenticated=frozenset({"anthropic"}))
CUSTOM = ModelWorld("custom", "llama3:8b", authenticated=frozenset({"openai-api"}), user_providers=(LAB, OWN))
IN_LAB = replace(CUSTOM, current_provider="custom:lab", current_model="m1")
NVIDIA = replace(CLAUDE, current_provider="nvidia", current_model="openai/gpt-oss-120b")
ALIASES = replace(
    CLAUDE,
    aliases={
        "fast": ModelAlias("claude-haiku-4-5"),
        "big": ModelAlias("openai/gpt-5.5", "openrouter"),
        "sonnet": ModelAlias("claude-opus-4-5", "anthropic"),
        "here": ModelAlias("twin", "anthropic"),
        "there": ModelAlias("twin", "openrouter"),
        "broken": ModelAlias("x", "nowhere"),
    },
    user_providers=(LAB,),
)
SHADOWED = replace(CLAUDE, user_providers=(UserProvider("custom:openai", "openai", ("inside",), "inside"),))

Expected = tuple[str, str] | tuple[str, str, str]
NEW, AMBIGUOUS, FAILS = "not in the known list", "ambiguous", "!"
ELSEWHERE = "is not a model of provider anthropic; try claude-"

ROWS: list[tuple[ModelWorld, str, Expected]] = [
    # aliases
    (ALIASES, "fast", ("anthropic", "claude-haiku-4-5")),
    (ALIASES, "FAST", ("anthropic", "claude-haiku-4-5")),
    (ALIASES, "big", ("openrouter", "openai/gpt-5.5")),
    (ALIASES, "sonnet", ("anthropic", "claude-opus-4-5")),
    (ALIASES, "twin", ("anthropic", "twin")),
    (replace(ALIASES, current_provider="openrouter"), "twin", ("openrouter", "twin")),
    (ALIASES, "broken", (FAILS, "unknown provider nowhere")),
    (ALIASES, "fast --provider anthropic", ("anthropic", "claude-haiku-4-5")),
    (ALIASES, "big --provider anthropic", ("anthropic", "big", NEW)),
    # provider:model
    (CLAUDE, "openrouter:anthropic/claude-opus-4.5", ("openrouter", "anthropic/claude-opus-4.5")),
    (CLAUDE, "or:openai/gpt-5.5", ("openrouter", "openai/gpt-5.5")),
    (CLAUDE, "openai:gpt-5.2", ("openai-api", "gpt-5.2")),
    (CLAUDE, "anthropic:claude-opus-4.5", ("anthropic", "claude-opus-4-5")),
    (CLAUDE, "OpenRouter:z-ai/glm-5", ("openrouter", "z-ai/glm-5")),
    (CLAUDE, "xai:grok-4", ("xai", "grok-4")),
    (CLAUDE, "deepseek:deepseek-chat", (FAILS, "DEEPSEEK_API_KEY")),
    (CUSTOM, "qwen3:8b", ("custom", "qwen3:8b", NEW)),
    (CUSTOM, "llama3.1:70b-instruct", ("custom", "llama3.1:70b-instruct", NEW)),
    (CLAUDE, "qwen3:8b", ("anthropic", "qwen3:8b", NEW)),
    (CUSTOM, "custom:lab:m2", ("custom:lab", "m2")),
    (CUSTOM, "lab:m2", ("custom:lab", "m2")),
    (CUSTOM, "custom:own:qwen3:8b", ("custom:own", "qwen3:8b", NEW)),
    (SHADOWED, "openai:inside", ("custom:openai", "inside")),
    (SHADOWED, "openai-api:gpt-5.2", ("openai-api", "gpt-5.2")),
    (CLAUDE, "openai-codex:gpt-5.5", (FAILS, "not supported")),
    # family words
    (CLAUDE, "haiku", ("anthropic", "claude-haiku-4-5")),
    (CLAUDE, "sonnet", (FAILS, AMBIGUOUS)),
    (CLAUDE, "opus", (FAILS, AMBIGUOUS)),
    (CLAUDE, "claude", (FAILS, AMBIGUOUS)),
    (CLAUDE, "Haiku", ("anthropic", "claude-haiku-4-5")),
    (ROUTER, "haiku", ("openrouter", "anthropic/claude-haiku-4.5")),
    (ROUTER, "sonnet", ("openrouter", "anthropic/claude-sonnet-4.6")),
    (ROUTER, "llama", ("openrouter", "meta-llama/llama-4-maverick")),
    (ROUTER, "kimi", ("openrouter", "moonshotai/kimi-k2.5")),
    (ROUTER, "minimax", ("openrouter", "minimax/minimax-m2.5")),
    (ROUTER, "glm", (FAILS, AMBIGUOUS)),
    (ROUTER, "gemini", (FAILS, AMBIGUOUS)),
    (ROUTER, "deepseek", ("openrouter", "deepseek/deepseek-v3.2")),
    (OPENAI, "o3", ("openai-api", "o3")),
    (OPENAI, "o4", ("openai-api", "o4-mini")),
    (OPENAI, "gpt", (FAILS, AMBIGUOUS)),
    (CLAUDE, "o3", ("openai-api", "o3")),
    (CLAUDE, "kimi", ("openrouter", "moonshotai/kimi-k2.5")),
    (CLAUDE, "grok", (FAILS, AMBIGUOUS)),
    (ALONE, "o3", (FAILS, ELSEWHERE)),
    (OPENAI, "haiku", (FAILS, AMBIGUOUS)),
    (replace(OPENAI, authenticated=frozenset({"openai-api", "anthropic"})), "haiku", ("anthropic", "claude-haiku-4-5")),
    (CLAUDE, "haiku --provider openrouter", ("openrouter", "anthropic/claude-haiku-4.5")),
    (CLAUDE, "gpt --provider openrouter", (FAILS, AMBIGUOUS)),
    # vendor/model
    (ROUTER, "openai/gpt-5.5", ("openrouter", "openai/gpt-5.5")),
    (ROUTER, "new-vendor/new-model", ("openrouter", "new-vendor/new-model", NEW)),
    (ROUTER, "anthropic/claude-sonnet-4.6:beta", ("openrouter", "anthropic/claude-sonnet-4.6:beta")),
    (CLAUDE, "openrouter/openai/gpt-5.5", ("openrouter", "openai/gpt-5.5")),
    (CLAUDE, "openai/gpt-5.5", ("openai-api", "gpt-5.5")),
    (CLAUDE, "anthropic/claude-opus-4.5", ("anthropic", "claude-opus-4-5")),
    (CLAUDE, "anthropic/claude-next-9.1", ("anthropic", "claude-next-9-1", NEW)),
    (CLAUDE, "unknown-vendor/x", ("anthropic", "unknown-vendor/x", NEW)),
    (CUSTOM, "openai/gpt-oss-20b", ("custom", "openai/gpt-oss-20b")),
    (IN_LAB, "vendor/any", ("custom:lab", "vendor/any")),
    (NVIDIA, "openai/gpt-oss-120b", ("nvidia", "openai/gpt-oss-120b")),
    # catalogue of the current provider
    (CLAUDE, "claude-opus-4-5", ("anthropic", "claude-opus-4-5")),
    (CLAUDE, "claude-opus-4.5", ("anthropic", "claude-opus-4-5")),
    (CLAUDE, "Claude-Opus-4.5", ("anthropic", "claude-opus-4-5")),
    (CLAUDE, "claude-opus-4-5-20251101", ("anthropic", "claude-opus-4-5-20251101")),
    (ROUTER, "gpt-5.2", ("openrouter", "openai/gpt-5.2")),
    (ROUTER, "claude-opus-4-5", ("openrouter", "anthropic/claude-opus-4.5")),
    (OPENAI, "gpt-4o", ("openai-api", "gpt-4o")),
    (IN_LAB, "m2", ("custom:lab", "m2")),
    (IN_LAB, "shared", ("custom:lab", "shared")),
    (replace(CUSTOM, live={"custom": ("listed",)}), "listed", ("custom", "listed")),
    # declared by the user
    (CUSTOM, "m2", ("custom:lab", "m2")),
    (CUSTOM, "shared", (FAILS, AMBIGUOUS)),
    (ALIASES, "m1", ("custom:lab", "m1")),
    (replace(CLAUDE, user_providers=(OWN,)), "gpt-5.2", ("custom:own", "gpt-5.2")),
    # another vendor
    (CLAUDE, "gpt-5.2", ("openai-api", "gpt-5.2")),
    (CLAUDE, "grok-4", ("xai", "grok-4")),
    (OPENAI, "claude-opus-4.5", ("anthropic", "claude-opus-4-5")),
    (ALONE, "gpt-5.2", (FAILS, ELSEWHERE)),
    (CUSTOM, "gpt-4o", ("custom", "gpt-4o", NEW)),
    (CLAUDE, "deepseek-chat", (FAILS, ELSEWHERE)),
    # unknown
    (CLAUDE, "claude-next-99", ("anthropic", "claude-next-99", NEW)),
    (CUSTOM, "whatever", ("custom", "whatever", NEW)),
    (ROUTER, "whatever", ("openrouter", "whatever", NEW)),
    # --provider
    (CLAUDE, "--provider openai", ("openai-api", "gpt-5.5")),
    (replace(CLAUDE, defaults={"openai-api": "gpt-5-mini"}), "--provider openai", ("openai-api", "gpt-5-mini")),
    (CUSTOM, "--provider lab", ("custom:lab", "m1")),
    (CUSTOM, "--provider custom:own", (FAILS, "no default model")),
    (replace(CUSTOM, loaded={"lmstudio": ("only",)}), "--provider lmstudio", ("lmstudio", "only")),
    (replace(CUSTOM, loaded={"lmstudio": ("a", "b")}), "--provider lmstudio", (FAILS, "no default model")),
    (CLAUDE, "--provider openai gpt-5.2", ("openai-api", "gpt-5.2")),
    (CLAUDE, "gpt-5.2 --provider=openrouter", ("openrouter", "openai/gpt-5.2")),
    (CLAUDE, "openai/gpt-5.2 --provider openai", ("openai-api", "gpt-5.2")),
    (CLAUDE, "claude-opus-4.5 --provider anthropic", ("anthropic", "claude-opus-4-5")),
    (CLAUDE, "new-one --provider openai", ("openai-api", "new-one", NEW)),
    (CLAUDE, "x --provider opnrouter", (FAILS, "did you mean openrouter")),
    (CLAUDE, "x --provider zzzzzz", (FAILS, "unknown provider zzzzzz")),
    (CLAUDE, "deepseek-chat --provider deepseek", (FAILS, "no credentials")),
    (CLAUDE, "x --provider copilot", (FAILS, "not supported")),
    # refused kinds, empty lines
    (OPENAI, "text-embedding-3-small", (FAILS, "does not chat")),
    (OPENAI, "dall-e-3", (FAILS, "does not chat")),
    (CLAUDE, "", (FAILS, "which model")),
    (CLAUDE, ":", (FAILS, "which model")),
    (CLAUDE, "\0", (FAILS, "which model")),
    (CLAUDE, "--reasoning high", ("anthropic", "claude-sonnet-4-6")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("world", "line", "expected"), ROWS, ids=[f"{w.current_provider}: {line}" for w, line, _ in ROWS]
)
def test_a_line_means(world: ModelWorld, line: str, expected: Expected) -> None:
    switch = resolve_switch(parse_model_command(line), world)
    if expected[0] == FAILS:
        assert not switch.success
        assert switch.error_message is not None
        assert expected[1] in switch.error_message
        assert (switch.new_model, switch.target_provider, switch.persisted) == ("", "", False)
        return
    assert switch.error_message is None
    assert (switch.target_provider, switch.new_model) == expected[:2]
    warned = NEW in (switch.warning_message or "")
    assert warned is (len(expected) == 3)


def test_there_are_enough_rows() -> None:
    assert len(ROWS) >= 80


def test_an_ambiguity_lists_every_candidate_and_guesses_nothing() -> None:
    switch = resolve_switch(parse_model_command("opus"), CLAUDE)
    assert switch.candidates == ("claude-opus-4-6", "claude-opus-4-5", "claude-opus-4-1")
    across = resolve_switch(parse_model_command("grok"), CLAUDE)
    assert "xai:grok-4" in across.candidates
    assert "openrouter:x-ai/grok-4" in across.candidates


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("gpt-5.2", ModelCommand("gpt-5.2")),
        ("  gpt-5.2  ", ModelCommand("gpt-5.2")),
        ("gpt-5.2 --once", ModelCommand("gpt-5.2", once=True)),
        ("gpt-5.2 --session --refresh", ModelCommand("gpt-5.2", session_only=True, refresh=True)),
        ("--global gpt-5.2", ModelCommand("gpt-5.2", is_global=True)),
        ("gpt-5.2 —provider openai", ModelCommand("gpt-5.2", "openai")),
        ("gpt-5.2 ––once", ModelCommand("gpt-5.2", once=True)),
        ("gpt‑5.2", ModelCommand("gpt-5.2")),
        ("m --reasoning HIGH", ModelCommand("m", reasoning="high")),
        ("m --reasoning=none", ModelCommand("m", reasoning="none")),
        ("m --reasoning hot", ModelCommand(error="bad_reasoning")),
        ("m --reasoning", ModelCommand(error="bad_reasoning")),
        ("m --once --global", ModelCommand(error="once_with_global")),
        ("--once", ModelCommand(error="once_requires_target")),
        ("--once --provider x", ModelCommand(provider="x", once=True)),
        ("m --provider", ModelCommand(error="bad_flags")),
        ("m --what", ModelCommand(error="bad_flags")),
        ('"unclosed', ModelCommand(error="bad_flags")),
    ],
)
def test_a_line_is_parsed(line: str, command: ModelCommand) -> None:
    assert parse_model_command(line) == command


@pytest.mark.parametrize(
    ("line", "has_default", "by_default", "persisted"),
    [
        ("claude-opus-4-5 --once", False, True, False),
        ("claude-opus-4-5 --session", False, True, False),
        ("claude-opus-4-5 --global", True, False, True),
        ("claude-opus-4-5", False, False, True),
        ("claude-opus-4-5", True, True, True),
        ("claude-opus-4-5", True, False, False),
        ("--provider openai", False, True, False),
        ("--provider openai --global", True, False, True),
    ],
)
def test_how_long_a_switch_lasts(line: str, has_default: bool, by_default: bool, persisted: bool) -> None:
    world = replace(CLAUDE, has_default=has_default, persist_by_default=by_default)
    assert resolve_switch(parse_model_command(line), world).persisted is persisted


def test_a_switch_tells_where_it_leads() -> None:
    switch = resolve_switch(parse_model_command("openai:gpt-5.2 --reasoning high --once"), CLAUDE)
    assert switch == ModelSwitch(
        True,
        new_model="gpt-5.2",
        target_provider="openai-api",
        provider_changed=True,
        api_mode="codex_responses",
        base_url="https://api.openai.com/v1",
        reasoning="high",
        once=True,
        context_length=400_000,
        vision=True,
    )
    assert not resolve_switch(parse_model_command("claude-opus-4-5"), CLAUDE).provider_changed


def test_a_bad_line_changes_nothing() -> None:
    switch = resolve_switch(parse_model_command("m --once --global"), CLAUDE)
    assert switch == ModelSwitch(False, error_message="--once and --global exclude each other")


def test_a_much_dearer_model_and_a_window_too_small_ask_first() -> None:
    cheap = replace(OPENAI, current_model="gpt-5-nano")
    dear = resolve_switch(parse_model_command("gpt-5"), cheap)
    assert dear.confirm_message is not None
    assert "25 times" in dear.confirm_message
    long = replace(OPENAI, context_tokens=150_000)
    small = resolve_switch(parse_model_command("gpt-4o"), long)
    assert small.confirm_message is not None
    assert "longer than the window" in (small.warning_message or "")
    assert resolve_switch(parse_model_command("gpt-5"), OPENAI).confirm_message is None
