"""``/model``: what the user typed, which provider and model that means, and how long it lasts.

Pure. One function serves every surface. A failed switch is a value, not an exception, and changes nothing; a name that
could mean several things is an error that lists them, never a guess.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import field
from difflib import get_close_matches
from typing import Final, Literal

from hermes.agent.model_catalog import (
    EFFORTS,
    SMALL_WINDOW,
    check_served,
    curated_models,
    default_model,
    family_head,
    has_static_catalog,
    is_chat_model,
    model_facts,
    native_spelling,
    plain_name,
)
from hermes.agent.provider_rows import CUSTOM_ALIASES, DEMO, PROVIDER_ROWS, find_row, provider_names, slug
from hermes.errors import ModelNotServed
from hermes.records import dataclass

ParseError = Literal["once_with_global", "once_requires_target", "bad_reasoning", "bad_flags"]
PRICE_JUMP: Final = 10.0
_LONGEST_NAME: Final = 200
_LONGEST_LINE: Final = 10_000  # Quoted words take a time that grows with the square of their length.
CONFIRM_TOKENS: Final = 100_000

# Words people use for a family, and the beginnings of names they stand for.
FAMILY_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "sonnet": ("claude-sonnet",),
    "opus": ("claude-opus",),
    "haiku": ("claude-haiku",),
    "claude": ("claude",),
    "gpt": ("gpt",),
    "codex": ("gpt-5-1-codex", "gpt-5-2-codex", "gpt-5-3-codex", "codex"),
    "o1": ("o1",),
    "o3": ("o3",),
    "o4": ("o4",),
    "gemini": ("gemini",),
    "deepseek": ("deepseek",),
    "grok": ("grok",),
    "llama": ("llama",),
    "qwen": ("qwen",),
    "minimax": ("minimax",),
    "kimi": ("kimi",),
    "glm": ("glm",),
    "mistral": ("mistral", "devstral", "codestral"),
    "hermes": ("hermes",),
    "gemma": ("gemma",),
    "nemotron": ("nemotron",),
}
_DASHES: Final = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-"))


@dataclass(frozen=True, slots=True)
class ModelCommand:
    """A parsed ``/model`` line. ``error`` names what is wrong with it; then nothing else counts."""

    target: str = ""
    provider: str | None = None
    reasoning: str | None = None
    is_global: bool = False
    session_only: bool = False
    once: bool = False
    refresh: bool = False
    error: ParseError | None = None


def parse_model_command(text: str) -> ModelCommand:
    """Read ``<model> [--provider X] [--reasoning LEVEL] [--global|--session|--once] [--refresh]``."""
    if len(text) > _LONGEST_LINE:
        return ModelCommand(error="bad_flags")
    line = text.translate(_DASHES)
    # An em dash is what some keyboards make of two dashes.
    line = " ".join(
        "--" + word[1:] if word.startswith("-") and not word.startswith("--") else word for word in line.split()
    )
    try:
        words = shlex.split(line)
    except ValueError:
        return ModelCommand(error="bad_flags")
    values: dict[str, str] = {}
    flags: set[str] = set()
    target: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        name, equals, value = word.partition("=")
        if name in ("--provider", "--reasoning"):
            if not equals:
                position += 1
                value = words[position] if position < len(words) else ""
            if not value or value.startswith("--"):
                return ModelCommand(error="bad_reasoning" if name == "--reasoning" else "bad_flags")
            values[name] = value
        elif word in ("--global", "--session", "--once", "--refresh"):
            flags.add(word)
        elif word.startswith("--"):
            return ModelCommand(error="bad_flags")
        else:
            target.append(word)
        position += 1
    return _checked(" ".join(target), values, flags)


def _checked(target: str, values: Mapping[str, str], flags: set[str]) -> ModelCommand:
    reasoning = values.get("--reasoning", "").lower() or None
    if reasoning is not None and reasoning not in EFFORTS:
        return ModelCommand(error="bad_reasoning")
    if "--once" in flags and "--global" in flags:
        return ModelCommand(error="once_with_global")
    provider = values.get("--provider")
    if "--once" in flags and not target and provider is None and reasoning is None:
        return ModelCommand(error="once_requires_target")
    return ModelCommand(
        target, provider, reasoning, "--global" in flags, "--session" in flags, "--once" in flags, "--refresh" in flags
    )


@dataclass(frozen=True, slots=True)
class ModelAlias:
    model: str
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class UserProvider:
    """A provider the user defined; ``models`` are the declared ones."""

    id: str
    name: str
    models: tuple[str, ...] = ()
    default_model: str | None = None
    base_url: str = ""
    api_mode: str = "chat_completions"


@dataclass(frozen=True, slots=True)
class ModelWorld:
    """What a switch is decided on: where the session is, and what the user has.

    ``live`` are models an endpoint has listed, by provider id; ``loaded`` those a local server has in memory.
    """

    current_provider: str
    current_model: str = ""
    aliases: Mapping[str, ModelAlias] = field(default_factory=dict)
    user_providers: tuple[UserProvider, ...] = ()
    authenticated: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)
    live: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    loaded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    has_default: bool = True
    persist_by_default: bool = False
    context_tokens: int = 0
    confirm_tokens: int = CONFIRM_TOKENS


@dataclass(frozen=True, slots=True)
class ModelSwitch:
    """The result of a switch. On failure ``error_message`` is set and the rest is what was.

    ``known``: the name is in a list of the provider, of the user, or says itself where it belongs.
    """

    success: bool
    new_model: str = ""
    target_provider: str = ""
    provider_changed: bool = False
    api_mode: str = ""
    base_url: str = ""
    reasoning: str | None = None
    warning_message: str | None = None
    error_message: str | None = None
    candidates: tuple[str, ...] = ()
    persisted: bool = False
    is_global: bool = False
    once: bool = False
    confirm_message: str | None = None
    context_length: int | None = None
    vision: bool | None = None
    known: bool = True


class _Refused(Exception):
    def __init__(self, message: str, candidates: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.candidates = candidates


_PARSE_MESSAGES: Final[Mapping[str, str]] = {
    "once_with_global": "--once and --global exclude each other",
    "once_requires_target": "--once needs a model, a provider or a reasoning level",
    "bad_reasoning": f"--reasoning needs one of: {', '.join(EFFORTS)}",
    "bad_flags": "usage: /model [model] [--provider X] [--reasoning LEVEL] [--global|--session|--once] [--refresh]",
}


def resolve_switch(command: ModelCommand, world: ModelWorld) -> ModelSwitch:
    """Decide what a command means. Raises nothing for a bad command."""
    if command.error is not None:
        return ModelSwitch(False, error_message=_PARSE_MESSAGES[command.error])
    lookup = _Lookup(world)
    try:
        provider, model, warning = lookup.find(command)
        if not is_chat_model(model):
            raise _Refused(f"{model} does not chat: it makes images, speech, video or embeddings")
        lookup.check_credentials(provider)
    except _Refused as refused:
        return ModelSwitch(False, error_message=str(refused), candidates=refused.candidates)
    return _accepted(command, world, lookup, provider, model, warning)


def _accepted(
    command: ModelCommand, world: ModelWorld, lookup: _Lookup, provider: str, model: str, warning: str | None
) -> ModelSwitch:
    facts = model_facts(model)
    warnings = [warning] if warning else []
    confirm: str | None = None
    before = model_facts(world.current_model).output_price if world.current_model else None
    if facts.output_price and before and facts.output_price >= before * PRICE_JUMP:
        confirm = f"{model} costs {facts.output_price / before:.0f} times as much as {world.current_model}"
        warnings.append(confirm)
    if world.context_tokens > facts.context:
        text = f"the conversation is longer than the window of {model} and will be compressed"
        warnings.append(text)
        confirm = text if world.context_tokens > world.confirm_tokens else confirm
    if facts.context < SMALL_WINDOW:
        warnings.append(f"{model} has a small window of {facts.context} tokens")
    changed = provider != lookup.current
    user = lookup.user_provider(provider)
    row = find_row(provider)
    return ModelSwitch(
        True,
        new_model=model,
        target_provider=provider,
        provider_changed=changed,
        api_mode=user.api_mode if user else row.api_mode if row else "chat_completions",
        base_url=user.base_url if user else row.base_url if row else "",
        reasoning=command.reasoning,
        warning_message="; ".join(warnings) or None,
        persisted=_persisted(command, world),
        is_global=command.is_global,
        once=command.once,
        confirm_message=confirm,
        context_length=facts.context,
        vision=facts.vision,
        known=warning is None,
    )


def _persisted(command: ModelCommand, world: ModelWorld) -> bool:
    """First rule that applies; a change of the provider alone never leaves the session by itself."""
    if command.once or command.session_only:
        return False
    if command.is_global:
        return True
    if not command.target and command.provider is not None:
        return False
    return not world.has_default or world.persist_by_default


class _Lookup:
    """The search order of a name, in one world."""

    def __init__(self, world: ModelWorld) -> None:
        self._world = world
        self._users = {slug(user.name): user for user in world.user_providers}
        self._users |= {slug(user.id): user for user in world.user_providers}
        self.current = self.provider_id(world.current_provider) or world.current_provider

    def provider_id(self, name: str) -> str | None:
        """A provider of the user is tried before any id or alias of the table."""
        user = self._users.get(slug(name))
        if user is not None:
            return user.id
        lowered = name.strip().lower()
        if lowered == DEMO:
            return DEMO
        if lowered in CUSTOM_ALIASES:
            return "custom"
        row = find_row(lowered)
        return row.id if row is not None else None

    def user_provider(self, provider: str) -> UserProvider | None:
        return next((user for user in self._world.user_providers if user.id == provider), None)

    def check_credentials(self, provider: str) -> None:
        row = find_row(provider)
        if provider == self.current or row is None or row.local or row.id in self._world.authenticated:
            return
        keys = " or ".join(row.key_variables) or "a sign-in this server does not offer"
        raise _Refused(f"no credentials for {row.name}: set {keys}")

    def find(self, command: ModelCommand) -> tuple[str, str, str | None]:
        """Provider, model, warning."""
        if command.provider is not None:
            return self._with_provider(command.provider, command.target)
        if not any(map(str.isalnum, command.target)):
            if command.reasoning is not None and self._world.current_model and not command.target:
                return self.current, self._world.current_model, None
            raise _Refused("which model? /model <name>")
        steps: tuple[Callable[[str], tuple[str, str, str | None] | None], ...] = (
            self._by_alias,
            self._by_provider_prefix,
            self._by_family_word,
            self._by_vendor,
            self._by_current_catalog,
            self._by_declaration,
            self._by_other_vendor,
        )
        for step in steps:
            found = step(command.target)
            if found is not None:
                return found
        return self.current, command.target, self._unknown(command.target, self.current)

    # --- with --provider ---------------------------------------------------------------------------------------------

    def _with_provider(self, name: str, target: str) -> tuple[str, str, str | None]:
        provider = self.provider_id(name)
        if provider is None:
            known = (*provider_names(), *self._users)
            near = tuple(get_close_matches(name[:_LONGEST_NAME].lower(), known, n=3, cutoff=0.5))
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise _Refused(f"unknown provider {name}{hint}", near)
        row = find_row(provider)
        if row is not None and not row.available:
            raise _Refused(f"{row.name} is not supported by this server")
        if not target:
            return provider, self._default(provider), None
        alias = self._world.aliases.get(target.lower())
        if alias is not None and (alias.provider is None or self.provider_id(alias.provider) == provider):
            return provider, alias.model, None
        if target.lower() in FAMILY_WORDS:
            matches = self._family(provider, target.lower())
            if matches:
                return provider, self._only(target, matches), None
        return provider, *self._spelled(provider, target)

    def _default(self, provider: str) -> str:
        user = self.user_provider(provider)
        loaded = self._world.loaded.get(provider, ())
        chosen = self._world.defaults.get(provider) or (user.default_model if user is not None else None)
        if chosen is None and len(loaded) == 1:
            chosen = loaded[0]
        if chosen is None and user is not None and len(user.models) == 1:
            chosen = user.models[0]
        chosen = chosen or default_model(provider)
        if chosen is None:
            served = loaded or self._listed(provider)[:5]
            raise _Refused(f"{provider} has no default model; name one {', '.join(served)}".strip(), served)
        return chosen

    # --- without -----------------------------------------------------------------------------------------------------

    def _by_alias(self, target: str) -> tuple[str, str, str | None] | None:
        aliases = self._world.aliases
        alias = aliases.get(target) or aliases.get(target.lower())
        if alias is None:
            same = [entry for entry in aliases.values() if entry.model == target]
            same.sort(key=lambda entry: entry.provider is None or self.provider_id(entry.provider) != self.current)
            alias = same[0] if same else None
        if alias is None:
            return None
        if alias.provider is None:
            return self._by_provider_prefix(alias.model) or (self.current, alias.model, None)
        provider = self.provider_id(alias.provider)
        if provider is None:
            raise _Refused(f"the alias {target} names an unknown provider {alias.provider}")
        return provider, alias.model, None

    def _by_provider_prefix(self, target: str) -> tuple[str, str, str | None] | None:
        """``provider:model``. ``qwen3:8b`` stays whole, because ``qwen3`` is no provider."""
        if ":" not in target:
            return None
        if target.lower().startswith("custom:"):
            name, colon, model = target[len("custom:") :].partition(":")
            if colon and model and slug(name) in self._users:
                return self._with_provider(f"custom:{name}", model.lstrip(":"))
        left, _, right = target.partition(":")
        right = right.lstrip(":")
        if not right or "/" in left or self.provider_id(left) is None:
            return None
        return self._with_provider(left, right)

    def _by_family_word(self, target: str) -> tuple[str, str, str | None] | None:
        word = target.lower()
        if word not in FAMILY_WORDS:
            return None
        matches = self._family(self.current, word)
        if matches:
            return self.current, self._only(target, matches), None
        found = [(p, m) for p in self._others() for m in self._family(p, word)]
        if not found:
            return None
        self._only(target, tuple(f"{provider}:{model}" for provider, model in found))
        return (*found[0], None)

    def _by_vendor(self, target: str) -> tuple[str, str, str | None] | None:
        vendor, slash, name = target.partition("/")
        if not slash or not name:
            return None
        row = find_row(self.current)
        if row is None or row.local:
            return self.current, target, None
        if row.aggregator:
            known = native_spelling(row.id, target) is not None
            return self.current, target, None if known else self._unknown(target, self.current)
        spelled = native_spelling(row.id, target)
        if spelled is not None:
            return self.current, spelled, None
        provider = self.provider_id(vendor)
        if provider is None or provider == self.current:
            return None if provider is None else (self.current, *self._spelled(self.current, name))
        return self._with_provider(provider, name)

    def _by_current_catalog(self, target: str) -> tuple[str, str, str | None] | None:
        listed = self._listed(self.current)
        if target in listed:
            return self.current, target, None
        spelled = native_spelling(self.current, target)
        if spelled is None:
            spelled = next(
                (name for name in listed if plain_name(name) == plain_name(target) and ":" not in target), None
            )
        return None if spelled is None else (self.current, spelled, None)

    def _by_declaration(self, target: str) -> tuple[str, str, str | None] | None:
        owners = [user.id for user in self._world.user_providers if target in user.models]
        if owners:
            self._only(target, tuple(f"{owner}:{target}" for owner in owners))
        return (owners[0], target, None) if owners else None

    def _by_other_vendor(self, target: str) -> tuple[str, str, str | None] | None:
        """Only from a provider with a list of its own: a custom endpoint or an aggregator may serve anything."""
        row = find_row(self.current)
        if row is None or not has_static_catalog(row):
            return None
        for other in PROVIDER_ROWS:
            if other.id == row.id or not has_static_catalog(other) or other.id not in self._world.authenticated:
                continue
            spelled = native_spelling(other.id, target)
            if spelled is not None:
                return other.id, spelled, None
        return None

    # --- small things ------------------------------------------------------------------------------------------------

    def _listed(self, provider: str) -> tuple[str, ...]:
        user = self.user_provider(provider)
        declared = user.models if user is not None else curated_models(provider)
        return tuple(dict.fromkeys((*declared, *self._world.live.get(provider, ()))))

    def _others(self) -> list[str]:
        ids = [row.id for row in PROVIDER_ROWS if row.available and row.id in self._world.authenticated]
        return [name for name in (*ids, *(user.id for user in self._world.user_providers)) if name != self.current]

    def _family(self, provider: str, word: str) -> tuple[str, ...]:
        beginnings = FAMILY_WORDS[word]
        return tuple(name for name in self._listed(provider) if plain_name(name).startswith(beginnings))

    def _only(self, target: str, matches: tuple[str, ...]) -> str:
        if len(matches) > 1:
            raise _Refused(f"{target} is ambiguous: {', '.join(matches)}", matches)
        return matches[0]

    def _spelled(self, provider: str, model: str) -> tuple[str, str | None]:
        """The provider's own spelling of a name, and a warning if it is not in its list."""
        row = find_row(provider)
        spelled = native_spelling(provider, model)
        if spelled is not None:
            return spelled, None
        if row is not None and not row.aggregator and not row.local and "/" in model:
            vendor, _, bare = model.partition("/")
            if self.provider_id(vendor) == provider:
                model = bare
        if row is not None and row.id == "anthropic" and family_head(model) == "claude":
            model = model.replace(".", "-")
        if model in self._listed(provider):
            return model, None
        return model, self._unknown(model, provider)

    def _unknown(self, model: str, provider: str) -> str:
        """The warning for a name that is in no list of the provider; refused if it is another vendor's for certain."""
        try:
            check_served(model, provider)
        except ModelNotServed as error:
            raise _Refused(error.message, tuple((error.data or {}).get("suggestions", ()))) from None
        return f"{model} is not in the known list of {provider}"
