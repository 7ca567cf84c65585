"""When there are no descriptors left, one that was held back lets a client be told so."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hermes.protocols.channels.spare_descriptor import SpareDescriptor


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


@pytest.mark.fault("B-142")
def test_without_descriptors_each_client_that_waits_can_be_told(listener: socket.socket) -> None:
    spare = SpareDescriptor()
    clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
    with no_descriptor_left():
        with pytest.raises(OSError, match="Too many open files"):
            listener.accept()
        for _ in clients:
            waiting = spare.accept_nowait(listener)
            assert waiting is not None
            waiting.close()
            spare.hold()
        assert spare.accept_nowait(listener) is None
    spare.close()
    for client in clients:
        with client:
            assert client.recv(1) == b""


def test_with_descriptors_nobody_is_turned_away(listener: socket.socket) -> None:
    spare = SpareDescriptor()
    with socket.create_connection(listener.getsockname()):
        assert spare.accept_nowait(listener) is None
        accepted, _ = listener.accept()
        accepted.close()
    spare.close()
