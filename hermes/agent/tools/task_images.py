"""The images of delegated tasks: what a model names, read as ``read_file`` may read, bounded as those of a prompt."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from hermes.agent.attachments import MAX_IMAGE_BYTES, MAX_IMAGES, image_facts
from hermes.agent.path_rules import PathPolicy, may_read
from hermes.agent.ports import ToolContext
from hermes.agent.tools.base import absolute, blocked, failure
from hermes.agent.tools.file_access import FileRefused, read_bytes, resolve_target
from hermes.messages import ImagePart

_WORDS = ("path", "url", "image_url")


class TaskImages:
    """The images of one call. The same image for several children is read once and counts once."""

    def __init__(self, ctx: ToolContext, policy: PathPolicy) -> None:
        self._ctx = ctx
        self._policy = policy
        self._known: dict[str, ImagePart] = {}

    async def read(self, value: Any, whose: str) -> tuple[ImagePart, ...]:
        """The images that a task names: one or a list of paths, http(s) or data URLs. Raises ``ToolFailure``."""
        images = []
        for item in value if isinstance(value, list | tuple) else [value]:
            name = _name_of(item)
            if name is None:
                raise failure(f"{whose}: an image is a path, an http(s) URL or a data URL")
            if name not in self._known:
                if len(self._known) >= MAX_IMAGES:
                    raise failure(f"at most {MAX_IMAGES} images at once")
                self._known[name] = await self._image(name, whose)
            images.append(self._known[name])
        return tuple(images)

    async def _image(self, name: str, whose: str) -> ImagePart:
        if name.startswith(("http://", "https://")):
            return ImagePart("image/*", url=name)
        if name.startswith("data:"):
            return _part(_decoded(name, whose), f"{whose}: the data URL")
        path = absolute(self._ctx, name)
        return _part(await trio.to_thread.run_sync(_read, path, self._policy), f"{whose}: {name}")


def _name_of(item: Any) -> str | None:
    """The text that names the image; some models write it as the content part of a message."""
    if isinstance(item, Mapping):
        item = next((item[word] for word in _WORDS if item.get(word)), None)
        if isinstance(item, Mapping):
            item = item.get("url")
    return item.strip() or None if isinstance(item, str) else None


def _decoded(url: str, whose: str) -> bytes:
    encoded = url.partition(",")[2]
    if len(encoded) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise failure(f"{whose}: the image is larger than 25 MB")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise failure(f"{whose}: the data URL is no valid base64") from None


def _read(path: Path, policy: PathPolicy) -> bytes:
    target = resolve_target(path)
    for candidate in (path, target):
        verdict = may_read(candidate, policy)
        if verdict.verdict == "deny":
            raise blocked(f"reading {path} is denied: {verdict.reason}")
    try:
        return read_bytes(target, limit=MAX_IMAGE_BYTES)[0]
    except FileNotFoundError:
        raise failure(f"{path} does not exist") from None
    except FileRefused as error:
        raise failure(f"{path} cannot be read: {error}") from None
    except OSError as error:
        raise failure(f"{path} cannot be read: {error.strerror or error}") from None


def _part(data: bytes, what: str) -> ImagePart:
    facts = image_facts(data)
    if facts is None:
        raise failure(f"{what} is no image that can be attached (PNG, JPEG, GIF, WebP, BMP)")
    return ImagePart(facts.mime_type, data=base64.b64encode(data).decode("ascii"))
