"""Images and dropped files: what bytes are, how large they look, which path a pasted text names. Pure."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

IMAGE_SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"})
MAX_IMAGE_BYTES: Final = 25 * 1024 * 1024
MAX_IMAGES: Final = 20
"""That wait for one prompt, or that one call gives to its children."""
PIXELS_PER_TOKEN: Final = 750
_ESCAPED: Final = re.compile(r"\\(.)")
_JPEG_FRAMES: Final = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """``width`` and ``height`` are None where the header does not tell."""

    mime_type: str
    width: int | None = None
    height: int | None = None

    @property
    def token_estimate(self) -> int | None:
        if not self.width or not self.height:
            return None
        return max(1, -(-self.width * self.height // PIXELS_PER_TOKEN))


def image_facts(data: bytes) -> ImageFacts | None:
    """What kind of image these bytes are, by their beginning; None if they are none that models take."""
    for read in _READERS:
        facts = read(data)
        if facts is not None:
            return facts
    return None


def _png(data: bytes) -> ImageFacts | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or len(data) < 24:
        return None
    width, height = struct.unpack(">II", data[16:24])
    return ImageFacts("image/png", width, height)


def _gif(data: bytes) -> ImageFacts | None:
    if not data.startswith((b"GIF87a", b"GIF89a")) or len(data) < 10:
        return None
    width, height = struct.unpack("<HH", data[6:10])
    return ImageFacts("image/gif", width, height)


def _bmp(data: bytes) -> ImageFacts | None:
    if not data.startswith(b"BM") or len(data) < 26:
        return None
    width, height = struct.unpack("<ii", data[18:26])
    return ImageFacts("image/bmp", width, abs(height))


def _webp(data: bytes) -> ImageFacts | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    if data[12:16] == b"VP8X" and len(data) >= 30:
        width = int.from_bytes(data[24:27], "little") + 1
        return ImageFacts("image/webp", width, int.from_bytes(data[27:30], "little") + 1)
    if data[12:16] == b"VP8 " and len(data) >= 30:
        width, height = struct.unpack("<HH", data[26:30])
        return ImageFacts("image/webp", width & 0x3FFF, height & 0x3FFF)
    return ImageFacts("image/webp")


def _jpeg(data: bytes) -> ImageFacts | None:
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return ImageFacts("image/jpeg", width, height)
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return ImageFacts("image/jpeg")


_READERS: Final[tuple[Callable[[bytes], ImageFacts | None], ...]] = (_png, _jpeg, _gif, _webp, _bmp)


@dataclass(frozen=True, slots=True)
class DroppedPath:
    """A path at the beginning of a text, and what follows it on the same line and behind."""

    path: str
    remainder: str


def dropped_path(text: str) -> DroppedPath | None:
    """The path that a terminal writes when a file is dropped on it: quoted, escaped, or as a file URL."""
    line = text.strip()
    if not line:
        return None
    if line[0] in "'\"":
        end = line.find(line[0], 1)
        if end < 0:
            return None
        return _named(line[1:end], line[end + 1 :])
    match = re.match(r"(?:\\.|[^\s\\])+", line)
    if match is None:
        return None
    return _named(_ESCAPED.sub(r"\1", match.group()), line[match.end() :])


def _named(path: str, rest: str) -> DroppedPath | None:
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    if not path.startswith(("/", "~/", "./", "../")) or len(path) < 2:
        return None
    return DroppedPath(path, rest.strip())
