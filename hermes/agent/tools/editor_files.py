"""Files as the client's editor has them: unsaved buffers are what is read, and a change goes where the user sees it.

Used only where the attached client offers it, and only for files that are on disk as UTF-8: what a client makes of
other encodings is its own affair. A client that refuses or is silent costs its deadline once; then the disk serves.
Rules and consent are those of the disk: whoever calls this has asked before.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hermes.agent.ports import ToolContext
from hermes.agent.tools.file_access import MAX_BYTES, FileText, digest_of, encode_text

READ = "fs/read_text_file"
WRITE = "fs/write_text_file"


async def as_edited(ctx: ToolContext, found: FileText) -> FileText:
    """The file with the text of the editor's buffer, if that is another one than the disk's."""
    if found.encoding != "utf-8":
        return found
    answer = await ctx.client_tool(READ, {"path": str(found.path)})
    text = None if answer is None else answer.get("content")
    if not isinstance(text, str) or len(text) > MAX_BYTES:
        return found
    if found.newline == "\r\n":
        text = text.replace("\r\n", "\n")
    if text == found.text:
        return found
    try:
        raw = encode_text(text, found.encoding, found.newline)
    except UnicodeEncodeError:
        return found
    return replace(found, text=text, digest=digest_of(raw), size=len(raw), disk_digest=found.disk_digest)


async def write_in_editor(ctx: ToolContext, path: Path, data: bytes, before: FileText | None) -> bool:
    """Let the editor write the file. False where it did not, so that the caller does.

    ``before`` is the file as the change was planned on it, None if it is new."""
    if before is not None and before.encoding != "utf-8":
        return False
    return await ctx.client_tool(WRITE, {"path": str(path), "content": data.decode("utf-8")}) is not None


async def editor_holds(ctx: ToolContext, path: Path, data: bytes) -> bool:
    """Whether the editor's buffer of this file is exactly this."""
    answer = await ctx.client_tool(READ, {"path": str(path)})
    text = None if answer is None else answer.get("content")
    wanted = data.decode("utf-8", "replace")
    return isinstance(text, str) and text.replace("\r\n", "\n") == wanted.replace("\r\n", "\n")
