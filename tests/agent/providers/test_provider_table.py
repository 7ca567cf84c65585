"""The registry, row by row (agent-core §2.2), the spellings of API modes (§2.1), and named endpoints (§2.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.agent.provider_rows import API_MODE_SPELLINGS, PROVIDER_ROWS, find_row
from hermes.config import load_settings
from hermes.model_settings import custom_providers

CHAT, MESSAGES, RESPONSES = "chat_completions", "anthropic_messages", "codex_responses"
TABLE = [
    ("openrouter", ("or",), "openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), CHAT, True),
    ("nous", (), "inference-api.nousresearch.com/v1", ("NOUS_API_KEY",), CHAT, True),
    ("openai-api", ("openai",), "api.openai.com/v1", ("OPENAI_API_KEY",), RESPONSES, False),
    ("anthropic", ("claude",), "api.anthropic.com", ("ANTHROPIC_API_KEY",), MESSAGES, False),
    ("gemini", ("google",), "generativelanguage.googleapis.com", ("GOOGLE_API_KEY", "GEMINI_API_KEY"), CHAT, False),
    ("xai", ("grok",), "api.x.ai/v1", ("XAI_API_KEY",), RESPONSES, False),
    ("deepseek", (), "api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), CHAT, False),
    ("zai", ("glm",), "api.z.ai/api/paas/v4", ("GLM_API_KEY", "ZAI_API_KEY"), CHAT, False),
    ("kimi-coding", ("kimi", "moonshot"), "api.moonshot.ai/v1", ("KIMI_API_KEY",), CHAT, False),
    ("minimax", (), "api.minimax.io/anthropic", ("MINIMAX_API_KEY",), MESSAGES, False),
    ("alibaba", ("qwen", "dashscope"), "dashscope-intl.aliyuncs.com", ("DASHSCOPE_API_KEY",), CHAT, False),
    ("nvidia", (), "integrate.api.nvidia.com/v1", ("NVIDIA_API_KEY",), CHAT, False),
    ("huggingface", ("hf",), "router.huggingface.co/v1", ("HF_TOKEN",), CHAT, True),
    ("ai-gateway", ("vercel",), "ai-gateway.vercel.sh/v1", ("AI_GATEWAY_API_KEY",), CHAT, True),
    ("lmstudio", (), "127.0.0.1:1234/v1", ("LM_API_KEY",), CHAT, False),
    ("ollama-cloud", (), "ollama.com/v1", ("OLLAMA_API_KEY",), CHAT, False),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "aliases", "address", "keys", "mode", "aggregator"), TABLE)
def test_a_provider_is_this_row(
    provider: str, aliases: tuple[str, ...], address: str, keys: tuple[str, ...], mode: str, aggregator: bool
) -> None:
    row = find_row(provider)
    assert row is not None and row.available
    assert row.base_url.split("://")[1].startswith(address)
    assert set(keys) <= set(row.key_variables)
    assert (row.api_mode, row.aggregator) == (mode, aggregator)
    for alias in aliases:
        assert find_row(alias) is row


def test_an_alias_means_one_provider_only() -> None:
    names = [name for row in PROVIDER_ROWS for name in (row.id, *row.aliases)]
    assert len(names) == len(set(names))
    assert find_row("openai") is find_row("openai-api")


@pytest.mark.parametrize(
    ("spelling", "mode"),
    [
        *((word, CHAT) for word in ("openai", "openai_chat", "chat", "chat_completions")),
        *((word, RESPONSES) for word in ("responses", "openai_responses", "codex_responses")),
        *((word, MESSAGES) for word in ("anthropic", "messages", "anthropic_messages")),
    ],
)
def test_a_mode_has_several_spellings(spelling: str, mode: str) -> None:
    assert API_MODE_SPELLINGS[spelling] == mode


ENDPOINTS = """
providers:
  Lab One: {api: "http://127.0.0.1:9/v1", transport: messages, default_model: m1, models: [m1, m2],
            request_timeout_seconds: 20, stale_timeout_seconds: 7.5, extra_headers: {X-A: b}, extra_body: {seed: 1}}
  empty: {api_key: "k-0123456789"}
custom_providers:
  - {name: two, url: "https://two.example/v1", key_env: TWO_KEY, model: big, context_length: 9000,
     models: {big: {context_length: 32000}, small: 8000}}
  - {base_url: "https://nameless.example/v1"}
"""


def test_both_shapes_of_named_endpoints_and_all_their_spellings_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(ENDPOINTS)
    one, two = custom_providers(load_settings(environ={}, home=tmp_path))
    assert (one.id, one.base_url, one.api_mode, one.default_model) == (
        "custom:lab-one",
        "http://127.0.0.1:9/v1",
        "messages",
        "m1",
    )
    assert (list(one.models), one.request_timeout, one.stale_timeout) == (["m1", "m2"], 20.0, 7.5)
    assert (dict(one.extra_headers), dict(one.extra_body)) == ({"X-A": "b"}, {"seed": 1})
    assert (two.id, two.base_url, two.key_env, two.default_model) == (
        "custom:two",
        "https://two.example/v1",
        "TWO_KEY",
        "big",
    )
    assert (dict(two.models), two.context_length) == ({"big": 32000, "small": 8000}, 9000)


def test_a_command_that_prints_the_key_is_a_line_or_words(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        'providers:\n  line: {base_url: "https://a.example", key_cmd: "pass show work"}\n'
        '  words: {base_url: "https://b.example", key_cmd: [pass, show, 7]}\n  none: {base_url: "https://c.example"}\n'
    )
    found = {one.name: one.key_cmd for one in custom_providers(load_settings(environ={}, home=tmp_path))}
    assert found == {"line": ("/bin/sh", "-c", "pass show work"), "words": ("pass", "show", "7"), "none": ()}
