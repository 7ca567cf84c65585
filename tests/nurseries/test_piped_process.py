"""Children spoken to over stdin and stdout: plain streams, a drained stderr, and the same end for all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from hermes.nurseries.piped_process import StderrLines, open_piped
from hermes.nurseries.process_spec import ProcessSpec
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
ENV = {"PATH": PATH}
MARKS = Marks()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[ProcessSupervisor]:
    with no_longer_subreaper():
        made = ProcessSupervisor(owner_tag(str(tmp_path)), kill_grace=0.2)
        assert made.become_subreaper()
        yield made
        assert made.live() == []
        assert zombie_children() == []


def shell(script: str) -> ProcessSpec:
    return ProcessSpec(("sh", "-c", script), ENV, name="peer")


async def test_request_and_answer_travel_while_stderr_floods(supervisor: ProcessSupervisor) -> None:
    lines: list[str] = []
    spec = shell('head -c 1000000 /dev/zero >&2; echo >&2; while read line; do echo "re: $line"; done; echo bye >&2')
    with trio.fail_after(30):
        async with open_piped(supervisor, spec, lines.append) as peer:
            await peer.stdin.send_all(b"one\n")
            assert await peer.stdout.receive_some(100) == b"re: one\n"
    assert ([len(line) for line in lines], lines[-1]) == ([4096, 3], "bye")
    assert (peer.exit_code, peer.stderr_tail.endswith("\nbye")) == (0, True)


async def test_peer_that_ignores_the_end_of_its_input_is_ended(supervisor: ProcessSupervisor) -> None:
    mark = MARKS.next()
    async with open_piped(supervisor, ProcessSpec(hostile_tree(mark), ENV), eof_grace=0.05) as peer:
        assert await peer.stdout.receive_some(100) == b"ready\n"
    assert (running_with(mark), peer.exit_code) == ([], 137)


async def test_cancel_ends_the_peer(supervisor: ProcessSupervisor) -> None:
    mark = MARKS.next()
    with trio.CancelScope() as scope:
        async with open_piped(supervisor, shell(f"echo; setsid sleep {mark} & sleep {mark}")) as peer:
            await peer.stdout.receive_some(1)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert running_with(mark) == []


async def test_error_in_the_conversation_comes_out_as_itself(supervisor: ProcessSupervisor) -> None:
    mark = MARKS.next()
    with pytest.raises(LookupError):
        async with open_piped(supervisor, shell(f"sleep {mark}")):
            raise LookupError
    assert running_with(mark) == []


async def test_death_of_the_peer_is_the_end_of_its_stream(supervisor: ProcessSupervisor) -> None:
    async with open_piped(supervisor, shell("echo why >&2; exit 5")) as peer:
        assert await peer.stdout.receive_some(100) == b""
        assert await peer.wait() == 5
    assert peer.stderr_tail == "why"


async def test_many_reconnects_keep_neither_children_nor_descriptors(supervisor: ProcessSupervisor) -> None:
    before = None
    mark = MARKS.next()
    for _ in range(ROUNDS):
        async with open_piped(supervisor, shell(f"trap '' TERM; echo; sleep {mark} & cat"), eof_grace=0.01) as peer:
            await peer.stdout.receive_some(1)
            assert len(supervisor.live()) == 1
        assert running_with(mark) == []
        before = before or open_descriptors()
    assert open_descriptors() == before


def test_lines_are_cut_at_newlines_wherever_the_chunks_end() -> None:
    lines: list[str] = []
    cutter = StderrLines(lines.append)
    for chunk in (b"a", b"b\r\nc\n\n", b"d\xff"):
        cutter.take(chunk)
    assert (lines, cutter.tail) == (["ab", "c"], "ab\nc\nd\ufffd")
    cutter.finish()
    assert lines == ["ab", "c", "d\ufffd"]
