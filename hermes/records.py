"""``dataclass``, as in the standard library, but its methods are made when the first instance is.

Each process declares hundreds of records and uses a fraction of them; writing and compiling the methods of all of them
was the largest part of the start. What this decorator returns has the slots at once and everything else (``__init__``,
comparison, ``repr``, the fields) from the standard decorator on first use, so nothing but the moment differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False) -> Callable[[type], type]:
        """The decorator. Records without slots, or with an ``__init__`` of their own, are made at once."""

        def decorate(declared: type) -> type:
            if not slots or "__init__" in declared.__dict__:
                return dataclasses.dataclass(frozen=frozen, slots=slots)(declared)
            return _declare(declared, frozen)

        return decorate


_NOT_OURS = ("__dict__", "__weakref__")


class _FieldsOnFirstUse:
    """Stands for ``__dataclass_fields__`` until somebody looks: ``fields``, ``replace``, a record that inherits."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish

    def __get__(self, _instance: object, owner: type) -> Any:
        self._finish()
        return owner.__dataclass_fields__  # type: ignore[attr-defined]


def _declare(declared: type, frozen: bool) -> type:
    """The class with slots; its methods come with the first instance."""
    namespace = {name: value for name, value in declared.__dict__.items() if name not in _NOT_OURS}
    names = [name for name, kind in namespace.get("__annotations__", {}).items() if not _is_class_variable(kind)]
    inherited = {slot for base in declared.__mro__[1:] for slot in getattr(base, "__slots__", ())}
    body = {name: value for name, value in namespace.items() if name not in names}
    body["__slots__"] = tuple(name for name in names if name not in inherited)

    def finish() -> None:
        # Made from a copy, so that two threads that come at the same time make the same methods twice.
        made = type(declared)(declared.__name__, declared.__bases__, dict(namespace))
        made.__qualname__ = declared.__qualname__
        complete: type = dataclasses.dataclass(frozen=frozen)(made)
        fresh = {name: value for name, value in complete.__dict__.items() if name not in namespace}
        fresh["__hash__"] = complete.__dict__.get("__hash__")
        if frozen and "__getstate__" not in namespace:
            fresh |= {"__getstate__": _state, "__setstate__": _restore}
        start = fresh.pop("__init__")
        for name, value in fresh.items():
            if name not in _NOT_OURS and name not in names:
                setattr(record, name, value)
        # The last: from here on nobody comes by.
        record.__init__ = start  # type: ignore[misc]

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        finish()
        record.__init__(self, *args, **values)  # type: ignore[misc]

    body["__init__"] = __init__
    body["__dataclass_fields__"] = _FieldsOnFirstUse(finish)
    record: type = type(declared)(declared.__name__, declared.__bases__, body)
    record.__qualname__ = declared.__qualname__
    return record


def _is_class_variable(annotation: Any) -> bool:
    return str(annotation).removeprefix("typing.").startswith("ClassVar")


def _state(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for item, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)
