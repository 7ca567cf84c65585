"""The files of the home directory as text: reading YAML and ``.env``, changing one YAML value, atomic writes.

Knows nothing about which settings exist; ``config.py`` does. ``.env`` is read by a few lines here instead of a
library: importing ``python-dotenv`` would be paid at every start, and only plain ``NAME=value`` lines are wanted (no
shell expansion, so a password may hold any character).
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hermes.errors import InvalidValue
from hermes.patterns import lazy_pattern

_ENV_LINE = lazy_pattern(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*\Z", re.DOTALL)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in this file; empty if there is no file. Raises ``InvalidValue`` naming line and problem.

    A broken file stops the start: going on with defaults would silently drop the user's deny list.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{path.name} cannot be read: {error}") from error
    if not text.strip():
        return {}
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        document = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else "?"
        raise InvalidValue(f"{path.name}, line {line}: {error.problem or error.context}") from error
    except (YAMLError, ValueError) as error:
        raise InvalidValue(f"{path.name} is not valid YAML: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InvalidValue(f"{path.name} must hold keys and values, not a {type(document).__name__}")
    return document


def read_dotenv(path: Path) -> dict[str, str]:
    """The variables of a ``.env`` file; empty if there is none. Lines that are not ``NAME=value`` are skipped."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{path.name} cannot be read: {error}") from error
    variables = {}
    for line in text.splitlines():
        match = _ENV_LINE.match(line)
        if match is not None:
            variables[match[1]] = _unquoted(match[2])
    return variables


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"'):
        end = value.find(value[0], 1)
        return value[1:end] if end > 0 else value
    return re.split(r"\s+#", value, maxsplit=1)[0]


def change_dotenv(path: Path, changes: Mapping[str, str | None]) -> None:
    """Set these variables, or remove them with None; all other lines stay. Raises ``InvalidValue``, ``OSError``.

    The file is its owner's alone. Writers in several processes take turns.
    """
    lines_of_changes = [_dotenv_line(name, value) for name, value in changes.items() if value is not None]
    path = path.resolve()
    with _locked(path.with_name(f".{path.name}.lock")):
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if line.partition("=")[0].strip().removeprefix("export ").strip() not in changes]
        write_atomically(path, ("\n".join(kept + lines_of_changes) + "\n").encode())
        path.chmod(0o600)


def _dotenv_line(name: str, value: str) -> str:
    """The line that is read back as this value."""
    for line in (f"{name}={value}", f"{name}='{value}'", f'{name}="{value}"'):
        match = _ENV_LINE.match(line)
        if len(line.splitlines()) == 1 and match is not None and _unquoted(match[2]) == value:
            return line
    raise InvalidValue(f"the value of {name} cannot be written as one line of a .env file")


def change_yaml(path: Path, keys: Sequence[str], value: Any) -> None:
    """Set one value, or remove it with None, keeping comments and all else. Raises ``InvalidValue``, ``OSError``.

    Writers in several processes take turns, so each merges with what the other has written.
    """
    path = path.resolve()
    with _locked(path.with_name(f".{path.name}.lock")):
        text = _change_text(path, keys, value)
        write_atomically(path, text.encode())


def _change_text(path: Path, keys: Sequence[str], value: Any) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 10_000
    try:
        document = yaml.load(path.read_text(encoding="utf-8")) if path.exists() else None
    except YAMLError as error:
        raise InvalidValue(f"{path.name} is not valid YAML; repair it first") from error
    if document is None:
        document = yaml.map()
    if not isinstance(document, dict):
        raise InvalidValue(f"{path.name} must hold keys and values")
    _set(document, keys, value)
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def _set(document: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    if isinstance(document.get("model"), str) and keys[0] == "model" and len(keys) > 1:
        document["model"] = {"default": document["model"]}
    node = document
    for key in keys[:-1]:
        child = node.get(key)
        if not isinstance(child, dict):
            if value is None:
                return
            child = node[key] = {}
        node = child
    if value is None:
        node.pop(keys[-1], None)
    else:
        node[keys[-1]] = value


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file in one step, durable before it is visible. An existing file keeps its mode."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode & 0o777
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            # The umask has had its say in os.open; the mode is meant exactly.
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def expand_variables(value: Any, variables: Mapping[str, str], missing: list[str]) -> Any:
    """``${NAME}`` in every string below ``value``; unknown names stay as they are and are added to ``missing``."""
    if isinstance(value, str):

        def replace(match: re.Match[str]) -> str:
            if match[1] not in variables:
                missing.append(match[1])
            return variables.get(match[1], match[0])

        return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", replace, value) if "${" in value else value
    if isinstance(value, dict):
        return {str(key): expand_variables(item, variables, missing) for key, item in value.items()}
    if isinstance(value, list):
        return [expand_variables(item, variables, missing) for item in value]
    return value
