"""Tables of methods: complete, without doubles, closed once they are served."""

import pytest

from hermes.protocols.rpc.method_table import MethodTable, Params, Result, to_wire


def handler(ctx: None, params: object) -> None:
    return None


def test_a_name_is_taken_once() -> None:
    table: MethodTable[None] = MethodTable()
    table.method("a", None)(handler)
    with pytest.raises(ValueError, match="twice"):
        table.method("a", None)(handler)
    with pytest.raises(ValueError, match="twice"):
        MethodTable.combined(table, table)


def test_a_combined_table_holds_all_and_takes_no_more() -> None:
    one: MethodTable[None] = MethodTable()
    other: MethodTable[None] = MethodTable()
    one.method("b", None)(handler)
    other.method("a", None)(handler)
    whole = MethodTable.combined(one, other)
    assert whole.names() == ("a", "b")
    with pytest.raises(ValueError, match="already"):
        whole.method("c", None)(handler)


def test_parameters_that_are_not_declared_are_ignored_by_the_lenient_base() -> None:
    class Lenient(Params):
        text: str = "default"

    table: MethodTable[None] = MethodTable()
    table.method("a", Lenient)(handler)
    found = table.find("a")
    assert found is not None
    assert found.read_params({"other": 1}) == Lenient()


def test_a_result_leaves_out_what_was_not_given_and_keeps_a_given_null() -> None:
    class Inner(Result):
        x: int
        y: int | None = None

    class Outer(Result):
        kind: str = "outer"
        inner: Inner
        given: str | None = None
        absent: str | None = None

    assert to_wire(Outer(inner=Inner(x=1), given=None)) == {"kind": "outer", "inner": {"x": 1}, "given": None}
    assert to_wire(None) == {}
    assert to_wire([1]) == [1]
