"""What ``hermes doctor`` looks at: one function a topic. None of them changes anything unless ``fix`` says so."""

from __future__ import annotations

import errno
import os
import platform
import socket
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from hermes import __version__
from hermes.agent.ports import LeaseOwner
from hermes.agent.providers.registry import Models
from hermes.agent.store import schema
from hermes.agent.store.leases import RELEASED, current_owner, provably_dead
from hermes.cli.model_command import with_models
from hermes.cli.running_server import RunningServer
from hermes.cli.tables import counted
from hermes.config import LoadedSettings, config_path, load_settings, read_server_key
from hermes.errors import HermesError, InvalidValue, StoreUnavailable
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import find_left_behind, kill_left_behind
from hermes.start import DATABASE

OLDEST: Final = (3, 11)
NEEDED: Final = ("trio", "pydantic", "orjson", "httpx2", "quart_trio", "hypercorn", "trio_websocket", "ruamel.yaml")
ASK_WITHIN: Final = 3.0
LOCK_WITHIN: Final = 2.0
OTHERS: Final = 0o077
SECRETS: Final = (".env", "server.key", "config.yaml", DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", "chat_history")


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """``advice``: what to do, where something is to be done."""

    level: Level
    topic: str
    text: str
    advice: str = ""


def _ok(topic: str, text: str) -> Finding:
    return Finding(Level.OK, topic, text)


def _warning(topic: str, text: str, advice: str) -> Finding:
    return Finding(Level.WARNING, topic, text, advice)


def _wrong(topic: str, text: str, advice: str) -> Finding:
    return Finding(Level.WRONG, topic, text, advice)


# --- this installation -----------------------------------------------------------------------------------------------


def installation() -> Iterator[Finding]:
    version = platform.python_version()
    if sys.version_info < OLDEST:
        yield _wrong("Python", f"{version} is too old", f"use {OLDEST[0]}.{OLDEST[1]} or newer")
    else:
        yield _ok("Python", f"{version} on {platform.system()}, Hermes {__version__}")
    missing = [name for name in NEEDED if not _is_there(name)]
    if missing:
        yield _wrong("packages", f"missing: {', '.join(missing)}", "install hermes-agent-server again")
    if sys.platform != "linux":
        yield _warning("processes", "orphans are found by their marks only on this system", "")


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


# --- the home --------------------------------------------------------------------------------------------------------


def home_directory(home: Path, *, fix: bool) -> Iterator[Finding]:
    if not home.exists():
        above = next(folder for folder in home.absolute().parents if folder.exists())
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK) or not _can_hold_folders(above):
            yield _wrong("home", f"{home} cannot be made in {above}", "name another place with HERMES_HOME")
            return
        yield _warning("home", f"{home} does not exist yet", "the first start makes it; `hermes setup` as well")
        return
    if not home.is_dir():
        yield _wrong("home", f"{home} is no directory", "move it away, or set HERMES_HOME")
        return
    if not os.access(home, os.W_OK | os.X_OK) or not _can_hold_folders(home):
        yield _wrong("home", f"{home} cannot be written", "make it yours, or set HERMES_HOME")
        return
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & OTHERS:
        yield _mode("home", home, mode, 0o700, fix=fix)
    else:
        yield _ok("home", str(home))


def _can_hold_folders(folder: Path) -> bool:
    """Some file systems (``/proc``) say that they can be written and cannot: tried with a folder that goes at once."""
    try:
        with tempfile.TemporaryDirectory(dir=folder):
            return True
    except OSError:
        return False


def file_modes(home: Path, *, fix: bool) -> Iterator[Finding]:
    """What holds keys or conversations is for its owner only."""
    for name in SECRETS:
        path = home / name
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & OTHERS:
            yield _mode("file mode", path, mode, 0o600, fix=fix)


def _mode(topic: str, path: Path, mode: int, wanted: int, *, fix: bool) -> Finding:
    if fix:
        try:
            path.chmod(wanted)
        except OSError as error:
            return _wrong(topic, f"{path} is open to others and cannot be changed: {error.strerror}", "")
        return _ok(topic, f"{path} was open to others; repaired")
    # Others may read the names in a home; keys and conversations are another matter.
    finding = _warning if path.is_dir() or path.name == "config.yaml" else _wrong
    return finding(topic, f"{path} is open to others ({mode:o})", f"chmod {wanted:o} {path} (or --fix)")


def configuration(home: Path) -> tuple[LoadedSettings | None, list[Finding]]:
    try:
        loaded = load_settings(home=home)
    except InvalidValue as error:
        return None, [_wrong("configuration", error.message, f"correct {config_path(home)}")]
    except OSError as error:
        return None, [_wrong("configuration", f"cannot be read: {error}", "")]
    if loaded.warnings:
        return loaded, [_warning("configuration", text, "") for text in loaded.warnings]
    return loaded, [_ok("configuration", "valid" if config_path(home).exists() else "defaults (there is no file)")]


def server_key(loaded: LoadedSettings) -> Iterator[Finding]:
    path = loaded.home / "server.key"
    if not path.exists() and not loaded.settings.gateway.api_server.key:
        # Asked for below it would be made; a look at a home leaves nothing there.
        yield _ok("server key", "none yet; the first `hermes serve` makes one")
        return
    try:
        key = read_server_key(loaded.home, configured=loaded.settings.gateway.api_server.key)
    except InvalidValue as error:
        yield _wrong("server key", error.message, "")
    else:
        yield _ok("server key", f"from {key.source}")


# --- the database ----------------------------------------------------------------------------------------------------


def database(home: Path) -> Iterator[Finding]:
    path = home / DATABASE
    if not path.exists():
        yield _ok("database", "none yet")
        return
    try:
        schema.check_header(path)
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=LOCK_WITHIN)
    except StoreUnavailable as error:
        yield _wrong("database", error.message, "")
        return
    except (OSError, sqlite3.Error) as error:
        yield _wrong("database", f"{path} cannot be read: {error}", "")
        return
    try:
        yield from _contents(connection)
    except sqlite3.Error as error:
        yield _wrong("database", f"{path} is damaged: {error}", "restore a backup, or move the file away")
    finally:
        connection.close()


def _contents(connection: sqlite3.Connection) -> Iterator[Finding]:
    finding = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if finding != "ok":
        yield _wrong("database", f"damaged: {finding}", "restore a backup, or move the file away")
        return
    version, newest = schema.read_version(connection), len(schema.MIGRATIONS)
    if version > newest:
        yield _wrong("database", f"made by a newer Hermes (schema {version}, here {newest})", "update Hermes")
        return
    sessions = connection.execute("SELECT count(*) FROM sessions").fetchone()[0]
    yield _ok("database", f"whole; {counted(sessions, 'session')}")
    here = current_owner("doctor").host
    leases = connection.execute(
        "SELECT session_key, host, pid, start_time, nonce FROM turn_leases WHERE expires_at != ?", (RELEASED,)
    ).fetchall()
    for key, host, pid, start, nonce in leases:
        if provably_dead(LeaseOwner(host, pid, start, nonce), host=here):
            yield _warning("database", f"{key}: its last turn died with process {pid}", "the next prompt takes it over")


# --- what runs -------------------------------------------------------------------------------------------------------


def leftovers(home: Path, *, fix: bool) -> Iterator[Finding]:
    """Processes that a server which died had started for this home."""
    owner = owner_tag(str(home))
    if fix and (killed := kill_left_behind(owner, home)):
        yield _ok("leftovers", f"killed {len(killed)} processes of a dead server")
        return
    left = find_left_behind(owner, home)
    if left:
        pids = ", ".join(str(pid) for pid in left)
        yield _wrong("leftovers", f"a dead server has left processes: {pids}", "the next start kills them (or --fix)")
    else:
        yield _ok("leftovers", "none")


def port(loaded: LoadedSettings) -> Iterator[Finding]:
    """Free, in use by our own server, or in use by somebody else."""
    api = loaded.settings.gateway.api_server
    where = f"{api.host}:{api.port}"
    server = RunningServer(api.host, api.port, "")
    try:
        status, answer = server.ask("GET", "/health", key=False, within=ASK_WITHIN)
    except (OSError, HTTPException):
        yield _unanswered(api.host, api.port, where)
        return
    if isinstance(answer, dict) and answer.get("platform") == "hermes-agent":
        yield _ok("port", f"a Hermes server ({answer.get('version')}) answers on {where}")
    else:
        yield _wrong("port", f"another program answers on {where} ({status})", "choose another --port")


def _unanswered(host: str, number: int, where: str) -> Finding:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _wrong("port", f"another program holds {where}", "choose another --port")
        return _wrong("port", f"{where} cannot be used: {error.strerror or error}", "choose another --host or --port")
    return _ok("port", f"{where} is free; no server runs")


# --- the model -------------------------------------------------------------------------------------------------------


def provider(loaded: LoadedSettings, *, offline: bool) -> Iterator[Finding]:
    """Is there a model, is there a key for it, does its endpoint answer (a bounded look at its list of models)."""

    async def look(models: Models) -> list[Finding]:
        chosen = models.default_provider()
        if not models.configured():
            advice = "`hermes setup` asks for one"
            return [_warning("model", f"no provider is configured ({chosen} answers)", advice)]
        if offline:
            return [_ok("model", f"{loaded.settings.model.default or 'by default'} ({chosen}); not asked")]
        served = await models.served_models(chosen, refresh=True)
        resolved = await models.resolve(None, None)
        found = [_ok("model", f"{resolved.model} ({chosen}); {resolved.base_url} answers")]
        if served and resolved.model not in [model.id for model in served]:
            found.append(_warning("model", f"{resolved.model} is not in the endpoint's list", "`hermes model list`"))
        return found

    try:
        yield from with_models(loaded, look)
    except click.ClickException as error:
        yield _wrong("model", error.message, "check the key and the network, or run `hermes setup`")
    except HermesError as error:
        yield _wrong("model", error.message, "")
