"""Text frames: a client's parser reads what our writer builds."""

import pytest
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import TextMessage

from hermes.protocols.wire.websocket_frame import text_frame, text_frames


def read_by_a_client(raw: bytes) -> list[str]:
    client = Connection(ConnectionType.CLIENT)
    assert client.state is ConnectionState.OPEN
    client.receive_data(raw)
    texts: list[str] = []
    partial = ""
    for event in client.events():
        assert isinstance(event, TextMessage)
        partial += event.data
        if event.message_finished:
            texts.append(partial)
            partial = ""
    return texts


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65535, 65536, 200_000])
def test_a_text_of_any_length_is_one_message(length: int) -> None:
    assert read_by_a_client(text_frame(b"x" * length)) == ["x" * length]


def test_many_messages_in_one_write_stay_many() -> None:
    texts = ["", "é", "x" * 126, "y" * 70_000]
    assert read_by_a_client(text_frames(text.encode() for text in texts)) == texts
