"""WebSocket channels against a real client on a real socket."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed, WebSocketConnection, connect_websocket, wrap_server_stream
from wsproto import ConnectionType, WSConnection
from wsproto.events import CloseConnection, Request, TextMessage

from hermes.nurseries.connection import ConnectionTree
from hermes.protocols.channels.http_listener import ListenerLimits
from hermes.protocols.channels.message_channel import Frames, OutboxLimits
from hermes.protocols.channels.websocket import CLOSE_GAVE_UP_SENDING, WebSocketChannel, WebSocketRequest
from tests.support.listening import Running, listening, small_app


async def serve_channel(channel: WebSocketChannel, take: Callable[[bytes], object]) -> None:
    tree = ConnectionTree(channel.name)

    async def read() -> None:
        for name, fn in channel.companions():
            tree.start_companion(fn, name=name)
        while (line := await channel.receive()) is not None:
            take(line if isinstance(line, bytes) else repr(line).encode())

    await tree.run(read=read, write=channel.run_writer, farewell=channel.aclose)


async def echo(request: WebSocketRequest) -> None:
    channel = await request.accept(name="echo", ping_interval=None)
    await serve_channel(channel, lambda line: channel.send_nowait(line))


def ws_server(
    handler: Callable[[WebSocketRequest], Awaitable[None]], limits: ListenerLimits | None = None
) -> AbstractAsyncContextManager[Running]:
    return listening(small_app, websockets={"/ws": handler}, limits=limits)


@asynccontextmanager
async def client_of(
    server: Running,
    path: str = "/ws",
    *,
    subprotocols: list[str] | None = None,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> AsyncIterator[WebSocketConnection]:
    async with trio.open_nursery() as nursery:
        client = await connect_websocket(
            nursery,
            "127.0.0.1",
            server.port,
            path,
            use_ssl=False,
            max_message_size=1 << 26,
            subprotocols=subprotocols,
            extra_headers=headers,
        )
        try:
            yield client
        finally:
            # The library leaves its socket open after a connection that the server has ended.
            with trio.CancelScope(shield=True):
                await client._stream.aclose()
        nursery.cancel_scope.cancel()


async def close_code(client: WebSocketConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await client.get_message()
    assert closed.value.reason is not None
    return closed.value.reason.code


async def test_http_and_websocket_share_one_port() -> None:
    async with ws_server(echo) as server, client_of(server) as client:
        await client.send_message("  héllo ")
        await client.send_message(" ")
        await client.send_message(b"bytes \xff")
        assert await client.get_message() == "héllo"
        assert await client.get_message() == "InvalidUtf8(position=6)"
        assert (await server.get(await server.connect(), "/http")).endswith(b"/http")


async def test_a_handler_sees_the_headers_of_the_handshake_and_the_host_too() -> None:
    seen: list[str | None] = []

    async def look(request: WebSocketRequest) -> None:
        seen.extend(request.header(name) for name in ("Host", "x-one", "x-two"))
        await echo(request)

    async with ws_server(look) as server, client_of(server, headers=[(b"X-One", b"1")]):
        assert seen == [f"127.0.0.1:{server.port}", "1", None]


async def test_a_frame_behind_the_handshake_in_the_same_packet_is_served() -> None:
    async with ws_server(echo) as server:
        stream = await server.connect()
        ws = WSConnection(ConnectionType.CLIENT)
        handshake = ws.send(Request(host="x", target="/ws"))
        await stream.send_all(handshake + b"\x81\x82\x00\x00\x00\x00hi")
        received = b""
        while not received.endswith(b"\x81\x02hi"):
            received += bytes(await stream.receive_some())


async def test_a_flood_arrives_whole_and_in_order() -> None:
    texts = [f"{number}:" + "é" * (number % 300) for number in range(15_000)]

    async def flood(request: WebSocketRequest) -> None:
        channel = await request.accept(name="flood")

        def send_all(_: bytes) -> None:
            for text in texts:
                assert channel.send_nowait(text.encode())

        await serve_channel(channel, send_all)

    async with ws_server(flood) as server, client_of(server) as client:
        await client.send_message("go")
        assert [await client.get_message() for _ in texts] == texts


async def test_a_client_can_see_why_it_was_refused() -> None:
    async def refuse(request: WebSocketRequest) -> None:
        assert (request.query, request.header("X-Test"), request.subprotocols) == ({"token": "a b"}, "yes", ("p",))
        await request.refuse(4401, "wrong token")

    async with (
        ws_server(refuse) as server,
        client_of(server, "/ws?token=a%20b", subprotocols=["p"], headers=[(b"x-test", b"yes")]) as client,
    ):
        assert await close_code(client) == 4401


async def test_a_slow_client_is_cut_off_with_1011_and_reads_only_whole_frames_before_it() -> None:
    async def overflow(request: WebSocketRequest) -> None:
        limits = OutboxLimits(max_frames=64, max_bytes=1 << 20)
        channel = await request.accept(name="overflow", limits=limits)

        async def push() -> None:
            number = 0
            while channel.send_nowait(b"%07d" % number * 1000):
                number += 1
                await trio.lowlevel.checkpoint()

        tree = ConnectionTree("overflow")

        async def read() -> None:
            tree.start_companion(push, name="push")
            while await channel.receive() is not None:
                pass

        await tree.run(read=read, write=channel.run_writer, farewell=channel.aclose)

    async with ws_server(overflow) as server, client_of(server) as client:
        await trio.testing.wait_all_tasks_blocked(0.2)
        texts: list[str] = []
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                texts.append(str(await client.get_message()))
        assert closed.value.reason is not None and closed.value.reason.code == CLOSE_GAVE_UP_SENDING
        assert texts == [f"{number:07d}" * 1000 for number in range(len(texts))]
        assert texts


@pytest.mark.parametrize("cause", ["overflow", "write deadline"])
async def test_a_client_that_reads_again_after_the_server_has_left_finds_the_1011(cause: str) -> None:
    """However late: the server has closed its end before the client reads its first byte."""
    ended = trio.Event()

    async def handle(request: WebSocketRequest) -> None:
        deadline = 0.2 if cause == "write deadline" else 30.0
        limits = OutboxLimits(max_frames=64, max_bytes=1 << 20) if cause == "overflow" else None
        channel = await request.accept(name=cause, limits=limits, write_deadline=deadline, ping_interval=None)

        async def push() -> None:
            number = 0
            while channel.send_nowait(b"%07d" % number * 1000):
                number += 1
                await trio.lowlevel.checkpoint()
                if cause == "write deadline" and number == 2000:
                    await trio.sleep_forever()

        tree = ConnectionTree(cause)

        async def read() -> None:
            tree.start_companion(push, name="push")
            while await channel.receive() is not None:
                pass

        await tree.run(read=read, write=channel.run_writer, farewell=channel.aclose)
        ended.set()

    async with ws_server(handle) as server:
        stream = await server.connect()
        ws = WSConnection(ConnectionType.CLIENT)
        await stream.send_all(ws.send(Request(host="x", target="/ws")))
        with trio.fail_after(20):
            await ended.wait()
            texts, codes, text = [], [], ""
            while data := await stream.receive_some():
                ws.receive_data(data)
                for event in ws.events():
                    if isinstance(event, TextMessage):
                        text += event.data
                        if event.message_finished:
                            texts.append(text)
                            text = ""
                    elif isinstance(event, CloseConnection):
                        codes.append(event.code)
    assert codes == [CLOSE_GAVE_UP_SENDING]
    assert texts == [f"{number:07d}" * 1000 for number in range(len(texts))]
    assert len(texts) > 10


async def test_a_client_that_never_reads_is_dropped_at_the_write_deadline() -> None:
    ended = trio.Event()

    async def push(request: WebSocketRequest) -> None:
        channel = await request.accept(name="push", write_deadline=0.3, ping_interval=None)
        channel.send_nowait(b"x" * 50_000_000)
        await serve_channel(channel, lambda line: None)
        ended.set()

    async with ws_server(push) as server:
        await stalled_client(server)
        with trio.fail_after(20):
            await ended.wait()


async def test_a_cancelled_listener_says_1001_is_bounded_and_does_not_wait_for_the_stalled() -> None:
    async def leave(request: WebSocketRequest) -> None:
        channel = await request.accept(name="leave")
        channel.closing_code(1001, "shutting down")
        await serve_channel(channel, lambda line: channel.send_nowait(line * 10_000_000))

    async with ws_server(leave) as server:
        async with client_of(server) as client:
            stalled = await stalled_client(server)
            await stalled.send_all(b"\x81\x81\x00\x00\x00\x00y")
            await trio.testing.wait_all_tasks_blocked(0.1)
            server.scope.cancel()
            assert await close_code(client) == 1001
            with trio.fail_after(15):
                await server.ended.wait()


async def test_a_message_over_the_limit_is_refused_with_1009() -> None:
    async with ws_server(echo, ListenerLimits(websocket_message_bytes=1000)) as server, client_of(server) as client:
        await client.send_message("x" * 1001)
        assert await close_code(client) == 1009


async def test_a_client_that_answers_no_ping_is_dropped() -> None:
    ended = trio.Event()

    async def watch(request: WebSocketRequest) -> None:
        channel = await request.accept(name="watch", ping_interval=0.05, ping_timeout=0.2)
        await serve_channel(channel, lambda line: None)
        ended.set()

    async with ws_server(watch) as server:
        async with client_of(server):
            with trio.move_on_after(1) as patience:
                await ended.wait()
            assert patience.cancelled_caught, "a client that answers was dropped"
        ended = trio.Event()
        await stalled_client(server)
        with trio.fail_after(20):
            await ended.wait()


async def test_a_crashing_handler_and_a_vanishing_client_leave_the_listener_alone() -> None:
    async def crash(request: WebSocketRequest) -> None:
        await request.accept(name="crash")
        raise ValueError("boom")

    async with listening(small_app, websockets={"/crash": crash, "/ws": echo}) as server:
        async with client_of(server, "/crash") as client:
            assert await close_code(client) == 1006
        vanishing = await stalled_client(server)
        vanishing.socket.close()
        async with client_of(server) as client:
            await client.send_message("alive")
            assert await client.get_message() == "alive"


async def stalled_client(server: Running) -> trio.SocketStream:
    """A client that finishes the handshake and then reads nothing."""
    stream = await server.connect()
    ws = WSConnection(ConnectionType.CLIENT)
    await stream.send_all(ws.send(Request(host="x", target="/ws")))
    await stream.receive_some(20)
    return stream


async def test_the_private_parts_of_trio_websocket_that_we_use_are_as_we_know_them() -> None:
    client_end, server_end = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        await client_end.send_all(WSConnection(ConnectionType.CLIENT).send(Request(host="x", target="/")))
        connection = await (await wrap_server_stream(nursery, server_end)).accept()
        assert connection._stream is server_end
        assert isinstance(connection._stream_lock, trio.StrictFIFOLock)
        assert isinstance(connection._recv_channel, trio.MemoryReceiveChannel)
        assert isinstance(connection._max_message_size, int)
        nursery.cancel_scope.cancel()


async def test_frames_for_many_arrive_in_order_although_the_client_reads_late() -> None:
    large = [b"%d:" % number + b"x" * 200_000 for number in range(60)]
    small = [b"%d" % number for number in range(60)]
    may_read = trio.Event()

    async def flood(request: WebSocketRequest) -> None:
        channel = await request.accept(name="flood", ping_interval=None)

        async def write() -> None:
            for one, other in zip(large, small, strict=True):
                assert channel.send_together_nowait(Frames([one, other]))
                assert channel.send_nowait(b"alone")
                await trio.lowlevel.checkpoint()
            may_read.set()
            await channel.run_writer()

        async def read() -> None:
            while await channel.receive() is not None:
                pass

        await ConnectionTree("flood").run(read=read, write=write, farewell=channel.aclose)

    async with ws_server(flood) as server, client_of(server) as client:
        with trio.fail_after(30):
            await may_read.wait()
            async with trio.open_nursery() as nursery:
                # Its answer must not land inside a frame of which only a part is out.
                nursery.start_soon(client.ping)
                read = [await client.get_message() for _ in range(3 * len(large))]
    expected = [frame for pair in zip(large, small, strict=True) for frame in (*pair, b"alone")]
    assert read == [frame.decode() for frame in expected]


async def test_frames_for_many_need_no_writer_while_the_client_reads() -> None:
    async def direct(request: WebSocketRequest) -> None:
        channel = await request.accept(name="direct", ping_interval=None)
        frames = Frames([b"one", b"two"])
        assert channel.send_together_nowait(frames) and channel.send_together_nowait(frames)
        await channel.receive()
        channel.abort()
        assert not channel.send_together_nowait(frames)

    async with ws_server(direct) as server, client_of(server) as client:
        with trio.fail_after(10):
            assert [await client.get_message() for _ in range(4)] == ["one", "two", "one", "two"]
            await client.send_message("bye")
