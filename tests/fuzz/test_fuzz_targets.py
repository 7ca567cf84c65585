"""A sample of what ``make fuzz`` looks for in depth: bytes at random, and bytes that are nearly right."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS

ODD = (b"\n\n", b"\r", b'"', b"null", b"-1", b"9" * 20, b"9" * 5000, b"[]", b"{}", b"\xb2", b"\xed\xa0", b"\\ud800")
EXAMPLES = 20_000 if os.environ.get("PROOF") else 400


@st.composite
def nearly_right(draw: st.DrawFn) -> bytes:
    """A seed with some of its bytes changed, doubled or left out."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    dice = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(0, 6))):
        at = dice.randrange(len(data))
        match dice.randrange(4):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at : at + dice.randrange(1, 20)]
            case 2:
                data[at:at] = data[at : at + dice.randrange(1, 40)]
            case _:
                data[at:at] = dice.choice(ODD)
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.one_of(nearly_right(), st.binary(max_size=300)))
def test_no_bytes_break_what_reads_them(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("seed", SEEDS, ids=range(len(SEEDS)))
def test_what_is_nearly_right_is_read(name: str, seed: bytes) -> None:
    TARGETS[name](seed)
