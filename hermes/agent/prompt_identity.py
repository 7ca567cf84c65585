"""The two lines of the system prompt that name the model. They alone change when a turn falls back to another one."""

from __future__ import annotations

import re
from collections.abc import Sequence

MODEL_LINE = "Model: "
PROVIDER_LINE = "Provider: "


def with_model(system: Sequence[str], model: str, provider: str) -> tuple[str, ...]:
    """The same prompt with other model and provider lines; every other byte is kept."""
    return tuple(_replaced(_replaced(tier, MODEL_LINE, model), PROVIDER_LINE, provider) for tier in system)


def _replaced(text: str, prefix: str, value: str) -> str:
    return re.sub(rf"^{re.escape(prefix)}.*$", lambda _: prefix + value, text, count=1, flags=re.MULTILINE)
