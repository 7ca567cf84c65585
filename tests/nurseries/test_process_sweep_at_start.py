"""What a killed server has left running is ended by the next start of the same home, and by no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from hermes.nurseries.process_tree import (
    TAG_VARIABLE,
    OwnerTag,
    find_left_behind,
    kill_left_behind,
    owner_tag,
    read_environment,
    read_stat,
)
from hermes.nurseries.processes import ProcessSupervisor
from tests.support.process_probe import PATH, Marks, running_with

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MARKS = Marks()

SERVER = """
import sys, trio
from hermes.nurseries.process_spec import ProcessSpec
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor

async def main(home, mark):
    supervisor = ProcessSupervisor(owner_tag(home))
    supervisor.become_subreaper()
    children = f"setsid sleep {mark} & (setsid env -i sleep {mark} & sleep {mark}) &"
    script = f"trap '' TERM; {children} echo ready; sleep {mark}"
    spec = ProcessSpec(("sh", "-c", script), {"PATH": sys.argv[3]})
    await supervisor.run(spec, lambda chunk: print(chunk.decode(), end="", flush=True))

trio.run(main, sys.argv[1], sys.argv[2])
"""


@pytest.fixture
def killed_server(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """(home, mark) of a server that was killed while its tool ran."""
    home, mark = str(tmp_path), MARKS.next()
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, home, mark, PATH],
        stdout=subprocess.PIPE,
        env={"PATH": PATH, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 10
        while len([line for line in running_with(mark) if ": sleep " in line]) < 4:
            assert time.monotonic() < deadline
            os.sched_yield()
        server.send_signal(signal.SIGKILL)
    yield home, mark
    for line in running_with(mark):
        os.kill(int(line.split(":")[0]), signal.SIGKILL)


@pytest.mark.fault("B-062")
async def test_next_start_of_the_same_home_ends_what_a_killed_server_left(killed_server: tuple[str, str]) -> None:
    home, mark = killed_server
    assert len(running_with(mark)) >= 4
    assert len(ProcessSupervisor(owner_tag(home)).sweep()) >= 4
    with trio.fail_after(10):
        while running_with(mark):  # a killed process needs a moment to be gone
            await trio.sleep(0.01)


def test_other_homes_leave_them_alone(killed_server: tuple[str, str], tmp_path: Path) -> None:
    _, mark = killed_server
    before = running_with(mark)
    assert ProcessSupervisor(owner_tag(str(tmp_path / "other"))).sweep() == []
    assert running_with(mark) == before


async def test_sweep_spares_the_processes_of_a_living_server(tmp_path: Path) -> None:
    living = owner_tag(str(tmp_path))
    environment = {"PATH": PATH, "HERMES_PROCESS_TAG": f"{living}.1"}
    with subprocess.Popen(["sleep", MARKS.next()], env=environment, start_new_session=True) as child:
        assert ProcessSupervisor(owner_tag(str(tmp_path))).sweep() == []
        assert child.poll() is None
        child.kill()


def test_tag_reads_back_as_its_owner_and_nonsense_as_nobody(tmp_path: Path) -> None:
    owner = owner_tag(str(tmp_path))
    assert OwnerTag.parse(f"{owner}.17") == owner
    assert owner.is_alive()
    assert not OwnerTag(owner.pid, owner.start - 1, owner.home, owner.unique).is_alive()
    assert [OwnerTag.parse(text) for text in ("", "1.2", "x.2.home.u.1", "1.y.home.u.1")] == [None] * 4


def test_a_process_is_found_in_the_middle_of_an_exec(tmp_path: Path) -> None:
    """It does nothing but replace itself; for much of that time its environment reads as empty."""
    owner = owner_tag(str(tmp_path))
    dead = OwnerTag(owner.pid, owner.start - 1, owner.home, "0" * 12)
    program = tmp_path / "again"
    program.write_text(f'#!/bin/sh\nexec "$0" {MARKS.next()}\n')
    program.chmod(0o755)
    with subprocess.Popen([program], env={"PATH": PATH, TAG_VARIABLE: f"{dead}.1"}) as child:
        deadline = time.monotonic() + 60
        for _ in range(40):
            while read_environment(child.pid) != b"":
                assert time.monotonic() < deadline, "it is never seen in the middle of one"
            assert find_left_behind(owner, {}) == [child.pid]
        assert kill_left_behind(owner, {}) == [child.pid]


def test_a_process_without_an_environment_is_not_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", MARKS.next()], env={}) as child:
        while read_environment(child.pid) != b"" or (stat := read_stat(child.pid)) is None or stat.changing:
            os.sched_yield()
        assert find_left_behind(owner_tag(str(tmp_path)), {}) == []
        assert (now := read_stat(child.pid)) is not None and not now.changing
        child.kill()
