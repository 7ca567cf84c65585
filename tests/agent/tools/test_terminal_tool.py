"""terminal: what the model reads, what persists, what a stop leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ToolFailure, ToolOutput
from hermes.agent.tools.shell import Terminal, _Output
from hermes.messages import Answered, ClientAnswer, NoClient
from hermes.settings import Settings
from tests.support.tool_context import FakeToolContext, make_services


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    (tmp_path / "work").mkdir()
    return FakeToolContext(tmp_path / "work", tmp_path)


async def run(ctx: FakeToolContext, tmp_path: Path, command: str, **more: Any) -> dict[str, Any]:
    with trio.fail_after(30):
        output = await Terminal(make_services(tmp_path)).run(ctx, {"command": command, **more})
    assert isinstance(output, ToolOutput)
    value: dict[str, Any] = json.loads(output.content)
    assert output.is_error == (value["exit_code"] != 0)
    return value


async def test_output_of_both_streams_comes_in_order_with_the_exit_code(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(ctx, tmp_path, "echo one; echo two >&2; echo three; exit 3")
    assert value["output"] == "one\ntwo\nthree\n"
    assert value["exit_code"] == 3


async def test_directory_and_exported_variables_persist_between_calls(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(
        ctx, tmp_path, "mkdir sub && cd sub && export COLOR='deep blue' MULTI=$'a\\nb'; plain=1; unset LANG"
    )
    assert value["cwd"] == str(tmp_path / "work" / "sub")
    assert value["output"] == ""
    value = await run(ctx, tmp_path, 'pwd; echo "$COLOR|$MULTI|$plain|${LANG-gone}"')
    assert value["output"] == f"{tmp_path}/work/sub\ndeep blue|a\nb||gone\n"
    assert "cwd" not in value


async def test_state_survives_an_exit_in_the_middle_of_the_command(ctx: FakeToolContext, tmp_path: Path) -> None:
    await run(ctx, tmp_path, "export A=1; cd /; exit 7")
    assert (await run(ctx, tmp_path, "echo $A; pwd"))["output"] == "1\n/\n"


async def test_nothing_of_the_wrapper_is_left_or_visible(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(ctx, tmp_path, 'env | grep -i hermes_state; echo "$#:$1"')
    assert value["output"] == "0:\n"
    assert list((tmp_path / ".hermes" / "cache" / "shell").iterdir()) == []


async def test_two_sessions_never_see_each_others_directory_or_variables(tmp_path: Path) -> None:
    contexts = []
    for index in range(6):
        (tmp_path / f"s{index}").mkdir()
        contexts.append(FakeToolContext(tmp_path / f"s{index}", tmp_path))
        await run(contexts[-1], tmp_path, f"export SESSION=s{index}")
    seen: dict[int, str] = {}

    async def look(index: int) -> None:
        seen[index] = (await run(contexts[index], tmp_path, "pwd; echo $SESSION"))["output"]

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for index in range(6):
                nursery.start_soon(look, index)
    assert seen == {index: f"{tmp_path}/s{index}\ns{index}\n" for index in range(6)}


async def test_workdir_is_for_one_command_only(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(ctx, tmp_path, "pwd", workdir="/")
    assert value["output"] == "/\n"
    assert (await run(ctx, tmp_path, "pwd"))["output"] == f"{tmp_path}/work\n"


async def test_vanished_directory_falls_back_to_the_nearest_parent_and_says_so(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    await run(ctx, tmp_path, "mkdir -p a/b && cd a/b")
    (tmp_path / "work/a/b").rmdir()
    value = await run(ctx, tmp_path, "pwd")
    assert value["output"] == f"{tmp_path}/work/a\n"
    assert "is gone" in value["note"]


async def test_provider_keys_do_not_reach_commands_unless_passed_through(ctx: FakeToolContext, tmp_path: Path) -> None:
    assert (await run(ctx, tmp_path, "echo ${OPENAI_API_KEY-none}"))["output"] == "none\n"
    ctx.settings = Settings.model_validate({"terminal": {"env_passthrough": ["OPENAI_API_KEY"]}})
    assert (await run(ctx, tmp_path, "echo ${#OPENAI_API_KEY}"))["output"] == "23\n"


async def test_secret_in_the_output_is_masked(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(
        ctx, tmp_path, "echo sk-ant-api03-abcdef; echo ghijklmn >/dev/null; echo ghp_abcdefghijklmnopqrstuvwxyz01"
    )
    assert "ghp_abcdefghijklmnopqrstuvwxyz01" not in value["output"]


async def test_ansi_nul_and_broken_utf8_are_cleaned(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(ctx, tmp_path, "printf '\\033[31mred\\033[0m\\0x\\377\\n10%%\\r100%%\\n'")
    assert value["output"] == "redx\ufffd\n100%\n"


async def test_huge_output_keeps_head_and_tail_and_the_whole_is_in_a_file(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(ctx, tmp_path, "echo BEGIN; head -c 300000 /dev/zero | tr '\\0' x; echo; echo END")
    output = value["output"]
    assert output.startswith("BEGIN\n")
    assert output.endswith("END\n")
    assert len(output) < 50_400
    path = output.split("the full output is in ")[1].split(" ...]")[0]
    assert Path(path).stat().st_size == 300_011


async def test_output_of_many_megabytes_without_a_newline_stays_bounded(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(ctx, tmp_path, "head -c 10000000 /dev/zero | tr '\\0' y")
    assert len(value["output"]) < 50_400
    assert value["exit_code"] == 0


async def test_timeout_ends_the_command_with_124_and_partial_output(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(ctx, tmp_path, "echo started; sleep 3600", timeout=1)
    assert value["exit_code"] == 124
    assert "time limit of 1 s" in value["error"]
    assert value["output"] == "started\n"
    assert "time limit" in value["error"]
    assert value["exit_code_meaning"] == "timed out"


async def test_timeout_above_the_maximum_moves_the_command_to_the_background(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    value = await run(ctx, tmp_path, "make all", timeout=3600)
    assert value["session_id"].startswith("proc_")
    assert value["notify_on_complete"] is True
    assert ctx.requests == []


async def test_background_command_is_started_with_its_environment_and_directory(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    await run(ctx, tmp_path, "export PORT=1; cd /")
    value = await run(ctx, tmp_path, "serve", background=True)
    request, command, notify = ctx.processes.started[0]
    assert (command, notify, request.cwd, request.env["PORT"]) == ("serve", False, "/", "1")
    assert value["exit_code"] == 0


async def test_interrupted_command_reports_130_with_its_partial_output(ctx: FakeToolContext, tmp_path: Path) -> None:
    tool = Terminal(make_services(tmp_path))
    arguments = {"command": "echo half; sleep 3600"}
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tool.run, ctx, arguments)
            while not ctx.previews:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    value = json.loads(tool.cancelled(ctx, arguments).content)
    assert (value["exit_code"], value["output"]) == (130, "half\n")
    assert "interrupted" in value["error"]
    assert list((tmp_path / ".hermes" / "cache" / "shell").iterdir()) == []


async def test_meaning_of_well_known_exit_codes_is_told(ctx: FakeToolContext, tmp_path: Path) -> None:
    assert "no lines matched" in (await run(ctx, tmp_path, "grep nothing /dev/null"))["exit_code_meaning"]
    assert (await run(ctx, tmp_path, "no-such-program-here"))["exit_code_meaning"] == "command not found"


async def test_hint_names_the_tool_that_fits_better(ctx: FakeToolContext, tmp_path: Path) -> None:
    assert "read_file" in (await run(ctx, tmp_path, "cat /dev/null"))["hint"]
    assert "background" in (await run(ctx, tmp_path, "true &"))["hint"]
    assert "hint" not in await run(ctx, tmp_path, "true | cat")


async def test_standard_input_is_empty(ctx: FakeToolContext, tmp_path: Path) -> None:
    assert (await run(ctx, tmp_path, "cat; echo end"))["output"] == "end\n"


async def test_syntax_error_is_the_commands_own(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await run(ctx, tmp_path, "if true; then")
    assert value["exit_code"] != 0
    assert "syntax error" in value["output"]


async def test_pty_gives_the_command_a_terminal(ctx: FakeToolContext, tmp_path: Path) -> None:
    assert (await run(ctx, tmp_path, "[ -t 1 ] && echo tty || echo none", pty=True))["output"] == "tty\n"


async def test_denied_command_is_not_run_and_the_result_is_blocked(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.answers.append(Answered({"choice": "deny", "reason": "not now"}))
    with pytest.raises(ToolFailure) as caught:
        await run(ctx, tmp_path, "rm -rf build")
    value = json.loads(caught.value.content)
    assert (value["exit_code"], value["status"], caught.value.status) == (-1, "blocked", "blocked")
    assert value["error"].startswith("BLOCKED")
    assert "not now" in value["error"]
    assert ctx.requests == []


async def test_approved_command_runs_and_the_result_says_so(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "work" / "build").mkdir()
    ctx.answers.append(Answered({"choice": "once"}))
    value = await run(ctx, tmp_path, "rm -rf build")
    assert "approved" in value["note"]
    assert not (tmp_path / "work" / "build").exists()


# A sudo that wants the password `open sesame`, and remembers for the directory that it was given.
FAKE_SUDO = """#!/bin/sh
case "$1" in
  -n) shift; [ -e "$0.ticket" ] || { echo "sudo: a password is required" >&2; exit 1; }; "$@" ;;
  -S) read -r given; [ "$given" = "open sesame" ] && touch "$0.ticket" && exit; echo "Sorry, try again." >&2; exit 1 ;;
  *) echo "sudo: a terminal is required to read the password" >&2; exit 1 ;;
esac
"""


async def run_sudo(
    ctx: FakeToolContext, tmp_path: Path, command: str, configured: str = "", **more: Any
) -> dict[str, Any]:
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "sudo").write_text(FAKE_SUDO)
    (programs / "sudo").chmod(0o755)
    services = make_services(tmp_path)
    environment = {**services.environment, "PATH": f"{programs}:{services.environment['PATH']}"}
    with trio.fail_after(30):
        services = make_services(tmp_path, environment=environment, sudo_password=lambda: configured)
        output = await Terminal(services).run(ctx, {"command": command, **more})
    assert isinstance(output, ToolOutput)
    assert "open sesame" not in output.content
    value: dict[str, Any] = json.loads(output.content)
    return value


async def test_sudo_asks_once_for_the_password_and_never_shows_it(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.answers.append(Answered({"value": "open sesame"}))
    value = await run_sudo(ctx, tmp_path, "cat; sudo echo done; env | grep -c sesame")
    assert (value["output"], [one.method for one in ctx.asked]) == ("done\n0\n", ["sudo"])
    assert ctx.asked[0].timeout == 120
    assert (await run_sudo(ctx, tmp_path, "sudo echo again"))["output"] == "again\n"
    assert len(ctx.asked) == 1


async def test_a_command_that_gets_no_terminal_because_of_sudo_says_so(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.answers.append(Answered({"value": "open sesame"}))
    value = await run_sudo(ctx, tmp_path, "sudo echo done; [ -t 1 ] || echo none", pty=True)
    assert (value["output"], value["note"]) == (
        "done\nnone\n",
        "the command ran without a terminal: sudo reads the password from its input",
    )


async def test_a_wrong_password_for_sudo_is_forgotten_and_asked_for_again(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.answers += [Answered({"value": "guess"}), Answered({"value": "open sesame"})]
    value = await run_sudo(ctx, tmp_path, "sudo echo done")
    assert (value["exit_code"], value["output"]) == (1, "Sorry, try again.\n")
    assert (await run_sudo(ctx, tmp_path, "sudo echo done"))["output"] == "done\n"


async def test_the_configured_password_is_used_and_asked_for_when_sudo_refuses_it(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    assert (await run_sudo(ctx, tmp_path, "sudo echo done", "open sesame"))["output"] == "done\n"
    (tmp_path / "programs" / "sudo.ticket").unlink()
    ctx.memory.sudo_password = None
    assert (await run_sudo(ctx, tmp_path, "sudo echo done", "stale"))["output"] == "Sorry, try again.\n"
    assert ctx.asked == []
    ctx.answers.append(Answered({"value": "open sesame"}))
    assert (await run_sudo(ctx, tmp_path, "sudo echo done", "stale"))["output"] == "done\n"


@pytest.mark.parametrize("answer", [Answered({"value": ""}), Answered({"value": 7}), Answered({}), NoClient()])
async def test_sudo_without_a_password_fails_plainly(
    ctx: FakeToolContext, tmp_path: Path, answer: ClientAnswer
) -> None:
    ctx.answers.append(answer)
    value = await run_sudo(ctx, tmp_path, "sudo echo done")
    assert value["exit_code"] == 1
    assert "terminal is required" in value["output"]
    assert ctx.memory.sudo_password is None


async def test_nobody_is_asked_where_sudo_needs_no_password_or_nobody_is_there(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "sudo.ticket").touch()
    await run_sudo(ctx, tmp_path, "sudo echo done")
    (tmp_path / "programs" / "sudo.ticket").unlink()
    ctx.unattended = True
    await run_sudo(ctx, tmp_path, "sudo echo done")
    assert ctx.asked == []


@pytest.mark.parametrize(
    ("given", "grace", "timeout"),
    [
        ({"kill_grace": 10**9}, 10.0, 180.0),
        ({"kill_grace": -1}, 0.0, 180.0),
        ({"kill_grace": 2}, 2.0, 180.0),
        ({"timeout": -5}, None, 180.0),
        ({"timeout": 0}, None, 180.0),
        ({"timeout": 600}, None, 600.0),
    ],
)
async def test_no_call_puts_its_end_off_for_longer_than_a_stop_may_take(
    given: dict[str, Any], grace: float | None, timeout: float, tmp_path: Path
) -> None:
    ctx = FakeToolContext(tmp_path, tmp_path)
    await Terminal(make_services(tmp_path)).run(ctx, {"command": "true", **given})
    assert [(request.kill_grace, request.timeout) for request in ctx.requests] == [(grace, timeout)]


def test_the_shown_part_of_a_long_output_is_whole_lines_of_both_ends() -> None:
    output = _Output("x")
    for number in range(100_000):
        output.add(f"line {number}\n".encode())
    text = output.text(1000)
    assert len(text) < 2100 and text.startswith("line 0\n") and text.endswith("line 99999\n")
    kept = [line for line in text.splitlines() if line and not line.startswith("[")]
    assert all(line.startswith("line ") for line in kept)
    dropped = int(text.partition("[... ")[2].partition(" ")[0])
    assert dropped + sum(len(line) + 1 for line in kept) == sum(len(f"line {n}\n") for n in range(100_000))
