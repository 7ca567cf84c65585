"""The two lines of the system prompt that name the model. They alone change when a turn falls back to another one."""

from __future__ import annotations

import re
from collections.abc import Sequence

MODEL_LINE = "Model: "
PROVIDER_LINE = "Provider: "
_LINES = re.compile(rf"^{re.escape(MODEL_LINE)}.*\n{re.escape(PROVIDER_LINE)}.*$", re.MULTILINE)


def with_model(system: Sequence[str], model: str, provider: str) -> tuple[str, ...]:
    """The same prompt with other model and provider lines; every other byte is kept.

    The last such pair is the prompt's own: a file of the project, which stands before it, may hold one too.
    """
    tiers = list(system)
    for index in reversed(range(len(tiers))):
        found = list(_LINES.finditer(tiers[index]))
        if found:
            start, end = found[-1].span()
            lines = f"{MODEL_LINE}{model}\n{PROVIDER_LINE}{provider}"
            tiers[index] = tiers[index][:start] + lines + tiers[index][end:]
            break
    return tuple(tiers)
