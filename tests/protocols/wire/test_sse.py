"""Server-sent events: what is written can be read, wherever it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.protocols.wire.sse import SseEvent, SseSplitter, SseTooLong, sse_comment, sse_event, sse_retry

STREAM = (
    b"\xef\xbb\xbf: hello\n\n"
    + b"id: 1\nevent: a\ndata: one\n\n"
    + b"data:two\r\ndata\r\ndata:  three\r\n\r\n"
    + b"data: \xc3\xa9\xe2\x80\xa8x\r\r"
    + b"event: nothing\n\n"
    + b"retry: 250\nunknown: x\nid: 2\ndata: last\n\n"
)
EVENTS = [
    SseEvent("one", "a", "1"),
    SseEvent("two\n\n three", "message", "1"),
    SseEvent("é\u2028x", "message", "1"),
    SseEvent("last", "message", "2"),
]


def test_a_stream_reads_the_same_wherever_it_is_cut_in_two() -> None:
    for position in range(len(STREAM) + 1):
        splitter = SseSplitter()
        assert splitter.feed(STREAM[:position]) + splitter.feed(STREAM[position:]) + splitter.end() == EVENTS
        assert splitter.retry_ms == 250


def test_a_stream_reads_the_same_byte_by_byte() -> None:
    splitter = SseSplitter()
    assert [e for i in range(len(STREAM)) for e in splitter.feed(STREAM[i : i + 1])] == EVENTS


def test_a_stream_that_stops_without_its_last_blank_line_loses_nothing() -> None:
    splitter = SseSplitter()
    assert splitter.feed(b"data: [DONE]") == []
    assert splitter.end() == [SseEvent("[DONE]")]
    assert splitter.end() == []


def test_an_event_over_the_limit_ends_the_stream() -> None:
    splitter = SseSplitter(max_event=100)
    for _ in range(50):
        splitter.feed(b"data: short enough to pass\n\n: a comment\n")
    with pytest.raises(SseTooLong):
        for _ in range(20):
            splitter.feed(b"data: 1234567890")


@given(st.text(alphabet=st.characters(codec="utf-8", blacklist_characters="\r\0")), st.integers(1, 7))
def test_what_is_written_is_what_is_read(text: str, size: int) -> None:
    raw = sse_event(text, event="e", id=7) + sse_comment("ping") + sse_retry(10)
    splitter = SseSplitter()
    events = [e for i in range(0, len(raw), size) for e in splitter.feed(raw[i : i + size])]
    assert events == [SseEvent(text, "e", "7")]


def test_a_line_end_in_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="line end"):
        sse_event("x", event="a\nb")
