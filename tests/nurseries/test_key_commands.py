"""The command of a key, as a supervised process."""

from __future__ import annotations

import logging
import os

import pytest
import trio

from hermes.agent.providers.command_keys import KeyCommandFailed
from hermes.nurseries.key_commands import KeyCommands
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor


def commands(within: float = 20.0) -> tuple[KeyCommands, ProcessSupervisor]:
    supervisor = ProcessSupervisor(owner_tag("/nowhere"), kill_grace=0.2)
    return KeyCommands(supervisor, lambda: dict(os.environ), "/", within=within), supervisor


def shell(line: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", line)


async def test_what_it_prints_is_the_key_and_what_it_complains_about_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    run, supervisor = commands()
    with trio.fail_after(20):
        assert (await run(shell("echo secret-advice >&2; echo the-key-012345"))).strip() == "the-key-012345"
    assert supervisor.live() == []
    assert "secret-advice" not in caplog.text and "the-key" not in caplog.text


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (shell("echo the-key-012345; exit 7"), "failed with exit code 7"),
        (shell("kill -9 $$"), "failed with exit code 137"),
        (("/no/such/program",), "cannot be run: cannot start key command: no such program"),
        (shell("head -c 200000 /dev/zero"), "printed too much"),
    ],
)
async def test_a_failure_says_why_and_not_what_was_printed(command: tuple[str, ...], why: str) -> None:
    run, _ = commands()
    with trio.fail_after(20), pytest.raises(KeyCommandFailed) as caught:
        await run(command)
    assert str(caught.value) == why


async def test_one_that_does_not_end_is_ended_with_all_that_it_started() -> None:
    run, supervisor = commands(within=0.3)
    with trio.fail_after(20), pytest.raises(KeyCommandFailed, match="did not end within"):
        await run(shell("sleep 1000 & sleep 1000"))
    assert supervisor.live() == []


async def test_an_agent_that_it_leaves_behind_holds_nobody_up() -> None:
    run, supervisor = commands()
    with trio.fail_after(10):
        assert (await run(shell("(sleep 1000 &) ; echo the-key-012345"))).strip() == "the-key-012345"
    assert supervisor.live() == []


async def test_it_is_ended_with_the_call_that_needs_the_key() -> None:
    run, supervisor = commands()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, shell("sleep 1000"))
            while not any(process.pid for process in supervisor.live()):
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert supervisor.live() == []


async def test_it_finds_no_input_to_wait_for() -> None:
    run, _ = commands()
    with trio.fail_after(20):
        assert await run(shell("cat; echo key")) == "key\n"
