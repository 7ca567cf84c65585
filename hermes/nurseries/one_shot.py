"""One question to a model, outside every conversation: no tools, no history, nothing stored.

It belongs to the request that asks, and ends with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from hermes.agent.ports import DeltaKind, ModelRequest
from hermes.errors import ProviderError
from hermes.messages import Row

if TYPE_CHECKING:
    from hermes.agent.ports import ResolvedModel
    from hermes.nurseries.services import Services

ANSWER_WITHIN: Final = 120.0
ANSWER_TOKENS: Final = 2048


async def ask_once(
    services: Services,
    resolved: ResolvedModel | None,
    instructions: str,
    text: str,
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
) -> str:
    """What the small model that goes with ``resolved`` says. Raises ``ProviderError``, ``ProviderNotConfigured``."""
    models = services.models
    chosen = models.auxiliary(resolved or await models.resolve(None, None))
    request = ModelRequest(
        request_id=f"once:{services.ids('once')}",
        model=chosen.model,
        messages=(Row("user", text or instructions),),
        system=(instructions,) if text and instructions else (),
        max_output_tokens=max_tokens or ANSWER_TOKENS,
        temperature=temperature,
    )
    with trio.move_on_after(ANSWER_WITHIN):
        finished = await models.provider_for(chosen).call(request, _unwatched)
        return finished.text
    raise ProviderError(f"the model gave no answer within {ANSWER_WITHIN:g} s", error_class="timeout")


def _unwatched(_kind: DeltaKind, _text: str) -> None:
    """The answer is read whole."""
