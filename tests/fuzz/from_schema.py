"""Values that a JSON Schema allows, as a strategy. Only what our own descriptions and the editors' schema use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

DEPTH = 4
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def from_schema(schema: Any, root: Mapping[str, Any], depth: int = DEPTH) -> st.SearchStrategy[Any]:
    """``root``: the document in which references are looked up."""
    if not isinstance(schema, Mapping) or not schema:
        return JSON
    if "$ref" in schema:
        return from_schema(_found(schema["$ref"], root), root, depth - 1) if depth > 0 else st.just({})
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            branches = [from_schema(_with_members(one, schema), root, depth - 1) for one in schema[several]]
            return st.one_of(branches)
    if "allOf" in schema and "properties" not in schema:
        return from_schema(schema["allOf"][0], root, depth)
    kinds = schema.get("type", "object" if "properties" in schema else None)
    if kinds is None:
        return JSON
    return st.one_of([_typed(kind, schema, root, depth) for kind in ([kinds] if isinstance(kinds, str) else kinds)])


def _typed(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> st.SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number":
            return st.floats(-1e9, 1e9) if "exclusiveMinimum" not in schema else st.floats(0.01, 1e6)
        case "string":
            return st.text(min_size=schema.get("minLength", 0), max_size=min(40, schema.get("maxLength", 40)))
        case "array":
            items = from_schema(schema.get("items"), root, depth - 1) if depth > 0 else st.nothing()
            return st.lists(items, max_size=3 if depth > 0 else 0)
        case _:
            return _object(schema, root, depth)


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> st.SearchStrategy[Any]:
    required = set(schema.get("required", ()))
    members = {name: one for name, one in schema.get("properties", {}).items() if depth > 0 or name in required}
    known = {name: from_schema(one, root, depth - 1) for name, one in members.items()}
    return st.fixed_dictionaries(
        {name: one for name, one in known.items() if name in required},
        optional={name: one for name, one in known.items() if name not in required},
    )


def _with_members(branch: Any, schema: Mapping[str, Any]) -> Any:
    """A branch of a union has the members that stand beside the union, too."""
    if not isinstance(branch, Mapping) or "properties" not in schema:
        return branch
    target = {**branch, "properties": {**schema["properties"], **branch.get("properties", {})}}
    return target | {"required": [*schema.get("required", ()), *branch.get("required", ())]}


def _found(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found
