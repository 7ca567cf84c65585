"""Loading, saving and filtering of settings."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from hermes.config import (
    LoadedSettings,
    child_environment,
    config_path,
    effective_settings,
    environment_with,
    home_from_environment,
    load_settings,
    read_server_key,
    reserved_variable,
    save_setting,
    with_setting,
)
from hermes.config_file import change_dotenv, read_dotenv
from hermes.errors import InvalidValue
from hermes.settings import Settings, every_setting

GOOD_KEY = "k3-9fQz7LmWc2Rv8TyBn5"


def write_config(home: Path, text: str) -> None:
    home.mkdir(parents=True, exist_ok=True)
    config_path(home).write_text(text)


def load(home: Path, overrides: dict[str, Any] | None = None, **environ: str) -> LoadedSettings:
    return load_settings(overrides, environ, home)


def test_defaults_are_complete_and_valid(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.settings == Settings.model_construct()
    assert loaded.warnings == ()
    assert Settings.model_validate(loaded.settings.model_dump()) == loaded.settings


def test_every_setting_has_a_description() -> None:
    assert [item.key for item in every_setting() if not item.description] == []


def test_the_deadlines_of_the_design_have_their_numbers() -> None:
    limits = Settings.model_construct().limits
    assert (limits.interrupt_ack, limits.kill_grace, limits.write_deadline) == (0.9, 0.5, 10)
    assert (limits.replay_events, limits.replay_bytes) == (512, 4 * 1024 * 1024)


def test_file_then_dotenv_then_environment_then_command_line(tmp_path: Path) -> None:
    write_config(tmp_path, "gateway: {api_server: {port: 1, host: a, model_name: f}}\nmodel: small\n")
    (tmp_path / ".env").write_text("API_SERVER_PORT=2\nAPI_SERVER_HOST=b\nOPENAI_API_KEY='sk # not a comment'\n")
    loaded = load(tmp_path, {"gateway.api_server.port": 4, "model.default": None}, API_SERVER_PORT="3")
    server = loaded.settings.gateway.api_server
    assert (server.port, server.host, server.model_name) == (4, "b", "f")
    assert loaded.settings.model.default == "small"
    assert loaded.credentials == {"OPENAI_API_KEY": "sk # not a comment"}
    assert loaded.sources["gateway.api_server.port"] == "command line"
    assert loaded.sources["gateway.api_server.host"] == ".env"
    assert loaded.sources["model.default"] == "config.yaml"


def test_unknown_keys_give_one_warning_that_lists_them(tmp_path: Path) -> None:
    write_config(tmp_path, "agent: {max_turnz: 3, max_turns: 7}\nwhatever: 1\n")
    loaded = load(tmp_path)
    assert loaded.settings.agent.max_turns == 7
    assert loaded.warnings == ("config.yaml: unknown keys are ignored: agent.max_turnz, whatever",)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("agent: {max_turns: many, api_max_retries: 2}", "agent.max_turns"),
        ("agent: 5", "agent"),
        ("agent: {turn_liveness: {timeout_s: never}}", "agent.turn_liveness.timeout_s"),
        ("approvals: {mode: sometimes}", "approvals.mode"),
        ("providers: {local: 3}", "providers"),
        ("gateway: {api_server: {port: https}}", "gateway.api_server.port"),
        ("command_allowlist: {a: 1}", "command_allowlist"),
        ("browser: {extension_control: {enabled: 'yes'}}", "browser.extension_control.enabled"),
    ],
)
def test_an_invalid_value_is_reported_once_by_name_and_replaced_by_its_default(
    tmp_path: Path, text: str, key: str
) -> None:
    write_config(tmp_path, text)
    loaded = load(tmp_path)
    assert [warning.split(": ")[1] for warning in loaded.warnings] == [key]
    assert loaded.settings.approvals.mode == "manual"
    assert loaded.settings.agent.max_turns == 500
    assert loaded.settings.gateway.api_server.port == 8642


def test_a_valid_neighbour_of_an_invalid_value_is_kept(tmp_path: Path) -> None:
    write_config(tmp_path, "agent: {max_turns: many, api_max_retries: 9}")
    assert load(tmp_path).settings.agent.api_max_retries == 9


def test_an_invalid_secret_is_not_shown(tmp_path: Path) -> None:
    write_config(tmp_path, "model: {api_key: [sk-very-secret]}")
    (warning,) = load(tmp_path).warnings
    assert "model.api_key" in warning
    assert "sk-very-secret" not in warning


def test_an_invalid_or_unknown_override_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"gateway\.api_server\.port: .*integer"):
        load(tmp_path, {"gateway.api_server.port": "x"})
    with pytest.raises(InvalidValue, match=r"unknown setting: gateway\.prot"):
        load(tmp_path, {"gateway.prot": 1})
    with pytest.raises(InvalidValue, match="group"):
        load(tmp_path, {"gateway": 1})


@pytest.mark.parametrize(
    ("text", "line"), [("a: [1", "line"), ("- 1\n", "keys and values"), ("a: 1\n b: 2\n", "line 2")]
)
def test_a_file_that_is_not_a_yaml_mapping_stops_the_start(tmp_path: Path, text: str, line: str) -> None:
    write_config(tmp_path, text)
    with pytest.raises(InvalidValue, match=line):
        load(tmp_path)


@pytest.mark.parametrize("word", ["off", "false", "'off'"])
def test_off_means_off_however_yaml_reads_it(tmp_path: Path, word: str) -> None:
    write_config(
        tmp_path,
        f"approvals: {{mode: {word}}}\ndisplay: {{tool_progress: {word}, mouse: {word}, show_reasoning: {word}}}\n"
        f"agent: {{coding_context: {word}, reasoning_effort: {'none' if word != 'false' else word}}}\n",
    )
    loaded = load(tmp_path)
    settings = loaded.settings
    assert loaded.warnings == ()
    assert settings.approvals.mode == "off"
    assert (settings.display.tool_progress, settings.display.mouse, settings.display.show_reasoning) == (
        "off",
        "off",
        False,
    )
    assert (settings.agent.coding_context, settings.agent.reasoning_effort) == ("off", "none")


@pytest.mark.parametrize(
    "place",
    [
        "platforms: {api_server: {%s}}",
        "platforms: {api_server: {extra: {%s}}}",
        "gateway: {platforms: {api_server: {%s}}}",
        "gateway: {api_server: {%s}}",
    ],
)
def test_the_server_block_is_accepted_in_all_its_places(tmp_path: Path, place: str) -> None:
    write_config(tmp_path, place % "port: 9000, cors_origins: 'http://a, http://b'")
    loaded = load(tmp_path)
    assert loaded.warnings == ()
    assert loaded.settings.gateway.api_server.port == 9000
    assert loaded.settings.gateway.api_server.cors_origins == ("http://a", "http://b")


def test_the_older_name_of_the_kill_grace_is_accepted(tmp_path: Path) -> None:
    write_config(tmp_path, "terminal: {daemon_term_grace_seconds: 2.0}")
    assert load(tmp_path).settings.limits.kill_grace == 2.0
    write_config(tmp_path, "terminal: {daemon_term_grace_seconds: 2.0}\nlimits: {kill_grace: 1}")
    assert load(tmp_path).settings.limits.kill_grace == 1.0


def test_the_iteration_variable_only_counts_when_the_file_is_silent(tmp_path: Path) -> None:
    assert load(tmp_path, HERMES_MAX_ITERATIONS="12").settings.agent.max_turns == 12
    write_config(tmp_path, "agent: {max_turns: 7}")
    assert load(tmp_path, HERMES_MAX_ITERATIONS="12").settings.agent.max_turns == 7
    write_config(tmp_path, "agent: {max_turns: null}")
    assert load(tmp_path, HERMES_MAX_ITERATIONS="12").settings.agent.max_turns == 12
    assert load(tmp_path).settings.agent.max_turns is None


def test_variables_in_values_are_expanded_and_missing_ones_named(tmp_path: Path) -> None:
    write_config(tmp_path, "model: {base_url: 'http://${WHERE}/v1', default: '${NOWHERE}'}")
    loaded = load(tmp_path, WHERE="here")
    assert loaded.settings.model.base_url == "http://here/v1"
    assert loaded.warnings == ("config.yaml: the variable NOWHERE is not set",)


def test_home_is_hermes_home_or_dot_hermes(tmp_path: Path) -> None:
    assert home_from_environment({"HERMES_HOME": str(tmp_path)}) == tmp_path
    assert home_from_environment({"HOME": str(tmp_path)}) == tmp_path / ".hermes"


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings.model_construct().limits.kill_grace = 3


def test_with_setting_returns_a_validated_copy() -> None:
    before = Settings.model_construct()
    after = with_setting(before, "display.busy_input_mode", "queue")
    assert (before.display.busy_input_mode, after.display.busy_input_mode) == ("interrupt", "queue")
    assert with_setting(before, ("agent", "reasoning_overrides", "gpt-4.1"), "low").agent.reasoning_overrides == {
        "gpt-4.1": "low"
    }
    with pytest.raises(InvalidValue, match=r"display\.busy_input_mode"):
        with_setting(before, "display.busy_input_mode", "explode")


def test_saving_keeps_comments_mode_and_everything_else(tmp_path: Path) -> None:
    text = (
        "# mine\nmodel: small  # cheap\n\napprovals:\n  # careful\n  mode: off\n  deny: ['rm -rf /']\nextra: [1, 2]\n"
    )
    write_config(tmp_path, text)
    config_path(tmp_path).chmod(0o640)
    save_setting(tmp_path, "approvals.mode", "manual")
    save_setting(tmp_path, "limits.kill_grace", 2.5)
    assert (
        config_path(tmp_path).read_text() == text.replace("mode: off", "mode: manual") + "limits:\n  kill_grace: 2.5\n"
    )
    assert stat.S_IMODE(config_path(tmp_path).stat().st_mode) == 0o640
    save_setting(tmp_path, "limits.kill_grace", None)
    assert load(tmp_path).settings.limits.kill_grace == 0.5


def test_saving_a_part_of_the_model_keeps_its_short_form(tmp_path: Path) -> None:
    write_config(tmp_path, "model: small\n")
    save_setting(tmp_path, "model.provider", "openai-api")
    settings = load(tmp_path).settings
    assert (settings.model.default, settings.model.provider) == ("small", "openai-api")


def test_a_new_file_is_for_its_owner_alone_and_leaves_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "home"
    save_setting(home, "display.skin", "dark")
    assert stat.S_IMODE(config_path(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert sorted(path.name for path in home.iterdir()) == [".config.yaml.lock", "config.yaml"]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("model: small\n")
    config_path(tmp_path).symlink_to("real.yaml")
    save_setting(tmp_path, "model.default", "large")
    assert config_path(tmp_path).is_symlink()
    assert load(tmp_path).settings.model.default == "large"


@pytest.mark.parametrize(("key", "value"), [("nope.x", 1), ("limits", 1), ("limits.kill_grace", "soon")])
def test_a_refused_save_changes_nothing(tmp_path: Path, key: str, value: object) -> None:
    write_config(tmp_path, "model: small\n")
    with pytest.raises(InvalidValue):
        save_setting(tmp_path, key, value)
    assert config_path(tmp_path).read_text() == "model: small\n"


def test_the_listing_names_sources_and_masks_secrets(tmp_path: Path) -> None:
    write_config(tmp_path, "model: {api_key: sk-1}\nproviders: {x: {base_url: http://x, api_key: sk-2}}\n")
    rows = {key: (value, source) for key, value, source in effective_settings(load(tmp_path))}
    assert rows["model.api_key"] == ("***", "config.yaml")
    assert rows["providers"] == ({"x": {"base_url": "http://x", "api_key": "***"}}, "config.yaml")
    assert rows["limits.kill_grace"] == (0.5, "default")


# --- the server's key ------------------------------------------------------------------------------------------------


def test_key_order_is_environment_dotenv_configuration_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"API_SERVER_KEY={GOOD_KEY}2\n")
    assert read_server_key(tmp_path, {"API_SERVER_KEY": f"{GOOD_KEY}1"}, f"{GOOD_KEY}3").value == f"{GOOD_KEY}1"
    assert read_server_key(tmp_path, {}, f"{GOOD_KEY}3").value == f"{GOOD_KEY}2"
    (tmp_path / ".env").unlink()
    assert read_server_key(tmp_path, {}, f"{GOOD_KEY}3").value == f"{GOOD_KEY}3"
    assert not (tmp_path / "server.key").exists()


def test_the_first_key_is_made_once_and_private(tmp_path: Path) -> None:
    first = read_server_key(tmp_path / "home", {})
    again = read_server_key(tmp_path / "home", {})
    assert (first.created, again.created, first.value == again.value) == (True, False, True)
    assert len(first.value) >= 32
    assert first.path is not None
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert first.value not in repr(first)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["server.key"]


@pytest.mark.parametrize(
    "key", ["short", "changeme-changeme-changeme", "your-api-key-goes-here", "<put the key here>", "a" * 40,
            "xxxxxxxxxxxxxxxxxxxxxxxx", "1234567890123456", "${API_SERVER_KEY_FROM_VAULT}", "two words and some more"],
)  # fmt: skip
def test_a_weak_key_is_refused_without_being_shown(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidValue, match="API_SERVER_KEY in the environment") as refused:
        read_server_key(tmp_path, {"API_SERVER_KEY": key})
    assert key not in refused.value.message
    assert not (tmp_path / "server.key").exists()


def test_a_key_file_that_others_can_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "server.key").write_text(GOOD_KEY)
    (tmp_path / "server.key").chmod(0o644)
    assert read_server_key(tmp_path, {}).value == GOOD_KEY
    assert stat.S_IMODE((tmp_path / "server.key").stat().st_mode) == 0o600


# --- child processes -------------------------------------------------------------------------------------------------


def test_tools_do_not_see_keys_unless_they_are_passed_through() -> None:
    settings = with_setting(Settings.model_construct(), "terminal.env_passthrough", ["HF_TOKEN"])
    settings = with_setting(settings, "providers", {"mine": {"base_url": "http://m", "key_env": "MINE"}})
    environ = {
        "PATH": "/bin",
        "OPENAI_API_KEY": "1",
        "HF_TOKEN": "2",
        "API_SERVER_KEY": "3",
        "SUDO_PASSWORD": "4",
        "MINE": "5",
    }
    assert child_environment(settings, environ) == {"PATH": "/bin", "HF_TOKEN": "2"}


FALLBACK = {"provider": "p", "model": "m", "key_env": "SPARE_KEY"}


@pytest.mark.parametrize(
    ("key", "value"),
    [("fallback_providers", [FALLBACK]), ("gateway.api_server.model_routes", {"fast": FALLBACK})],
)
def test_a_variable_that_any_endpoint_names_is_a_key(tmp_path: Path, key: str, value: Any) -> None:
    environ = {"SPARE_KEY": "spare-0123456789", "PATH": "/bin"}
    loaded = load_settings({key: value}, environ=environ, home=tmp_path)
    assert loaded.credentials == {"SPARE_KEY": "spare-0123456789"}
    assert child_environment(loaded.settings, environ) == {"PATH": "/bin"}


def test_tools_get_the_library_path_from_before_a_one_file_build() -> None:
    settings = Settings.model_construct()
    packed = {"LD_LIBRARY_PATH": "/tmp/_MEI1", "_PYI_ARCHIVE_FILE": "x", "_MEIPASS2": "y"}
    assert child_environment(settings, packed | {"LD_LIBRARY_PATH_ORIG": "/opt/lib"}) == {"LD_LIBRARY_PATH": "/opt/lib"}
    assert child_environment(settings, packed | {"LD_LIBRARY_PATH_ORIG": ""}) == {}
    assert child_environment(settings, {"LD_LIBRARY_PATH": "/own"}) == {"LD_LIBRARY_PATH": "/own"}


def test_a_program_that_acts_as_the_user_sees_nothing_of_a_one_file_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/tmp/_MEI1:/opt/lib")
    monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", "/opt/lib")
    monkeypatch.setenv("_PYI_ARCHIVE_FILE", "x")
    seen = environment_with({"ADDED": "1"})
    assert (seen["LD_LIBRARY_PATH"], seen["ADDED"]) == ("/opt/lib", "1")
    assert {"LD_LIBRARY_PATH_ORIG", "_PYI_ARCHIVE_FILE"} & set(seen) == set()


@pytest.mark.parametrize("value", ["plain", "two words", "a # b", "'quoted'", '"x" y', "it's", "=", "ä€"])
def test_a_variable_is_read_back_as_it_was_written(tmp_path: Path, value: str) -> None:
    path = tmp_path / ".env"
    path.write_text("# keep\nA=1\nexport B='old'\n")
    change_dotenv(path, {"B": value, "A": None})
    assert read_dotenv(path) == {"B": value}
    assert path.read_text().startswith("# keep\n")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("value", ["two\nlines", "both ' and \" #", " 'x\" ", "a\u2028b"])
def test_a_value_that_would_not_be_read_back_is_refused_and_the_file_stays(tmp_path: Path, value: str) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\n")
    with pytest.raises(InvalidValue):
        change_dotenv(path, {"A": value})
    assert path.read_text() == "A=1\n"


@pytest.mark.parametrize(
    ("name", "reserved"),
    [("MAPS_TOKEN", False), ("OPENAI_API_KEY", True), ("PATH", True), ("LD_PRELOAD", True), ("PYTHONPATH", True),
     ("HERMES_YOLO_MODE", True), ("https_proxy", True), ("API_SERVER_KEY", True), ("PATHS", False)],
)  # fmt: skip
def test_names_that_mean_something_to_the_server_are_reserved(name: str, reserved: bool) -> None:
    assert reserved_variable(name, Settings()) is reserved
