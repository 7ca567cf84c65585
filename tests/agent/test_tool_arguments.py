"""Arguments that were cut off, arguments that are wrong, arguments that only need a little help."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.tool_arguments import BadArguments, CutArguments, GoodArguments, coerce, fit, read_arguments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("  ", {}),
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": [1, 2,], }', {"a": [1, 2]}),
        ('{"a": True, "b": None, "c": False}', {"a": True, "b": None, "c": False}),
        ('{"a": "two\nlines\tand True,}"}', {"a": "two\nlines\tand True,}"}),
        ('"{\\"a\\": 1}"', {"a": 1}),
    ],
)
def test_arguments_are_read_with_safe_repairs(text: str, value: Any) -> None:
    read = read_arguments(text)
    assert isinstance(read, GoodArguments) and read.value == value
    assert json.loads(read.text) == value


@pytest.mark.parametrize("text", ['{"a": "x', '{"a": [1', "{", '{"a": 1', '{"a": "x\\'])
def test_text_that_ends_inside_is_cut_and_never_completed(text: str) -> None:
    assert read_arguments(text) == CutArguments()


@pytest.mark.parametrize("text", ["[1]", "3", "null", '{"a" 1}', "{a: 1}", '{"a": 1}}', '{"a": NaN}'])
def test_complete_nonsense_is_reported_with_the_parsers_words(text: str) -> None:
    read = read_arguments(text)
    assert isinstance(read, BadArguments) and read.problem and read.text == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=5), json_values, min_size=1, max_size=4), st.data())
def test_any_proper_prefix_of_an_object_is_cut_and_the_whole_is_kept(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value)
    assert read_arguments(text) == GoodArguments(value, text)
    prefix = text[: data.draw(st.integers(1, len(text) - 1))]
    assert read_arguments(prefix) == CutArguments()


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("5", {"type": "integer"}, 5),
        ("5.0", {"type": "integer"}, 5),
        (5.0, {"type": "integer"}, 5),
        ("1.5", {"type": "number"}, 1.5),
        ("true", {"type": "boolean"}, True),
        ("False", {"type": "boolean"}, False),
        ('["a"]', {"type": "array", "items": {"type": "string"}}, ["a"]),
        ('{"a": "1"}', {"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}),
        ("a", {"type": "array", "items": {"type": "string"}}, ["a"]),
        (["1"], {"type": "array", "items": {"type": "integer"}}, [1]),
        (5, {"type": "string"}, "5"),
        ("5", {"type": "string"}, "5"),
        ("5", {"type": ["string", "integer"]}, "5"),
        ("x", {"type": "integer"}, "x"),
        ("anything", {}, "anything"),
    ],
)
def test_values_are_coerced_as_the_schema_asks(value: Any, schema: dict[str, Any], expected: Any) -> None:
    assert coerce(value, schema) == expected


def test_unknown_keys_are_dropped_and_missing_ones_are_a_problem() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x"]}}, "required": ["a"]}
    assert fit({"a": "1", "z": 2}, schema).dropped == ("z",)
    assert fit({"b": "x"}, schema).problem == "missing required argument: a"
    assert fit({"a": "q"}, schema).problem == "argument a must be of type integer, got a string"
    assert fit({"a": 1, "b": "y"}, schema).problem == "argument b must be one of x"
    assert fit({"a": 1, "b": None}, schema).value == {"a": 1}
