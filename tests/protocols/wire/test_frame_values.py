"""Values of a frame are counted without reading it: commas of texts are none, wherever the pieces end."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.protocols.wire import frame_values
from hermes.protocols.wire.frame_values import are_too_many, may_be_too_many

TEXT = st.text(alphabet='",\\\n ax\u2028', max_size=12)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def commas(value: Any) -> int:
    match value:
        case dict() | list():
            items = list(value.values()) if isinstance(value, dict) else value
            return max(0, len(items) - 1) + sum(map(commas, items))
        case _:
            return 0


@given(value=VALUES, piece=st.integers(1, 40))
def test_the_count_is_that_of_a_parser_in_pieces_of_any_length(value: Any, piece: int) -> None:
    raw = json.dumps(value, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_values, "_PIECE", piece)
        found = commas(value)
        assert not are_too_many(raw, found)
        assert found == 0 or are_too_many(raw, found - 1)


def test_a_quick_look_passes_what_is_short_or_holds_no_commas() -> None:
    assert not may_be_too_many(b"[1,2]", 100)
    assert not may_be_too_many(b'"' + b"A" * 1000 + b'"', 100)
    assert may_be_too_many(b"1," * 1000, 100)
