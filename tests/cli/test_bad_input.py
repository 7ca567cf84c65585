"""What a person types wrongly: one line that says what to change, the right exit code, and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import Run, runner


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    return runner(monkeypatch, capsys, tmp_path / "home")


WRONG = [
    ("config", 2, "Usage"),
    ("config get", 2, "KEY"),
    ("config get nope", 2, "unknown setting: nope"),
    ("config set nope 1", 2, "unknown setting: nope"),
    ("config set limits.kill_grace abc", 2, "valid number"),
    ("config set limits.kill_grace -1", 2, "greater than or equal to 0"),
    ("config set limits.kill_grace", 2, "VALUE"),
    ("config set limits.kill_grace 1 2", 2, "unexpected extra argument"),
    ("config unset nope", 2, "unknown setting: nope"),
    ("config show --bogus", 2, "--bogus"),
    ("model use", 2, "MODEL"),
    ("model use some-model", 1, "nothing is configured that could serve some-model"),
    ("config set limits.kill_grace 1e999", 2, "finite number"),
    ("sessions search nope", 1, "Nothing was found."),
    ("model use x --as-provider nope", 1, "unknown model provider: nope"),
    ("model list --bogus", 2, "--bogus"),
    ("runs stop", 2, "RUN"),
    ("runs status", 2, "RUN"),
    ("runs nope", 2, "nope"),
    ("tree --cancel", 2, "--cancel"),
    ("tree --yes", 2, "go with --cancel"),
    ("tree --cancel n1 --watch", 2, "leave out --watch"),
    ("tree --bogus", 2, "--bogus"),
    ("completion", 2, "bash"),
    ("completion tcsh", 2, "tcsh"),
    ("serve --port abc", 2, "abc"),
    ("serve --port 99999", 2, "99999"),
    ("serve --set x", 2, "KEY=VALUE"),
    ("serve --systemd --port x", 2, "x"),
    ("sessions show nope", 1, "no sessions in"),
    ("sessions browse", 1, "sessions list"),
    ("sessions export nope", 1, "no sessions in"),
    ("sessions delete", 2, "ID"),
    ("chat --deadline 3", 2, "go with -p"),
    ("chat -p hi --deadline 0", 2, "--deadline"),
    ("chat -p hi --deadline nan", 2, "--deadline"),
    ("chat -p hi --deadline inf", 2, "--deadline"),
    ("chat -p hi --deadline 1e999", 2, "--deadline"),
    ("tree --cancel=", 2, "names no node"),
    ("chat -p hi --url nonsense", 1, "no address of a gateway"),
    ("chat -p hi --url ws://127.0.0.1:1/x", 1, "cannot connect"),
    ("chat -p hi --url ws://127.0.0.1:1/x --serve", 2, "two gateways"),
    ("rpc --url http://127.0.0.1:1/ session.list", 1, "no address of a gateway"),
    ("rpc --url ws://127.0.0.1:1/x session.list", 1, "cannot connect"),
    ("schema nope", 2, "nope"),
    ("doctor --bogus", 2, "--bogus"),
    ("setup --bogus", 2, "--bogus"),
    ("gateway extra", 2, "extra"),
    ("nonsense", 2, "nonsense"),
]


@pytest.mark.parametrize(("words", "code", "told"), WRONG, ids=[words for words, _, _ in WRONG])
def test_it_is_told_in_words(run: Run, words: str, code: int, told: str) -> None:
    ended, out, err = run(*words.split())
    said = out + err
    assert (ended, told in said) == (code, True), said
    assert "Traceback" not in said


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that says it can be written and cannot")
@pytest.mark.parametrize(
    "words", ["chat -p hi", "serve --log-to file", "tree", "config set limits.kill_grace 1", "doctor"]
)
def test_a_home_that_cannot_be_written_is_told_in_words(run: Run, words: str) -> None:
    code, out, err = run(*words.split(), "--home", "/proc")
    assert code != 0
    assert "/proc" in out + err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("words", ["config --home {0} get model", "config get model --home {0}"])
def test_the_home_is_named_before_or_behind_the_command(run: Run, words: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / "config.yaml").write_text("model:\n  default: of-the-other\n")
    code, out, _ = run(*words.format(other).split())
    assert (code, json.loads(out)["model.default"]) == (0, "of-the-other")


def test_an_area_is_printed_whole_and_a_value_may_begin_with_a_dash(run: Run) -> None:
    assert run("config", "set", "agent.clarify_timeout", "-1")[0] == 0
    assert json.loads(run("config", "get", "agent.clarify_timeout")[1]) == -1
    area = json.loads(run("config", "get", "agent")[1])
    assert area["agent.clarify_timeout"] == -1
    assert all(key.startswith("agent.") for key in area)
