"""Keys that commands print: when one is asked for, how long it is kept, and what a failure says."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from hermes.agent.providers.command_keys import CommandKeys, KeyCommandFailed
from hermes.errors import ProviderError

COMMAND = ("print-a-key", "office")


class Printer:
    """Prints a new key each time, or fails with a text that begins with ``!``. Takes a second."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.runs = 0

    async def __call__(self, command: tuple[str, ...]) -> str:
        assert command == COMMAND
        self.runs += 1
        await trio.sleep(1)
        line = self.lines.pop(0)
        if line.startswith("!"):
            raise KeyCommandFailed(line[1:])
        return line


async def test_a_command_runs_once_however_many_wait_for_its_key(autojump_clock: trio.testing.MockClock) -> None:
    printer, learned, got = Printer("  key-1\n"), list[str](), list[str]()
    keys = CommandKeys(printer, learned.append)

    async def ask() -> None:
        got.append(await keys.key(COMMAND, "office"))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert (got, printer.runs, learned) == (["key-1"] * 20, 1, ["key-1"])


async def test_a_refused_key_is_asked_for_again_and_only_by_the_first_who_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    printer = Printer("key-1", "key-2", "key-3")
    keys = CommandKeys(printer)
    old = await keys.key(COMMAND, "office")
    keys.refused(COMMAND, old)
    assert await keys.key(COMMAND, "office") == "key-2"
    # A slower call was refused with the old key, too; the new one is not to blame.
    keys.refused(COMMAND, old)
    assert (await keys.key(COMMAND, "office"), printer.runs) == ("key-2", 2)


async def test_those_who_waited_for_a_failure_share_it_and_the_next_call_tries_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    printer, errors = Printer("!failed with exit code 3", "key-1"), list[ProviderError]()
    keys = CommandKeys(printer)

    async def ask() -> None:
        with pytest.raises(ProviderError) as caught:
            await keys.key(COMMAND, "office")
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert {error.message for error in errors} == {"no key for office: its key_cmd failed with exit code 3"}
    assert {(error.error_class, error.reached_provider) for error in errors} == {("provider_not_configured", False)}
    assert (await keys.key(COMMAND, "office"), printer.runs) == ("key-1", 2)


async def test_a_call_that_is_stopped_while_it_asks_leaves_the_asking_to_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    printer = Printer("key-1")
    keys = CommandKeys(printer)
    with trio.move_on_after(0.5) as stopped:
        await keys.key(COMMAND, "office")
    assert stopped.cancelled_caught
    assert await keys.key(COMMAND, "office") == "key-1"


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("", "printed nothing"),
        (" \n", "printed nothing"),
        ("key-1\nkey-2\n", "printed more than one word"),
        ("please log in", "printed more than one word"),
        ("kéy", "printed more than one word"),
        ("key\x00", "printed more than one word"),
    ],
)
async def test_what_is_no_key_is_refused_without_being_shown(
    printed: str, why: str, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(ProviderError) as caught:
        await CommandKeys(Printer(printed)).key(COMMAND, "office")
    assert caught.value.message == f"no key for office: its key_cmd {why}"


async def test_where_no_commands_are_run_the_error_says_so() -> None:
    with pytest.raises(ProviderError, match="its key_cmd cannot be run here"):
        await CommandKeys().key(COMMAND, "office")
