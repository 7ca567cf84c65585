"""Results and session facts in the shapes of the older dialect (gateway §11.6): less than ours, never more.

Pure. Which connections get them is the client's ``older``; the questions of that dialect are in ``client_requests.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

CONTRACT: Final = 4
CREATED_INFO: Final = ("model", "tools", "skills", "cwd", "branch", "project", "lazy", "profile_name")
ACTIVATED: Final = ("session_id", "session_key", "message_count", "running", "started_at", "status")
LISTED: Final = ("id", "title", "preview", "started_at", "message_count", "source")
NEWER_INFO: Final = frozenset({"reasoning_effort_wire", "terminal_backend", "turn_started_at"})
STATUS_WORDS: Final[Mapping[str, str]] = {"streaming": "streaming"}
"""What became of a prompt: that dialect knows two words; everything but a turn of its own is ``queued``."""


def legacy_result(method: str, result: Any) -> Any:
    """The result as a client of the older dialect knows it."""
    shape = RESULTS.get(method)
    return shape(result) if shape is not None and isinstance(result, dict) else result


def legacy_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of ``session.info``, and ``info`` of a live session."""
    kept = {name: value for name, value in info.items() if name not in NEWER_INFO}
    return {**kept, "desktop_contract": CONTRACT, "install_warning": ""}


def legacy_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        _picked(message, ("role", "name", "context") if message["role"] == "tool" else ("role", "text"))
        for message in messages
    ]


def _picked(whole: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: whole[name] for name in names if name in whole}


def _created(result: Mapping[str, Any]) -> dict[str, Any]:
    info = {**_picked(result["info"], CREATED_INFO), "desktop_contract": CONTRACT}
    return {**result, "messages": legacy_messages(result["messages"]), "info": info}


def _activated(result: Mapping[str, Any]) -> dict[str, Any]:
    shape = _picked(result, ACTIVATED)
    shape |= {"messages": legacy_messages(result["messages"]), "info": legacy_info(result["info"])}
    if result["running"] and result["inflight"] is not None:
        shape["inflight"] = _picked(result["inflight"], ("user", "assistant", "streaming"))
    return shape


def _resumed(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"inflight": None, **_activated(result), "resumed": result["resumed"]}


def _compressed(result: Mapping[str, Any]) -> dict[str, Any]:
    shape = dict(result)
    if "summary" in shape:
        shape["summary"] = {key: value for key, value in shape["summary"].items() if key != "refused_would_grow"}
    if "messages" in shape:
        shape |= {"messages": legacy_messages(shape["messages"]), "info": legacy_info(shape["info"])}
    return shape


RESULTS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "session.create": _created,
    "session.activate": _activated,
    "session.resume": _resumed,
    "session.history": lambda result: {"count": result["count"], "messages": legacy_messages(result["messages"])},
    "session.list": lambda result: {"sessions": [_picked(row, LISTED) for row in result["sessions"]]},
    "session.branch": lambda result: _picked(result, ("session_id", "title", "parent")),
    "session.compress": _compressed,
    "session.close": lambda result: _picked(result, ("closed",)),
    "session.cwd.set": legacy_info,
    "prompt.submit": lambda result: {"status": STATUS_WORDS.get(result["status"], "queued")},
}
