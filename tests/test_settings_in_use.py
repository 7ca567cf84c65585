"""Every setting is read by something: one that nobody reads would be a promise that nobody keeps."""

from __future__ import annotations

import ast
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args, get_origin

from hermes.settings import SettingField, every_setting

PACKAGE = Path(str(files("hermes")))
DECLARATIONS = ("settings.py", "agent_settings.py")
FOR_HOSTS = {"voice", "display.tui_auto_resume_recent"}
"""Read by clients alone, which get the whole configuration with ``config.get {key: "full"}``."""


def words_of_the_package() -> tuple[set[str], set[str]]:
    """The names that are read as attributes, and the short texts."""
    attributes: set[str] = set()
    texts: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent == PACKAGE and path.name in DECLARATIONS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                attributes.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
    own = ast.parse((PACKAGE / "settings.py").read_text())
    # A property of ``Settings`` that the rest reads stands for what it reads itself.
    for function in ast.walk(own):
        if isinstance(function, ast.FunctionDef) and function.name in attributes:
            attributes |= {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return attributes, texts


def has_one_value_only(field: SettingField) -> bool:
    """It is there to refuse every other value."""
    return get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1


def test_every_setting_is_read_by_some_code() -> None:
    attributes, texts = words_of_the_package()
    unread = [
        field.key
        for field in every_setting()
        if field.key not in FOR_HOSTS
        and not has_one_value_only(field)
        and field.key not in texts
        and not set(field.key.split(".")) <= attributes | {"default"}
    ]
    assert unread == []
