"""What hosts read and set by key: ``config.get`` and ``config.set`` (gateway §9.1, §9.2), and the commands behind them.

A key of a host is a setting, a choice of the session, or both. Values are checked as a whole by the configuration; a
refused change changes nothing. Every change that a session shows is announced there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from hermes.agent.model_catalog import EFFORTS
from hermes.agent.provider_rows import PROVIDER_ROWS
from hermes.errors import InvalidValue, SessionNotFound, Unavailable
from hermes.events import SkinChanged
from hermes.nurseries.model_choice import switch
from hermes.nurseries.places import is_folder
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.nurseries.session_changes import remember, set_personality, set_reasoning_effort, set_yolo
from hermes.nurseries.session_ready import current_branch
from hermes.records import dataclass
from hermes.settings import Settings, every_setting

MASK: Final = "••••"
VERBOSITY: Final = ("off", "new", "all", "verbose")
DETAIL_PARTS: Final = ("thinking", "tools", "subagents", "activity")
REASONING_DISPLAY: Final = ("show", "hide", "full", "clamp")
TRUE_WORDS: Final = frozenset({"on", "true", "1", "yes"})
FALSE_WORDS: Final = frozenset({"off", "false", "0", "no"})

# Keys of hosts that are plain settings, and what they are called in the configuration.
PLAIN: Final[Mapping[str, str]] = {
    "skin": "display.skin",
    "theme": "display.theme",
    "indicator": "display.indicator",
    "statusbar": "display.statusbar",
    "density": "display.density",
    "compact": "display.density",
    "mouse": "display.mouse",
    "details_mode": "display.details_mode",
    "thinking_mode": "display.thinking_mode",
    "busy": "display.busy_input_mode",
    "approval_mode": "approvals.mode",
    "approvals.mode": "approvals.mode",
}
SWITCHES: Final[Mapping[str, str]] = {
    "battery": "display.battery",
    "timestamps": "display.timestamps",
    "footer": "display.footer",
    "display.message_reactions": "display.message_reactions",
    "display.in_app_tips": "display.in_app_tips",
    "display.in_app_tours": "display.in_app_tours",
}
DETAIL_WORDS: Final = ("hidden", "collapsed", "expanded")
WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "theme": ("auto", "light", "dark"),
    "indicator": ("kaomoji", "emoji", "unicode", "ascii"),
    "statusbar": ("top", "bottom", "on", "off"),
    "density": ("on", "off"),
    "compact": ("on", "off"),
    "mouse": ("all", "wheel", "buttons", "on", "off"),
    "details_mode": DETAIL_WORDS,
    "thinking_mode": ("hidden", "collapsed", "truncated", "full", "expanded"),
}
"""What ``config.set`` takes. A file is not refused for another word: it may be meant for another host."""
CWD_KEYS: Final = frozenset({"cwd", "terminal.cwd", "workdir"})


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """One ``config.set``. ``value`` None means: ask, or toggle."""

    key: str
    value: Any = None
    scope: str | None = None
    confirmed: bool = False


# --- reading ---------------------------------------------------------------------------------------------------------


def read_key(services: Services, key: str, session: Session | None, cwd: str | None) -> dict[str, Any]:
    """The answer to ``config.get``. Raises ``InvalidValue`` for an unknown key."""
    settings: Settings = services.settings()
    if key in PLAIN:
        return {"value": str(_value(settings, PLAIN[key]))}
    match key:
        case "full":
            return {"config": masked(settings)}
        case "mtime":
            return {"mtime": _mtime(services.home), "mcp_rev": mcp_revision(settings)}
        case "provider":
            return _providers(services, session)
        case "profile":
            return {"home": str(services.home), "display": str(services.home).replace(str(Path.home()), "~", 1)}
        case "project":
            where = cwd or (session.memory.cwd if session is not None else os.getcwd())
            return {"cwd": where, "branch": current_branch(where) or ""}
        case "prompt":
            return {"prompt": settings.agent.system_prompt}
        case "personality":
            own = session.stored.model_config.get("personality") if session is not None else None
            return {"value": own or settings.display.personality}
        case "reasoning":
            return {"value": effort_of(settings, session), "display": settings.display.reasoning_display}
        case "fast":
            return {"value": tier_of(settings, session)}
        case "focus":
            shown = "off" if settings.display.focus else settings.display.tool_progress
            return {"value": "on" if settings.display.focus else "off", "tool_progress": shown}
        case "yolo":
            return {"value": "1" if yolo_of(settings, session) else "0"}
        case _ if key in SWITCHES:
            return {"value": "on" if _value(settings, SWITCHES[key]) else "off"}
        case _ if (part := _detail_part(key)) is not None:
            return {"value": _detail_of(settings, part)}
    raise InvalidValue(f"unknown configuration key: {key}")


def _value(settings: Settings, path: str) -> Any:
    found: Any = settings
    for name in path.split("."):
        found = getattr(found, name)
    return found


def masked(settings: Settings) -> dict[str, Any]:
    """The whole configuration, secrets hidden."""
    whole: dict[str, Any] = settings.model_dump(mode="json")
    for item in every_setting():
        if not item.secret:
            continue
        *areas, name = item.key.split(".")
        place = whole
        for area in areas:
            place = place[area]
        place[name] = _masked_value(place[name])
    return whole


def _masked_value(value: Any) -> Any:
    match value:
        case dict():
            return {key: _masked_value(item) for key, item in value.items()}
        case list():
            return [_masked_value(item) for item in value]
        case str() if value:
            return MASK
        case _:
            return value


def _mtime(home: Path) -> float:
    try:
        return (home / "config.yaml").stat().st_mtime
    except OSError:
        return 0.0


def mcp_revision(settings: Settings) -> str:
    """Changes when the MCP part of the configuration does."""
    text = json.dumps({name: dict(spec) for name, spec in settings.mcp_servers.items()}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _providers(services: Services, session: Session | None) -> dict[str, Any]:
    info = session.info() if session is not None else None
    authenticated = services.models.authenticated_providers()
    rows = [
        {"id": row.id, "label": row.name, "aliases": list(row.aliases), "authenticated": row.id in authenticated}
        for row in PROVIDER_ROWS
        if row.available
    ]
    settings: Settings = services.settings()
    model = (info.model if info is not None else "") or settings.model.default
    provider = (info.provider if info is not None else "") or services.models.default_provider()
    return {"model": model, "provider": provider, "providers": rows}


def effort_of(settings: Settings, session: Session | None) -> str:
    own = session.stored.model_config.get("reasoning_effort") if session is not None else None
    return str(own or settings.agent.reasoning_effort or "medium")


def tier_of(settings: Settings, session: Session | None) -> str:
    own = session.stored.model_config.get("service_tier") if session is not None else None
    return str(own or settings.agent.service_tier or "normal")


def yolo_of(settings: Settings, session: Session | None) -> bool:
    return settings.host.yolo or (session is not None and session.memory.yolo)


def rules_of(services: Services) -> tuple[str, bool]:
    """What every session shows of the settings that hold for all of them."""
    settings: Settings = services.settings()
    return settings.approvals.mode, settings.host.yolo


# --- setting ---------------------------------------------------------------------------------------------------------


async def set_key(services: Services, session: Session | None, request: KeyRequest) -> dict[str, Any]:
    """The answer to ``config.set``. Raises ``InvalidValue``, ``SessionNotFound``, ``Unavailable``."""
    key, value = request.key, request.value
    if isinstance(value, dict | list):
        raise InvalidValue(f"{key}: a word or a number is expected")
    settings: Settings = services.settings()
    if key in PLAIN:
        return await _set_plain(services, session, key, value)
    match key:
        case "model":
            return await _set_model(session, request)
        case "reasoning":
            return await _set_reasoning(services, session, str(value or ""))
        case "fast":
            return await _set_tier(services, session, value)
        case "yolo":
            return await _set_yolo(services, session, request)
        case "verbose":
            current = VERBOSITY.index(settings.display.tool_progress)
            word = str(value) if value is not None else VERBOSITY[(current + 1) % len(VERBOSITY)]
            await change(services, "display.tool_progress", word)
            return {"key": key, "value": word, "tool_progress": word}
        case "focus":
            on = toggled(value, settings.display.focus)
            await change(services, "display.focus", on)
            shown = "off" if on else settings.display.tool_progress
            return {"key": key, "value": "on" if on else "off", "tool_progress": shown}
        case "personality":
            if value is None or value == "":
                return {"key": key, **read_key(services, key, session, None)}
            return await _set_personality(services, session, str(value))
        case "prompt":
            if value is None:
                return {"key": key, "value": settings.agent.system_prompt}
            text = "" if value in ("clear", "none") else str(value)
            await change(services, "agent.system_prompt", text)
            return {"key": key, "value": text}
        case _ if key in SWITCHES:
            on = toggled(value, bool(_value(settings, SWITCHES[key])))
            await change(services, SWITCHES[key], on)
            return {"key": key, "value": "on" if on else "off"}
        case _ if key in CWD_KEYS:
            return await _set_cwd(services, key, str(value or ""))
        case _ if (part := _detail_part(key)) is not None:
            if value is None or value == "":
                return {"key": key, "value": _detail_of(settings, part)}
            word = _one_of(key, value, DETAIL_WORDS)
            await change(services, "display.details", {**settings.display.details, part: word})
            return {"key": key, "value": word}
    raise InvalidValue(f"unknown configuration key: {key}")


async def change(services: Services, path: str, value: Any, *, save: bool = True) -> None:
    """One setting. Raises ``InvalidValue`` for a bad value, ``Unavailable`` when it cannot be written."""
    if services.config is None:
        raise Unavailable("the configuration cannot be changed here")
    try:
        await services.config.change(path, value, save=save)
    except OSError as error:
        raise Unavailable(f"the configuration file could not be written: {error.strerror or error}") from None


def toggled(value: Any, current: bool) -> bool:
    """A switch: on, off, or the other way when nothing is said."""
    if value is None or value == "":
        return not current
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in TRUE_WORDS or word in FALSE_WORDS:
        return word in TRUE_WORDS
    raise InvalidValue("say on or off")


async def _set_plain(services: Services, session: Session | None, key: str, value: Any) -> dict[str, Any]:
    path = PLAIN[key]
    if value is None or value == "":
        # A missing value asks; only switches toggle.
        return {"key": key, "value": str(_value(services.settings(), path))}
    await change(services, path, _one_of(key, value, WORDS[key]) if key in WORDS else str(value))
    if session is not None and path == "approvals.mode":
        session.announce_info()
    if path == "display.skin":
        services.announce.append(SkinChanged({"name": services.settings().display.skin}))
    return {"key": key, "value": str(_value(services.settings(), path))}


def _one_of(key: str, value: Any, words: tuple[str, ...]) -> str:
    """The word, whatever its case; a JSON boolean is on or off."""
    word = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value).strip().lower()
    if word not in words:
        raise InvalidValue(f"{key} must be one of {', '.join(words)}")
    return word


def _detail_part(key: str) -> str | None:
    area, _, part = key.partition(".")
    return part if area == "details_mode" and part in DETAIL_PARTS else None


def _detail_of(settings: Settings, part: str) -> str:
    return settings.display.details.get(part, settings.display.details_mode)


async def _set_model(session: Session | None, request: KeyRequest) -> dict[str, Any]:
    if session is None:
        raise SessionNotFound
    done = await switch(session, str(request.value or ""), confirmed=request.confirmed)
    result: dict[str, Any] = {
        "key": "model",
        "value": done.model,
        "scope": done.scope,
        "confirm_required": done.confirm is not None,
        "confirm_message": done.confirm or "",
    }
    if done.warning:
        result["warning"] = done.warning
    if done.deferred:
        result["deferred"] = True
    return result


async def _set_reasoning(services: Services, session: Session | None, value: str) -> dict[str, Any]:
    words = value.lower().split()
    is_global = "--global" in words
    word = next((word for word in words if not word.startswith("--")), "")
    if word in REASONING_DISPLAY:
        await change(services, "display.reasoning_display", word)
        await change(services, "display.show_reasoning", word != "hide")
        return {"key": "reasoning", "value": word}
    if not word:
        return {"key": "reasoning", "value": effort_of(services.settings(), session)}
    if word not in EFFORTS:
        raise InvalidValue(f"reasoning must be one of {', '.join((*EFFORTS, *REASONING_DISPLAY))}")
    if session is not None:
        await set_reasoning_effort(session, word)
    if is_global or session is None:
        await change(services, "agent.reasoning_effort", word)
    return {"key": "reasoning", "value": word}


async def _set_tier(services: Services, session: Session | None, value: Any) -> dict[str, Any]:
    current = tier_of(services.settings(), session)
    word = str(value).strip().lower() if value not in (None, "") else ("normal" if current == "fast" else "fast")
    if word not in ("normal", "fast", "auto", "default", "flex", "priority"):
        raise InvalidValue("fast must be one of normal, fast, auto, flex, priority")
    if session is not None:
        await remember(session, service_tier=word)
        session.announce_info()
    else:
        await change(services, "agent.service_tier", "" if word == "normal" else word)
    return {"key": "fast", "value": word}


async def _set_yolo(services: Services, session: Session | None, request: KeyRequest) -> dict[str, Any]:
    """Of one session, or of this process; never written to the file."""
    settings: Settings = services.settings()
    if session is not None and request.scope != "global":
        on = toggled(request.value, session.memory.yolo)
        await set_yolo(session, on)
        return {"key": "yolo", "value": "1" if on else "0", "scope": "session"}
    on = toggled(request.value, settings.host.yolo)
    await change(services, "host.yolo", on, save=False)
    if session is not None:
        session.announce_info()
    return {"key": "yolo", "value": "1" if on else "0", "scope": "global"}


async def _set_personality(services: Services, session: Session | None, name: str) -> dict[str, Any]:
    await change(services, "display.personality", name)
    result: dict[str, Any] = {"key": "personality", "value": name, "history_reset": False}
    if session is not None:
        await set_personality(session, None if name == "none" else name)
    return result


async def _set_cwd(services: Services, key: str, value: str) -> dict[str, Any]:
    path = os.path.abspath(os.path.expanduser(value)) if value else ""  # noqa: ASYNC240 (touches no file)
    if not path or not await is_folder(path):
        raise InvalidValue("there is no such directory")
    await change(services, "terminal.cwd", path)
    return {"key": key, "value": path, "cwd": path, "branch": current_branch(path) or ""}


# --- showing ---------------------------------------------------------------------------------------------------------


def sections(services: Services, session: Session | None, tools: Callable[[], list[str]]) -> list[dict[str, Any]]:
    """``config.show`` (gateway §9.3): what a person asks for first, keys hidden."""
    settings: Settings = services.settings()
    info = session.info() if session is not None else None
    model = [
        ["Model", (info.model if info is not None else "") or settings.model.default or "(chosen by the endpoint)"],
        ["Base URL", settings.model.base_url or "(the provider's own)"],
        ["API key", MASK if settings.model.api_key else "(from the environment)"],
    ]
    agent = [
        ["Max turns", str(settings.agent.max_turns or "no limit")],
        ["Toolsets", ", ".join(tools()) or "(none)"],
        ["Verbose", settings.display.tool_progress],
    ]
    environment = [
        ["Working directory", info.cwd if info is not None else os.getcwd()],
        ["Config file", str(services.home / "config.yaml")],
    ]
    return [
        {"title": "Model", "rows": model},
        {"title": "Agent", "rows": agent},
        {"title": "Environment", "rows": environment},
    ]
