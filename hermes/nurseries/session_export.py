"""A session's conversation as a file for people: JSON, Markdown or HTML (the ``/save`` command, gateway §8.7)."""

from __future__ import annotations

import html
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from hermes.agent.history import is_visible
from hermes.agent.redaction import redact
from hermes.config_file import write_atomically
from hermes.errors import InvalidParams, InvalidValue
from hermes.messages import Row
from hermes.nurseries.session_history import settled_transcript
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

SAID: Final[Mapping[str, str]] = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
STYLE: Final = "body{max-width:50em;margin:2em auto;font:16px/1.5 sans-serif}pre{white-space:pre-wrap}"


@dataclass(frozen=True, slots=True)
class Export:
    """What ``json|md|html [file] [redact]`` asks for."""

    form: str
    file: str | None
    redacted: bool


def read_export(arg: str) -> Export:
    """Raises ``InvalidParams`` for an unknown format."""
    words = arg.split()
    redacted = "redact" in words
    words = [word for word in words if word != "redact"]
    form = words.pop(0).lower() if words and words[0].lower() in FORMS else ""
    if not form and words:
        form = Path(words[0]).suffix.lstrip(".").lower()
        if form not in FORMS:
            raise InvalidParams("usage: /save json|md|html [file] [redact]")
    if len(words) > 1:
        raise InvalidParams("usage: /save json|md|html [file] [redact]")
    return Export(form or "json", words[0] if words else None, redacted)


async def export(session: Session, wanted: Export) -> Path:
    """Write it; returns the path. Raises ``InvalidValue`` when it cannot be written."""
    rows = [row for row in await settled_transcript(session) if is_visible(row)]
    text = FORMS[wanted.form](session.stored.title or session.key, rows)
    if wanted.redacted:
        text = redact(text)
    if wanted.file is not None:
        path = _named(session.memory.cwd, wanted.file)
    else:
        stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(session.services.clock()))
        key = re.sub(r"[^\w.-]", "_", session.key)
        name = f"{stamp}_{key}.{wanted.form}"
        path = session.services.home / "sessions" / "saved" / name
    try:
        await trio.to_thread.run_sync(_write, path, text.encode("utf-8", "replace"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidValue(f"the conversation could not be saved: {reason}") from None
    return path


def _named(cwd: str, file: str) -> Path:
    if "\0" in file:
        raise InvalidValue("the conversation could not be saved: this is no name of a file")
    try:
        return Path(cwd) / Path(file).expanduser()
    except RuntimeError:
        raise InvalidValue(f"the conversation could not be saved: there is no user {file.split('/')[0]}") from None


def _write(path: Path, content: bytes) -> None:
    os.makedirs(path.parent, exist_ok=True)
    write_atomically(path, content)


def _as_json(title: str, rows: Sequence[Row]) -> str:
    messages: list[dict[str, Any]] = [
        {"role": row.role, "text": row.text, **({"name": row.tool_name} if row.tool_name else {})} for row in rows
    ]
    return json.dumps({"title": title, "messages": messages}, ensure_ascii=False, indent=1) + "\n"


def _as_markdown(title: str, rows: Sequence[Row]) -> str:
    parts = [f"# {title}\n"]
    for row in rows:
        if row.role == "tool":
            fence = "`" * max(3, max((len(run) for run in re.findall("`+", row.text)), default=0) + 1)
            parts.append(f"### {_speaker(row)}\n\n{fence}\n{row.text}\n{fence}\n")
        elif row.text.strip():
            parts.append(f"## {_speaker(row)}\n\n{row.text}\n")
    return "\n".join(parts)


def _as_html(title: str, rows: Sequence[Row]) -> str:
    body = "".join(
        f"<h2>{html.escape(_speaker(row))}</h2>\n<pre>{html.escape(row.text)}</pre>\n"
        for row in rows
        if row.text.strip()
    )
    name = html.escape(title)
    head = f'<meta charset="utf-8"><title>{name}</title><style>{STYLE}</style>'
    return f"<!doctype html>\n<html><head>{head}</head>\n<body><h1>{name}</h1>\n{body}</body></html>\n"


def _speaker(row: Row) -> str:
    return f"Tool {row.tool_name}" if row.tool_name else SAID.get(row.role, row.role)


FORMS: Final[Mapping[str, Callable[[str, Sequence[Row]], str]]] = {
    "json": _as_json,
    "md": _as_markdown,
    "html": _as_html,
}
