"""Content blocks of the protocol to prompts, and back.

What the user wrote is what is shown and stored; what the model reads besides (files behind links, embedded resources)
goes into the prompt's ``api_content``. Files are read when the turn begins, in a thread, so that neither the reader nor
a cancel waits for them.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import trio

from hermes.agent.path_rules import PathPolicy, may_read
from hermes.errors import InvalidParams
from hermes.messages import Content, ContentPart, ImagePart, TextPart
from hermes.patterns import lazy_pattern
from hermes.protocols.acp.schemas import in_wsl, windows_to_mount
from hermes.records import dataclass

MAX_LINKED_TEXT: Final = 512 * 1024
MAX_LINKED_IMAGE: Final = 20 * 1024 * 1024
_IMAGE_TYPE: Final = lazy_pattern(r"(?i)image/[A-Za-z0-9.+-]+")
_WEB_ADDRESS: Final = lazy_pattern(r"(?i)(?:https?:|data:image/)")
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass(frozen=True, slots=True)
class FileLink:
    """A file that the prompt names and the model shall read."""

    name: str
    uri: str
    path: str


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt as its blocks say it.

    ``shown`` is stored and displayed, ``for_model`` is what the model gets, with links not read yet. ``command_text``
    is the text if all blocks are text, else None.
    """

    shown: Content
    for_model: tuple[ContentPart | FileLink, ...]
    command_text: str | None

    @property
    def is_empty(self) -> bool:
        return not self.for_model or all(isinstance(p, TextPart) and not p.text.strip() for p in self.for_model)

    @property
    def differs(self) -> bool:
        """The model reads something else than what is shown."""
        return _content(self.for_model) != self.shown if not self.links else True

    @property
    def links(self) -> bool:
        return any(isinstance(part, FileLink) for part in self.for_model)

    async def load(self, agent_home: Path) -> Content:
        """What the model reads, with the linked files in it. ``agent_home``: where the agent keeps its keys."""
        parts: list[ContentPart] = []
        for part in self.for_model:
            if isinstance(part, FileLink):
                parts.append(await trio.to_thread.run_sync(read_link, part, agent_home, abandon_on_cancel=True))
            else:
                parts.append(part)
        return _content(parts)


def read_prompt(blocks: Sequence[Mapping[str, Any]]) -> ReadPrompt:
    """Raises ``InvalidParams`` for a block of a type that was not announced, or without what its type requires."""
    shown: list[ContentPart] = []
    for_model: list[ContentPart | FileLink] = []
    only_text = True
    for number, block in enumerate(blocks):
        kind = block.get("type")
        only_text = only_text and kind == "text"
        match kind:
            case "text":
                part = TextPart(_string(block, "text", number))
                shown.append(part)
                for_model.append(part)
            case "image":
                image = _image(block, number)
                shown.append(TextPart(f"[@{image.name}]({image.uri})") if isinstance(image, FileLink) else image)
                for_model.append(image)
            case "resource_link":
                uri = _string(block, "uri", number)
                name = str(block.get("name") or uri)
                shown.append(TextPart(f"[@{name}]({uri})"))
                for_model.append(_linked(name, uri))
            case "resource":
                seen, read = _embedded(block.get("resource"), number)
                shown.append(seen)
                for_model.append(read)
            case _:
                raise InvalidParams(f"prompt[{number}]: content of type {kind!r} is not supported")
    text = "\n".join(part.text for part in shown if isinstance(part, TextPart)) if only_text else None
    return ReadPrompt(_content(shown), tuple(for_model), text)


def _content(parts: Sequence[object]) -> Content:
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(part for part in parts if isinstance(part, TextPart | ImagePart))


def _string(block: Mapping[str, Any], key: str, number: int) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise InvalidParams(f"prompt[{number}].{key} must be a string")
    return value


def _image(block: Mapping[str, Any], number: int) -> ContentPart | FileLink:
    data, mime = block.get("data"), block.get("mimeType")
    mime = mime if isinstance(mime, str) and mime else "image/png"
    if isinstance(data, str) and data.startswith("data:"):
        head, _, data = data.partition(",")
        mime = head[5:].partition(";")[0] or mime
    if isinstance(data, str) and data:
        # Line breaks are usual where base64 is written as in mails; providers refuse them.
        data = "".join(data.split())
        if not _IMAGE_TYPE.fullmatch(mime):
            return TextPart("[an image whose type is none of an image]")
        return ImagePart(mime, data) if is_base64(data) else TextPart("[an image that is not valid base64]")
    uri = block.get("uri")
    if isinstance(uri, str) and uri:
        # What a provider cannot fetch is read here, or named: an address that it refuses stays in the history.
        return ImagePart(mime, url=uri) if _WEB_ADDRESS.match(uri) else _linked(uri.rpartition("/")[2] or uri, uri)
    raise InvalidParams(f"prompt[{number}]: an image needs data or uri")


def is_base64(data: str) -> bool:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _embedded(resource: object, number: int) -> tuple[ContentPart, ContentPart]:
    """(what is shown, what the model reads) of an embedded resource."""
    if not isinstance(resource, Mapping):
        raise InvalidParams(f"prompt[{number}].resource must be an object")
    uri = _string(resource, "uri", number)
    name = uri.rstrip("/").rpartition("/")[2] or uri
    text, blob, mime = resource.get("text"), resource.get("blob"), str(resource.get("mimeType") or "")
    link = TextPart(f"[@{unquote(name)}]({uri})")
    if isinstance(text, str):
        return link, TextPart(f"{_header(unquote(name), uri)}\n{text}")
    if isinstance(blob, str):
        if mime in IMAGE_TYPES and is_base64(blob):
            image = ImagePart(mime, blob)
            return image, image
        return link, TextPart(f"[{unquote(name)} ({uri}): binary data{f' of type {mime}' if mime else ''}, not shown]")
    raise InvalidParams(f"prompt[{number}].resource needs text or blob")


def _header(name: str, uri: str) -> str:
    return f"[File {name} ({uri})]"


# --- files behind links ----------------------------------------------------------------------------------------------


def _linked(name: str, uri: str) -> TextPart | FileLink:
    path = local_path(uri)
    if path is None:
        return TextPart(f"[{name}: {uri} is not a local file and was not read]")
    return FileLink(name, uri, path)


def local_path(uri: str) -> str | None:
    """The path of a ``file:`` URI of this machine, or None."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme.lower() != "file" or parts.netloc.lower() not in ("", "localhost"):
        return None
    path = unquote(parts.path)
    # file:///C:/work: the drive comes behind a slash.
    if len(path) > 2 and path[0] == "/" and path[1].isalpha() and path[2] == ":":
        path = windows_to_mount(path[1:]) if in_wsl() else path[1:] if os.name == "nt" else path
    return path or None


def read_link(link: FileLink, agent_home: Path) -> ContentPart:
    """The file as text or image, or one line that says why not. Never raises for a file.

    What the file tools may not read is not read here either: a prompt goes to a provider, a key must not.
    """
    try:
        denied = _denied(link.path, agent_home)
        if denied:
            return TextPart(f"[{link.name} ({link.uri}) was not read: {denied}]")
        # Not blocking, and judged by what was opened: a pipe or a log of the kernel must not hold the thread.
        descriptor = os.open(link.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                return TextPart(f"[{link.name} ({link.uri}) is not a file and was not read]")
            mime = mimetypes.guess_type(link.path)[0] or ""
            is_image = mime in IMAGE_TYPES and info.st_size <= MAX_LINKED_IMAGE
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_LINKED_IMAGE + 1 if is_image else MAX_LINKED_TEXT + 1) or b""
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it cannot be read"
        return TextPart(f"[{link.name} ({link.uri}) was not read: {reason}]")
    if is_image:
        return ImagePart(mime, base64.b64encode(data).decode("ascii"))
    return TextPart(_as_text(link, data, info.st_size))


def _denied(path: str, agent_home: Path) -> str:
    """Why it may not be read; "" where it may. A link that leads there is no way around."""
    policy = PathPolicy(Path.home(), agent_home.resolve())
    for candidate in (Path(os.path.normpath(path)), Path(os.path.realpath(path))):
        verdict = may_read(candidate, policy)
        if verdict.verdict == "deny":
            return verdict.reason
    return ""


def _as_text(link: FileLink, data: bytes, size: int) -> str:
    if b"\0" in data[:8192]:
        return f"[{link.name} ({link.uri}): binary file of {size} bytes, not shown]"
    cut = len(data) > MAX_LINKED_TEXT
    try:
        # A cut may fall into a character: that one is left out, anything else means that this is no text.
        text = data[:MAX_LINKED_TEXT].decode("utf-8", "ignore" if cut else "strict")
    except UnicodeDecodeError:
        return f"[{link.name} ({link.uri}): not UTF-8 text, {size} bytes, not shown]"
    note = f"\n[cut after {MAX_LINKED_TEXT} of {size} bytes]" if cut else ""
    return f"{_header(link.name, link.uri)}\n{text}{note}"


# --- and back --------------------------------------------------------------------------------------------------------


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def image_block(image: ImagePart) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "image", "data": image.data or "", "mimeType": image.mime_type}
    if image.url is not None:
        block["uri"] = image.url
    return block


def content_blocks(content: Content) -> list[dict[str, Any]]:
    """A stored content as blocks, for a replay."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [text_block(content)]
    return [text_block(part.text) if isinstance(part, TextPart) else image_block(part) for part in content]
