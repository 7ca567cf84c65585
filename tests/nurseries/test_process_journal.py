"""What a killed server wrote down is ended by the next one; nothing else that happens to have such a pid."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from hermes.nurseries import process_journal
from hermes.nurseries.process_journal import FOLDER, ProcessJournal, forget_dead, recorded
from hermes.nurseries.process_spec import ProcessSpec
from hermes.nurseries.process_tree import OwnerTag, ProcessStat, owner_tag, read_stat
from hermes.nurseries.processes import ProcessSupervisor, find_left_behind, kill_left_behind
from tests.support.process_probe import PATH, Marks, no_longer_subreaper, running_with

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MARKS = Marks()


def dead(owner: OwnerTag) -> OwnerTag:
    """A server of the same home that is no more."""
    return OwnerTag(owner.pid, owner.start - 1, owner.home, "0" * 12)


@pytest.fixture
def unmarked() -> Iterator[ProcessStat]:
    """A process without any mark of ours."""
    with subprocess.Popen(["sleep", MARKS.next()], env={}, start_new_session=True) as child:
        stat = read_stat(child.pid)
        assert stat is not None
        yield stat
        child.kill()


def test_what_a_dead_server_wrote_down_is_killed_and_its_journal_forgotten(
    tmp_path: Path, unmarked: ProcessStat
) -> None:
    owner = owner_tag(str(tmp_path))
    assert ProcessJournal(tmp_path, dead(owner)).note([unmarked])
    assert find_left_behind(owner, tmp_path) == [unmarked.pid]
    assert kill_left_behind(owner, tmp_path) == [unmarked.pid]
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_living_server_another_home_another_boot_and_a_later_process_are_left_alone(
    tmp_path: Path, unmarked: ProcessStat, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = owner_tag(str(tmp_path))
    other_home = owner_tag(str(tmp_path / "other"))
    later = ProcessStat(unmarked.pid, 1, 1, 1, unmarked.start - 1, True)
    ProcessJournal(tmp_path, owner).note([unmarked])
    ProcessJournal(tmp_path, dead(other_home)).note([unmarked])
    ProcessJournal(tmp_path, dead(owner)).note([later])
    assert recorded(tmp_path, owner) == {}
    with monkeypatch.context() as patch:
        patch.setattr(process_journal, "_boot_id", lambda: "another")
        ProcessJournal(tmp_path, OwnerTag(1, 1, owner.home, "1" * 12)).note([unmarked])
    assert kill_left_behind(owner, tmp_path) == []
    forget_dead(tmp_path, owner)
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == {str(owner), str(dead(other_home))}


def test_a_journal_that_is_garbage_or_unreadable_kills_nobody(tmp_path: Path, unmarked: ProcessStat) -> None:
    owner = owner_tag(str(tmp_path))
    assert recorded(tmp_path, owner) == {}
    journal = ProcessJournal(tmp_path, dead(owner))
    journal.note([unmarked])
    path = tmp_path / FOLDER / str(dead(owner))
    boot = path.read_text().splitlines()[0]
    entry = f"{unmarked.pid} {unmarked.start}"
    for text in ("", "\n", "x", f"{boot}\n1\nx y\n-1 5\n{unmarked.pid}\n", "\0" * 100, f"\n{entry}"):
        path.write_text(text)
        assert recorded(tmp_path, owner) == {}
    path.unlink()
    path.mkdir()
    assert recorded(tmp_path, owner) == {}


def test_a_long_journal_begins_anew_with_what_runs_now(
    tmp_path: Path, unmarked: ProcessStat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_journal, "_MOST_LINES", 10)
    owner = owner_tag(str(tmp_path))
    journal = ProcessJournal(tmp_path, dead(owner))
    for number in range(100):
        journal.note([unmarked, ProcessStat(10_000_000 + number, 1, 1, 1, 1, True)])
    assert len((tmp_path / FOLDER / str(dead(owner))).read_text().splitlines()) <= 12
    assert list(recorded(tmp_path, owner)) == [unmarked.pid]


def test_a_disk_that_takes_nothing_costs_only_the_journal(tmp_path: Path, unmarked: ProcessStat) -> None:
    (tmp_path / "cache").write_text("in the way")
    journal = ProcessJournal(tmp_path, owner_tag(str(tmp_path)))
    assert journal.note([unmarked])
    with pytest.raises(NotADirectoryError):
        (tmp_path / FOLDER).iterdir().__next__()


async def test_a_daemon_without_marks_is_written_down_while_its_command_runs(tmp_path: Path) -> None:
    mark = MARKS.next()
    owner = owner_tag(str(tmp_path))
    supervisor = ProcessSupervisor(owner, kill_grace=0.1, home=tmp_path)
    path = tmp_path / FOLDER / str(owner)
    with no_longer_subreaper(), trio.fail_after(20):
        supervisor.become_subreaper()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.keep_journal)
            script = f"(setsid env -i sleep {mark} &); exec sleep {mark}"
            nursery.start_soon(supervisor.run, ProcessSpec(("sh", "-c", script), {"PATH": PATH}), lambda _chunk: None)
            pids: set[int] = set()
            while len(pids) < 2 or not pids <= written(path):
                pids = {int(line.partition(":")[0]) for line in running_with(mark) if ": sh" not in line}
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
        assert running_with(mark) == []
        assert not path.exists()


def written(path: Path) -> set[int]:
    if not path.exists():
        return set()
    return {int(line.split()[0]) for line in path.read_text().splitlines()[1:]}
