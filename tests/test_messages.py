"""What is said: contents, rows, prompts."""

from __future__ import annotations

import dataclasses

import pytest

from hermes.messages import Content, ImagePart, Prompt, Row, TextPart, content_text, has_images

IMAGE = ImagePart("image/png", data="aGk=")


@pytest.mark.parametrize(
    ("content", "text", "images"),
    [
        (None, "", False),
        ("words", "words", False),
        ((TextPart("one"), TextPart("two")), "one\ntwo", False),
        ((TextPart("look"), IMAGE), "look", True),
        ((IMAGE,), "", True),
        ((), "", False),
    ],
)
def test_the_text_of_a_content_leaves_images_out(content: Content, text: str, images: bool) -> None:
    assert content_text(content) == text
    assert has_images(content) is images
    assert Row("user", content).text == text
    assert Prompt(content).text == text


@pytest.mark.parametrize(
    ("row", "counted"),
    [
        (Row("user", "a"), True),
        (Row("user", "a", display_kind="skill_invocation"), True),
        (Row("user", "a", display_kind="steer"), False),
        (Row("user", "a", display_kind="process_complete"), False),
        (Row("assistant", "a"), False),
        (Row("tool", "a"), False),
    ],
)
def test_rewinds_count_what_a_person_asked_and_nothing_else(row: Row, counted: bool) -> None:
    assert row.is_user_prompt is counted


def test_a_row_gets_its_number_as_a_new_row() -> None:
    row = Row("user", "a")
    assert row.with_id(7) == dataclasses.replace(row, row_id=7)
    assert row.row_id is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        row.content = "b"  # type: ignore[misc]
