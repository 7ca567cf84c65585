"""What reads bytes from outside, as functions of bytes: each returns, or raises because a promise is broken.

The first bytes of the input say where the rest is cut: how bytes are cut on their way must change nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from hermes.agent.ports import ModelFinished
from hermes.agent.providers.http_provider import _SHAPE_ERRORS
from hermes.agent.providers.http_wire import ContentDecoder, WireError, body_reader, parse_head
from hermes.agent.providers.sse_reader import SseReader
from hermes.agent.providers.sse_reader import SseTooLong as EventTooLong
from hermes.errors import ProviderError
from hermes.protocols.wire.json_codec import NotJson, decode, encode
from hermes.protocols.wire.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ParseFault, parse_frame
from hermes.protocols.wire.ndjson import LineSplitter
from hermes.protocols.wire.peer import Call, Peer, Refused
from hermes.protocols.wire.sse import SseSplitter, SseTooLong
from tests.support.provider_parsing import Reading

REFUSALS = (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS)
MODES = ("chat_completions", "anthropic_messages", "codex_responses")


def pieces_of(data: bytes) -> tuple[list[bytes], bytes]:
    """The input cut as its first bytes say, and the same uncut."""
    cuts, whole = data[:3], data[3:]
    places = sorted({0, len(whole), *(cut * len(whole) // 256 for cut in cuts)})
    return [whole[a:b] for a, b in pairwise(places)], whole


def lines(data: bytes) -> None:
    """Any cut gives the same lines; none holds a line feed."""
    pieces, whole = pieces_of(data)
    one, many = LineSplitter(64), LineSplitter(64)
    once = one.feed(whole) + one.end()
    cut = [line for piece in pieces for line in many.feed(piece)] + many.end()
    assert once == cut, (once, cut)
    assert all(b"\n" not in line for line in once if isinstance(line, bytes))


def frames(data: bytes) -> None:
    """Each line is a call, an answer, or gets one error in JSON-RPC's own form; nothing raises."""
    peer, splitter = Peer(answers_notifications=True), LineSplitter(4096)
    for line in splitter.feed(data) + splitter.end():
        told = peer.receive(line)
        if isinstance(told, Refused):
            error = decode(told.frame)
            assert error["jsonrpc"] == "2.0" and error["error"]["code"] in REFUSALS
        elif isinstance(told, Call):
            answer = peer.answer(told, {"echo": told.params})
            assert answer is not None and b"\n" not in answer
            if not told.is_notification:
                assert decode(answer)["jsonrpc"] == "2.0"
            assert peer.answer(told, {}) is None, "answered twice"
    assert peer.open_calls == 0
    assert isinstance(parse_frame(data), object)


def json_text(data: bytes) -> None:
    """What is JSON can be written again, and reads the same."""
    try:
        value = decode(data)
    except NotJson:
        assert isinstance(parse_frame(data), ParseFault)
        return
    assert decode(encode(value)) == value


def own_events(data: bytes) -> None:
    """Events of our clients' side: cut or not, the same, unless what is not yet whole is too long to be kept."""
    pieces, whole = pieces_of(data)
    once, cut = _split([whole]), _split(pieces)
    assert once == cut or None in (once, cut)


def _split(pieces: Iterable[bytes]) -> Any:
    splitter = SseSplitter(256)
    try:
        return [event for piece in pieces for event in splitter.feed(piece)] + splitter.end()
    except SseTooLong:
        return None


def provider_events(data: bytes) -> None:
    pieces, whole = pieces_of(data)
    one, many = SseReader(2**20), SseReader(2**20)
    try:
        once = one.feed(whole) + one.flush()
        cut = [event for piece in pieces for event in many.feed(piece)] + many.flush()
    except EventTooLong:
        return
    assert once == cut


def _provider(mode: str) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        """An answer, or one of the errors of a provider: nothing else; the same for any cut."""
        pieces, whole = pieces_of(data)
        assert _read(mode, [whole]) == _read(mode, pieces)

    return target


def _read(mode: str, pieces: list[bytes]) -> Any:
    try:
        finished = Reading(mode).read([piece for piece in pieces if piece])
    except ProviderError as error:
        return error.error_class
    except _SHAPE_ERRORS:
        # What the provider turns into "an answer of an unknown shape".
        return "shape"
    assert isinstance(finished, ModelFinished)
    encode({"text": finished.text, "calls": [[call.name, call.arguments] for call in finished.tool_calls]})
    return finished.text, [(call.name, call.arguments) for call in finished.tool_calls]


def http_answer(data: bytes) -> None:
    """Head and body of a provider's answer: read, or refused as broken; the same body for any cut."""
    head, found, _ = data[3:].partition(b"\r\n\r\n")
    if not found:
        return
    pieces, _whole = pieces_of(data[:3] + data[3 + len(head) + 4 :])
    try:
        parsed = parse_head(head)
    except WireError:
        return
    assert _body(parsed, pieces) == _body(parsed, [b"".join(pieces)])


def _body(head: Any, pieces: list[bytes]) -> Any:
    read = b""
    try:
        reader = body_reader(head)
        coding = head.headers.get("content-encoding")
        decoder = ContentDecoder(coding) if coding and coding != "identity" else None
        for piece in pieces:
            if reader.complete:
                return read
            more = reader.feed(piece)
            read += decoder.feed(more) if decoder else more
        reader.end_of_stream()
    except WireError:
        return None
    return read


def compressed(data: bytes) -> None:
    """A body whose compression breaks off anywhere."""
    http_answer(data[:3] + b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + zlib.compress(data[3:])[: len(data)])


TARGETS: dict[str, Callable[[bytes], None]] = {
    "lines": lines,
    "frames": frames,
    "json": json_text,
    "own-events": own_events,
    "provider-events": provider_events,
    **{mode.replace("_", "-"): _provider(mode) for mode in MODES},
    "http-answer": http_answer,
    "compressed": compressed,
}
