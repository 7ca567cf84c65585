"""Strict mode: refuse the histories that the real services refuse, with a message that names the place.

A client may be forgiving with itself as long as its provider is; this module is not. Pure functions over the decoded
request. Where services differ the stricter one is followed, so that a history that passes here passes anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from hermes.testing.wire_frames import Json, WireFormat

CHAT_KEYS: Final = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {
        *("role", "content", "name", "refusal", "tool_calls", "audio", "function_call"),
        *("reasoning", "reasoning_content", "reasoning_text", "reasoning_details"),
    },
    "tool": {"role", "content", "tool_call_id", "name"},
}
MESSAGES_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
THINKING: Final = ("thinking", "redacted_thinking")


class MalformedHistory(ValueError):
    """The request breaks a rule of its wire format. The message begins with the place."""


def check_request(wire: WireFormat, body: Json) -> None:
    """Raise MalformedHistory at the first broken rule."""
    for place, value in _walk("", body):
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            _refuse(place, "holds a lone surrogate, which is not valid Unicode")
    if not isinstance(body.get("model"), str) or not body["model"]:
        _refuse("model", "is required")
    rows_key = "input" if wire is WireFormat.RESPONSES else "messages"
    _refuse_private_keys(rows_key, body.get(rows_key))
    match wire:
        case WireFormat.CHAT:
            _check_chat(_list_of_objects("messages", body.get("messages")))
        case WireFormat.MESSAGES:
            _check_messages(body, _list_of_objects("messages", body.get("messages")))
        case WireFormat.RESPONSES:
            if not isinstance(body.get("input"), str):
                _check_responses(body, _list_of_objects("input", body.get("input")))


# --- chat completions -----------------------------------------------------------------------------------------------


def _check_chat(rows: list[Json]) -> None:
    waiting: dict[str, str] = {}
    previous = ""
    for number, row in enumerate(rows):
        place = f"messages[{number}]"
        role = row.get("role")
        if not isinstance(role, str) or role not in CHAT_KEYS:
            _refuse(f"{place}.role", f"{role!r} is not one of {', '.join(CHAT_KEYS)}")
        unknown = sorted(row.keys() - CHAT_KEYS[role])
        if unknown:
            _refuse(f"{place}.{unknown[0]}", f"is not a key of a message of role {role}")
        if role == "tool":
            _settle_tool_row(place, row, waiting)
        elif waiting:
            _refuse(place, f"{_unanswered(waiting)}: tool results must come before a message of role {role}")
        elif role == "assistant":
            if previous == "assistant":
                _refuse(place, "follows another assistant message; there must be a user or tool message between")
            waiting = _chat_calls(place, row)
        elif role == "user" and not row.get("content"):
            _refuse(f"{place}.content", "is empty")
        previous = role
    if waiting:
        _refuse("messages", f"{_unanswered(waiting)} at the end of the history")


def _settle_tool_row(place: str, row: Json, waiting: dict[str, str]) -> None:
    call_id = row.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        _refuse(f"{place}.tool_call_id", "must be a non-empty string")
    if call_id not in waiting:
        _refuse(place, f"answers {call_id!r}, which is no open call of the assistant message before it")
    if not isinstance(row.get("content"), str | list):
        _refuse(f"{place}.content", "must be a string or a list of parts")
    del waiting[call_id]


def _chat_calls(place: str, row: Json) -> dict[str, str]:
    """The calls that wait for a result: id → place."""
    calls = row.get("tool_calls")
    if calls is None:
        if not row.get("content") and not row.get("refusal"):
            _refuse(place, "an assistant message needs content or tool_calls")
        return {}
    if not calls:
        _refuse(f"{place}.tool_calls", "must not be empty; leave the key out")
    waiting: dict[str, str] = {}
    for number, call in enumerate(_list_of_objects(f"{place}.tool_calls", calls)):
        where = f"{place}.tool_calls[{number}]"
        function = call.get("function")
        if call.get("type") != "function" or not isinstance(function, dict):
            _refuse(where, "must be of type function and have a function")
        unknown = sorted(call.keys() - {"id", "type", "function", "extra_content"})
        if unknown:
            _refuse(f"{where}.{unknown[0]}", "is not a key of a tool call")
        call_id = _new_id(f"{where}.id", call.get("id"), waiting)
        _check_name(f"{where}.function.name", function.get("name"))
        _check_arguments(f"{where}.function.arguments", function.get("arguments"))
        waiting[call_id] = where
    return waiting


# --- Anthropic messages ---------------------------------------------------------------------------------------------


def _check_messages(body: Json, rows: list[Json]) -> None:
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        _refuse("max_tokens", "is required and must be a positive number")
    waiting: dict[str, str] = {}
    for number, row in enumerate(rows):
        place = f"messages[{number}]"
        expected = "assistant" if number % 2 else "user"
        if row.get("role") != expected:
            _refuse(f"{place}.role", f"is {row.get('role')!r}; roles must alternate, beginning with user")
        unknown = sorted(row.keys() - {"role", "content"})
        if unknown:
            _refuse(f"{place}.{unknown[0]}", "is not a key of a message")
        blocks = _blocks(place, row.get("content"), last_of_assistant=number == len(rows) - 1 and expected != "user")
        if expected == "user":
            _check_results(place, blocks, waiting)
            waiting = {}
        else:
            waiting = _tool_uses(place, blocks)
    if waiting:
        _refuse("messages", f"{_unanswered(waiting)} at the end of the history")
    kinds = {block.get("type") for row in rows for block in _objects(row.get("content"))}
    if kinds & {"tool_use", "tool_result"} and not body.get("tools"):
        _refuse("tools", "must be given when the history holds tool_use or tool_result blocks")
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        _check_active_cycle(rows)


def _blocks(place: str, content: Any, *, last_of_assistant: bool) -> list[Json]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = _list_of_objects(f"{place}.content", content)
    for number, block in enumerate(blocks):
        where = f"{place}.content[{number}]"
        kind = block.get("type")
        if kind == "text":
            text = block.get("text")
            if not isinstance(text, str) or not text.strip():
                _refuse(f"{where}.text", "must hold more than white space")
            if last_of_assistant and number == len(blocks) - 1 and text != text.rstrip():
                _refuse(f"{where}.text", "a final assistant message must not end in white space")
        elif kind == "thinking" and not (isinstance(block.get("signature"), str) and block["signature"]):
            _refuse(f"{where}.signature", "a thinking block must be replayed with its signature")
        elif kind == "redacted_thinking" and not block.get("data"):
            _refuse(f"{where}.data", "is required")
        elif not isinstance(kind, str):
            _refuse(f"{where}.type", "is required")
    return blocks


def _check_results(place: str, blocks: list[Json], waiting: dict[str, str]) -> None:
    """All results of the assistant message before, first in this user message, each once, and nothing else."""
    others_seen = False
    open_calls = dict(waiting)
    for number, block in enumerate(blocks):
        where = f"{place}.content[{number}]"
        if block["type"] in (*THINKING, "tool_use"):
            _refuse(where, f"a user message cannot hold a block of type {block['type']}")
        if block["type"] != "tool_result":
            others_seen = True
            continue
        call_id = block.get("tool_use_id")
        if call_id not in open_calls:
            _refuse(where, f"answers {call_id!r}, which is no open tool_use of the message before it")
        if others_seen:
            _refuse(where, "tool_result blocks must come before other blocks")
        del open_calls[call_id]
    if open_calls:
        _refuse(place, f"{_unanswered(open_calls)} in the message that follows it")


def _tool_uses(place: str, blocks: list[Json]) -> dict[str, str]:
    waiting: dict[str, str] = {}
    for number, block in enumerate(blocks):
        where = f"{place}.content[{number}]"
        if block["type"] == "tool_result":
            _refuse(where, "an assistant message cannot hold a tool_result")
        if block["type"] != "tool_use":
            continue
        call_id = _new_id(f"{where}.id", block.get("id"), waiting)
        if not MESSAGES_ID.fullmatch(call_id):
            _refuse(f"{where}.id", f"{call_id!r} must match {MESSAGES_ID.pattern}")
        _check_name(f"{where}.name", block.get("name"))
        if not isinstance(block.get("input"), dict):
            _refuse(f"{where}.input", "must be an object")
        waiting[call_id] = where
    return waiting


def _check_active_cycle(rows: list[Json]) -> None:
    """With thinking enabled, assistant messages of the running tool cycle must begin with a thinking block."""
    for number in range(len(rows) - 1, -1, -1):
        kinds = [block.get("type") for block in _objects(rows[number].get("content"))]
        if rows[number]["role"] == "user":
            if "tool_result" not in kinds:
                return
        elif "tool_use" in kinds and kinds[0] not in THINKING:
            place = f"messages[{number}].content[0].type"
            _refuse(place, f"expected thinking or redacted_thinking, found {kinds[0]}: thinking is enabled")


# --- OpenAI Responses -----------------------------------------------------------------------------------------------


def _check_responses(body: Json, items: list[Json]) -> None:
    waiting: dict[str, str] = {}
    seen: set[str] = set()
    previous: Json = {}
    for number, item in enumerate(items):
        place = f"input[{number}]"
        kind = item.get("type", "message")
        if previous.get("type") == "reasoning" and not _may_follow_reasoning(item):
            _refuse(f"input[{number - 1}]", "a reasoning item must be followed by the item that it led to")
        if kind == "message":
            _check_message_item(place, item, previous, waiting)
        elif kind == "function_call":
            call_id = _new_id(f"{place}.call_id", item.get("call_id"), seen)
            _check_name(f"{place}.name", item.get("name"))
            _check_arguments(f"{place}.arguments", item.get("arguments"))
            waiting[call_id] = place
            seen.add(call_id)
        elif kind == "function_call_output":
            answered = item.get("call_id")
            if answered not in waiting:
                _refuse(place, f"no open function call with call_id {answered!r} before this output")
            if not isinstance(item.get("output"), str | list):
                _refuse(f"{place}.output", "must be a string or a list of parts")
            del waiting[answered]
        elif kind == "reasoning":
            _check_reasoning(place, item, stored=body.get("store") is not False)
        elif not isinstance(kind, str):
            _refuse(f"{place}.type", "must be a string")
        previous = item
    if previous.get("type") == "reasoning":
        _refuse(f"input[{len(items) - 1}]", "a reasoning item must be followed by the item that it led to")
    if waiting:
        _refuse("input", f"{_unanswered(waiting)} at the end of the history")


def _check_message_item(place: str, item: Json, previous: Json, waiting: dict[str, str]) -> None:
    role = item.get("role")
    if role not in ("user", "assistant", "system", "developer"):
        _refuse(f"{place}.role", f"{role!r} is not one of user, assistant, system, developer")
    if not item.get("content"):
        _refuse(f"{place}.content", "is empty")
    if waiting and role != "assistant":
        # The text of the same answer may follow its calls; a new message of somebody else may not.
        _refuse(place, f"{_unanswered(waiting)}: outputs must come before a message of role {role}")
    if role == "assistant" and previous.get("role") == "assistant":
        _refuse(place, "follows another assistant message")


def _check_reasoning(place: str, item: Json, *, stored: bool) -> None:
    if not isinstance(item.get("summary"), list):
        _refuse(f"{place}.summary", "is required and must be a list")
    if not isinstance(item.get("id"), str):
        _refuse(f"{place}.id", "is required")
    if not stored and not item.get("encrypted_content"):
        _refuse(place, f"{item['id']!r} is not stored (store is false) and holds no encrypted_content")


def _may_follow_reasoning(item: Json) -> bool:
    kind = item.get("type", "message")
    return item.get("role") == "assistant" if kind == "message" else kind != "function_call_output"


# --- common ---------------------------------------------------------------------------------------------------------


def _refuse(place: str, problem: str) -> NoReturn:
    raise MalformedHistory(f"{place}: {problem}")


def _unanswered(waiting: dict[str, str]) -> str:
    call_id, place = next(iter(waiting.items()))
    return f"the call {call_id!r} of {place} has no result"


def _new_id(place: str, call_id: Any, taken: dict[str, str] | set[str]) -> str:
    if not isinstance(call_id, str) or not call_id:
        _refuse(place, "must be a non-empty string")
    if call_id in taken:
        _refuse(place, f"{call_id!r} is used twice")
    return call_id


def _check_name(place: str, name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        _refuse(place, "must be a non-empty string")


def _check_arguments(place: str, arguments: Any) -> None:
    if not isinstance(arguments, str):
        _refuse(place, "must be a string of JSON")
    try:
        value = json.loads(arguments)
    except json.JSONDecodeError as error:
        _refuse(place, f"is not JSON: {error}")
    if not isinstance(value, dict):
        _refuse(place, "must be a JSON object")


def _list_of_objects(place: str, value: Any) -> list[Json]:
    if not isinstance(value, list) or not value:
        _refuse(place, "must be a non-empty list")
    for number, entry in enumerate(value):
        if not isinstance(entry, dict):
            _refuse(f"{place}[{number}]", "must be an object")
    return value


def _objects(value: Any) -> list[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _refuse_private_keys(place: str, value: Any) -> None:
    """Rows only: arguments of calls belong to the tool, and may be named as it likes."""
    if isinstance(value, list):
        for number, entry in enumerate(value):
            _refuse_private_keys(f"{place}[{number}]", entry)
    elif isinstance(value, dict):
        for key, entry in value.items():
            if key.startswith("_"):
                _refuse(f"{place}.{key}", "is a private key and must not be sent")
            if key != "input" or value.get("type") != "tool_use":
                _refuse_private_keys(f"{place}.{key}", entry)


def _walk(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _walk(f"{place}.{key}".lstrip("."), entry)
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _walk(f"{place}[{number}]", entry)
    else:
        yield place, value
