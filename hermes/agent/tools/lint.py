"""Syntax checks of written files. Blocking and pure of effects; for .py, .json, .yaml and .toml."""

from __future__ import annotations

import ast
import json
import warnings
from pathlib import PurePath
from typing import Any

_LARGEST = 2_000_000


def lint(path: PurePath, new: str, old: str | None) -> dict[str, Any] | None:
    """``{status, output}`` of the new text, or None for other file types. A problem the old text had is not new."""
    if path.suffix not in (".py", ".pyi", ".json", ".yaml", ".yml", ".toml") or len(new) > _LARGEST:
        return None
    problem = _problem(path.suffix, new)
    if problem is None:
        return {"status": "ok", "output": ""}
    if old is not None and _problem(path.suffix, old) is not None:
        return {"status": "unchanged", "output": "the file had a syntax error before this change"}
    return {"status": "error", "output": problem}


def _problem(suffix: str, text: str) -> str | None:
    try:
        match suffix:
            case ".py" | ".pyi":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ast.parse(text)
            case ".json":
                json.loads(text)
            case ".toml":
                import tomllib

                tomllib.loads(text)
            case _:
                return _yaml_problem(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error)[:500]
    return None


def _yaml_problem(text: str) -> str | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        for _ in YAML(typ="safe", pure=True).parse(text):
            pass
    except YAMLError as error:
        return " ".join(str(error).split())[:500]
    return None
