"""Who serves which model, as far as it can be known offline: facts, reasoning levels, and the model × provider guard.

Pure: no network, no clock. ``/model`` resolution stands in ``model_switch.py``, the picker payload in
``model_options.py``; both build on this.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from hermes.agent.model_rows import CATALOG, FAMILIES, MODEL_ALIASES, ModelFacts
from hermes.agent.provider_rows import PROVIDER_ROWS, ProviderRow, find_row
from hermes.errors import ModelNotServed
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
SMALL_WINDOW: Final = 64_000
_LONGEST_NAME: Final = 200
_DEFAULT_MAX_OUTPUT: Final = 16_384
_BUDGETS: Final = {"low": 4_000, "medium": 8_000, "high": 16_000, "xhigh": 32_000}
_MODALITIES: Final = lazy_pattern(
    r"(embed|rerank|whisper|-tts|tts-|image|imagine|dall-e|sora|veo-|imagen|moderation|speech)"
)
_HEAD: Final = lazy_pattern(r"[a-z0-9]+")
_DATE: Final = lazy_pattern(r"-(20\d{6}|latest)$")


# --- facts -----------------------------------------------------------------------------------------------------------


def plain_name(model: str) -> str:
    """A name to compare with: lower case, no vendor, no tag, dashes for dots."""
    name = model.strip().lower().rsplit("/", 1)[-1].split(":", 1)[0]
    return _DATE.sub("", name.replace(".", "-").replace("_", "-"))


def model_facts(model: str) -> ModelFacts:
    """What is known about a model by its name; defaults if nothing is."""
    name = plain_name(model)
    for size in range(len(name), 0, -1):
        facts = FAMILIES.get(name[:size])
        if facts is not None and (size == len(name) or not name[size].isalpha() or size >= 4):
            return facts
    return ModelFacts(vision=False)


def max_output_tokens(model: str) -> int:
    return model_facts(model).max_output or _DEFAULT_MAX_OUTPUT


def is_chat_model(model: str) -> bool:
    """False for models that make images, video, speech or embeddings only."""
    return model_facts(model).chat and not _MODALITIES.search(model.lower())


# --- reasoning -------------------------------------------------------------------------------------------------------


def effort_options(model: str) -> tuple[str, ...]:
    """The levels a user may choose for this model; all of them if nothing is known about it."""
    efforts = model_facts(model).efforts
    return EFFORTS if efforts is None else efforts


def fit_effort(model: str, effort: str | None) -> str | None:
    """The level to send, None for nothing.

    A level the model lacks is lowered to the nearest it has, never to ``none``; ``none`` for a model that must reason
    becomes its lowest level.
    """
    if effort is None or effort not in EFFORTS:
        return None
    options = effort_options(model)
    if not options:
        return None
    if effort in options:
        return effort
    levels = [level for level in options if level != "none"]
    if effort == "none" or not levels:
        return levels[0] if levels and effort == "none" else None
    below = [level for level in levels if EFFORTS.index(level) < EFFORTS.index(effort)]
    return below[-1] if below else levels[0]


@dataclass(frozen=True, slots=True)
class AnthropicThinking:
    """Newer models think adaptively and take an effort; older ones take a budget of tokens."""

    effort: str
    budget: int | None = None
    adaptive: bool = False
    betas: tuple[str, ...] = ()


def anthropic_thinking(model: str, effort: str | None) -> AnthropicThinking | None:
    """How to ask for this effort on the messages wire; None: not at all."""
    facts = model_facts(model)
    level = fit_effort(model, effort)
    if level in (None, "none") or not facts.reasons:
        return None
    assert level is not None
    if facts.adaptive_thinking:
        return AnthropicThinking(level, adaptive=True)
    return AnthropicThinking(level, _BUDGETS.get(level, 32_000), betas=("interleaved-thinking-2025-05-14",))


# --- lists -----------------------------------------------------------------------------------------------------------


def curated_models(provider: str) -> tuple[str, ...]:
    row = find_row(provider)
    return CATALOG.get(row.id, ()) if row is not None else ()


def default_model(provider: str) -> str | None:
    models = curated_models(provider)
    return models[0] if models else None


def has_static_catalog(row: ProviderRow) -> bool:
    return not row.aggregator and not row.local and bool(CATALOG.get(row.id))


def native_spelling(provider: str, model: str) -> str | None:
    """The spelling under which this provider lists the model, however it was written; None if it does not."""
    row = find_row(provider)
    if row is None:
        return None
    listed = CATALOG.get(row.id, ())
    if model in listed:
        return model
    aliases = MODEL_ALIASES.get(row.id, {})
    if model.lower() in aliases:
        return model
    vendor = model.split("/", 1)[0].lower() if "/" in model else None
    wanted = plain_name(model)
    for name in listed:
        if plain_name(name) != wanted:
            continue
        own = name.split("/", 1)[0].lower() if "/" in name else None
        if vendor is None or own is None or vendor == own:
            return name
    return None


# --- the guard -------------------------------------------------------------------------------------------------------


def check_served(model: str | None, provider: str | None) -> None:
    """Refuse a pair that cannot work, without asking anybody. Raises ``ModelNotServed``.

    ``provider`` is the one the request names, or else the one the session would use. A pair nobody knows is accepted.
    """
    if not model or not provider:
        return
    row = find_row(provider)
    if row is None or row.aggregator or row.local or row.id not in CATALOG:
        return
    listed = CATALOG[row.id]
    if model in listed or model.lower() in MODEL_ALIASES.get(row.id, {}):
        return
    head = family_head(model)
    if any(family_head(name) == head for name in listed):
        return
    if row.strict_families:
        if model.lower().startswith(row.strict_families):
            return
        raise ModelNotServed(model, provider, suggestions(model, listed))
    if _listed_elsewhere(model, row):
        raise ModelNotServed(model, provider, suggestions(model, listed))


def family_head(model: str) -> str:
    """The leading word of a name: ``claude`` of ``claude-sonnet-4``."""
    match = _HEAD.match(model.strip().lower())
    return match.group() if match else ""


def suggestions(model: str, listed: tuple[str, ...]) -> tuple[str, ...]:
    """Up to five names: those that look alike, else the first of the list."""
    # What is much longer than any name is near to none, and everybody would wait until that is found out.
    return tuple(get_close_matches(model[:_LONGEST_NAME], listed, n=5, cutoff=0.4)) or listed[:5]


def _listed_elsewhere(model: str, own: ProviderRow) -> bool:
    """Another vendor's list has exactly this name. A name with a slash belongs to the lists of aggregators."""
    for row in PROVIDER_ROWS:
        if row.id == own.id or (row.aggregator and "/" not in model):
            continue
        if model in CATALOG.get(row.id, ()):
            return True
    return False
