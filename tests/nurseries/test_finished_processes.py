"""How long, and how many of, the processes that have ended are remembered by their session."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.errors import ProcessNotFound
from hermes.nurseries import session_processes as module
from hermes.nurseries.session_processes import KEPT_FINISHED_S, MAX_KEPT
from tests.support.session_processes import session_processes, shell


async def test_finished_processes_are_forgotten_after_a_while_and_beyond_a_number(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, clock):
        old = await processes.start(shell("true"), command="old", notify=False, turn_id="t1")
        await processes.wait(old.process_id, 10)
        await processes.kill(old.process_id)
        clock.now += KEPT_FINISHED_S + 1
        alive = await processes.start(shell("sleep 60"), command="alive", notify=False, turn_id="t1")
        assert [info.command for info in processes.list()] == ["alive"]
        for number in range(MAX_KEPT + 3):
            info = await processes.start(shell("true"), command=str(number), notify=False, turn_id="t1")
            await processes.kill(info.process_id)
        assert len(processes.list()) <= MAX_KEPT
        assert processes.get(alive.process_id).status == "running"


async def test_a_finished_process_is_kept_for_half_an_hour_and_no_longer(tmp_path: Path) -> None:
    async with session_processes(tmp_path) as (processes, _, clock):
        done = await processes.start(shell("echo said"), command="done", notify=False, turn_id="t1")
        await processes.wait(done.process_id, 10)
        await processes.kill(done.process_id)
        clock.now += 1800
        assert (processes.log(done.process_id), len(processes.list())) == ("said\n", 1)
        clock.now += 1
        with pytest.raises(ProcessNotFound):
            processes.log(done.process_id)
        assert processes.list() == []


async def test_of_the_finished_processes_the_one_that_ended_first_is_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_KEPT == 64
    monkeypatch.setattr(module, "MAX_KEPT", 3)
    async with session_processes(tmp_path) as (processes, _, clock):
        ids = {}
        for name in ("a", "b", "c"):
            info = await processes.start(shell("sleep 60"), command=name, notify=False, turn_id="t1")
            ids[name] = info.process_id
        for name in ("b", "a"):
            clock.now += 1
            await processes.kill(ids[name])
        kept = []
        for name in ("d", "e"):
            await processes.start(shell("sleep 60"), command=name, notify=False, turn_id="t1")
            kept.append([info.command for info in processes.list()])
        assert kept == [["a", "c", "d"], ["c", "d", "e"]]
        await processes.start(shell("sleep 60"), command="f", notify=False, turn_id="t1")
        assert [info.command for info in processes.list()] == ["c", "d", "e", "f"]
