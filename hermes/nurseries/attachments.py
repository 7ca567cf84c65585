"""Files that a person gives to a session: images for the next prompt, files that are named by reference (gateway §9.7).

File work runs in a thread. Images wait in the session's memory until the next prompt takes them; uploads are kept below
the home.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from hermes.agent.attachments import (
    IMAGE_SUFFIXES,
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    DroppedPath,
    ImageFacts,
    dropped_path,
    image_facts,
)
from hermes.agent.session_folders import folder_name
from hermes.errors import InvalidParams, InvalidValue, NotFound, Overloaded, Unavailable
from hermes.messages import ImagePart
from hermes.nurseries.places import is_file

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

QUEUED_IMAGES: Final = "attached_images"
"""Where images wait for the next prompt, in the session's memory: ``(ImagePart, path)``."""

_UNSAFE: Final = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class AttachedImage:
    path: str
    facts: ImageFacts
    size: int
    count: int


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """``uploaded``: it came as data. ``reference`` is how a prompt names it."""

    path: str
    reference: str
    uploaded: bool


def queued(session: Session) -> list[tuple[ImagePart, str]]:
    images: list[tuple[ImagePart, str]] = session.memory.extras.setdefault(QUEUED_IMAGES, [])
    return images


def take_queued(session: Session) -> list[ImagePart]:
    """The images for this prompt; the queue is empty afterwards."""
    return [image for image, _ in session.memory.extras.pop(QUEUED_IMAGES, [])]


def full_path(session: Session, path: str) -> str:
    return os.path.normpath(os.path.join(session.memory.cwd, os.path.expanduser(path)))


async def attach_image(session: Session, text: str) -> tuple[AttachedImage, str]:
    """Queue the image that a text names; what follows the path on the line comes back. Raises ``InvalidParams``,
    ``NotFound`` (no image there), ``Overloaded``."""
    if not text.strip():
        raise InvalidParams("path is required")
    named = dropped_path(text) or DroppedPath(text.strip(), "")
    whole = full_path(session, text.strip())
    path = whole if await is_file(whole) else full_path(session, named.path)
    remainder = "" if path == whole else named.remainder
    data = await _read(path)
    return _queue(session, path, data), remainder


async def _read(path: str) -> bytes:
    file = trio.Path(path)
    try:
        if not await is_file(file):
            raise NotFound("there is no such file")
        if (await file.stat()).st_size > MAX_IMAGE_BYTES:
            raise Overloaded("the file is larger than 25 MB")
        return await file.read_bytes()
    except OSError as error:
        raise NotFound(f"the file cannot be read: {error.strerror}") from None


def _queue(session: Session, path: str, data: bytes) -> AttachedImage:
    facts = image_facts(data)
    if facts is None:
        raise NotFound("this file is no image that can be attached (PNG, JPEG, GIF, WebP, BMP)")
    images = queued(session)
    if len(images) >= MAX_IMAGES:
        raise Overloaded(f"{MAX_IMAGES} images are waiting for the next prompt already")
    images.append((ImagePart(facts.mime_type, data=base64.b64encode(data).decode("ascii")), path))
    return AttachedImage(path, facts, len(data), len(images))


async def attach_bytes(session: Session, encoded: str, name: str | None, suffix: str | None) -> AttachedImage:
    """Queue an image that came as base64; it is kept below the home. Raises ``InvalidValue``, ``Overloaded``."""
    return await keep_image(session, decoded(encoded), name, suffix)


async def keep_image(session: Session, data: bytes, name: str | None, suffix: str | None) -> AttachedImage:
    facts = image_facts(data)
    if facts is None:
        raise InvalidValue("these bytes are no image")
    ending = (suffix or Path(name or "").suffix or facts.mime_type.rpartition("/")[2]).lstrip(".")
    folder = session.services.home / "images"
    stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(session.services.clock()))
    path = await trio.to_thread.run_sync(_write_new, folder, f"upload_{stamp}", f".{_UNSAFE.sub('', ending)}", data)
    return _queue(session, str(path), data)


def decoded(encoded: str) -> bytes:
    """Base64, or a data URL. Raises ``InvalidValue``, ``Overloaded``."""
    if encoded.startswith("data:"):
        encoded = encoded.partition(",")[2]
    if len(encoded) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise Overloaded("the file is larger than 25 MB")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidValue("this is no valid base64") from None


def _write_new(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = 1
    while True:
        path = folder / f"{stem}_{number}{suffix}"
        try:
            with path.open("xb") as file:
                file.write(data)
            return path
        except FileExistsError:
            number += 1


def detach(session: Session, path: str) -> tuple[bool, int]:
    """Take an image out of the queue: whether it was there, and how many are left."""
    images = queued(session)
    left = [item for item in images if item[1] != path and item[1] != full_path(session, path)]
    session.memory.extras[QUEUED_IMAGES] = left
    return len(left) < len(images), len(left)


def names_image(path: str) -> bool:
    return Path(path).suffix.lower() in IMAGE_SUFFIXES


# --- files by reference ----------------------------------------------------------------------------------------------


async def attach_file(session: Session, path: str | None, data_url: str | None, name: str | None) -> AttachedFile:
    """A file for the prompt to name: in place inside the session's directory, else as a copy, else from its data.

    Raises ``InvalidParams``, ``NotFound``, ``InvalidValue``, ``Overloaded``, ``Unavailable``.
    """
    if not path and not data_url:
        raise InvalidParams("path or data_url is required")
    if path:
        found = full_path(session, path)
        if await is_file(found) and os.access(found, os.R_OK):
            return await _known_file(session, found)
    if not data_url:
        raise NotFound("there is no such file")
    data = decoded(data_url)
    wanted = name or (Path(path).name if path else "file")
    try:
        folder = attachments_folder(session.services.home, session.key)
        stored = await trio.to_thread.run_sync(_store, folder, wanted, data)
    except OSError as error:
        raise Unavailable(f"the file could not be stored: {error.strerror}") from None
    return AttachedFile(str(stored), _reference(session, str(stored)), uploaded=True)


async def _known_file(session: Session, found: str) -> AttachedFile:
    if Path(found).resolve().is_relative_to(Path(session.memory.cwd).resolve()):
        return AttachedFile(found, _reference(session, found), uploaded=False)
    try:
        folder = attachments_folder(session.services.home, session.key)
        copy = await trio.to_thread.run_sync(_copy, folder, found)
    except OSError as error:
        raise Unavailable(f"the file could not be copied: {error.strerror}") from None
    return AttachedFile(str(copy), _reference(session, str(copy)), uploaded=False)


def attachments_folder(home: Path, key: str) -> Path:
    return home / "attachments" / folder_name(key)


def _copy(folder: Path, source: str) -> Path:
    target = _free(folder, Path(source).name)
    shutil.copyfile(source, target)
    return target


def _store(folder: Path, name: str, data: bytes) -> Path:
    target = _free(folder, name)
    target.write_bytes(data)
    return target


def _free(folder: Path, name: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    safe = _UNSAFE.sub("_", Path(name).name).strip("_") or "file"
    target = folder / safe
    number = 2
    while target.exists():
        target = folder / f"{Path(safe).stem}_{number}{Path(safe).suffix}"
        number += 1
    return target


def _reference(session: Session, path: str) -> str:
    try:
        return str(Path(path).relative_to(session.memory.cwd))
    except ValueError:
        return path


async def collapse_paste(home: Path, number: int, text: str, now: float) -> dict[str, Any]:
    """Keep a long paste in a file; the editor shows a line that names it. Raises ``Unavailable``."""
    stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(now))
    try:
        path = await trio.to_thread.run_sync(_write_new, home / "pastes", f"paste_{stamp}", ".txt", text.encode())
    except OSError as error:
        raise Unavailable(f"the paste could not be stored: {error.strerror}") from None
    lines = text.count("\n") + 1
    return {"placeholder": f"[Pasted text #{number}: {lines} lines → {path}]", "path": str(path), "lines": lines}
