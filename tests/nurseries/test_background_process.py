"""Background commands: bounded output, input, one end, and nothing left when their owner goes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from hermes.errors import Overloaded
from hermes.nurseries.background_process import BackgroundProcess
from hermes.nurseries.process_output import OutputBuffer
from hermes.nurseries.process_spec import ProcessEnd, ProcessSpec, SpawnFailed, Stdin, TerminalSize
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from tests.support.process_probe import (
    PATH,
    Marks,
    hostile_tree,
    no_longer_subreaper,
    open_descriptors,
    running_with,
    zombie_children,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROUNDS = 25
LONG = 30.0
ENV = {"PATH": PATH, "TERM": "dumb"}
MARKS = Marks()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[ProcessSupervisor]:
    with no_longer_subreaper():
        made = ProcessSupervisor(owner_tag(str(tmp_path)), kill_grace=0.2, limit_per_session=8)
        assert made.become_subreaper()
        yield made
        assert made.live() == []
        assert zombie_children() == []


def shell(script: str, **options: object) -> ProcessSpec:
    return ProcessSpec(("sh", "-c", script), ENV, **options)  # type: ignore[arg-type]


async def until_output(process: BackgroundProcess, text: bytes) -> bytes:
    with trio.fail_after(LONG):
        while text not in process.output.since(0)[0]:
            await trio.sleep(0.005)
    return process.output.since(0)[0]


async def test_end_is_told_once_with_all_output_there(supervisor: ProcessSupervisor, nursery: trio.Nursery) -> None:
    told: list[tuple[ProcessEnd | None, bytes]] = []
    spec = shell("echo one; echo two >&2; exit 4")
    process = BackgroundProcess(supervisor, spec, on_exit=lambda p: told.append((p.end, p.output.tail(100))))
    await nursery.start(process.supervise)
    assert (await process.wait()).exit_code == 4
    assert not await process.kill()
    assert told == [(ProcessEnd(4), b"one\ntwo\n")]


async def test_input_is_written_and_closed(supervisor: ProcessSupervisor, nursery: trio.Nursery) -> None:
    process = BackgroundProcess(supervisor, shell("cat; echo end", stdin=Stdin.PIPE))
    await nursery.start(process.supervise)
    await process.write(b"hello\n")
    await until_output(process, b"hello")
    assert process.running
    await process.close_stdin()
    assert (await process.wait()).exit_code == 0
    assert process.output.since(0) == (b"hello\nend\n", 0)
    await process.kill()
    with pytest.raises(trio.ClosedResourceError):
        await process.write(b"too late")


async def test_output_is_bounded_and_says_what_it_forgot(supervisor: ProcessSupervisor, nursery: trio.Nursery) -> None:
    process = BackgroundProcess(supervisor, shell("head -c 5000000 /dev/zero; printf end"), buffer_bytes=1000)
    await nursery.start(process.supervise)
    await process.wait()
    kept, lost = process.output.since(0)
    assert (len(kept), lost, kept[-3:], process.output.total) == (1000, 4_999_003, b"end", 5_000_003)


def test_buffer_answers_from_any_position() -> None:
    buffer = OutputBuffer(5)
    for piece in (b"abc", b"def", b"g"):
        buffer.append(piece)
    assert [buffer.since(position) for position in (0, 2, 3, 7, 9)] == [
        (b"cdefg", 2),
        (b"cdefg", 0),
        (b"defg", 0),
        (b"", 0),
        (b"", 0),
    ]
    assert (buffer.tail(2), buffer.tail(99)) == (b"fg", b"cdefg")


async def test_kill_ends_a_hostile_tree(supervisor: ProcessSupervisor, nursery: trio.Nursery) -> None:
    for _ in range(ROUNDS // 5):
        mark = MARKS.next()
        process = BackgroundProcess(supervisor, ProcessSpec(hostile_tree(mark), ENV, kill_grace=0.05))
        await nursery.start(process.supervise)
        await until_output(process, b"ready")
        assert await process.kill()
        assert (running_with(mark), process.exit_code, process.stopped) == ([], 137, True)


async def test_cancel_of_the_owner_ends_it_and_tells_the_end(supervisor: ProcessSupervisor) -> None:
    mark = MARKS.next()
    told: list[int | None] = []
    async with trio.open_nursery() as nursery:
        spec = shell(f"setsid sleep {mark} & echo up; sleep {mark}")
        process = BackgroundProcess(supervisor, spec, on_exit=lambda p: told.append(p.exit_code))
        await nursery.start(process.supervise)
        await until_output(process, b"up")
        nursery.cancel_scope.cancel()
    assert (running_with(mark), told) == ([], [143])


async def test_what_it_leaves_behind_stays_reachable(supervisor: ProcessSupervisor, nursery: trio.Nursery) -> None:
    mark = MARKS.next()
    process = BackgroundProcess(supervisor, shell(f"setsid sleep {mark} >/dev/null 2>&1 & sleep 0.1"))
    await nursery.start(process.supervise)
    assert (await process.wait()).exit_code == 0
    assert len(running_with(mark)) == 1
    assert [live.process_id for live in supervisor.live()] == [process.process_id]
    assert not await process.kill()
    assert running_with(mark) == []


async def test_timeout_ends_it(supervisor: ProcessSupervisor, nursery: trio.Nursery) -> None:
    process = BackgroundProcess(supervisor, shell("sleep 7001", timeout=0.1))
    await nursery.start(process.supervise)
    end = await process.wait()
    assert (end.exit_code, end.timed_out) == (143, True)


async def test_stop_reaches_what_a_turn_or_a_session_started(
    supervisor: ProcessSupervisor, nursery: trio.Nursery
) -> None:
    async def start(session: str, turn: str) -> BackgroundProcess:
        process = BackgroundProcess(supervisor, shell("sleep 7001", session_id=session, turn_id=turn))
        await nursery.start(process.supervise)
        return process

    first, second, other = await start("a", "t1"), await start("a", "t2"), await start("b", "t3")
    assert await supervisor.stop_background(turn_id="t1") == 1
    assert [p.running for p in (first, second, other)] == [False, True, True]
    assert await supervisor.stop_background(session_id="a") == 1
    assert [p.running for p in (first, second, other)] == [False, False, True]
    assert await supervisor.stop_background() == 1
    assert await supervisor.stop_background() == 0


async def test_start_that_fails_is_told_to_the_starter(supervisor: ProcessSupervisor, nursery: trio.Nursery) -> None:
    with pytest.raises(SpawnFailed):
        await nursery.start(BackgroundProcess(supervisor, ProcessSpec(("no-such-program",), ENV)).supervise)
    for _ in range(8):
        await nursery.start(BackgroundProcess(supervisor, shell("sleep 7001")).supervise)
    with pytest.raises(Overloaded):
        await nursery.start(BackgroundProcess(supervisor, shell("true")).supervise)
    assert await supervisor.stop_background() == 8


async def test_terminal_echoes_and_follows_its_size(supervisor: ProcessSupervisor, nursery: trio.Nursery) -> None:
    script = 'tty; stty size; echo go; read line; echo "got $line"; read line; stty size; cat; exit 6'
    process = BackgroundProcess(supervisor, shell(script, terminal=TerminalSize(30, 100)))
    await nursery.start(process.supervise)
    assert b"30 100" in await until_output(process, b"go\r\n")
    await process.write(b"ping\n")
    seen = await until_output(process, b"got ping")
    assert seen.count(b"ping\r\n") == 2
    assert b"/dev/pts/" in seen
    supervisor.resize("another session", TerminalSize(5, 5))
    supervisor.resize(process.spec.session_id, TerminalSize(11, 22))
    await process.write(b"\n")
    await until_output(process, b"11 22")
    await process.close_stdin()
    assert (await process.wait()).exit_code == 6


async def test_others_get_their_turn_between_the_pieces_of_a_long_output(
    supervisor: ProcessSupervisor, nursery: trio.Nursery
) -> None:
    pieces: list[bytes] = []
    process = BackgroundProcess(supervisor, shell("head -c 60000 /dev/zero"), on_output=pieces.append)
    await nursery.start(process.supervise)
    await process.wait()
    assert sum(map(len, pieces)) == 60_000
    assert max(map(len, pieces)) <= 8192


async def test_tree_under_a_terminal_dies_with_it(supervisor: ProcessSupervisor, nursery: trio.Nursery) -> None:
    mark = MARKS.next()
    spec = ProcessSpec(hostile_tree(mark), ENV, terminal=TerminalSize(), kill_grace=0.05)
    process = BackgroundProcess(supervisor, spec)
    await nursery.start(process.supervise)
    await until_output(process, b"ready")
    await process.kill()
    assert running_with(mark) == []


async def test_descriptors_return_to_the_baseline_with_and_without_a_terminal(supervisor: ProcessSupervisor) -> None:
    before = None
    for _ in range(ROUNDS):
        for terminal in (None, TerminalSize()):
            async with trio.open_nursery() as nursery:
                process = BackgroundProcess(supervisor, shell("cat", terminal=terminal, stdin=Stdin.PIPE))
                await nursery.start(process.supervise)
                await process.kill()
        before = before or open_descriptors()
    assert open_descriptors() == before
