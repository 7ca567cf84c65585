"""The listener on real sockets: what a client can do to it, and that it ends when it is told to."""

import errno
import inspect
from typing import Any

import pytest
import trio
import trio.testing
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import TrioSingleTask, WorkerContext
from hypercorn.typing import ConnectionState
from quart import request
from quart_trio import QuartTrio

from hermes.protocols.channels import http_listener
from hermes.protocols.channels.http_listener import HttpListener, ListenerLimits, listening_port, open_listeners
from hermes.protocols.channels.peek_stream import PeekStream, RequestHead, parse_head
from hermes.protocols.http.body_guard import BodyGuard, Refusal
from tests.support.listening import listening, read_answer, small_app


async def test_requests_are_answered_on_a_kept_alive_connection() -> None:
    async with listening(small_app) as server:
        stream = await server.connect()
        assert (await server.get(stream, "/one")).endswith(b"/one")
        assert (await server.get(stream, "/two")).endswith(b"/two")
        assert server.listener.connections == 1


async def test_a_whole_answer_is_one_write_and_the_head_of_a_stream_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[bytes] = []
    send_all = PeekStream.send_all

    async def noting(self: PeekStream, data: bytes | bytearray | memoryview) -> None:
        written.append(bytes(data))
        await send_all(self, data)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        whole = scope["path"] != "/stream"
        headers = [(b"content-length", b"5")] if whole else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if not whole:
            await trio.sleep_forever()
        body = b"" if scope["method"] == "HEAD" else b"hello"
        await send({"type": "http.response.body", "body": body, "more_body": False})

    monkeypatch.setattr(PeekStream, "send_all", noting)
    async with listening(app) as server:
        stream = await server.connect()
        assert (await server.get(stream, "/whole")).endswith(b"\r\n\r\nhello")
        assert len(written) == 1
        await stream.send_all(b"HEAD /whole HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await stream.receive_some()).endswith(b"\r\n\r\n")
        await stream.send_all(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        with trio.fail_after(10):
            assert b" 200 " in await stream.receive_some()


async def test_a_cancelled_listener_is_gone_with_a_stalled_reader_an_idle_stream_and_a_silent_connection() -> None:
    limits = ListenerLimits(write_deadline=1000, head_deadline=1000)
    async with listening(small_app, limits=limits) as server:
        stalled, idle, silent = [await server.connect() for _ in range(3)]
        await stalled.send_all(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
        await idle.send_all(b"GET /idle HTTP/1.1\r\nHost: x\r\n\r\n")
        await idle.receive_some()
        await silent.send_all(b"GET /half")
        await stalled.receive_some(10)
        await trio.testing.wait_all_tasks_blocked(0.2)
        assert server.listener.connections == 3
        server.scope.cancel()
        with trio.fail_after(10):
            await server.ended.wait()
        assert server.listener.connections == 0
        with pytest.raises(OSError, match="connect"):
            await server.connect()


async def test_a_reader_that_stalls_longer_than_the_write_deadline_is_dropped() -> None:
    async with listening(small_app, limits=ListenerLimits(write_deadline=0.2)) as server:
        stalled = await server.connect()
        await stalled.send_all(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
        await stalled.receive_some(10)
        with trio.fail_after(20):
            while server.listener.connections:
                await trio.sleep(0.05)
        assert (await server.get(await server.connect(), "/alive")).endswith(b"/alive")


async def test_a_head_that_does_not_arrive_in_time_closes_the_connection() -> None:
    async with listening(small_app, limits=ListenerLimits(head_deadline=0.1)) as server:
        slow = await server.connect()
        await slow.send_all(b"GET / HTTP/1.1\r\nHost:")
        with trio.fail_after(10):
            assert await slow.receive_some() == b""


async def test_a_head_over_the_limit_is_refused() -> None:
    async with listening(small_app) as server:
        stream = await server.connect()
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000)
        assert b"431" in (await read_answer(stream)).split(b"\r\n")[0]


async def test_one_connection_more_than_allowed_is_told_so_and_room_comes_back() -> None:
    async with listening(small_app, limits=ListenerLimits(max_connections=1, keep_alive=1000)) as server:
        first = await server.connect()
        await server.get(first, "/one")
        assert b"503" in await read_answer(await server.connect())
        await first.aclose()
        # Much sooner than the keep-alive time, which is for clients that are still there.
        while server.listener.connections:
            await trio.testing.wait_all_tasks_blocked()
        assert (await server.get(await server.connect(), "/two")).endswith(b"/two")


async def test_a_crash_of_the_application_costs_only_its_own_request() -> None:
    async with listening(small_app) as server:
        assert b"500" in (await server.get(await server.connect(), "/crash")).split(b"\r\n")[0]
        assert (await server.get(await server.connect(), "/alive")).endswith(b"/alive")


@pytest.mark.fault("B-142")
async def test_running_out_of_descriptors_does_not_end_the_accept_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = trio.SocketListener.accept
    failures = [OSError(errno.EMFILE, "too many open files")] * 2

    async def failing_first(self: trio.SocketListener) -> trio.SocketStream:
        if failures:
            raise failures.pop()
        return await accept(self)

    monkeypatch.setattr(trio.SocketListener, "accept", failing_first)
    async with listening(small_app) as server:
        assert (await server.get(await server.connect(), "/alive")).endswith(b"/alive")
        assert failures == []


async def test_draining_refuses_the_new_closes_the_idle_and_bounds_the_busy() -> None:
    async with listening(small_app, limits=ListenerLimits(drain_grace=0.2, keep_alive=1000)) as server:
        idle, busy = await server.connect(), await server.connect()
        await server.get(idle, "/one")
        await busy.send_all(b"GET /idle HTTP/1.1\r\nHost: x\r\n\r\n")
        await busy.receive_some()
        server.drain.set()
        with trio.fail_after(20):
            assert await idle.receive_some() == b""
            with pytest.raises(OSError, match="connect"):
                await server.connect()
            await server.ended.wait()


async def test_an_application_that_fails_to_start_fails_the_listener() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    limits = ListenerLimits()
    with trio.fail_after(20), pytest.RaisesGroup(pytest.RaisesExc(Exception, match="no database")):
        await HttpListener(broken, limits=limits).serve(await open_listeners("127.0.0.1", 0, limits))


@pytest.mark.fault("B-183")
async def test_an_application_that_returns_from_its_lifespan_at_once_starts() -> None:
    async def no_lifespan(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await small_app(scope, receive, send)

    async with listening(no_lifespan) as server:
        assert (await server.get(await server.connect(), "/alive")).endswith(b"/alive")


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_over_size_body_is_refused_and_the_connection_used_again(chunked: bool) -> None:
    quart = QuartTrio(__name__)

    @quart.post("/body")
    async def body() -> str:
        return str(len(await request.get_data()))

    refusals = {"too_large": Refusal(413, b"{}"), "bad_length": Refusal(400, b"{}"), "too_slow": Refusal(408, b"{}")}
    guard = BodyGuard(quart, max_body=100_000, drain=400_000, **refusals)  # type: ignore[arg-type]
    async with listening(guard) as server:
        stream = await server.connect()
        for size, status in ((1000, b"200"), (300_000, b"413"), (100_000, b"200"), (450_000, b"413"), (5, b"200")):
            await stream.send_all(post(size, chunked))
            answer = await read_answer(stream)
            assert status in answer.split(b"\r\n")[0]
            assert b"x-frame-options: DENY" in answer
            if status == b"200":
                assert answer.endswith(b"\r\n\r\n%d" % size)
        await stream.send_all(post(5_000_000, chunked)[:700_000])
        answer = await read_answer(stream)
        assert b"413" in answer.split(b"\r\n")[0]
        assert b"connection: close" in answer.lower()


def post(size: int, chunked: bool) -> bytes:
    head = b"POST /body HTTP/1.1\r\nHost: x\r\n"
    if not chunked:
        return head + b"Content-Length: %d\r\n\r\n" % size + b"y" * size
    chunks = [b"%x\r\n" % len(part) + part + b"\r\n" for part in parts_of(size)]
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + b"0\r\n\r\n"


def parts_of(size: int) -> list[bytes]:
    return [b"y" * min(60_000, size - start) for start in range(0, size, 60_000)]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET /ws?a=1 HTTP/1.1\r\nUPGRADE : WebSocket\r\n\r\n", RequestHead(b"GET", "/ws", True)),
        (b"POST /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", RequestHead(b"POST", "/ws", False)),
        (b"GET /ws HTTP/1.1\r\nX: upgrade: websocket\r\n\r\n", RequestHead(b"GET", "/ws", False)),
        (b"GET /x HTTP/1.1\r\n\r\nUpgrade: websocket\r\n", RequestHead(b"GET", "/x", False)),
        (b"nonsense", None),
    ],
)
def test_a_head_tells_a_handshake_from_a_request(head: bytes, expected: RequestHead | None) -> None:
    assert parse_head(head) == expected


def test_the_internals_of_hypercorn_that_we_use_are_as_we_know_them() -> None:
    assert list(inspect.signature(TCPServer).parameters) == ["app", "config", "context", "state", "stream"]
    assert list(inspect.signature(Lifespan).parameters) == ["app", "config", "state"]
    assert list(inspect.signature(WorkerContext).parameters) == ["max_requests"]
    assert inspect.iscoroutinefunction(WorkerContext(None).terminated.set)
    assert ConnectionState({"a": 1})["a"] == 1
    for private in ("_read_data", "_idle_timeout", "protocol_send"):
        assert inspect.iscoroutinefunction(getattr(TCPServer, private))
    assert TrioSingleTask()._handle is None and isinstance(H2Protocol.idle, property)


async def test_a_connection_that_is_to_be_closed_is_closed_though_the_app_is_cancelled_at_its_last_byte() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        async with trio.open_nursery() as nursery:

            async def answer() -> None:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"ok", "more_body": False})

            nursery.start_soon(answer)
            while (await receive())["type"] != "http.disconnect":
                pass
            nursery.cancel_scope.cancel()

    limits = ListenerLimits()
    listeners = await open_listeners("127.0.0.1", 0, limits)
    async with trio.open_nursery() as nursery:
        listener = HttpListener(app, limits=limits)
        await nursery.start(lambda task_status: listener.serve(listeners, task_status=task_status))
        client = await trio.open_tcp_stream("127.0.0.1", listening_port(listeners))
        await client.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = b""
        with trio.fail_after(3):
            async with client:
                async for chunk in client:
                    received += chunk
        assert received.endswith(b"0\r\n\r\n")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
async def test_a_connection_whose_goodbye_has_no_time_left_is_closed_all_the_same(
    connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a moment in which the whole machine stood still."""
    monkeypatch.setattr(http_listener, "_CLOSE_WITHIN", 0.0)
    async with listening(small_app) as server:
        client = await server.connect()
        await client.send_all(f"GET / HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\n\r\n".encode())
        received = b""
        with trio.fail_after(5):
            async with client:
                async for chunk in client:
                    received += chunk
            while server.listener.connections:
                await trio.sleep(0.01)
        assert received.startswith(b"HTTP/1.1 200 ")


async def test_a_port_that_is_just_being_left_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    (former,) = await open_listeners("127.0.0.1", 0, ListenerLimits())
    port = listening_port([former])
    pauses: list[float] = []
    sleep = trio.sleep

    async def noting(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == len(http_listener._TRY_AGAIN_AFTER):
            former.socket.close()
        await sleep(0)

    monkeypatch.setattr(http_listener.trio, "sleep", noting)
    (ours,) = await open_listeners("127.0.0.1", port, ListenerLimits())
    assert tuple(pauses) == http_listener._TRY_AGAIN_AFTER
    with pytest.raises(OSError):
        await open_listeners("127.0.0.1", port, ListenerLimits())
    ours.socket.close()
