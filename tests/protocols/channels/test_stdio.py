"""Lines over standard streams: pure, whole, private, and not blocking for ever."""

import os
import pty
import subprocess
import sys
import textwrap
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from hermes.protocols.channels.message_channel import OutboxLimits
from hermes.protocols.channels.pipe_streams import PipeReceiveStream, PipeSendStream
from hermes.protocols.channels.stdio import StdioChannel
from hermes.protocols.wire.ndjson import LineTooLong

ECHO = """
    import os, sys
    from hermes.protocols.channels.stdio import StdioChannel, claim_stdio, open_stdio_streams
    claimed = claim_stdio()
    import trio
    async def main():
        channel = StdioChannel(*open_stdio_streams(claimed), max_line=1000)
        print("a stray print")
        os.system("echo a stray child; cat")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.run_writer)
            while (line := await channel.receive()) is not None:
                channel.send_nowait(line if isinstance(line, bytes) else repr(line).encode())
            await channel.aclose()
    trio.run(main)
    print("the end")
"""


def child(source: str = ECHO) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(source)]


def run_echo(wire: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(child(), input=wire, capture_output=True, timeout=60, check=False)


def test_only_frames_reach_standard_output() -> None:
    ended = run_echo(b'{"a":1}\r\n\n' + b"x" * 2000 + b"\n" + '{"\u2028":2}'.encode())
    assert ended.stdout == b'{"a":1}\nLineTooLong(limit=1000)\n' + '{"\u2028":2}\n'.encode()
    assert ended.returncode == 0
    for stray in (b"a stray print", b"a stray child", b"the end"):
        assert stray in ended.stderr


@pytest.mark.parametrize(
    "redirections", ["</dev/null", "<&-", "</dev/null 2>&-", "<&- >&- 2>&-", "</dev/null >/dev/null"]
)
def test_missing_and_null_descriptors_end_the_program_in_good_order(redirections: str) -> None:
    command: Sequence[str] = ["sh", "-c", f'exec "$@" {redirections}', "sh", *child()]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_files_can_stand_for_both_streams(tmp_path: os.PathLike[str]) -> None:
    source, target = os.path.join(tmp_path, "in"), os.path.join(tmp_path, "out")
    with open(source, "wb") as file:
        file.write(b"1\n2\n")
    with open(target, "wb") as file:
        file.write(b"before\n")
    with open(source, "rb") as stdin, open(target, "ab") as stdout:
        assert subprocess.run(child(), stdin=stdin, stdout=stdout, timeout=60, check=False).returncode == 0
    with open(target, "rb") as file:
        assert file.read() == b"before\n1\n2\n"


def test_a_shared_terminal_or_pipe_stays_blocking() -> None:
    controller, terminal = pty.openpty()
    with subprocess.Popen(child(), stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL) as process:
        os.write(controller, b"hello\n")
        seen = b""
        while seen.count(b"hello") < 2:
            seen += os.read(controller, 1000)
        assert os.get_blocking(terminal)
        os.write(controller, b"\x04")
        assert process.wait(60) == 0
    os.close(controller)
    os.close(terminal)


def test_a_reader_that_leaves_ends_the_writer() -> None:
    source = ECHO.replace("channel.send_nowait(line", "channel.send_nowait(b'y' * 100_000 or line")
    with subprocess.Popen(child(source), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
        assert p.stdin is not None and p.stdout is not None
        p.stdin.write(b"1\n")
        p.stdin.flush()
        p.stdout.read(10)
        p.stdout.close()
        p.stdin.write(b"2\n")
        p.stdin.close()
        assert p.wait(60) == 0


async def test_lines_are_whole_and_in_order_while_writing_is_slow() -> None:
    to_client, from_server = trio.testing.memory_stream_one_way_pair()
    _, silence = trio.testing.memory_stream_one_way_pair()
    channel = StdioChannel(silence, to_client)
    frames = [b"%d" % number * 100 for number in range(2000)]
    received = b""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.run_writer)
            for frame in frames:
                assert channel.send_nowait(frame)
                if frame.endswith(b"7"):
                    await trio.lowlevel.checkpoint()
            assert await channel.flushed(10)
            await channel.aclose()
        while data := await from_server.receive_some(1000):
            received += bytes(data)
    assert received.splitlines() == frames


async def test_a_writer_cancelled_in_the_middle_of_a_line_writes_nothing_after_it() -> None:
    input_read, input_write = os.pipe()
    output_read, output_write = os.pipe()
    channel = StdioChannel(PipeReceiveStream(input_read), PipeSendStream(output_write))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.run_writer)
            channel.send_nowait(b"a" * 1_000_000)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert channel.send_nowait(b"after") is False
        await channel.run_writer()
        assert await channel.receive() is None
    written = b""
    while data := os.read(output_read, 1 << 20):
        written += data
    assert set(written) == {ord("a")}
    os.close(output_read)
    os.close(input_write)


async def test_what_is_more_than_a_pipe_holds_arrives_whole_and_an_end_wakes_who_waits() -> None:
    read, write = os.pipe()
    receiver, sender = PipeReceiveStream(read), PipeSendStream(write)
    received = b""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.send_all, bytes(range(256)) * 4096)
            while len(received) < 256 * 4096:
                received += await receiver.receive_some()
        assert received == bytes(range(256)) * 4096
        async with trio.open_nursery() as nursery:
            nursery.start_soon(assert_closed, receiver)
            await trio.testing.wait_all_tasks_blocked()
            receiver.close()
    with pytest.raises(OSError):
        await sender.send_all(b"nobody reads")
    await sender.aclose()
    with pytest.raises(OSError):
        await sender.send_all(b"closed")


async def assert_closed(receiver: PipeReceiveStream) -> None:
    with pytest.raises(trio.ClosedResourceError):
        await receiver.receive_some()


async def test_a_client_that_does_not_read_is_cut_off_at_the_bound(caplog: pytest.LogCaptureFixture) -> None:
    to_client, _client = trio.testing.memory_stream_one_way_pair()
    _, silence = trio.testing.memory_stream_one_way_pair()
    channel = StdioChannel(silence, to_client, limits=OutboxLimits(max_frames=3))
    assert [channel.send_nowait(b"x") for _ in range(5)] == [True, True, True, False, False]
    with trio.fail_after(5):
        assert await channel.receive() is None
    told = ["stdio: the client is cut off: 3 frames, 3 bytes wait for a client that does not read"]
    assert [record.getMessage() for record in caplog.records] == told


async def test_a_long_line_leaves_the_channel_usable() -> None:
    to_server, from_client = trio.testing.memory_stream_one_way_pair()
    sink, _ = trio.testing.memory_stream_one_way_pair()
    channel = StdioChannel(from_client, sink, max_line=10)
    await to_server.send_all(b"x" * 100 + b"\nnext\n")
    await to_server.aclose()
    with trio.fail_after(5):
        assert [await channel.receive() for _ in range(4)] == [LineTooLong(10), b"next", None, None]
