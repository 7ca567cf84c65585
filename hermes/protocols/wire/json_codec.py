"""JSON text to values and back, for values that come from anywhere.

orjson does the work. Two kinds of value that real clients send or models produce are outside what it takes: lone
UTF-16 surrogates and integers over 64 bits. Both go through a slower path here instead of failing the frame.
Lone surrogates become U+FFFD in both directions, so that no other layer ever meets one. What is nested deeper than
``MAX_DEPTH`` is refused when it comes in: whatever takes such a value apart later (validation, redaction, an answer
that holds it) would fail in the middle of its work.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import orjson

from hermes.patterns import lazy_pattern

_LONE_SURROGATE = lazy_pattern("[\ud800-\udfff]")
_EXACT_IN_A_FLOAT = 2**53
MAX_DEPTH = 128
_ENCODABLE_DEPTH = 254
"""What orjson writes; it reads more."""


class NotJson(ValueError):
    """The bytes are not one JSON value."""


class Unencodable(ValueError):
    """The value has no JSON form; the message names the first type that has none."""


def decode(raw: bytes) -> Any:
    """The value of one JSON text. Raises NotJson, and nothing else, whatever the bytes are."""
    try:
        value = orjson.loads(raw)
    except ValueError as error:
        # Only an escaped lone surrogate is worth a second look: it is valid JSON that orjson refuses.
        if b"\\u" not in raw:
            raise NotJson(str(error)) from None
        return decode_exact(raw)
    _check_depth(raw, value)
    return value


def decode_exact(raw: bytes) -> Any:
    """As ``decode``, slower, with integers of any size kept exactly and lone surrogates replaced."""
    try:
        value = _cleaned(json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error) or "nested too deeply") from None
    _check_depth(raw, value)
    return value


def encode(value: Any) -> bytes:
    """One line of JSON without a raw line feed, non-ASCII characters literally. Raises Unencodable."""
    try:
        return orjson.dumps(value)
    except TypeError:
        pass
    try:
        text = json.dumps(_cleaned(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise Unencodable("nested too deeply") from None
    except ValueError as error:
        raise Unencodable(str(error)) from None
    return text.encode("utf-8")


def without_lone_surrogates(text: str) -> str:
    """``text`` with every lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def is_rounded_integer(value: Any) -> bool:
    """True for a float that may stand for an integer orjson could not hold."""
    return isinstance(value, float) and abs(value) >= _EXACT_IN_A_FLOAT and math.isfinite(value)


def _check_depth(raw: bytes, value: Any) -> None:
    """Most texts hold too few brackets to be deep; of the others orjson tells it, much faster than we could."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    for _ in range(_ENCODABLE_DEPTH - MAX_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except TypeError:
        # An integer over 64 bits is refused too, and is none of this function's business.
        if _depth(value) > _ENCODABLE_DEPTH:
            raise NotJson("nested too deeply") from None


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return without_lone_surrogates(value)
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {_cleaned_key(key): _cleaned(item) for key, item in value.items()}
        case list() | tuple():
            return [_cleaned(item) for item in value]
        case _:
            return _through_orjson(value)


def _cleaned_key(key: Any) -> str:
    if not isinstance(key, str):
        raise Unencodable(f"a key of type {type(key).__name__} has no JSON form")
    return without_lone_surrogates(key)


def _through_orjson(value: Any) -> Any:
    # Dataclasses, dates, enums and UUIDs, which orjson knows and the standard encoder does not.
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        raise Unencodable(f"a value of type {type(value).__name__} has no JSON form") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
