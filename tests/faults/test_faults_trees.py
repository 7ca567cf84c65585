"""A tree of processes with a part that has left its session: gone when its call is stopped, on every surface."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.support.drivers import SURFACES
from tests.support.fault_play import playing, terminal
from tests.support.process_probe import Marks, running_with
from tests.support.server_process import assert_no_children, children_of

MARKS = Marks()


@pytest.mark.e2e
@pytest.mark.fault("B-171")
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_stop_ends_the_whole_tree_and_both_ends_of_a_pipe(surface: str, tmp_path: Path) -> None:
    first, away, last, piped = (MARKS.next() for _ in range(4))
    tree = f"sleep {first} & (setsid sleep {away} &); sleep {piped} | cat & sleep {last}"
    marks = (first, away, last, piped)
    async with playing(tmp_path / "home", terminal(tree), surface=surface) as (driver, _):
        await driver.start("go")
        while not all(any(str(mark) in line for line in children_of(driver.server).values()) for mark in marks):
            await trio.sleep(0.01)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        assert [running_with(mark) for mark in marks] == [[]] * 4
        await assert_no_children(driver.server)
