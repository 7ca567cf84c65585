"""HTTP/1.1 framing, read in any pieces."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.providers.http_wire import (
    ChunkedBody,
    ContentDecoder,
    ResponseHead,
    SizedBody,
    UntilCloseBody,
    WireError,
    body_reader,
    parse_head,
)


def test_a_head_is_read() -> None:
    head = parse_head(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-A: 1\r\nx-a:  2 ")
    assert head == ResponseHead(200, {"content-type": "text/html", "x-a": "1, 2"}, keep_alive=True)


@pytest.mark.parametrize(
    ("block", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.1 200", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close", False),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive", True),
    ],
)
def test_a_head_says_whether_the_connection_may_stay(block: bytes, keep_alive: bool) -> None:
    assert parse_head(block).keep_alive is keep_alive


@pytest.mark.parametrize("block", [b"", b"SSH-2.0", b"HTTP/2 200", b"HTTP/1.1 abc", b"HTTP/1.1 200 OK\r\nno colon"])
def test_a_bad_head_is_refused(block: bytes) -> None:
    with pytest.raises(WireError):
        parse_head(block)


CHUNKED = b"5\r\nhello\r\n1;name=x\r\n \r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"


def test_chunks_cut_at_any_byte_give_the_same_body() -> None:
    for cut in range(len(CHUNKED) + 1):
        body = ChunkedBody()
        assert body.feed(CHUNKED[:cut]) + body.feed(CHUNKED[cut:]) == b"hello 0123456789"
        assert (body.complete, body.surplus) == (True, b"")


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.integers(1, 9))
def test_any_chunks_in_any_pieces_give_the_body_and_the_surplus(pieces: list[bytes], size: int) -> None:
    data = b"".join(b"%X\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\nNEXT"
    body = ChunkedBody()
    read, rest = b"", data
    while rest and not body.complete:
        read += body.feed(rest[:size])
        rest = rest[size:]
    assert read == b"".join(pieces)
    assert body.surplus + rest == b"NEXT"


def test_part_of_a_chunk_is_given_out_at_once() -> None:
    assert ChunkedBody().feed(b"64\r\nfirst") == b"first"


@pytest.mark.parametrize(
    "data", [b"x\r\n", b"-5\r\n", b"\r\n", b"5\r\nhello!\r\n", b"f" * 5000, b"fffffffffffffffff\r\n"]
)
def test_bad_chunks_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        ChunkedBody().feed(data)


def test_an_early_end_is_noticed_where_it_can_be() -> None:
    chunked, sized, open_ended = ChunkedBody(), SizedBody(3), UntilCloseBody()
    for body in (chunked, sized):
        body.feed(b"1\r\nab" if body is chunked else b"ab")
        with pytest.raises(WireError):
            body.end_of_stream()
    open_ended.end_of_stream()
    assert open_ended.complete


def test_a_sized_body_ends_by_itself() -> None:
    body = SizedBody(3)
    assert (body.feed(b"ab"), body.complete) == (b"ab", False)
    assert (body.feed(b"cd"), body.complete, body.surplus) == (b"c", True, b"d")


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (200, {"transfer-encoding": "chunked"}, ChunkedBody),
        (200, {"transfer-encoding": "gzip, chunked", "content-length": "5"}, ChunkedBody),
        (200, {"content-length": "5"}, SizedBody),
        (200, {"content-length": "5, 5"}, SizedBody),
        (204, {}, SizedBody),
        (200, {}, UntilCloseBody),
    ],
)
def test_the_head_decides_the_framing(status: int, headers: dict[str, str], kind: type) -> None:
    assert type(body_reader(ResponseHead(status, headers, True))) is kind


LENGTHS = ("x", "", "-5", "\u00b2", "9" * 5000)


@pytest.mark.parametrize("headers", [{"transfer-encoding": "gzip"}, *({"content-length": one} for one in LENGTHS)])
def test_unknown_framing_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(WireError):
        body_reader(ResponseHead(200, headers, True))


def test_a_compressed_body_is_unpacked_in_pieces() -> None:
    data = gzip.compress(b"hello " * 50)
    decoder = ContentDecoder("gzip")
    assert b"".join(decoder.feed(data[i : i + 7]) for i in range(0, len(data), 7)) == b"hello " * 50
    with pytest.raises(WireError):
        ContentDecoder("br")
    with pytest.raises(WireError):
        ContentDecoder("gzip").feed(b"plain")


@pytest.mark.parametrize("cut", [1, 2000, 4097, 4098, 4099, 5002])
def test_a_length_line_beyond_bounds_is_refused_wherever_it_is_cut(cut: int) -> None:
    data = b"0" * 4999 + b"1\r\nx\r\n0\r\n\r\n"
    body = ChunkedBody()
    with pytest.raises(WireError, match="no length"):
        body.feed(data[:cut])
        body.feed(data[cut:])
