"""What bash writes about its variables is read back as the environment that another process would see."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hermes.agent.tools.shell_script import ShellState, read_state, shell_argv

BASE = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
VALUES = (
    "",
    "plain",
    "quotes \" and \\ and $HOME and `tick` and '",
    "two\nlines\n",
    "tab\t bell\a escape\x1b del\x7f",
    "é → 漢字 \u00a0 \u200b",
    "= a=b",
    ') declare -x FAKE="x"\n',
    "hermes-exports-end",
)


def run(tmp_path: Path, command: str, environment: dict[str, str], shell: str = "bash") -> ShellState | None:
    side = tmp_path / "state"
    subprocess.run(shell_argv(shell, command, str(side)), env=BASE | environment, cwd=tmp_path, check=False)
    return read_state(side.read_bytes())


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_every_value_comes_back_as_it_was(tmp_path: Path, locale: str) -> None:
    given = {f"V{number}": value for number, value in enumerate(VALUES)} | {"LC_ALL": locale}
    state = run(tmp_path, "true", given)
    assert state is not None and state.environment is not None
    assert {name: state.environment.get(name) for name in given} == given


def test_values_that_are_set_in_the_command_come_back_and_unexported_ones_do_not(tmp_path: Path) -> None:
    command = (
        "export A=$'x\\ny\"' B; declare -i -x N=4; declare -rx R=r; C=hidden; declare -ax L=(1 '2 )'); set -o posix"
    )
    state = run(tmp_path, command, {})
    assert state is not None and state.environment is not None
    found = state.environment
    assert (found["A"], found["N"], found["R"]) == ('x\ny"', "4", "r")
    assert not {"B", "C", "L"} & set(found)
    assert state.cwd == os.path.realpath(tmp_path)


def test_exported_functions_come_back_too(tmp_path: Path) -> None:
    state = run(tmp_path, "f() { echo hi; }; export -f f; export A=1", {})
    assert state is not None and state.environment is not None
    assert state.environment["A"] == "1"
    assert [name for name in state.environment if name.startswith("BASH_FUNC_f")]


def test_another_shell_is_read_through_env(tmp_path: Path) -> None:
    state = run(tmp_path, "export A='x y'; cd /", {}, shell="/bin/sh")
    assert state is not None and state.environment is not None
    assert (state.cwd, state.environment["A"]) == ("/", "x y")


def test_a_listing_that_is_not_understood_leaves_the_environment_unknown() -> None:
    assert read_state(b'/tmp\0declare -x A="1"\nsomething else\nhermes-exports-end\0') == ShellState("/tmp", None)
