"""Estimated sizes: four bytes are one token, a character of Chinese, Japanese or Korean is one too, an image is a flat
number (agent-core §2.7). Used for budgets, never for bills that a provider could have written itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from hermes.agent.ports import ModelFinished, ModelRequest, ResolvedModel, ToolSpec
from hermes.messages import Content, Row, TextPart
from hermes.outcomes import Usage
from hermes.patterns import lazy_pattern

CHARS_PER_TOKEN = 4
IMAGE_TOKENS = 1_500
ROW_OVERHEAD_TOKENS = 4


# Han with its extensions, kana, Hangul, their punctuation and full-width forms.
_CJK = lazy_pattern(
    r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)


def text_tokens(text: str) -> int:
    if text.isascii():
        return -(-len(text) // CHARS_PER_TOKEN)
    rest, wide = _CJK.subn("", text)
    return wide - (-len(rest.encode("utf-8", "surrogatepass")) // CHARS_PER_TOKEN)


def content_tokens(content: Content) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return text_tokens(content)
    return sum(text_tokens(part.text) if isinstance(part, TextPart) else IMAGE_TOKENS for part in content)


def row_tokens(row: Row) -> int:
    """The size of a row as the model reads it."""
    content = row.content if row.api_content is None else row.api_content
    size = content_tokens(content)
    if not row.tool_calls:
        return ROW_OVERHEAD_TOKENS + size
    calls = sum(text_tokens(call.name) + text_tokens(call.arguments) + 5 for call in row.tool_calls)
    return ROW_OVERHEAD_TOKENS + size + calls


def rows_tokens(rows: Iterable[Row]) -> int:
    return sum(map(row_tokens, rows))


def spec_tokens(tools: Sequence[ToolSpec]) -> int:
    return sum(
        text_tokens(tool.name + tool.description) + len(_json(tool.parameters)) // CHARS_PER_TOKEN for tool in tools
    )


def _json(parameters: Mapping[str, Any]) -> bytes:
    return orjson.dumps(parameters, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def request_tokens(request: ModelRequest) -> int:
    said = rows_tokens(request.messages) if request.message_tokens is None else request.message_tokens
    tools = spec_tokens(request.tools) if request.tool_tokens is None else request.tool_tokens
    return sum(map(text_tokens, request.system)) + tools + said


def call_usage(finished: ModelFinished, prompt_tokens: int, model: ResolvedModel) -> Usage:
    """What one call cost: the provider's numbers if it sent any, else an estimate that says so."""
    usage = finished.usage
    if usage is None or usage.total_tokens == 0:
        written = finished.text + finished.reasoning + "".join(c.name + c.arguments for c in finished.tool_calls)
        usage = Usage(input_tokens=prompt_tokens, output_tokens=text_tokens(written), estimated=True)
    cost = usage.cost_usd if usage.cost_usd is not None else _cost(usage, model)
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        calls=1,
        cost_usd=cost,
        estimated=usage.estimated,
    )


def _cost(usage: Usage, model: ResolvedModel) -> float | None:
    """USD, from prices per million tokens. Writing to the cache is counted at the fresh price."""
    if model.input_price is None or model.output_price is None:
        return None
    cached_price = model.input_price if model.cache_read_price is None else model.cache_read_price
    fresh = usage.input_tokens + usage.cache_write_tokens
    total = (
        fresh * model.input_price + usage.cache_read_tokens * cached_price + usage.output_tokens * model.output_price
    )
    return total / 1_000_000
