"""The command line: parsing, settings and what reaches the composition root."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hermes import __version__
from hermes.cli import acp_main, main
from hermes.cli.root import COMMANDS
from hermes.config import LoadedSettings, config_path
from hermes.launch import AcpOptions, GatewayOptions, ServeOptions

Run = Callable[..., tuple[int, str, str]]


class FakeApp(ModuleType):
    """Stands where the composition root stands and keeps what it was given."""

    def __init__(self) -> None:
        super().__init__("hermes.app")
        self.calls: list[tuple[str, LoadedSettings, object]] = []
        self.exit_code = 0

    def run_serve(self, loaded: LoadedSettings, options: ServeOptions) -> int:
        return self._note("serve", loaded, options)

    def run_gateway(self, loaded: LoadedSettings, options: GatewayOptions) -> int:
        return self._note("gateway", loaded, options)

    def run_acp(self, loaded: LoadedSettings, options: AcpOptions) -> int:
        return self._note("acp", loaded, options)

    def _note(self, name: str, loaded: LoadedSettings, options: object) -> int:
        self.calls.append((name, loaded, options))
        return self.exit_code


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> FakeApp:
    import hermes

    fake = FakeApp()
    monkeypatch.setitem(sys.modules, "hermes.app", fake)
    monkeypatch.setattr(hermes, "app", fake, raising=False)
    return fake


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("hermes.cli.loading.set_up_logging", lambda *_, **__: None)

    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        out, err = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, out, err

    yield command


def test_help_names_every_command(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert [name for name in COMMANDS if f"  {name} " not in out] == []


def test_mode_rpc_exits_2_and_names_the_three_protocols(run: Run) -> None:
    code, out, err = run("--mode", "rpc")
    assert (code, out) == (2, "")
    assert all(words in err for words in ("hermes gateway", "hermes acp", "hermes serve"))


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["acp", "--version"]])
def test_the_version_is_printed_on_standard_output(run: Run, arguments: Sequence[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert __version__ in out


def test_an_unknown_command_or_option_exits_2(run: Run) -> None:
    assert run("frobnicate")[0] == 2
    assert run("serve", "--prot", "1")[0] == 2


def test_serve_puts_its_arguments_over_everything_else(run: Run, app: FakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_SERVER_PORT", "1234")
    code, _, _ = run("serve", "--host", "::1", "--port", "0", "--allow-remote", "--set", "limits.kill_grace=2")
    ((name, loaded, options),) = app.calls
    server = loaded.settings.gateway.api_server
    assert (code, name, options) == (0, "serve", ServeOptions(allow_remote=True))
    assert (server.host, server.port, loaded.settings.limits.kill_grace) == ("::1", 0, 2.0)


def test_the_exit_code_is_the_one_of_the_composition_root(run: Run, app: FakeApp) -> None:
    app.exit_code = 7
    assert run("serve")[0] == 7


def test_stdio_commands_print_nothing_on_standard_output(run: Run, app: FakeApp) -> None:
    config_path(app_home := Path(run("config", "path")[1].strip()).parent).parent.mkdir(parents=True, exist_ok=True)
    config_path(app_home).write_text("nonsense: 1\n")
    assert run("gateway", "--legacy-requests")[:2] == (0, "")
    assert run("acp", "--accept-hooks", "--model", "m", "--home", str(app_home))[:2] == (0, "")
    assert [(name, options) for name, _, options in app.calls] == [
        ("gateway", GatewayOptions(legacy_requests=True)),
        ("acp", AcpOptions()),
    ]
    assert app.calls[1][1].settings.model.default == "m"
    assert app.calls[1][1].warnings == ("config.yaml: unknown keys are ignored: nonsense",)


def test_hermes_acp_is_a_command_of_its_own(app: FakeApp, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(sys, "argv", ["hermes-acp", "--accept-hooks"])
    with pytest.raises(SystemExit):
        acp_main()
    assert [name for name, _, _ in app.calls] == ["acp"]


def test_a_wrong_setting_exits_2_and_names_the_key(run: Run, app: FakeApp) -> None:
    code, out, err = run("gateway", "--set", "limits.kill_grace=soon")
    assert (code, out) == (2, "")
    assert "limits.kill_grace" in err
    assert run("gateway", "--set", "limits.kill_grace")[0] == 2
    assert app.calls == []


def test_settings_are_shown_with_their_source_changed_and_removed(run: Run) -> None:
    assert run("config", "show")[:2] == (0, "# Every setting has its default; `hermes config show --all` lists them.\n")
    assert json.loads(run("config", "show", "--json")[1]) == {}
    assert run("config", "set", "limits.kill_grace", "2.5")[0] == 0
    assert run("config", "set", "model.default", "some-model")[0] == 0
    assert run("config", "get", "limits.kill_grace")[1] == "2.5\n"
    assert json.loads(run("config", "show", "--json")[1]) == {
        "limits.kill_grace": {"value": 2.5, "source": "config.yaml"},
        "model.default": {"value": "some-model", "source": "config.yaml"},
    }
    assert run("config", "unset", "limits.kill_grace")[0] == 0
    assert run("config", "get", "limits.kill_grace")[1] == "0.5\n"
    assert run("config", "set", "limits.kill_grace", "soon")[0] == 2
    assert run("config", "get", "nope")[0] == 2


def test_the_configuration_page_is_fresh(run: Run) -> None:
    page = Path("docs/reference/configuration.md")
    assert run("schema", "config")[1] == page.read_text(encoding="utf-8"), "run `make docs`"


def test_the_json_schema_describes_every_setting(run: Run) -> None:
    schema: dict[str, Any] = json.loads(run("schema", "config", "--format", "json")[1])
    assert "limits" in schema["properties"]


def test_starting_a_stdio_command_loads_no_web_stack() -> None:
    program = (
        "import sys, hermes.cli, hermes.cli.acp, hermes.cli.gateway, hermes.cli.options;"
        "heavy = {'quart', 'hypercorn', 'rich', 'mcp', 'httpx2', 'trio_websocket', 'ruamel', 'importlib.metadata'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
