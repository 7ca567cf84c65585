"""Prompt content as clients write it, and as rows hold it: text, or a list of parts (gateway §4.1). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes.errors import InvalidParams
from hermes.messages import Content, ContentPart, ImagePart, TextPart
from hermes.patterns import lazy_pattern

_DATA_URL: Final = lazy_pattern(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)\Z", re.DOTALL)


def read_content(value: Any) -> Content:
    """The content of a submit; nothing at all is an empty prompt. Raises ``InvalidParams``."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = tuple(_part(item) for item in value)
        if all(isinstance(part, TextPart) for part in parts):
            return "\n".join(part.text for part in parts if isinstance(part, TextPart))
        return parts
    raise InvalidParams("text must be a string or a list of content parts")


def with_images(content: Content, images: Sequence[ImagePart]) -> Content:
    """The content with attached images behind it."""
    if not images:
        return content
    if isinstance(content, tuple):
        return (*content, *images)
    return (TextPart(content), *images) if content else tuple(images)


def _part(item: Any) -> ContentPart:
    if isinstance(item, str):
        return TextPart(item)
    if not isinstance(item, Mapping):
        raise InvalidParams("a content part must be an object with a type")
    match item.get("type"):
        case "text" | "input_text" if isinstance(item.get("text"), str):
            return TextPart(item["text"])
        case "image_url" | "input_image":
            source = item.get("image_url")
            url = source.get("url") if isinstance(source, Mapping) else source
            if isinstance(url, str):
                return image_from_url(url)
        case "image" if isinstance(item.get("data"), str):
            return ImagePart(str(item.get("mimeType") or item.get("mime_type") or "image/png"), data=item["data"])
    raise InvalidParams("unsupported content part; use text, image_url or image")


def image_from_url(url: str) -> ImagePart:
    """An image by data URL or address. Raises ``InvalidParams``."""
    inline = _DATA_URL.match(url)
    if inline is not None:
        return ImagePart(inline[1], data=inline[2])
    if url.startswith(("http://", "https://")):
        return ImagePart("image/*", url=url)
    raise InvalidParams("an image must be a data: or http(s) URL")
