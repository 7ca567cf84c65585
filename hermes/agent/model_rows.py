"""What is known about models without asking anybody: families by the beginning of a name, and curated lists.

Windows, ceilings, prices (US dollars per million tokens) and reasoning levels as the vendors publish them. An unknown
price is None, never 0. A list is what a provider is known to serve; it is not complete and does not claim to be.
"""

from __future__ import annotations

from typing import Final

from hermes.records import dataclass

FULL: Final = ("none", "minimal", "low", "medium", "high")
O_SERIES: Final = ("low", "medium", "high")
GPT_5: Final = ("minimal", "low", "medium", "high")
GPT_51: Final = ("none", "low", "medium", "high")
GPT_52: Final = ("none", "low", "medium", "high", "xhigh")
CLAUDE_BUDGET: Final = ("none", "low", "medium", "high", "xhigh")
CLAUDE_EFFORT: Final = ("none", "low", "medium", "high", "max")
ON_OFF: Final = ("none", "high")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """``efforts``: None if the levels are not known, empty if there is nothing to choose."""

    context: int = 256_000
    max_output: int | None = None
    vision: bool = False
    reasons: bool = False
    efforts: tuple[str, ...] | None = None
    adaptive_thinking: bool = False
    input_price: float | None = None
    output_price: float | None = None
    cache_read_price: float | None = None
    chat: bool = True


def _priced(
    context: int, out: int | None, prices: tuple[float, float, float | None] | None, **more: object
) -> ModelFacts:
    price_in, price_out, cached = prices if prices is not None else (None, None, None)
    return ModelFacts(context, out, input_price=price_in, output_price=price_out, cache_read_price=cached, **more)  # type: ignore[arg-type]


def _claude(context: int, out: int, prices: tuple[float, float, float] | None, *, adaptive: bool = False) -> ModelFacts:
    efforts = CLAUDE_EFFORT if adaptive else CLAUDE_BUDGET
    return _priced(context, out, prices, vision=True, reasons=True, efforts=efforts, adaptive_thinking=adaptive)


def _gpt(
    context: int, prices: tuple[float, float, float] | None, efforts: tuple[str, ...], out: int = 128_000
) -> ModelFacts:
    return _priced(context, out, prices, vision=True, reasons=True, efforts=efforts)


# The longest beginning that fits wins; names are compared in lower case, without their vendor, with dashes for dots.
FAMILIES: Final[dict[str, ModelFacts]] = {
    "claude-opus-4-6": _claude(200_000, 128_000, (5.0, 25.0, 0.5), adaptive=True),
    "claude-sonnet-4-6": _claude(200_000, 64_000, (3.0, 15.0, 0.3), adaptive=True),
    "claude-opus-4-5": _claude(200_000, 64_000, (5.0, 25.0, 0.5)),
    "claude-sonnet-4-5": _claude(200_000, 64_000, (3.0, 15.0, 0.3)),
    "claude-haiku-4-5": _claude(200_000, 64_000, (1.0, 5.0, 0.1)),
    "claude-opus-4-1": _claude(200_000, 32_000, (15.0, 75.0, 1.5)),
    "claude-opus-4": _claude(200_000, 32_000, (15.0, 75.0, 1.5)),
    "claude-sonnet-4": _claude(200_000, 64_000, (3.0, 15.0, 0.3)),
    "claude-3-7": _claude(200_000, 64_000, (3.0, 15.0, 0.3)),
    "claude-3-5-haiku": _priced(200_000, 8_192, (0.8, 4.0, 0.08), vision=True, efforts=()),
    "claude-3": _priced(200_000, 4_096, None, vision=True, efforts=()),
    "claude": _claude(200_000, 64_000, None, adaptive=True),
    "gpt-5-5": _gpt(400_000, None, GPT_52),
    "gpt-5-4": _gpt(400_000, None, GPT_52),
    "gpt-5-3": _gpt(400_000, None, GPT_52),
    "gpt-5-2": _gpt(400_000, (1.75, 14.0, 0.175), GPT_52),
    "gpt-5-1": _gpt(400_000, (1.25, 10.0, 0.125), GPT_51),
    "gpt-5-mini": _gpt(400_000, (0.25, 2.0, 0.025), GPT_5),
    "gpt-5-nano": _gpt(400_000, (0.05, 0.4, 0.005), GPT_5),
    "gpt-5": _gpt(400_000, (1.25, 10.0, 0.125), GPT_5),
    "gpt-4-1-mini": _priced(1_047_576, 32_768, (0.4, 1.6, 0.1), vision=True, efforts=()),
    "gpt-4-1": _priced(1_047_576, 32_768, (2.0, 8.0, 0.5), vision=True, efforts=()),
    "gpt-4o-mini": _priced(128_000, 16_384, (0.15, 0.6, 0.075), vision=True, efforts=()),
    "gpt-4o": _priced(128_000, 16_384, (2.5, 10.0, 1.25), vision=True, efforts=()),
    "gpt-4": _priced(128_000, 4_096, None, vision=True, efforts=()),
    "gpt-3-5": _priced(16_385, 4_096, None, efforts=()),
    "gpt-oss": _priced(131_072, None, None, reasons=True, efforts=O_SERIES),
    "gpt-image": ModelFacts(chat=False),
    "gpt": _gpt(400_000, None, GPT_52),
    "o1": _priced(200_000, 100_000, (15.0, 60.0, 7.5), vision=True, reasons=True, efforts=O_SERIES),
    "o3-mini": _priced(200_000, 100_000, (1.1, 4.4, 0.55), reasons=True, efforts=O_SERIES),
    "o3": _priced(200_000, 100_000, (2.0, 8.0, 0.5), vision=True, reasons=True, efforts=O_SERIES),
    "o4-mini": _priced(200_000, 100_000, (1.1, 4.4, 0.275), vision=True, reasons=True, efforts=O_SERIES),
    "gemini-3-pro": _priced(1_048_576, 65_536, (2.0, 12.0, 0.2), vision=True, reasons=True, efforts=("low", "high")),
    "gemini-3-flash": _priced(1_048_576, 65_536, (0.5, 3.0, 0.05), vision=True, reasons=True, efforts=GPT_5),
    "gemini-2-5-pro": _priced(1_048_576, 65_536, (1.25, 10.0, 0.125), vision=True, reasons=True, efforts=O_SERIES),
    "gemini-2-5-flash-lite": _priced(1_048_576, 65_536, (0.1, 0.4, 0.01), vision=True, reasons=True, efforts=FULL),
    "gemini-2-5-flash": _priced(1_048_576, 65_536, (0.3, 2.5, 0.03), vision=True, reasons=True, efforts=FULL),
    "gemini": _priced(1_048_576, 65_536, None, vision=True, reasons=True, efforts=O_SERIES),
    "gemma": _priced(131_072, 8_192, None, vision=True, efforts=()),
    "grok-4-fast": _priced(2_000_000, 30_000, (0.2, 0.5, 0.05), vision=True, reasons=True, efforts=()),
    "grok-4-1-fast": _priced(2_000_000, 30_000, (0.2, 0.5, 0.05), vision=True, reasons=True, efforts=()),
    "grok-code-fast": _priced(256_000, 10_000, (0.2, 1.5, 0.02), reasons=True, efforts=()),
    "grok-4": _priced(256_000, 64_000, (3.0, 15.0, 0.75), vision=True, reasons=True, efforts=()),
    "grok-3-mini": _priced(131_072, None, (0.3, 0.5, 0.075), reasons=True, efforts=("low", "high")),
    "grok": _priced(131_072, None, None, efforts=()),
    "deepseek-chat": _priced(128_000, 8_192, (0.28, 0.42, 0.028), reasons=False, efforts=ON_OFF),
    "deepseek-reasoner": _priced(128_000, 64_000, (0.28, 0.42, 0.028), reasons=True, efforts=("high",)),
    "deepseek-r1": _priced(128_000, 64_000, None, reasons=True, efforts=("high",)),
    "deepseek": _priced(128_000, 64_000, None, reasons=True, efforts=ON_OFF),
    "glm-5": _priced(200_000, 128_000, (1.0, 3.2, 0.2), reasons=True, efforts=ON_OFF),
    "glm-4-5-air": _priced(131_072, 96_000, (0.2, 1.1, 0.03), reasons=True, efforts=ON_OFF),
    "glm-4-5v": _priced(65_536, 16_384, (0.6, 1.8, 0.11), vision=True, reasons=True, efforts=ON_OFF),
    "glm-4": _priced(200_000, 128_000, (0.6, 2.2, 0.11), reasons=True, efforts=ON_OFF),
    "glm": _priced(200_000, 128_000, None, reasons=True, efforts=ON_OFF),
    "kimi-k2-5": _priced(262_144, 32_768, (0.6, 3.0, 0.1), vision=True, reasons=True, efforts=ON_OFF),
    "kimi-k2-thinking": _priced(262_144, 32_768, (0.6, 2.5, 0.15), reasons=True, efforts=("high",)),
    "kimi": _priced(262_144, 32_768, (0.6, 2.5, 0.15), efforts=()),
    "minimax-m2": _priced(204_800, 131_072, (0.3, 1.2, 0.03), reasons=True, efforts=("high",)),
    "qwen3-coder": _priced(1_000_000, 65_536, (1.0, 5.0, 0.1), efforts=()),
    "qwen3-max": _priced(262_144, 65_536, (1.2, 6.0, 0.24), reasons=True, efforts=ON_OFF),
    "qwen-plus": _priced(1_000_000, 32_768, (0.4, 1.2, 0.08), reasons=True, efforts=ON_OFF),
    "qwen-flash": _priced(1_000_000, 32_768, (0.05, 0.4, None), reasons=True, efforts=ON_OFF),
    "qwen": _priced(131_072, 32_768, None),
    "qwq": _priced(131_072, 32_768, None, reasons=True, efforts=("high",)),
    "llama-4": _priced(1_000_000, None, None, vision=True, efforts=()),
    "llama": _priced(131_072, None, None, efforts=()),
    "mistral": _priced(131_072, None, None, efforts=()),
    "devstral": _priced(262_144, None, None, efforts=()),
    "codestral": _priced(256_000, None, None, efforts=()),
    "hermes-4": _priced(131_072, None, None, reasons=True),
    "nemotron": _priced(131_072, None, None, reasons=True),
    "step": _priced(262_144, None, None, reasons=True),
    "mimo": _priced(262_144, None, None, reasons=True),
    "dall-e": ModelFacts(chat=False),
    "whisper": ModelFacts(chat=False),
    "tts": ModelFacts(chat=False),
    "sora": ModelFacts(chat=False),
    "veo": ModelFacts(chat=False),
    "imagen": ModelFacts(chat=False),
    "text-embedding": ModelFacts(chat=False),
    "grok-imagine": ModelFacts(chat=False),
}

# Curated lists, newest first. The first entry is the provider's default.
CATALOG: Final[dict[str, tuple[str, ...]]] = {
    "anthropic": (
        "claude-sonnet-4-6",
        "claude-opus-4-6",
        "claude-opus-4-5",
        "claude-sonnet-4-5",
        "claude-haiku-4-5",
        "claude-opus-4-1",
    ),
    "openai-api": (
        "gpt-5.5",
        "gpt-5.4",
        "gpt-5.2",
        "gpt-5.1",
        "gpt-5",
        "gpt-5-mini",
        "gpt-5-nano",
        "gpt-4.1",
        "gpt-4.1-mini",
        "gpt-4o",
        "gpt-4o-mini",
        "o3",
        "o4-mini",
    ),
    "openai-codex": ("gpt-5.5", "gpt-5.4", "gpt-5.3-codex", "gpt-5.2-codex", "gpt-5.1-codex-max", "gpt-5.1-codex-mini"),
    "gemini": (
        "gemini-3-pro-preview",
        "gemini-3-flash-preview",
        "gemini-2.5-flash",
        "gemini-2.5-flash-lite",
    ),
    "xai": (
        "grok-4",
        "grok-4-1-fast-reasoning",
        "grok-4-1-fast-non-reasoning",
        "grok-4-fast-reasoning",
        "grok-4-fast-non-reasoning",
        "grok-code-fast-1",
        "grok-3-mini",
    ),
    "xai-oauth": ("grok-4", "grok-4-1-fast-reasoning", "grok-code-fast-1"),
    "deepseek": ("deepseek-chat", "deepseek-reasoner"),
    "zai": ("glm-5", "glm-4.7", "glm-4.6", "glm-4.5-air", "glm-4.5v"),
    "kimi-coding": ("kimi-k2.5", "kimi-k2-thinking", "kimi-k2-turbo-preview", "kimi-k2-0905-preview"),
    "minimax": ("MiniMax-M2.5", "MiniMax-M2.1", "MiniMax-M2"),
    "alibaba": ("qwen3-max", "qwen3-coder-plus", "qwen-plus", "qwen-flash"),
    "nvidia": (
        "nvidia/llama-3.3-nemotron-super-49b-v1.5",
        "openai/gpt-oss-120b",
        "deepseek-ai/deepseek-v3.2",
        "moonshotai/kimi-k2-thinking",
    ),
    "openrouter": (
        "anthropic/claude-sonnet-4.6",
        "anthropic/claude-opus-4.6",
        "anthropic/claude-opus-4.5",
        "anthropic/claude-haiku-4.5",
        "openai/gpt-5.5",
        "openai/gpt-5.4",
        "openai/gpt-5.2",
        "openai/gpt-5-mini",
        "openai/gpt-oss-120b",
        "google/gemini-3-pro-preview",
        "google/gemini-3-flash-preview",
        "x-ai/grok-4",
        "x-ai/grok-4.1-fast",
        "deepseek/deepseek-v3.2",
        "moonshotai/kimi-k2.5",
        "z-ai/glm-5",
        "z-ai/glm-4.7",
        "minimax/minimax-m2.5",
        "qwen/qwen3-max",
        "qwen/qwen3-coder",
        "mistralai/devstral-2512",
        "meta-llama/llama-4-maverick",
    ),
    "nous": (
        "Hermes-4-405B",
        "Hermes-4-70B",
        "anthropic/claude-sonnet-4.6",
        "anthropic/claude-opus-4.6",
        "openai/gpt-5.5",
        "google/gemini-3-pro-preview",
    ),
    "huggingface": (
        "moonshotai/Kimi-K2-Thinking",
        "zai-org/GLM-4.7",
        "deepseek-ai/DeepSeek-V3.2",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        "openai/gpt-oss-120b",
    ),
    "ai-gateway": ("anthropic/claude-sonnet-4.6", "openai/gpt-5.5", "google/gemini-3-pro-preview"),
}

# Other spellings under which a provider takes a model of its list.
MODEL_ALIASES: Final[dict[str, dict[str, str]]] = {
    "anthropic": {
        "claude-opus-4-5-20251101": "claude-opus-4-5",
        "claude-sonnet-4-5-20250929": "claude-sonnet-4-5",
        "claude-haiku-4-5-20251001": "claude-haiku-4-5",
        "claude-opus-4-1-20250805": "claude-opus-4-1",
    },
    "xai": {"grok-4-latest": "grok-4", "grok-4-0709": "grok-4", "grok-4-fast": "grok-4-fast-reasoning"},
    "kimi-coding": {"kimi-latest": "kimi-k2.5"},
}
