"""How many values one frame holds, told without reading it as JSON.

A text of 300 MB is read in no time; twenty megabytes of small values take seconds, in which nothing else runs: the
parser lets no other thread in, so that reading them elsewhere would not help. They are counted first. Every value but
the first of its list or object has a comma before it, and a comma that is no part of a text is such a comma.
"""

from __future__ import annotations

from typing import Final

MAX_VALUES: Final = 100_000
_PIECE: Final = 64 * 1024


def may_be_too_many(raw: bytes, limit: int) -> bool:
    """A quick look: False for nearly every frame. True is not certain: texts may hold commas too."""
    return len(raw) > limit and raw.count(b",") > limit


def are_too_many(raw: bytes, limit: int) -> bool:
    """Whether more than ``limit`` values are in it. For a thread: it works in pieces, between which others run."""
    found, in_text, at = 0, False, 0
    while at < len(raw) and found <= limit:
        end = at + _PIECE
        # An escape belongs to one piece.
        while end < len(raw) and raw[end - 1] == 0x5C:
            end += 1
        parts = raw[at:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        found += sum(part.count(b",") for part in parts[in_text::2])
        in_text ^= len(parts) % 2 == 0
        at = end
    return found > limit
