"""Arguments of tool calls: cut off or wrong, repaired if that is safe, and fitted to the tool's schema.

Models write JSON by hand. Two failures look alike and mean different things (TL-18): text that was *cut off* by the
output limit must never be guessed at, text that is complete but *wrong* may be repaired or quoted back to the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hermes.patterns import lazy_pattern
from hermes.records import dataclass

_FENCE = lazy_pattern(r"^\s*```[a-zA-Z]*\s*\n?(.*?)\n?\s*```\s*$", re.DOTALL)
MAX_DEPTH = 100
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_PYTHON_LITERALS = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class GoodArguments:
    """``text`` is what is stored: as the model wrote it, or repaired."""

    value: Mapping[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class CutArguments:
    """The text ends inside a string or an open bracket."""


@dataclass(frozen=True, slots=True)
class BadArguments:
    """Complete, but no JSON object. ``problem`` quotes the parser; ``text`` is what the model wrote."""

    problem: str
    text: str


Arguments = GoodArguments | CutArguments | BadArguments


def read_arguments(text: str) -> Arguments:
    """Parse, with repair. Nothing is ever added to text that was cut off."""
    if not text.strip():
        return GoodArguments({}, "{}")
    first = _load(text)
    if isinstance(first, str):
        if ends_inside(text):
            return CutArguments()
        repaired = repair(text)
        second = _load(repaired)
        if isinstance(second, str):
            return BadArguments(first, text)
        first, text = second, repaired
    value = first.value
    if isinstance(value, str):
        # Some models encode the object twice.
        inner = _load(value)
        if not isinstance(inner, str) and isinstance(inner.value, dict):
            return GoodArguments(inner.value, value)
    if not isinstance(value, dict):
        return BadArguments(f"expected a JSON object, got {_kind(value)}", text)
    return GoodArguments(value, text)


@dataclass(frozen=True, slots=True)
class _Loaded:
    value: Any


def _load(text: str) -> _Loaded | str:
    """The value, or what the parser says. What is nested too deeply nobody could redact, show or store."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        return _TOO_DEEP
    except ValueError as error:
        return str(error)
    return _TOO_DEEP if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(value) else _Loaded(value)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return True


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def ends_inside(text: str) -> bool:
    """True if the text ends within a string or with a bracket still open: it was cut off."""
    fence = text.strip().startswith("```")
    inside = False
    escaped = False
    depth = 0
    for character in text:
        if inside:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                inside = False
        elif character == '"':
            inside = True
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
    return not fence and (inside or depth > 0)


def repair(text: str) -> str:
    """Undo common slips of complete text (TL-19): fences, trailing commas, Python literals, raw control characters.

    Strings are copied as they are, apart from control characters, which are escaped.
    """
    fenced = _FENCE.match(text)
    if fenced:
        text = fenced.group(1)
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == '"':
            end = _string_end(text, position)
            out.append(_escape_controls(text[position:end]))
            position = end
        elif character.isalpha():
            end = position
            while end < len(text) and (text[end].isalnum() or text[end] == "_"):
                end += 1
            word = text[position:end]
            out.append(_PYTHON_LITERALS.get(word, word))
            position = end
        elif character == "," and text[position + 1 :].lstrip()[:1] in ("}", "]"):
            position += 1
        else:
            out.append(character)
            position += 1
    return "".join(out).strip()


def _string_end(text: str, start: int) -> int:
    position = start + 1
    while position < len(text):
        if text[position] == "\\":
            position += 2
            continue
        if text[position] == '"':
            return position + 1
        position += 1
    return len(text)


def _escape_controls(literal: str) -> str:
    return "".join(json.dumps(c)[1:-1] if c < " " else c for c in literal)


# --- fitting arguments to a schema (TL-20) ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fitted:
    """Coerced arguments, the keys that the schema does not know, and the first problem, if any."""

    value: Mapping[str, Any]
    dropped: tuple[str, ...] = ()
    problem: str | None = None


def fit(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Fitted:
    """Coerce to the schema and check the outermost level: required keys, types, enumerations."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    open_ended = schema.get("additionalProperties", not properties) is not False and not properties
    fitted: dict[str, Any] = {}
    dropped: list[str] = []
    problem: str | None = None
    for key, value in arguments.items():
        if key not in properties:
            if open_ended or schema.get("additionalProperties"):
                fitted[key] = value
            else:
                dropped.append(key)
            continue
        expected = properties[key]
        if value is None and key not in schema.get("required", ()) and not _allows(expected, "null"):
            continue
        fitted[key] = coerce(value, expected)
        problem = problem or _mismatch(key, fitted[key], expected)
    missing = [key for key in schema.get("required", ()) if key not in fitted]
    if missing:
        problem = f"missing required argument: {', '.join(missing)}"
    return Fitted(fitted, tuple(dropped), problem)


def coerce(value: Any, schema: Any) -> Any:
    """``"5"`` → 5, ``"true"`` → true, JSON in a string → object or list, a single value → list, as the schema asks."""
    if not isinstance(schema, Mapping):
        return value
    if _fits(value, schema):
        return _coerce_inner(value, schema)
    for kind in _types(schema):
        changed = _coerce_to(value, kind)
        if changed is not _UNCHANGED:
            return _coerce_inner(changed, schema)
    if _allows(schema, "array") and not isinstance(value, list | dict | None.__class__):
        return [coerce(value, schema.get("items"))]
    return value


def _coerce_inner(value: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [coerce(item, schema["items"]) for item in value]
    properties = schema.get("properties")
    if isinstance(value, dict) and isinstance(properties, Mapping):
        return {key: coerce(item, properties[key]) if key in properties else item for key, item in value.items()}
    return value


class _Unchanged:
    pass


_UNCHANGED = _Unchanged()


def _coerce_to(value: Any, kind: str) -> Any:
    if isinstance(value, str):
        text = value.strip()
        if kind == "boolean" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind == "null" and text.lower() in ("null", "none"):
            return None
        loaded = _load(text)
        if not isinstance(loaded, str) and _is(loaded.value, kind) and kind != "string":
            return loaded.value
        if kind == "integer" and not isinstance(loaded, str) and _whole(loaded.value):
            return int(loaded.value)
    if kind == "integer" and _whole(value):
        return int(value)
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    return _UNCHANGED


def _whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    if isinstance(kind, list):
        return tuple(entry for entry in kind if isinstance(entry, str))
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            return tuple(t for option in options if isinstance(option, Mapping) for t in _types(option))
    return ()


def _allows(schema: Any, kind: str) -> bool:
    return isinstance(schema, Mapping) and kind in _types(schema)


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "null":
            return value is None
        case _:
            return True


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    kinds = _types(schema)
    return not kinds or any(_is(value, kind) for kind in kinds)


def _mismatch(key: str, value: Any, schema: Any) -> str | None:
    if not isinstance(schema, Mapping):
        return None
    if not _fits(value, schema):
        return f"argument {key} must be of type {' or '.join(_types(schema))}, got {_kind(value)}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"argument {key} must be one of {', '.join(map(str, choices))}"
    return None
