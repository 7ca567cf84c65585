"""The process supervisor against real processes: whatever they do, nothing of them outlives its scope."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from hermes.errors import HermesError, Overloaded
from hermes.nurseries import processes
from hermes.nurseries.process_spec import ProcessEnd, ProcessSpec, SpawnFailed
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
ENV = {"PATH": PATH}
MARKS = Marks()
FORKING_CHAIN = """
import os, time
for number in range(300):
    if os.fork():
        os._exit(0)
    time.sleep(0.0005)
    if number % 5 == 0:
        os.setsid()
time.sleep(7001)
"""


@pytest.fixture(params=["subreaper", "no subreaper"])
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessSupervisor]:
    with no_longer_subreaper():
        made = ProcessSupervisor(owner_tag(str(tmp_path)), kill_grace=0.2)
        if request.param == "subreaper":
            assert made.become_subreaper()
        yield made
        assert made.live() == []
        assert zombie_children() == []


@pytest.fixture
def subreaper(tmp_path: Path) -> Iterator[ProcessSupervisor]:
    with no_longer_subreaper():
        made = ProcessSupervisor(owner_tag(str(tmp_path)), kill_grace=0.2)
        assert made.become_subreaper()
        yield made
        assert made.live() == []
        assert zombie_children() == []


def shell(script: str, **options: object) -> ProcessSpec:
    return ProcessSpec(("sh", "-c", script), ENV, **options)  # type: ignore[arg-type]


class Output:
    """Collects what a command says, and lets a test wait for the first of it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.started = trio.Event()

    def __call__(self, chunk: bytes) -> None:
        self.data += chunk
        self.started.set()


async def cancel_when_it_speaks(supervisor: ProcessSupervisor, spec: ProcessSpec) -> float:
    """Run, cancel after the first output; returns the seconds from the cancel to the end."""
    output = Output()
    with trio.fail_after(LONG):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.run, spec, output)
            await output.started.wait()
            cancelled_at = time.perf_counter()
            nursery.cancel_scope.cancel()
    return time.perf_counter() - cancelled_at


async def test_output_and_exit_code_of_a_command_are_reported(supervisor: ProcessSupervisor) -> None:
    output = Output()
    end = await supervisor.run(shell("echo out; echo err >&2; exit 3"), output)
    assert (bytes(output.data), end) == (b"out\nerr\n", ProcessEnd(3))


async def test_death_by_signal_is_reported_as_a_shell_shows_it(supervisor: ProcessSupervisor) -> None:
    assert await supervisor.run(shell("kill -SEGV $$"), Output()) == ProcessEnd(139, signal.SIGSEGV)


async def test_given_bytes_are_the_input_and_otherwise_there_is_none(supervisor: ProcessSupervisor) -> None:
    fed, empty = Output(), Output()
    await supervisor.run(shell("cat", stdin=b"hello"), fed)
    await supervisor.run(shell("cat; echo end"), empty)
    assert (bytes(fed.data), bytes(empty.data)) == (b"hello", b"end\n")


async def test_child_that_ignores_a_large_input_is_no_error(supervisor: ProcessSupervisor) -> None:
    assert (await supervisor.run(shell("exit 0", stdin=b"x" * 5_000_000), Output())).exit_code == 0


async def test_child_sees_only_the_environment_it_is_given(supervisor: ProcessSupervisor) -> None:
    output = Output()
    await supervisor.run(ProcessSpec(("env",), {"PATH": PATH, "ONLY": "this"}), output)
    names = {line.split("=")[0] for line in output.data.decode().splitlines()}
    assert names == {"PATH", "ONLY", "HERMES_PROCESS_TAG"}


@pytest.mark.fault("B-060")
async def test_hostile_tree_dies_on_cancel(subreaper: ProcessSupervisor) -> None:
    for _ in range(ROUNDS):
        mark = MARKS.next()
        await cancel_when_it_speaks(subreaper, ProcessSpec(hostile_tree(mark), ENV, kill_grace=0.05))
        assert running_with(mark) == []
        assert zombie_children() == []


@pytest.mark.fault("B-066")
async def test_hostile_tree_dies_on_timeout_and_its_output_is_kept(subreaper: ProcessSupervisor) -> None:
    mark, output = MARKS.next(), Output()
    end = await subreaper.run(ProcessSpec(hostile_tree(mark), ENV, timeout=0.5, kill_grace=0.05), output)
    assert running_with(mark) == []
    assert (end.exit_code, end.timed_out, end.forced, end.survivors) == (137, True, True, ())
    assert bytes(output.data) == b"ready\n"


async def test_no_grace_means_kill_at_once(supervisor: ProcessSupervisor) -> None:
    mark = MARKS.next()
    end = await supervisor.run(shell(f"trap '' TERM; sleep {mark}; sleep {mark}", timeout=0.1, kill_grace=0), Output())
    assert (end.exit_code, running_with(mark)) == (137, [])


async def test_polite_tree_does_not_wait_for_the_grace(supervisor: ProcessSupervisor) -> None:
    mark = MARKS.next()
    script = f"echo; setsid sleep {mark} & sleep {mark} & sleep {mark}"
    took = await cancel_when_it_speaks(supervisor, shell(script, kill_grace=20.0))
    assert running_with(mark) == []
    assert took < 5.0


async def test_stopped_process_gets_the_request_to_end(supervisor: ProcessSupervisor) -> None:
    took = await cancel_when_it_speaks(supervisor, shell("echo; kill -STOP $$", kill_grace=20.0))
    assert took < 5.0


async def test_last_words_after_the_request_to_end_are_delivered(supervisor: ProcessSupervisor) -> None:
    output = Output()
    script = "trap 'head -c 200000 /dev/zero; echo bye; exit 7' TERM; while :; do sleep 0.01; done"
    end = await supervisor.run(shell(script, timeout=0.3, kill_grace=20.0), output)
    assert (end.exit_code, end.timed_out, output.data.count(0)) == (7, True, 200_000)
    assert output.data.endswith(b"bye\n")


async def test_what_a_process_starts_to_clean_up_is_left_in_peace(supervisor: ProcessSupervisor) -> None:
    output = Output()
    script = "trap 'sleep 0.1 && echo cleaned; exit' TERM; while :; do sleep 0.01; done"
    end = await supervisor.run(shell(script, timeout=0.3, kill_grace=20.0), output)
    assert (b"cleaned" in output.data, end.forced) == (True, False)


async def test_leftovers_of_a_finished_command_are_ended(supervisor: ProcessSupervisor) -> None:
    mark = MARKS.next()
    end = await supervisor.run(shell(f"sleep {mark} & setsid sleep {mark} & kill %1 2>/dev/null; echo"), Output())
    assert running_with(mark) == []
    assert (end.exit_code, end.forced) == (0, False)


async def test_background_job_that_holds_the_pipe_does_not_delay_the_end(supervisor: ProcessSupervisor) -> None:
    output = Output()
    with trio.fail_after(3.5):
        end = await supervisor.run(shell("sleep 4 & echo done"), output)
    assert (bytes(output.data), end.exit_code, end.leftovers) == (b"done\n", 0, 1)


async def test_daemon_without_any_mark_is_found_when_nobody_else_can_have_started_it(
    subreaper: ProcessSupervisor,
) -> None:
    mark = MARKS.next()
    await subreaper.run(shell(f"env -i setsid sleep {mark} & sleep 0.2"), Output())
    assert running_with(mark) == []


async def test_daemon_without_any_mark_is_ended_with_the_last_command_that_can_have_started_it(
    subreaper: ProcessSupervisor,
) -> None:
    mark, output = MARKS.next(), Output()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subreaper.run, shell("echo; sleep 7001"), output)
        await output.started.wait()
        await subreaper.run(shell(f"(env -i setsid sleep {mark} &)"), Output())
        nursery.cancel_scope.cancel()
    assert running_with(mark) == []


async def test_chain_of_processes_that_fork_and_die_is_caught(subreaper: ProcessSupervisor) -> None:
    for number in range(ROUNDS):
        mark = MARKS.next()
        spec = ProcessSpec((sys.executable, "-I", "-S", "-c", FORKING_CHAIN, mark), ENV, kill_grace=0.05)
        await subreaper.run(dataclasses.replace(spec, timeout=0.05 + 0.004 * number), Output())
        assert running_with(mark) == []


async def test_process_that_changes_its_session_while_it_is_asked_to_end_hears_it(
    subreaper: ProcessSupervisor,
) -> None:
    for _ in range(ROUNDS):
        mark = MARKS.next()
        script = f"sleep {mark} & (setsid sleep {mark} &); echo; sleep {mark}"
        assert await cancel_when_it_speaks(subreaper, shell(script, kill_grace=20.0)) < 5.0
        assert running_with(mark) == []


async def test_child_that_closes_its_output_is_waited_for(supervisor: ProcessSupervisor) -> None:
    assert (await supervisor.run(shell("exec >&- 2>&-; sleep 0.3; exit 9"), Output())).exit_code == 9


async def test_huge_output_without_a_newline_streams_in_small_pieces(supervisor: ProcessSupervisor) -> None:
    sizes: list[int] = []
    await supervisor.run(shell("head -c 100000000 /dev/zero"), lambda chunk: sizes.append(len(chunk)))
    assert (sum(sizes), max(sizes) <= 1 << 18) == (100_000_000, True)


async def test_all_output_arrives_however_the_child_ends(supervisor: ProcessSupervisor) -> None:
    for _ in range(ROUNDS):
        output = Output()
        await supervisor.run(shell("head -c 65536 /dev/zero; kill -9 $$"), output)
        assert len(output.data) == 65_536


async def test_error_of_the_output_callback_comes_out_and_leaves_nothing(supervisor: ProcessSupervisor) -> None:
    mark = MARKS.next()

    def refuse(chunk: bytes) -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await supervisor.run(shell(f"echo; sleep {mark}"), refuse)
    assert running_with(mark) == []


async def test_commands_side_by_side_keep_their_own_exit_codes_and_output(supervisor: ProcessSupervisor) -> None:
    seen: dict[int, tuple[int | None, bytes]] = {}

    async def one(number: int) -> None:
        output = Output()
        end = await supervisor.run(shell(f"(sleep 0.0{number % 7} &); echo {number}; exit {number}"), output)
        seen[number] = (end.exit_code, bytes(output.data))

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(one, number)
    assert seen == {number: (number, f"{number}\n".encode()) for number in range(50)}


@pytest.mark.fault("B-059")
async def test_end_of_one_command_does_not_touch_its_neighbour(supervisor: ProcessSupervisor) -> None:
    mark = MARKS.next()
    output = Output()
    async with trio.open_nursery() as nursery:
        neighbour = shell(f"setsid sleep {mark} & (sleep {mark} &); echo; sleep {mark}", session_id="other")
        nursery.start_soon(supervisor.run, neighbour, output)
        await output.started.wait()
        with trio.fail_after(LONG):
            while sum(": sleep " in line for line in running_with(mark)) < 3:
                await trio.sleep(0.005)
        before = running_with(mark)
        for _ in range(5):
            await supervisor.run(shell("sleep 0.01 & setsid sleep 5 &"), Output())
        assert running_with(mark) == before
        nursery.cancel_scope.cancel()
    assert running_with(mark) == []


async def test_descriptors_return_to_the_baseline(supervisor: ProcessSupervisor) -> None:
    await supervisor.run(shell("true"), Output())
    before = open_descriptors()
    for _ in range(ROUNDS):
        await supervisor.run(shell("true", stdin=b"x"), Output())
        await cancel_when_it_speaks(supervisor, shell("echo; sleep 7001"))
        with pytest.raises(SpawnFailed):
            await supervisor.run(ProcessSpec(("no-such-program",), ENV), Output())
    assert open_descriptors() == before


async def test_children_inherit_none_of_our_descriptors(supervisor: ProcessSupervisor) -> None:
    output = Output()
    await supervisor.run(shell("ls /proc/self/fd"), output)
    assert [name for name in output.data.split() if int(name) > 3] == []


async def test_spawn_failures_say_what_to_change(supervisor: ProcessSupervisor, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")

    async def failure(spec: ProcessSpec) -> str:
        with pytest.raises(SpawnFailed) as caught:
            await supervisor.run(spec, Output())
        assert isinstance(caught.value, HermesError)
        assert isinstance(caught.value, OSError)
        return caught.value.message

    assert await failure(ProcessSpec(("no-such-program",), ENV)) == "cannot start no-such-program: no such program"
    assert "not executable" in await failure(ProcessSpec((str(plain),), ENV))
    assert "too long" in await failure(ProcessSpec(("echo", "x" * (1 << 22)), ENV))
    assert "null byte" in await failure(ProcessSpec(("echo", "a\0b"), ENV))
    assert "the working directory /gone cannot be used" in await failure(ProcessSpec(("true",), ENV, cwd="/gone"))


async def test_command_is_ended_and_reaped_when_no_descriptor_is_left(subreaper: ProcessSupervisor) -> None:
    mark, output = MARKS.next(), Output()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    with trio.fail_after(LONG):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(subreaper.run, shell(f"echo; sleep {mark}; sleep {mark}"), output)
            await output.started.wait()
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + 20, hard))
            try:
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                nursery.cancel_scope.cancel()
            with pytest.raises(SpawnFailed, match="no file descriptors left"), trio.CancelScope(shield=True):
                await subreaper.run(shell("true"), Output())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for descriptor in taken:
        os.close(descriptor)
    assert running_with(mark) == []


async def test_session_at_its_limit_is_refused_and_others_are_not(tmp_path: Path) -> None:
    supervisor = ProcessSupervisor(owner_tag(str(tmp_path)), limit_per_session=1)
    output = Output()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run, shell("echo; sleep 7001", session_id="a"), output)
        await output.started.wait()
        with pytest.raises(Overloaded):
            await supervisor.run(shell("true", session_id="a"), Output())
        assert (await supervisor.run(shell("true", session_id="b"), Output())).exit_code == 0
        nursery.cancel_scope.cancel()
    assert (await supervisor.run(shell("true", session_id="a"), Output())).exit_code == 0


async def test_live_list_shows_the_command_with_all_its_pids(supervisor: ProcessSupervisor) -> None:
    output = Output()
    async with trio.open_nursery() as nursery:
        spec = shell("setsid sleep 7001 & sleep 0.1; echo; sleep 7001", session_id="s", turn_id="t", name="terminal")
        nursery.start_soon(supervisor.run, spec, output)
        await output.started.wait()
        (live,) = supervisor.live()
        assert (live.label, live.session_id, live.turn_id, live.ending) == ("terminal", "s", "t", False)
        pids = supervisor.pids_of(live.process_id)
        assert live.pid in pids
        assert len(pids) >= 2
        nursery.cancel_scope.cancel()


@pytest.mark.fault("B-173")
async def test_signals_that_may_not_be_sent_do_not_hang_or_raise(
    supervisor: ProcessSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.killpg

    def refused(group: int, number: int) -> None:
        if number == signal.SIGTERM:
            raise PermissionError
        real(group, number)

    monkeypatch.setattr(os, "killpg", refused)
    end = await supervisor.run(shell("while :; do sleep 0.05; done", timeout=0.1), Output())
    # The group may not be asked to end: each of its processes is.
    assert (end.exit_code, end.forced, end.survivors) == (143, False, ())


async def test_a_shell_that_is_stopped_as_it_starts_its_first_program_does_not_use_up_the_grace() -> None:
    supervisor = ProcessSupervisor(owner_tag("just begun"), kill_grace=30)
    # The shell takes note of the request and starts its program all the same.
    spec = ProcessSpec(argv=("bash", "-c", "trap : TERM; kill -STOP $$; sleep 1000"), env={"PATH": os.environ["PATH"]})
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.run, spec, lambda _chunk: None)
            while not any(process.pid and is_stopped(process.pid) for process in supervisor.live()):
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
    assert supervisor.live() == []


def is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


async def test_a_machine_that_stood_still_for_the_whole_time_of_the_stop_kills_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time for asking and for killing is over before either was done."""
    monkeypatch.setattr(processes, "HARD_LIMIT", -1.0)
    supervisor = ProcessSupervisor(owner_tag("stood still"), kill_grace=0)
    mark = MARKS.next()
    await supervisor.run(shell(f"trap '' TERM; sleep {mark}", timeout=0.2), Output())
    with trio.fail_after(LONG):
        for entry in supervisor._lost:
            # Killed, and no time was left to see it: so it is reaped here.
            assert entry.process is not None
            assert await entry.process.wait() == -signal.SIGKILL
        while running_with(mark):
            await trio.sleep(0.01)
