"""The estimate of sizes, and the provider's count as its anchor (agent-core §2.7)."""

from __future__ import annotations

import pytest

from hermes.agent.row_memory import RowMemory
from hermes.agent.tokens import IMAGE_TOKENS, content_tokens, row_tokens, rows_tokens, text_tokens
from hermes.messages import ImagePart, Row, TextPart, ToolCall


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("é" * 4, 2),
        ("привет", 3),
        ("你好世界", 4),
        ("你好 world", 4),
        ("こんにちは", 5),
        ("안녕하세요", 5),
        ("😀", 1),
        ("a\ud800", 1),
    ],
)
def test_four_bytes_are_a_token_and_so_is_a_wide_character(text: str, tokens: int) -> None:
    assert text_tokens(text) == tokens


def test_images_and_calls_count() -> None:
    image = ImagePart(mime_type="image/png", data="aGk=")
    assert content_tokens((TextPart("abcd"), image)) == 1 + IMAGE_TOKENS == 1_501
    plain = Row("assistant", "abcd")
    calling = Row("assistant", "abcd", tool_calls=(ToolCall("c", "look", '{"path":"x"}'),))
    assert row_tokens(calling) > row_tokens(plain) > 0


def test_what_a_provider_has_counted_is_the_anchor_and_only_new_rows_are_estimated() -> None:
    rows = [Row("user", "x" * 400), Row("assistant", "y" * 400)]
    memory = RowMemory()
    assert memory.counted(rows) is None
    memory.anchor(rows, 5_000)
    assert memory.counted(rows) == 5_000
    rows.append(Row("tool", "z" * 4_000, tool_call_id="c"))
    assert memory.counted(rows) == 5_000 + rows_tokens(rows[2:])
    # A rewind: what was counted is no longer there.
    assert memory.counted(rows[:1]) is None
