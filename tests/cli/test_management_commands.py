"""Sessions, models, completion, unit file, command line reference: commands that work without a server."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.store.sqlite import SqliteStore
from hermes.cli.chat import command as chat_command
from hermes.cli.command_reference import commands
from hermes.cli.root import COMMANDS, INK_GATEWAY, with_command
from hermes.cli.systemd_unit import unit
from hermes.cli.terminal_style import Style
from hermes.cli.tree import age, tree_lines
from hermes.cli.tui import find_entry, ink_environment
from hermes.config import load_settings
from hermes.start import DATABASE
from hermes.testing.seed import seed
from tests.support.command_line import Run, runner


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> Run:
    return runner(monkeypatch, capsys, home)


# --- sessions --------------------------------------------------------------------------------------------------------


def test_a_home_without_sessions_lists_none_and_gets_no_database(run: Run, home: Path) -> None:
    assert run("sessions", "list") == (0, "", "")
    assert run("sessions", "search", "anything")[0] == 1
    assert run("sessions", "show", "last")[0] == 1
    assert list(home.iterdir()) == []


def test_sessions_are_listed_searched_shown_and_deleted(run: Run, home: Path) -> None:
    first, second = trio.run(seed, home, 8), trio.run(seed, home, 4)
    code, out, _ = run("sessions", "list")
    assert code == 0
    assert {line.split("\t")[0] for line in out.splitlines()} == {first, second}
    assert {row["key"] for row in json.loads(run("sessions", "list", "--json")[1])} == {first, second}
    code, out, _ = run("sessions", "search", "Question")
    assert code == 0
    assert first in out
    assert run("sessions", "search", "nothingofthekind")[0] == 1
    shown = run("sessions", "show", f"Seeded {first}")[1]
    assert shown.startswith(f"# Seeded {first}\n")
    assert "## User\n\nQuestion 1:" in shown
    assert run("sessions", "delete", first, "--yes")[1] == f"deleted {first}\n"
    assert run("sessions", "show", first)[0] == 1
    assert [row["key"] for row in json.loads(run("sessions", "list", "--json")[1])] == [second]


def test_a_session_is_not_deleted_without_a_yes(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = trio.run(seed, home, 2)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run("sessions", "delete", key)[0] == 130
    assert key in run("sessions", "list")[1]


def test_a_session_whose_turn_runs_is_not_deleted(run: Run, home: Path) -> None:
    key = trio.run(seed, home, 2)

    async def held() -> tuple[int, str, str]:
        from hermes.agent.store.leases import current_owner

        async with await SqliteStore.open(home / DATABASE) as store:
            await store.acquire_lease(key, current_owner("test"), ttl=60)
            return await trio.to_thread.run_sync(run, "sessions", "delete", key, "--yes")

    code, _, err = trio.run(held)
    assert code == 1
    assert str(os.getpid()) in err


def test_an_export_holds_every_message(run: Run, home: Path, tmp_path: Path) -> None:
    key = trio.run(seed, home, 9)
    trio.run(seed, home, 3)
    document = json.loads(run("sessions", "export", key, "--format", "json")[1])
    assert (document["session_id"], len(document["messages"])) == (key, 9)
    code, _, err = run("sessions", "export", "--all", "--output", str(tmp_path / "out"))
    assert (code, len(list((tmp_path / "out").glob("*.md")))) == (0, 2)
    assert err == f"2 written to {tmp_path / 'out'}\n"
    assert run("sessions", "export")[0] == 2


# --- models ----------------------------------------------------------------------------------------------------------


def test_the_model_is_shown_listed_and_chosen(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    assert json.loads(run("model", "show", "--json")[1])["provider"] == "anthropic"
    code, out, _ = run("model", "list")
    assert code == 0
    wanted = next(line.split("\t")[1] for line in out.splitlines() if line.startswith("anthropic\t"))
    code, out, _ = run("model", "use", wanted)
    assert (code, out.startswith(f"{wanted} (anthropic) is the default now")) == (0, True)
    chosen = load_settings(home=home).settings.model
    assert (chosen.default, chosen.provider) == (wanted, "anthropic")
    assert f"model: {wanted}" in run("model")[1]


def test_a_home_without_a_provider_is_not_held_to_the_demonstration(run: Run, home: Path) -> None:
    assert run("model", "use", "claude-sonnet-4-5")[0] == 1
    assert not (home / "config.yaml").exists()
    assert run("model", "use", "demo")[:2] == (
        0,
        "demo (demo) is the default now; sessions that have a model of their own keep it.\n",
    )


def test_a_model_that_its_provider_does_not_serve_is_refused_and_nothing_is_written(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    code, _, err = run("model", "use", "gpt-5", "--as-provider", "anthropic")
    assert code == 1
    assert "gpt-5" in err
    assert not (home / "config.yaml").exists()


def test_without_a_terminal_setup_says_so(run: Run) -> None:
    code, _, err = run("setup")
    assert code == 1
    assert err.startswith("hermes setup asks questions and needs a terminal.")


# --- the command line itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([], ["chat"]),
        (["-p", "x"], ["chat", "-p", "x"]),
        (["--resume"], ["chat", "--resume"]),
        (["--model=m"], ["chat", "--model=m"]),
        (["--mode", "rpc"], ["--mode", "rpc"]),
        (["--mode=rpc"], ["--mode=rpc"]),
        (["--help"], ["--help"]),
        (["serve"], ["serve"]),
        (INK_GATEWAY, ["gateway", "--legacy-requests"]),
    ],
)
def test_options_without_a_command_are_those_of_the_chat(given: list[str], meant: list[str]) -> None:
    assert with_command(given) == meant


def test_options_of_one_use_need_a_prompt_and_one_gateway_is_enough(run: Run) -> None:
    assert run("--deadline", "3")[0] == 2
    assert run("--yes")[0] == 2
    assert run("-p", "x", "--url", "ws://127.0.0.1:1", "--serve")[0] == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_completion_script(shell: str, run: Run) -> None:
    code, out, _ = run("completion", shell)
    assert code == 0
    assert "_HERMES_COMPLETE" in out


def test_the_completion_knows_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        variables = {"_HERMES_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(
            [sys.executable, "-m", "hermes"],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("hermes se") == ["serve", "sessions", "setup"]
    assert completed("hermes sessions ex") == ["export"]
    assert "--watch" in completed("hermes tree --w")
    # The options of the chat, which needs no name, and the names of settings.
    assert completed("hermes --resu") == ["--resume"]
    assert "--version" in completed("hermes --")
    assert completed("hermes -p hi --dead") == ["--deadline"]
    assert completed("hermes config set limits.kill_g") == ["limits.kill_grace"]


def test_the_unit_file_runs_the_same_command_without_the_option() -> None:
    text = unit(["serve", "--systemd", "--port", "9000", "--set", "a=50%"])
    (start,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    assert start.endswith(" -m hermes serve --port 9000 --set a=50%%")
    assert Path(start.removeprefix("ExecStart=").split()[0]).is_absolute()


def test_the_page_of_commands_is_fresh(run: Run) -> None:
    page = Path("docs/reference/command-line.md")
    assert run("schema", "cli")[1] == page.read_text(encoding="utf-8"), "run `make docs`"


def test_every_command_and_option_says_what_it_does() -> None:
    silent = []
    for path, command in commands():
        silent += [] if command.help else [" ".join(path)]
        silent += [
            f"{' '.join(path)} {parameter.name}"
            for parameter in command.params
            if parameter.param_type_name == "option"
            and not getattr(parameter, "help", None)
            and not getattr(parameter, "hidden", False)
        ]
    assert silent == ["hermes sessions export form"]
    assert {path[1] for path, _ in commands() if len(path) > 1} == set(COMMANDS)


def test_every_exit_code_of_one_use_is_in_its_help() -> None:
    from hermes.cli.one_shot import Exit

    assert [code for code in Exit if f"{int(code)} " not in (chat_command.help or "")] == []


# --- the tree and the Ink client -------------------------------------------------------------------------------------


def test_the_tree_is_drawn_with_ids_states_and_reasons() -> None:
    def node(node_id: str, kind: str, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"node_id": node_id, "kind": kind, "name": kind, "state": "running", "age_s": 1.0} | {
            **more,
            "children": list(children),
        }

    tree = node(
        "n1",
        "server",
        node("n2", "session", node("n3", "turn", name="t", cause="deadline", deadline_in_s=61, pids=[7, 8])),
        node("n4", "mcp"),
    )
    assert list(tree_lines(tree, Style())) == [
        "n1 server running 1.0s",
        "|- n2 session running 1.0s",
        "|  `- n3 turn t running 1.0s deadline ends in 1m01s pids 7 8",
        "`- n4 mcp running 1.0s",
    ]
    assert [age(59.94), age(61), age(3720)] == ["59.9s", "1m01s", "1h02m"]


def test_the_ink_client_is_told_where_its_gateway_is(home: Path) -> None:
    told = ink_environment(load_settings(home=home, environ={}), resume="some-id")
    assert told["HERMES_HOME"] == str(home)
    assert told["HERMES_TUI_RESUME"] == "some-id"
    assert Path(told["HERMES_PYTHON"]).name == "hermes"
    assert "HERMES_TUI_GATEWAY_URL" not in told


def test_the_command_stands_in_for_the_interpreter_of_the_ink_client(home: Path) -> None:
    told = ink_environment(load_settings(home=home, environ={}))
    done = subprocess.run(
        [told["HERMES_PYTHON"], *INK_GATEWAY],
        input=b'{"jsonrpc":"2.0","id":"r1","method":"setup.status","params":{}}\n',
        env={**os.environ, "HERMES_HOME": str(home)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    ready, answer = [json.loads(line) for line in done.stdout.splitlines()][:2]
    assert ready["params"]["type"] == "gateway.ready"
    assert answer["id"] == "r1"


def test_the_ink_clients_script_is_found_below_its_directory(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "entry.js").write_text("")
    assert find_entry(tmp_path) == tmp_path / "dist" / "entry.js"
    assert find_entry(tmp_path / "dist" / "entry.js") == tmp_path / "dist" / "entry.js"


# --- configuration ---------------------------------------------------------------------------------------------------


def test_the_configuration_is_edited_and_what_is_wrong_is_said(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "limits:\\n  kill_grace: soon\\n" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    code, _, err = run("config", "edit")
    assert code == 0
    assert "limits.kill_grace" in err
    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o600
