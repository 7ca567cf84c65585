"""What the tools of one session run: real children, ended with the call, the turn or the session that owns them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ProcessRequest
from hermes.agent.redaction import redact
from hermes.errors import ProcessNotFound, SessionClosing, Unsupported
from hermes.events import ProcessEnded, ProcessOutput
from hermes.messages import Prompt
from hermes.nurseries import session_processes as module
from hermes.nurseries.background_process import BackgroundProcess
from hermes.nurseries.process_tree import read_stat
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.session_processes import HeadAndTail
from hermes.nurseries.turn_slot import Submission
from tests.support.session_processes import ignore, session_processes, shell, until


@pytest.mark.parametrize("size", [1, 7, 64])
def test_output_is_bounded_to_its_head_and_its_tail(size: int) -> None:
    kept = HeadAndTail(100)
    data = bytes(range(256)) * 4
    for at in range(0, len(data), size):
        kept.add(data[at : at + size])
    output, head = kept.take()
    assert (len(output), head) == (100, 40)
    assert output == data[:40] + data[-60:]
    assert kept.dropped == len(data) - 100


def test_short_output_is_kept_whole() -> None:
    kept = HeadAndTail(100)
    kept.add(b"hello ")
    kept.add(b"world")
    assert kept.take() == (b"hello world", 11)
    assert kept.dropped == 0


async def test_a_foreground_process_gives_its_output_and_its_end(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        seen: list[bytes] = []
        end = await processes.run_foreground(
            shell("cat; echo oops >&2; exit 3", stdin=b"given"), seen.append, turn_id="t1", node=owner.scope
        )
        assert (end.exit_code, end.timed_out, end.dropped_bytes) == (3, False, 0)
        assert sorted(end.output.split()) == sorted(b"given oops".split()) or end.output == b"givenoops\n"
        assert b"".join(seen) == end.output


async def test_a_foreground_process_that_takes_too_long_has_no_exit_code(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        end = await processes.run_foreground(
            shell("echo begun; sleep 60", timeout=0.3), ignore, turn_id="t1", node=owner.scope
        )
        assert (end.exit_code, end.timed_out, end.output) == (None, True, b"begun\n")


async def test_a_command_that_cannot_be_started_is_an_os_error_and_leaves_nothing(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        request = ProcessRequest(("/no/such/program",), cwd="/", env={})
        with pytest.raises(OSError):
            await processes.run_foreground(request, ignore, turn_id="t1", node=owner.scope)
        with pytest.raises(OSError):
            await processes.start(request, command="nope", notify=True, turn_id="t1")
        assert processes.list() == []


async def test_a_background_process_is_listed_read_and_told_of(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, clock):
        info = await processes.start(shell("echo one; read x; echo got $x"), command="echo", notify=True, turn_id="t1")
        assert (info.process_id, info.status, info.command, info.started_at) == (
            "proc_000000000001", "running", "echo", 1000.0,
        )  # fmt: skip
        assert [name for name, _ in processes.running()] == [info.process_id]
        await until(lambda: "one" in processes.log(info.process_id))
        assert processes.read_new(info.process_id) == "one\n"
        assert processes.read_new(info.process_id) == ""
        clock.now = 1005.0
        await processes.write(info.process_id, b"this\n")
        ended = await processes.wait(info.process_id, 10)
        assert (ended.status, ended.exit_code, ended.ended_at) == ("exited", 0, 1005.0)
        assert processes.read_new(info.process_id) == "got this\n"
        assert processes.get("proc_").output_preview == "one\ngot this\n"
        assert "".join(event.chunk for event in owner.events if isinstance(event, ProcessOutput)) == "one\ngot this\n"
        assert owner.events[-1] == ProcessEnded(info.process_id, 0, "echo")
        assert [(found.exit_code, output) for found, output in owner.finished] == [(0, "one\ngot this\n")]


async def test_a_secret_in_two_pieces_is_masked_in_events_previews_logs_and_notices(tmp_path: Path) -> None:
    script = "printf 'key sk-ant-api03-abcdefgh'; read x; printf 'ijklmnopqrst\\ncaf\\303'; read x; printf '\\251 end'"
    async with session_processes(tmp_path, redact) as (processes, owner, _):
        process_id = (await processes.start(shell(script), command="x", notify=True, turn_id="t1")).process_id
        await until(lambda: processes.log(process_id) == "key ")
        assert processes.read_new(process_id) == "key "
        await processes.write(process_id, b"\n")
        await until(lambda: "\n" in processes.log(process_id))
        await processes.write(process_id, b"\n")
        ended = await processes.wait(process_id, 10)
        whole = "key sk-ant...qrst\ncaf\u00e9 end"
        assert processes.read_new(process_id) == whole[4:]
        assert (processes.log(process_id), ended.output_preview) == (whole, whole)
        assert "".join(event.chunk for event in owner.events if isinstance(event, ProcessOutput)) == whole
        assert [output for _, output in owner.finished] == [whole]


async def test_the_first_input_is_read_before_what_is_written_later(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, __):
        request = shell("read a; read b; echo $a $b", stdin=b"first\n")
        process_id = (await processes.start(request, command="x", notify=False, turn_id="t1")).process_id
        await processes.write(process_id, b"second\n")
        await processes.wait(process_id, 10)
        assert processes.log(process_id) == "first second\n"


async def test_a_wait_for_a_process_is_bounded_and_leaves_it_running(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, __):
        info = await processes.start(shell("sleep 60"), command="sleep", notify=False, turn_id="t1")
        assert (await processes.wait(info.process_id, 0.05)).status == "running"
        assert (await processes.kill(info.process_id)).status == "killed"


async def test_a_killed_process_is_not_announced_and_a_finished_one_is_not_called_killed(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        killed = await processes.start(shell("sleep 60"), command="sleep", notify=True, turn_id="t1")
        await processes.kill(killed.process_id)
        done = await processes.start(shell("exit 4"), command="exit", notify=True, turn_id="t1")
        await processes.wait(done.process_id, 10)
        assert (await processes.kill(done.process_id)).status == "exited"
        await until(lambda: len(owner.finished) == 1)
        assert owner.finished[0][0].process_id == done.process_id


async def test_a_process_that_is_ended_with_its_task_is_called_killed_and_not_announced(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        stop = trio.CancelScope()

        async def start(process: BackgroundProcess, _name: str) -> None:
            async def live(task_status: trio.TaskStatus[Any]) -> None:
                with stop:
                    await process.supervise(task_status=task_status)

            await owner._nursery.start(live)

        owner.start_background_process = start  # type: ignore[method-assign,assignment]
        info = await processes.start(shell("exec sleep 600"), command="work", notify=True, turn_id="t1")
        stop.cancel()
        ended = await processes.wait(info.process_id, 10)
        assert (ended.status, ended.exit_code, owner.finished) == ("killed", 143, [])


async def test_input_that_nobody_reads_is_an_error_for_people(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, __):
        info = await processes.start(shell("cat; sleep 60"), command="cat", notify=False, turn_id="t1")
        await processes.close_stdin(info.process_id)
        with pytest.raises(Unsupported):
            await processes.write(info.process_id, b"x")


async def test_an_id_may_be_shortened_while_it_is_clear(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, __):
        with pytest.raises(ProcessNotFound, match="no process"):
            processes.get("proc_")
        first = await processes.start(shell("sleep 60"), command="a", notify=False, turn_id="t1")
        assert processes.get("proc_0").process_id == first.process_id
        await processes.start(shell("sleep 60"), command="b", notify=False, turn_id="t1")
        with pytest.raises(ProcessNotFound, match="ambiguous"):
            processes.get("proc_0")
        with pytest.raises(ProcessNotFound):
            processes.get("")
        assert processes.get(first.process_id).command == "a"


async def test_a_stop_of_a_turn_ends_its_own_processes_and_no_others(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, __):
        mine = await processes.for_turn("t1").start(shell("sleep 60"), command="mine")
        other = await processes.for_turn("t2").start(shell("sleep 60"), command="other")
        assert await processes.stop_turn("t1") == 1
        assert processes.get(mine.process_id).status == "killed"
        assert processes.get(other.process_id).status == "running"
        assert await processes.stop_all() == 1
        assert await processes.stop_all() == 0


async def test_a_terminal_follows_the_size_of_its_client(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, __):
        info = await processes.start(shell("read x; stty size", pty=True), command="stty", notify=False, turn_id="t1")
        processes.resize(132, 43)
        await processes.write(info.process_id, b"go\n")
        await processes.wait(info.process_id, 10)
        assert "43 132" in processes.log(info.process_id)


async def test_leaving_the_session_kills_what_it_runs(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, __):
        info = await processes.start(shell("sleep 60"), command="sleep", notify=False, turn_id="t1")
        assert info.pid is not None
        os.kill(info.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(info.pid, signal.SIGCONT)


async def test_a_stop_reaches_what_an_ended_process_has_left_behind(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, __):
        script = "sleep 7001 >/dev/null 2>&1 & echo $!"
        info = await processes.start(shell(script), command="leaves one", notify=False, turn_id="t1")
        await processes.wait(info.process_id, 10)
        left = int(processes.log(info.process_id))
        stat = read_stat(left)
        assert stat is not None and stat.running
        assert await processes.stop_turn("t1") == 1
        stat = read_stat(left)
        assert stat is None or not stat.running
        assert processes.get(info.process_id).status == "exited"
        assert await processes.stop_all() == 0


async def test_an_end_that_the_model_has_read_of_is_not_told_again(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        info = await processes.start(shell("true"), command="a", notify=True, turn_id="t1")
        await processes.wait(info.process_id, 10)
        assert len(owner.finished) == 1
        waiting = [
            Submission(
                Prompt(name, display_kind="process_complete", display_metadata={"process_id": process_id}), "queued"
            )
            for name, process_id in (("its end", info.process_id), ("another end", "proc_other"))
        ]
        owner.slot.enqueue(waiting[0])
        owner.slot.set_aside(waiting[1])
        processes.for_turn("t2").told(info.process_id)
        assert owner.slot.queued == ()
        assert await waiting[0].wait_turn() is None
        assert not waiting[1].turn.settled


async def test_a_process_that_reads_nothing_does_not_hold_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITTEN_WITHIN", 0.2)
    async with session_processes(tmp_path) as (processes, _, __):
        info = await processes.start(shell("sleep 60"), command="deaf", notify=False, turn_id="t1")
        with pytest.raises(Unsupported, match="did not read"):
            await processes.write(info.process_id, b"x" * 5_000_000)


async def test_a_node_shows_the_pids_of_what_runs_for_it(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        spoken = trio.Event()
        async with trio.open_nursery() as nursery:
            node = ReasonScope("tool_call", "terminal", owner.scope)
            script = shell("setsid sleep 7001 & sleep 7002 & echo ready; wait")

            async def run() -> None:
                with node:
                    await processes.run_foreground(script, lambda _: spoken.set(), turn_id="t1", node=node)

            nursery.start_soon(run)
            await spoken.wait()
            await until(lambda: len(node.snapshot()["pids"]) == 3)
            assert "pids" not in owner.scope.snapshot()
            nursery.cancel_scope.cancel()
        assert node.snapshot()["pids"] == []


# --- from the foreground to the background ---------------------------------------------------------------------------


async def test_a_running_command_moves_to_the_background_and_is_told_of_when_it_ends(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        scratch = tmp_path / "state"
        scratch.write_text("x")
        fifo = tmp_path / "go"
        os.mkfifo(fifo)
        said: list[bytes] = []
        request = shell(
            f"echo begun; read word < {fifo}; echo $word; exit 3",
            timeout=60,
            movable_as="work",
            scratch=str(scratch),
        )

        def seen(chunk: bytes) -> None:
            said.append(chunk)
            assert processes.move_to_background("another turn") == 0
            assert processes.move_to_background("t1") == 1

        end = await processes.run_foreground(request, seen, turn_id="t1", node=owner.scope)
        moved = end.moved
        assert moved is not None and (end.exit_code, end.timed_out, end.output) == (None, False, b"begun\n")
        assert (moved.status, moved.command, moved.notify) == ("running", "work", True)
        assert [info.process_id for info in processes.list()] == [moved.process_id]
        assert processes.log(moved.process_id) == "begun\n" and processes.read_new(moved.process_id) == ""
        assert processes.move_to_background("t1") == 0
        with open(fifo, "w") as pipe:
            pipe.write("on\n")
        info = await processes.wait(moved.process_id, 10)
        assert (info.status, info.exit_code) == ("exited", 3)
        assert processes.read_new(moved.process_id) == "on\n" and said == [b"begun\n"]
        ((told, output),) = owner.finished
        assert (told.process_id, output) == (moved.process_id, "begun\non\n")
        assert not scratch.exists()


async def test_others_get_their_turn_while_the_long_output_of_a_moved_command_is_read(tmp_path: Path) -> None:
    ticks = 0
    looked_at: dict[int, int] = {}

    def hide(text: str) -> str:
        looked_at[ticks] = looked_at.get(ticks, 0) + len(text)
        return redact(text)

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.lowlevel.checkpoint()
            ticks += 1

    async with session_processes(tmp_path, hide) as (processes, owner, _), trio.open_nursery() as nursery:
        total = 0

        def seen(chunk: bytes) -> None:
            nonlocal total
            total += len(chunk)
            if total >= 400_000:
                nursery.start_soon(tick)
                processes.move_to_background("t1")

        script = (
            "i=0; while [ $i -lt 10000 ]; do echo password=correct-horse-battery, line $i; i=$((i+1)); done; sleep 600"
        )
        request = shell(script, movable_as="work")
        end = await processes.run_foreground(request, seen, turn_id="t1", node=owner.scope)
        assert end.moved is not None
        await until(lambda: "line 9999\n" in processes.log(end.moved.process_id))  # type: ignore[union-attr]
        assert "horse" not in processes.log(end.moved.process_id)
        assert processes.read_new(end.moved.process_id) == ""
        assert max(looked_at.values()) < 64_000 < sum(looked_at.values())
        await processes.kill(end.moved.process_id)
        nursery.cancel_scope.cancel()


async def test_a_command_that_was_moved_is_killed_like_any_other(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        request = shell("sleep 600 & sleep 601", movable_as="work", stdin=b"word\n")
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                outcomes.append(await processes.run_foreground(request, ignore, turn_id="t1", node=owner.scope))

            outcomes: list[Any] = []
            nursery.start_soon(run)
            while not processes.move_to_background("t1"):
                await trio.sleep(0.005)
        moved = outcomes[0].moved
        assert moved is not None and moved.pid is not None
        assert (await processes.kill(moved.process_id)).status == "killed"
        assert read_stat(moved.pid) is None and owner.finished == []


async def test_a_stop_in_the_tick_of_the_move_leaves_nothing(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        with trio.CancelScope() as stop:

            def seen(_chunk: bytes) -> None:
                processes.move_to_background("t1")
                stop.cancel()

            request = shell("echo begun; sleep 600", movable_as="work")
            await processes.run_foreground(request, seen, turn_id="t1", node=owner.scope)
        assert stop.cancelled_caught
        assert processes.list() == [] and processes._supervisor.live() == []


async def test_a_session_that_closes_takes_no_command_over(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):

        def seen(_chunk: bytes) -> None:
            owner.closing = True
            processes.move_to_background("t1")

        with pytest.raises(SessionClosing):
            await processes.run_foreground(
                shell("echo begun; sleep 600", movable_as="work"), seen, turn_id="t1", node=owner.scope
            )
        assert processes.list() == [] and processes._supervisor.live() == []


async def test_a_command_that_ends_as_it_is_asked_for_has_simply_ended(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, owner, _):
        for _ in range(20):

            def seen(_chunk: bytes) -> None:
                processes.move_to_background("t1")

            end = await processes.run_foreground(
                shell("echo x; exit 4", movable_as="work"), seen, turn_id="t1", node=owner.scope
            )
            if end.moved is None:
                assert (end.exit_code, end.output) == (4, b"x\n")
            else:
                assert (await processes.wait(end.moved.process_id, 5)).exit_code == 4
