"""The reference page of all settings, made from their declarations."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from typing import Any

from hermes.agent_settings import Area
from hermes.settings import SettingField, Settings, TopLevel, area_of, every_setting

INTRODUCTION = """# Configuration

<!-- Made by `make docs` (`hermes schema config`); changes here are overwritten. -->

Settings come from, in rising order of strength: the defaults below, `config.yaml` in the home directory, the home's
`.env`, the environment, the command line (`--set key=value`, or an option of its own). The home directory is
`HERMES_HOME`, by default `~/.hermes`.

`${NAME}` in a value is replaced by that variable. A value that is not valid is reported in the log and its default is
used; keys that do not exist are reported and ignored. `hermes config show` prints what is in force and where it comes
from, `hermes config set KEY VALUE` changes the file and keeps its comments.

`model: some-id` is short for `model.default`. The HTTP server's block may also stand under `platforms.api_server` or
`gateway.platforms.api_server`.
"""


def markdown() -> str:
    parts = [INTRODUCTION, _section("Top level", "", TopLevel, TopLevel)]
    for name in Settings.model_fields:
        kind = area_of(Settings, name)
        if kind is not None:
            parts.append(_section(f"`{name}`", f"{name}.", kind, kind))
    return "\n".join(parts)


def schema() -> Any:
    return Settings.model_json_schema()


def _section(title: str, prefix: str, kind: type[Area], source: type[Area]) -> str:
    lines = [
        f"## {title}",
        "",
        (source.__doc__ or "").strip(),
        "",
        "| Key | Type | Default | Meaning |",
        "|---|---|---|---|",
    ]
    for item in every_setting(kind, prefix):
        variable = f" Variable: `{item.env}`." if item.env else ""
        lines.append(f"| `{item.key}` | {_type_name(item)} | `{_default(item)}` | {item.description}{variable} |")
    return "\n".join(lines) + "\n"


def _default(item: SettingField) -> str:
    default = list(item.default) if isinstance(item.default, tuple) else item.default
    return json.dumps(default, ensure_ascii=False)


def _type_name(item: SettingField) -> str:
    return _annotation_name(item.annotation).replace("|", "\\|")


def _annotation_name(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{word}`" if word else "empty" for word in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_annotation_name(part) for part in arguments)
    if origin is tuple:
        return "list"
    if origin is not None and issubclass(origin, Mapping):
        return "map"
    names = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "text"}
    return names.get(annotation, str(annotation))
