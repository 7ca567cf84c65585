"""The providers, as data: one row each. Adding a provider means adding a row here, and nothing elsewhere.

An alias names one provider only. A provider that the user defines under a name is looked up before this table.
"""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

from hermes.records import dataclass

ApiMode = Literal["chat_completions", "anthropic_messages", "codex_responses"]

API_MODE_SPELLINGS: Final[dict[str, ApiMode]] = {
    "chat_completions": "chat_completions",
    "openai": "chat_completions",
    "openai_chat": "chat_completions",
    "chat": "chat_completions",
    "anthropic_messages": "anthropic_messages",
    "anthropic": "anthropic_messages",
    "messages": "anthropic_messages",
    "codex_responses": "codex_responses",
    "responses": "codex_responses",
    "openai_responses": "codex_responses",
}


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """One provider.

    ``key_variables`` are tried in order; ``base_url_variable`` lets the user move the endpoint and its key together.
    ``aggregator``: serves models of many vendors under ``vendor/model`` names. ``strict_families``: a subscription back
    end that serves names with these beginnings only. ``available``: this server can speak to it; rows that are not are
    known by name, for the model guard and for a clear refusal.
    """

    id: str
    name: str
    base_url: str
    key_variables: tuple[str, ...] = ()
    api_mode: ApiMode = "chat_completions"
    aliases: tuple[str, ...] = ()
    base_url_variable: str | None = None
    auth: Literal["api_key", "oauth", "none"] = "api_key"
    aggregator: bool = False
    strict_families: tuple[str, ...] = ()
    available: bool = True
    local: bool = False
    auxiliary_model: str | None = None
    stream_usage: bool = True
    parallel_tools: bool = False
    developer_role: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    routed: bool = False
    echo_reasoning: bool = False
    thinking_switch: bool = False

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""


def _later(row_id: str, name: str, base_url: str, *keys: str, **more: object) -> ProviderRow:
    return ProviderRow(row_id, name, base_url, keys, available=False, **more)  # type: ignore[arg-type]


PROVIDER_ROWS: Final[tuple[ProviderRow, ...]] = (
    ProviderRow(
        "openrouter",
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        aliases=("or",),
        base_url_variable="OPENROUTER_BASE_URL",
        aggregator=True,
        routed=True,
        auxiliary_model="google/gemini-3-flash-preview",
    ),
    ProviderRow(
        "nous",
        "Nous Portal",
        "https://inference-api.nousresearch.com/v1",
        ("NOUS_API_KEY",),
        aggregator=True,
        routed=True,
    ),
    ProviderRow(
        "anthropic",
        "Anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        "anthropic_messages",
        aliases=("claude",),
        auxiliary_model="claude-haiku-4-5",
    ),
    ProviderRow(
        "openai-api",
        "OpenAI",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "codex_responses",
        aliases=("openai",),
        base_url_variable="OPENAI_BASE_URL",
        auxiliary_model="gpt-5-mini",
        parallel_tools=True,
        developer_role=True,
        max_tokens_field="max_completion_tokens",
    ),
    ProviderRow(
        "gemini",
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        aliases=("google",),
        auxiliary_model="gemini-3-flash-preview",
    ),
    ProviderRow(
        "xai",
        "xAI",
        "https://api.x.ai/v1",
        ("XAI_API_KEY",),
        "codex_responses",
        aliases=("grok",),
        auxiliary_model="grok-4-fast-non-reasoning",
    ),
    ProviderRow(
        "deepseek",
        "DeepSeek",
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        auxiliary_model="deepseek-chat",
        echo_reasoning=True,
        thinking_switch=True,
    ),
    ProviderRow(
        "zai",
        "Z.AI",
        "https://api.z.ai/api/paas/v4",
        ("GLM_API_KEY", "ZAI_API_KEY"),
        aliases=("glm",),
        echo_reasoning=True,
        thinking_switch=True,
    ),
    ProviderRow(
        "kimi-coding",
        "Moonshot Kimi",
        "https://api.moonshot.ai/v1",
        ("KIMI_API_KEY",),
        aliases=("kimi", "moonshot"),
        echo_reasoning=True,
        thinking_switch=True,
    ),
    ProviderRow("minimax", "MiniMax", "https://api.minimax.io/anthropic", ("MINIMAX_API_KEY",), "anthropic_messages"),
    ProviderRow(
        "alibaba",
        "Alibaba Qwen",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ("DASHSCOPE_API_KEY",),
        aliases=("qwen", "dashscope"),
    ),
    ProviderRow("nvidia", "NVIDIA", "https://integrate.api.nvidia.com/v1", ("NVIDIA_API_KEY",)),
    ProviderRow(
        "huggingface",
        "Hugging Face",
        "https://router.huggingface.co/v1",
        ("HF_TOKEN",),
        aliases=("hf",),
        aggregator=True,
    ),
    ProviderRow(
        "lmstudio",
        "LM Studio",
        "http://127.0.0.1:1234/v1",
        ("LM_API_KEY",),
        base_url_variable="LM_BASE_URL",
        local=True,
    ),
    ProviderRow(
        "ai-gateway",
        "Vercel AI Gateway",
        "https://ai-gateway.vercel.sh/v1",
        ("AI_GATEWAY_API_KEY",),
        aliases=("vercel",),
        aggregator=True,
    ),
    ProviderRow("ollama-cloud", "Ollama Cloud", "https://ollama.com/v1", ("OLLAMA_API_KEY",)),
    ProviderRow(
        "fireworks", "Fireworks", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",), aggregator=True
    ),
    ProviderRow(
        "deepinfra", "DeepInfra", "https://api.deepinfra.com/v1/openai", ("DEEPINFRA_API_KEY",), aggregator=True
    ),
    ProviderRow("novita", "Novita", "https://api.novita.ai/openai", ("NOVITA_API_KEY",), aggregator=True),
    ProviderRow("nebius", "Nebius", "https://api.studio.nebius.com/v1", ("NEBIUS_API_KEY",), aggregator=True),
    ProviderRow("stepfun", "StepFun", "https://api.stepfun.ai/v1", ("STEPFUN_API_KEY",)),
    ProviderRow("arcee", "Arcee", "https://api.arcee.ai/api/v1", ("ARCEE_API_KEY",)),
    ProviderRow("xiaomi", "Xiaomi MiMo", "https://api.xiaomimimo.com/v1", ("XIAOMI_API_KEY",)),
    _later(
        "openai-codex",
        "OpenAI Codex subscription",
        "https://chatgpt.com/backend-api/codex",
        api_mode="codex_responses",
        aliases=("codex",),
        auth="oauth",
        strict_families=("gpt-", "codex-", "o1", "o3", "o4"),
    ),
    _later(
        "xai-oauth",
        "Grok subscription",
        "https://api.x.ai/v1",
        api_mode="codex_responses",
        auth="oauth",
        strict_families=("grok-",),
    ),
    _later("opencode-zen", "OpenCode Zen", "https://opencode.ai/zen/v1", "OPENCODE_ZEN_API_KEY", aggregator=True),
    _later("opencode-go", "OpenCode Go", "https://opencode.ai/zen/go/v1", "OPENCODE_GO_API_KEY", aggregator=True),
    _later("kilocode", "Kilo Code", "https://api.kilo.ai/api/gateway", "KILOCODE_API_KEY", aggregator=True),
    _later("copilot", "GitHub Copilot", "https://api.githubcopilot.com", auth="oauth", aliases=("github-copilot",)),
    _later("qwen-oauth", "Qwen Portal", "https://portal.qwen.ai/v1", auth="oauth"),
    _later("azure-foundry", "Azure AI Foundry", "", "AZURE_FOUNDRY_API_KEY"),
    _later("bedrock", "Amazon Bedrock", "", auth="oauth"),
    _later("vertex", "Google Vertex AI", "", auth="oauth"),
)

CUSTOM_ALIASES: Final[frozenset[str]] = frozenset({"custom", "ollama", "vllm", "llamacpp", "llama.cpp", "local"})
DEMO: Final = "demo"
NONE: Final = "none"

_BY_NAME: Final = {name: row for row in PROVIDER_ROWS for name in (row.id, *row.aliases)}


def find_row(name: str) -> ProviderRow | None:
    """The row of an id or alias."""
    return _BY_NAME.get(name.strip().lower())


def provider_names() -> tuple[str, ...]:
    return tuple(_BY_NAME)


def row_for_host(host: str) -> ProviderRow | None:
    """The provider whose own host this is; a key may be sent nowhere else."""
    return next((row for row in PROVIDER_ROWS if row.available and row.host == host and not row.local), None)


def slug(name: str) -> str:
    """How ``custom:<name>`` compares: case, spaces, dashes and underscores do not count."""
    return name.strip().lower().removeprefix("custom:").strip().replace(" ", "-").replace("_", "-")
