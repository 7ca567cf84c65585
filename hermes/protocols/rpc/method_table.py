"""Methods by name, with their parameter models.

    methods = MethodTable()

    @methods.method("session.title", SessionTitleParams, SessionTitleResult)
    def title(ctx: GatewayContext, params: SessionTitleParams) -> SessionTitleResult: ...

A handler is a plain function. It runs when its frame is read, in arrival order, before the next frame: so what it
validates, reserves or cancels takes effect in that order. What has to be waited for it returns as ``Awaiting``; that
part runs in the request's own task. An ``async def`` handler is all waiting. ``combined`` makes the immutable table
that a surface serves.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from hermes.records import dataclass

C = TypeVar("C")
P = TypeVar("P", bound=BaseModel)
R = TypeVar("R")


class Params(BaseModel):
    """Base of parameter models that ignore keys they do not declare. Built on first use."""

    model_config = ConfigDict(frozen=True, defer_build=True, validate_by_name=True, validate_by_alias=True)


class StrictParams(Params):
    """Base of parameter models that refuse keys they do not declare."""

    model_config = ConfigDict(extra="forbid")


class Result(BaseModel):
    """Base of result models. A member that is None and was not given is left out; one that was given as None is
    written as null."""

    model_config = ConfigDict(frozen=True, defer_build=True, validate_by_name=True, validate_by_alias=True)

    @model_serializer(mode="wrap")
    def _without_absent_members(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        full: dict[str, Any] = handler(self)
        for name, field in type(self).model_fields.items():
            if name not in self.model_fields_set and getattr(self, name) is None:
                full.pop(field.serialization_alias or field.alias or name, None)
                full.pop(name, None)
        return full


@dataclass(frozen=True, slots=True)
class Awaiting(Generic[R]):
    """The part of a handler that waits.

    ``on_cancel``: what a cancel request for this call does instead of cancelling the task. For work that answers by
    itself when it is stopped.
    """

    run: Callable[[], Awaitable[R]]
    on_cancel: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """A result with something to do right after its frame has been queued, such as sending a first notification."""

    result: R
    after: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Method(Generic[C]):
    """One entry of a table."""

    name: str
    params: type[BaseModel] | None
    result: type[Any] | str | None
    handler: Callable[[C, Any], Any]
    waits: bool

    def read_params(self, params: dict[str, Any]) -> Any:
        """The parameters as the handler takes them. Raises ValidationError."""
        return params if self.params is None else self.params.model_validate(params)

    def call(self, ctx: C, params: Any) -> Any:
        """Run the synchronous part: a result, an Answer, or an Awaiting."""
        if self.waits:
            return Awaiting(lambda: self.handler(ctx, params))
        return self.handler(ctx, params)


class MethodTable(Generic[C]):
    """Collects methods while modules are imported; read-only once ``combined`` has made a surface's table of it."""

    def __init__(self) -> None:
        self._methods: dict[str, Method[C]] = {}
        self._more: Callable[[], Sequence[MethodTable[C]]] | None = None
        self._adapt: Callable[[Method[C]], Method[C]] | None = None
        self._is_open = True

    def method(
        self, name: str, params: type[P] | None, result: type[Any] | str | None = None
    ) -> Callable[[Callable[[C, Any], Any]], Callable[[C, Any], Any]]:
        """Register the decorated handler under ``name``. Without a parameter model it gets the JSON object itself.
        ``result``: what it gives, for the contract; the name of a model does."""

        def register(handler: Callable[[C, Any], Any]) -> Callable[[C, Any], Any]:
            if not self._is_open:
                raise ValueError(f"{name}: this table is already being served")
            if name in self._methods:
                raise ValueError(f"method {name} is registered twice")
            self._methods[name] = Method(name, params, result, handler, inspect.iscoroutinefunction(handler))
            return handler

        return register

    def find(self, name: str) -> Method[C] | None:
        found = self._methods.get(name)
        if found is None and self._more is not None:
            self._load_more()
            found = self._methods.get(name)
        return found

    def names(self) -> tuple[str, ...]:
        self._load_more()
        return tuple(sorted(self._methods))

    def __iter__(self) -> Iterator[Method[C]]:
        self._load_more()
        return iter(self._methods.values())

    @classmethod
    def combined(
        cls,
        *tables: MethodTable[C],
        more: Callable[[], Sequence[MethodTable[C]]] | None = None,
        adapt: Callable[[Method[C]], Method[C]] | None = None,
    ) -> MethodTable[C]:
        """One immutable table of several. Raises ValueError when a name is in two of them.

        ``more`` gives the tables that need not be there before somebody asks for a method that the others have not;
        ``adapt`` makes of each method what this surface serves.
        """
        whole: MethodTable[C] = cls()
        whole._adapt = adapt
        whole._add(tables)
        whole._more = more
        whole._is_open = False
        return whole

    def _add(self, tables: Sequence[MethodTable[C]]) -> None:
        for table in tables:
            for method in table:
                if method.name in self._methods:
                    raise ValueError(f"method {method.name} is registered twice")
                self._methods[method.name] = method if self._adapt is None else self._adapt(method)

    def _load_more(self) -> None:
        more, self._more = self._more, None
        if more is not None:
            self._add(more())


def to_wire(result: Any) -> Any:
    """A handler's result as a JSON value: models are dumped by alias, None is an empty object, others pass."""
    if result is None:
        return {}
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json", by_alias=True)
    return result
