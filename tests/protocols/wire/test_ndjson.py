"""Lines: split on LF only, bounded, and one bad line costs only itself."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.protocols.wire.ndjson import InvalidUtf8, LineSplitter, LineTooLong


def split_at(data: bytes, positions: tuple[int, ...], max_line: int = 64) -> list[object]:
    splitter = LineSplitter(max_line)
    lines: list[object] = []
    for start, end in zip((0, *positions), (*positions, len(data)), strict=True):
        lines += splitter.feed(data[start:end])
    return lines + splitter.end()


WIRE = (
    '{"a":"x\u2028y\u2029z\x85"}\r\n\n  \r\n'.encode()
    + b"x" * 65
    + b"\n"
    + b'{"b":\xff}\n'
    + b"y" * 64
    + b"\r\n"
    + '{"é":1}'.encode()
)
EXPECTED = [
    '{"a":"x\u2028y\u2029z\x85"}'.encode(),
    LineTooLong(64),
    InvalidUtf8(5),
    b"y" * 64,
    '{"é":1}'.encode(),
]


def test_a_conversation_reads_the_same_wherever_it_is_cut_in_two() -> None:
    for position in range(len(WIRE) + 1):
        assert split_at(WIRE, (position,)) == EXPECTED


def test_a_conversation_reads_the_same_byte_by_byte() -> None:
    assert split_at(WIRE, tuple(range(1, len(WIRE)))) == EXPECTED


def test_a_line_of_the_limit_passes_and_one_more_byte_does_not() -> None:
    assert split_at(b"a" * 64 + b"\n" + b"b" * 65 + b"\nok\n", ()) == [b"a" * 64, LineTooLong(64), b"ok"]


def test_an_endless_line_is_reported_once_and_not_kept() -> None:
    splitter = LineSplitter(64)
    reported = [item for _ in range(1000) for item in splitter.feed(b"x" * 100)]
    assert reported == [LineTooLong(64)]
    assert len(splitter._buffer) == 0
    assert splitter.feed(b"\nnext\n") == [b"next"]


def test_the_end_of_input_inside_an_over_long_line_says_nothing_more() -> None:
    splitter = LineSplitter(4)
    assert splitter.feed(b"x" * 10) == [LineTooLong(4)]
    assert splitter.end() == []


@given(
    st.lists(st.text(alphabet=st.characters(blacklist_characters="\n\r", codec="utf-8"), min_size=1)), st.integers(1, 9)
)
def test_lines_come_back_as_they_were_whatever_the_chunk_size(texts: list[str], size: int) -> None:
    lines = [text.encode() for text in texts if text.encode().strip()]
    data = b"".join(line + b"\n" for line in lines)
    assert split_at(data, tuple(range(size, len(data), size)), 10_000) == lines
