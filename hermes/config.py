"""Loads the settings: defaults, ``config.yaml``, the home's ``.env``, the environment, the command line.

The only file that reads the process environment. Loaded once in ``cli/`` and passed down. An invalid value in the
file or the environment is reported once and replaced by its default; it never stops the start. An invalid value on
the command line, an unknown key there and a file that is not YAML do.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from hermes.agent_settings import Area
from hermes.config_file import change_yaml, expand_variables, read_dotenv, read_yaml
from hermes.errors import InvalidValue
from hermes.patterns import lazy_pattern
from hermes.records import dataclass
from hermes.server_key import ServerKey, find_server_key
from hermes.settings import Settings, TopLevel, area_of, every_setting

A = TypeVar("A", bound=Area)

PROVIDER_KEYS = frozenset(
    {
        "AI_GATEWAY_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "DASHSCOPE_API_KEY",
        "DEEPSEEK_API_KEY", "GEMINI_API_KEY", "GLM_API_KEY", "GOOGLE_API_KEY", "HF_TOKEN", "KIMI_API_KEY",
        "LM_API_KEY", "MINIMAX_API_KEY", "NOUS_API_KEY", "NVIDIA_API_KEY", "OLLAMA_API_KEY", "OPENAI_API_KEY",
        "OPENROUTER_API_KEY", "XAI_API_KEY", "ZAI_API_KEY",
    }
)  # fmt: skip
OWN_SECRETS = frozenset({"API_SERVER_KEY", "SUDO_PASSWORD"})
_CREDENTIAL = lazy_pattern(r"[A-Z0-9_]+_(API_KEY|BASE_URL)\Z")
_SECRET_KEY = lazy_pattern(r"key|token|secret|password|authorization|cookie", re.IGNORECASE)
_RESERVED = lazy_pattern(
    r"(HERMES|API_SERVER|LD|DYLD|PYTHON|BASH|GIT|SSH|OTEL|XDG|LC|NODE|PERL|RUBY)_|.*_proxy\Z"
    r"|(PATH|HOME|USER|SHELL|ENV|IFS|LANG|TMPDIR|PWD|EDITOR|VISUAL|PAGER|BASHOPTS|SHELLOPTS|PYTHON[A-Z]+|NODE[A-Z]+)\Z",
    re.IGNORECASE,
)
API_SERVER_PLACES = (("platforms", "api_server"), ("gateway", "platforms", "api_server"))


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """``credentials``: provider keys, base URLs and the sudo password by variable name. ``sources``: for each setting
    that is not a default, where it came from. ``warnings``: what was wrong, for the log."""

    settings: Settings
    home: Path
    credentials: Mapping[str, str] = field(repr=False)
    warnings: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Problem:
    key: str
    text: str


def home_from_environment(environ: Mapping[str, str] | None = None) -> Path:
    """``HERMES_HOME``, or ``~/.hermes``. The directory need not exist."""
    variables = os.environ if environ is None else environ
    given = variables.get("HERMES_HOME", "").strip()
    if given:
        return Path(given).expanduser().absolute()
    return Path(variables.get("HOME") or Path.home()) / ".hermes"


def make_home(home: Path) -> None:
    """Create the home directory for its owner alone. Raises ``InvalidValue``."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"the home directory cannot be created: {error}; set HERMES_HOME") from error


def config_path(home: Path) -> Path:
    return home / "config.yaml"


def load_settings(
    overrides: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> LoadedSettings:
    """Everything that is set. ``overrides`` maps dotted keys to values from the command line; None means not given.

    Raises ``InvalidValue`` for an override that is unknown or invalid, and for files that cannot be read.
    """
    variables = dict(os.environ if environ is None else environ)
    home = home or home_from_environment(variables)
    dotenv = read_dotenv(home / ".env")
    known = dotenv | variables
    warnings: list[str] = []
    raw = _read_file(home, known, warnings)
    sources = {item.key: "config.yaml" for item in every_setting() if _get(raw, item.key) is not None}
    _apply_environment(raw, sources, dotenv, ".env")
    _apply_environment(raw, sources, variables, "environment")
    for key, value in (overrides or {}).items():
        if value is not None:
            _put(raw, _known_key(key), value)
            sources[key] = "command line"
    settings, problems = _build(raw)
    for problem in problems:
        if sources.get(problem.key) == "command line":
            raise InvalidValue(f"{problem.key}: {problem.text}")
        source = sources.pop(problem.key, "config.yaml")
        warnings.append(f"{source}: {problem.key}: {problem.text}; the default is used")
    return LoadedSettings(settings, home, _credentials(settings, known), tuple(warnings), sources)


def _read_file(home: Path, variables: Mapping[str, str], warnings: list[str]) -> dict[str, Any]:
    missing: list[str] = []
    raw: dict[str, Any] = expand_variables(read_yaml(config_path(home)), variables, missing)
    for name in dict.fromkeys(missing):
        warnings.append(f"config.yaml: the variable {name} is not set")
    _normalise(raw)
    unknown = sorted(_unknown_keys(Settings, raw, ""))
    if unknown:
        warnings.append(f"config.yaml: unknown keys are ignored: {', '.join(unknown)}")
    return raw


def _normalise(raw: dict[str, Any]) -> None:
    """Bring the other accepted spellings of a file into the one shape of ``Settings``."""
    if isinstance(raw.get("model"), str):
        raw["model"] = {"default": raw["model"]}
    for place in API_SERVER_PLACES:
        block = _get(raw, ".".join(place))
        if isinstance(block, dict):
            _drop(raw, place)
            block = {**block, **extra} if isinstance(extra := block.pop("extra", None), dict) else block
            for key, value in block.items():
                if _get(raw, f"gateway.api_server.{key}") is None:
                    _put(raw, ("gateway", "api_server", key), value)
    for emptied in (("platforms",), ("gateway", "platforms")):
        if _get(raw, ".".join(emptied)) == {}:
            _drop(raw, emptied)
    grace = _get(raw, "terminal.daemon_term_grace_seconds")
    if grace is not None:
        _drop(raw, ("terminal", "daemon_term_grace_seconds"))
        if _get(raw, "limits.kill_grace") is None:
            _put(raw, ("limits", "kill_grace"), grace)


def _unknown_keys(kind: type[Area], raw: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in raw.items():
        if key not in kind.model_fields:
            yield prefix + key
        elif (nested := area_of(kind, key)) is not None and isinstance(value, dict):
            yield from _unknown_keys(nested, value, f"{prefix}{key}.")


def _apply_environment(raw: dict[str, Any], sources: dict[str, str], variables: Mapping[str, str], source: str) -> None:
    for item in every_setting():
        value = variables.get(item.env, "").strip() if item.env else ""
        if value:
            _put(raw, tuple(item.key.split(".")), value)
            sources[item.key] = source
    # Only a fallback: what the file says about this wins over the variable.
    iterations = variables.get("HERMES_MAX_ITERATIONS", "").strip()
    if iterations and sources.get("agent.max_turns") != "config.yaml":
        _put(raw, ("agent", "max_turns"), iterations)
        sources["agent.max_turns"] = source


def _build(raw: Mapping[str, Any]) -> tuple[Settings, list[_Problem]]:
    """Validate area by area, so that only those that were configured pay for their validators."""
    problems: list[_Problem] = []
    values: dict[str, Any] = {}
    top: dict[str, Any] = {}
    for name, value in raw.items():
        kind = area_of(Settings, name)
        if kind is None:
            top[name] = value
        elif isinstance(value, dict):
            values[name] = _validated(kind, value, f"{name}.", problems)
        elif value is not None:
            problems.append(_Problem(name, "must hold keys and values"))
    if any(name in TopLevel.model_fields for name in top):
        checked = _validated(TopLevel, top, "", problems)
        values |= {name: getattr(checked, name) for name in checked.model_fields_set}
    return Settings.model_construct(**values), problems


def _validated(kind: type[A], raw: dict[str, Any], prefix: str, problems: list[_Problem]) -> A:
    while True:
        try:
            return kind.model_validate(raw)
        except ValidationError as error:
            secrets = {item.key for item in every_setting(kind, prefix) if item.secret}
            for detail in error.errors(include_url=False, include_context=False):
                path = _blamed(kind, raw, detail["loc"])
                key = prefix + ".".join(path)
                shown = "" if key in secrets else f" (got {_get(raw, '.'.join(path))!r})"
                problem = detail["msg"][:1].lower() + detail["msg"][1:]
                problems.append(_Problem(key, problem + shown))
                _drop(raw, path)


def _blamed(kind: type[Area], raw: Mapping[str, Any], location: Sequence[int | str]) -> tuple[str, ...]:
    """The setting an error is about: the names of its areas and its own, without what lies inside the value."""
    path: list[str] = []
    nested: type[Area] | None = kind
    for part in location:
        path.append(str(part))
        nested = area_of(nested, str(part)) if nested is not None else None
        if nested is None:
            break
    return tuple(path)


def _get(raw: Mapping[str, Any], key: str) -> Any:
    node: Any = raw
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def _put(raw: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    node = raw
    for key in keys[:-1]:
        child = node.get(key)
        if not isinstance(child, dict):
            child = node[key] = {}
        node = child
    node[keys[-1]] = value


def _drop(raw: dict[str, Any], keys: Sequence[str]) -> None:
    node: Any = raw
    for key in keys[:-1]:
        node = node.get(key)
        if not isinstance(node, dict):
            return
    node.pop(keys[-1], None)


def _known_key(key: str | Sequence[str]) -> tuple[str, ...]:
    """The parts of a dotted key, if it names a setting or something inside a map. Raises ``InvalidValue``."""
    parts = tuple(key.split(".")) if isinstance(key, str) else tuple(key)
    kind: type[Area] | None = Settings
    for part in parts:
        if kind is None:
            return parts
        if part not in kind.model_fields:
            raise InvalidValue(f"unknown setting: {'.'.join(parts)}")
        kind = area_of(kind, part)
    if kind is not None:
        raise InvalidValue(f"{'.'.join(parts)} is a group of settings, not one")
    return parts


# --- changing --------------------------------------------------------------------------------------------------------


def with_setting(settings: Settings, key: str | Sequence[str], value: Any) -> Settings:
    """New settings with one value changed. Raises ``InvalidValue``."""
    parts = _known_key(key)
    raw = settings.model_dump(exclude_unset=False, include={parts[0]})
    _put(raw, parts, value)
    changed, problems = _build(raw)
    if problems:
        raise InvalidValue(f"{problems[0].key}: {problems[0].text}")
    return settings.model_copy(update={parts[0]: getattr(changed, parts[0])})


def save_setting(home: Path, key: str | Sequence[str], value: Any) -> None:
    """Write one value into ``config.yaml``, keeping its comments; None takes it out again.

    A key with dots inside a name is given as a sequence. Raises ``InvalidValue`` and changes nothing if the key is
    unknown or the value invalid; raises ``OSError`` if the file cannot be written.
    """
    parts = _known_key(key)
    if value is not None:
        with_setting(Settings.model_construct(), parts, value)
    make_home(home)
    change_yaml(config_path(home), parts, value)


def config_mtime(home: Path) -> float:
    """When the file was last changed; 0 if there is none."""
    try:
        return config_path(home).stat().st_mtime
    except OSError:
        return 0.0


def effective_settings(loaded: LoadedSettings) -> list[tuple[str, Any, str]]:
    """Every setting with its value and where it came from; secrets are masked."""
    rows = []
    for item in every_setting():
        value: Any = loaded.settings
        for part in item.key.split("."):
            value = getattr(value, part)
        rows.append((item.key, _masked(value, item.secret), loaded.sources.get(item.key, "default")))
    return rows


def _masked(value: Any, secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(item, bool(_SECRET_KEY.search(str(key)))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, secret) for item in value]
    return "***" if secret and isinstance(value, str) and value else value


# --- secrets and child processes -------------------------------------------------------------------------------------


def read_server_key(home: Path, environ: Mapping[str, str] | None = None, configured: str = "") -> ServerKey:
    """The key of the HTTP server; see ``server_key.find_server_key``. Raises ``InvalidValue``."""
    return find_server_key(home, os.environ if environ is None else environ, read_dotenv(home / ".env"), configured)


def _named_key_variables(settings: Settings) -> set[str]:
    endpoints = [*settings.providers.values(), *settings.custom_providers, *settings.fallback_providers]
    endpoints += settings.gateway.api_server.model_routes.values()
    return {str(one["key_env"]) for one in endpoints if isinstance(one, Mapping) and one.get("key_env")}


def _credentials(settings: Settings, variables: Mapping[str, str]) -> dict[str, str]:
    named = PROVIDER_KEYS | {"SUDO_PASSWORD"} | _named_key_variables(settings)
    return {
        name: value for name, value in variables.items() if value.strip() and (name in named or _CREDENTIAL.match(name))
    }


def proxy_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The usual proxy variables, in either case."""
    variables = os.environ if environ is None else environ
    return {name: value for name, value in variables.items() if name.lower().endswith("_proxy") and value}


def child_environment(settings: Settings, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of tools: without provider keys and our own secrets, unless ``terminal.env_passthrough`` names
    them, and without what a one-file build has put there for itself."""
    variables = dict(os.environ if environ is None else environ)
    hidden = PROVIDER_KEYS | OWN_SECRETS | _named_key_variables(settings)
    for name in hidden - set(settings.terminal.env_passthrough):
        variables.pop(name, None)
    return without_bundle(variables)


def reserved_variable(name: str, settings: Settings) -> bool:
    """Whether a variable of this name means something to this server, or to every program that it starts: no tool may
    set it or ask for its value."""
    known = {item.env for item in every_setting()} | PROVIDER_KEYS | OWN_SECRETS | _named_key_variables(settings)
    return name in known or bool(_RESERVED.match(name))


def without_bundle(variables: dict[str, str]) -> dict[str, str]:
    """The same variables as a one-file build was started with: what it has put there for itself is taken out."""
    for name in [name for name in variables if name.startswith("_PYI_") or name == "_MEIPASS2"]:
        del variables[name]
    original = variables.pop("LD_LIBRARY_PATH_ORIG", None)
    if original:
        variables["LD_LIBRARY_PATH"] = original
    elif original is not None or getattr(sys, "frozen", False):
        variables.pop("LD_LIBRARY_PATH", None)
    return variables


def wanted_span_exporter(environ: Mapping[str, str] | None = None) -> str:
    """The exporter that the usual variables of OpenTelemetry ask for; empty: none."""
    variables = os.environ if environ is None else environ
    named = variables.get("OTEL_TRACES_EXPORTER", "").partition(",")[0].strip().lower()
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or named == "none":
        return ""
    return named or ("otlp" if any(variables.get(name, "").strip() for name in endpoints) else "")


# --- the user's terminal ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TerminalVariables:
    """What the environment says about the terminal. ``tui_dist``: where the Ink client is, if it is to be used."""

    term: str = ""
    no_color: bool = False
    tui_dist: str = ""


def terminal_variables(environ: Mapping[str, str] | None = None) -> TerminalVariables:
    variables = os.environ if environ is None else environ
    return TerminalVariables(
        variables.get("TERM", ""), bool(variables.get("NO_COLOR")), variables.get("HERMES_TUI_DIST", "").strip()
    )


def environment_with(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's own environment and more, for a program that acts as the user."""
    return {**without_bundle(dict(os.environ)), **extra}
