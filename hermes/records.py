"""``dataclass``, as in the standard library, but its methods are made when they are first used.

Each process declares hundreds of records and uses a fraction of them, and of most it uses nothing but ``__init__``;
writing and compiling the methods of all of them was the largest part of the start. What this decorator returns has its
slots at once. The first instance makes ``__init__``; comparison, ``repr``, the fields and all else come from the
standard decorator when somebody asks for one of them. So nothing but the moment differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

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


_NOT_COPIED: Final = frozenset({"__dict__", "__weakref__", "__init__"})
_ON_DEMAND: Final = ("__eq__", "__repr__", "__hash__", "__match_args__", "__dataclass_fields__", "__dataclass_params__")


class _OnDemand:
    """Stands for what the standard decorator makes until somebody looks it up, on the class or on an instance."""

    def __init__(self, finish: Callable[[], None], name: str) -> None:
        self._finish = finish
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        self._finish()
        return getattr(owner if instance is None else instance, self._name)


def _declare(declared: type, frozen: bool) -> type:
    """The class with slots."""
    namespace = {name: value for name, value in declared.__dict__.items() if name not in _NOT_COPIED}
    names = [name for name, kind in namespace.get("__annotations__", {}).items() if not _is_class_variable(kind)]
    bases = declared.__bases__
    inherited = {slot for base in declared.__mro__[1:] for slot in getattr(base, "__slots__", ())}
    body = {name: value for name, value in namespace.items() if name not in names}
    body["__slots__"] = tuple(name for name in names if name not in inherited)

    def finish() -> None:
        # Made from a copy, so that two threads that come at the same time make the same methods twice.
        made: Any = type(declared)(declared.__name__, bases, dict(namespace))
        made.__qualname__ = declared.__qualname__
        made = dataclasses.dataclass(frozen=frozen)(made)
        fresh = {name: made.__dict__[name] for name in made.__dict__ if name not in namespace and name not in names}
        fresh["__hash__"] = made.__dict__.get("__hash__")
        if getattr(record.__dict__.get("__init__"), "made", False):
            del fresh["__init__"]
        for name, value in fresh.items():
            if name not in ("__dict__", "__weakref__", "__setattr__", "__delattr__"):
                setattr(record, name, value)

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        if any(hasattr(base, "__dataclass_fields__") for base in bases) or not _is_plain(namespace, names):
            finish()
        else:
            record.__init__ = _initializer(record, names, namespace)  # type: ignore[misc]
        record.__init__(self, *args, **values)  # type: ignore[misc]

    body["__init__"] = __init__
    body |= {name: _OnDemand(finish, name) for name in _ON_DEMAND if name not in body}
    if frozen:
        body |= {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
        body = {"__getstate__": _state, "__setstate__": _restore, **body}
    record: type = type(declared)(declared.__name__, bases, body)
    record.__qualname__ = declared.__qualname__
    return record


def _is_class_variable(annotation: Any) -> bool:
    return str(annotation).removeprefix("typing.").startswith("ClassVar")


def _is_plain(namespace: Mapping[str, Any], names: list[str]) -> bool:
    """Whether every field is a plain parameter: what ``_initializer`` can write."""
    specified = (namespace[name] for name in names if isinstance(namespace.get(name), dataclasses.Field))
    return all(item.init and item.kw_only is dataclasses.MISSING for item in specified)


def _initializer(record: type, names: list[str], namespace: Mapping[str, Any]) -> Callable[..., None]:
    """``__init__`` alone. It sets the slots directly, which also passes the refusal of a frozen record."""
    scope: dict[str, Any] = {"_MISSING": dataclasses.MISSING}
    parameters, lines = ["self"], []
    for number, name in enumerate(names):
        # Names of ours begin so that no field can have them.
        of_ours = f"_{number}_"
        scope[f"{of_ours}set"] = getattr(record, name).__set__
        value = name
        default = namespace.get(name, dataclasses.MISSING)
        if isinstance(default, dataclasses.Field):
            if default.default_factory is not dataclasses.MISSING:
                scope[f"{of_ours}new"] = default.default_factory
                value = f"{of_ours}new() if {name} is _MISSING else {name}"
                default = dataclasses.MISSING
                parameters.append(f"{name}=_MISSING")
            else:
                default = default.default
        if default is not dataclasses.MISSING:
            scope[f"{of_ours}default"] = default
            parameters.append(f"{name}={of_ours}default")
        elif value == name:
            parameters.append(name)
        lines.append(f" {of_ours}set(self, {value})\n")
    if hasattr(record, "__post_init__"):
        lines.append(" self.__post_init__()\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(lines) or ' pass'}", scope)
    made: Any = scope["__init__"]
    made.__qualname__ = f"{record.__qualname__}.__init__"
    made.made = True
    return made  # type: ignore[no-any-return]


def _refuse_change(self: Any, name: str, *_value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for item, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)
