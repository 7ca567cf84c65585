"""The key of the HTTP server: where it comes from, when it is refused, and how the first one is made."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from hermes.errors import InvalidValue
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

MIN_KEY_CHARS = 16
_SAMPLE = lazy_pattern(
    r"change.?(me|this|it)|replace.?(me|with|this)|placeholder|your.?(\w+.)?(key|token|secret|password)|insert.*here"
    r"|x{6,}|\*{4,}|^<.*>$|^\$\{.*\}$|^\d*123456789\d*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ServerKey:
    """``source`` says in words where the key came from; ``path`` is its file, if it is one of ours."""

    value: str
    source: str
    path: Path | None = None
    created: bool = False

    def __repr__(self) -> str:
        return f"ServerKey(source={self.source!r})"


def find_server_key(
    home: Path, environ: Mapping[str, str], dotenv: Mapping[str, str], configured: str = ""
) -> ServerKey:
    """The key, in this order: environment, the home's ``.env``, configuration file, ``server.key`` (made if absent).

    Raises ``InvalidValue`` for a key that is too short or looks like a sample; the message never holds the key.
    """
    given = (
        (environ.get("API_SERVER_KEY", ""), "API_SERVER_KEY in the environment"),
        (dotenv.get("API_SERVER_KEY", ""), "API_SERVER_KEY in the .env file"),
        (configured, "gateway.api_server.key in config.yaml"),
    )
    for value, source in given:
        if value.strip():
            return ServerKey(_checked(value.strip(), source), source)
    return _from_file(home / "server.key")


def _checked(key: str, source: str) -> str:
    advice = "use at least 32 random characters, or remove it and one is made for you"
    if len(key) < MIN_KEY_CHARS:
        raise InvalidValue(f"{source} has fewer than {MIN_KEY_CHARS} characters; {advice}")
    if len(set(key)) < 5 or _SAMPLE.search(key):
        raise InvalidValue(f"{source} looks like a sample value; {advice}")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidValue(f"{source} holds characters that a header cannot carry; {advice}")
    return key


def _from_file(path: Path) -> ServerKey:
    created = False
    if not path.exists():
        created = _create(path)
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"server.key cannot be read: {error}") from error
    # A key we made is random; only one that a person put there can be weak, and random text may look like anything.
    if len(key) < MIN_KEY_CHARS:
        raise InvalidValue("server.key is too short; delete the file and a new key is made")
    return ServerKey(key, "server.key", path, created)


def _create(path: Path) -> bool:
    """Write a new key. False: another process was faster, and its key stands."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".server.key.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        # A link, not a rename: it fails if the name is taken, and a reader never sees half a key.
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise InvalidValue(f"server.key cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return True
