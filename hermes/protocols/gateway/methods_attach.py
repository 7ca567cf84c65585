"""Images and files that a person gives to a session (gateway §9.7)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hermes.agent.attachments import DroppedPath, dropped_path
from hermes.errors import EmptyText, HermesError, InvalidParams
from hermes.nurseries import attachments
from hermes.nurseries.attachments import AttachedImage
from hermes.nurseries.clipboard import clipboard_image
from hermes.nurseries.places import is_file
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway import schemas_work as w
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.rpc.method_table import MethodTable

methods: MethodTable[GatewayClient] = MethodTable()


def image_result(image: AttachedImage, remainder: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {
        "attached": True,
        "path": image.path,
        "name": Path(image.path).name,
        "count": image.count,
        "remainder": remainder,
        "text": f"[Image #{image.count}: {Path(image.path).name}]",
    }
    if image.facts.width and image.facts.height:
        result |= {
            "width": image.facts.width,
            "height": image.facts.height,
            "token_estimate": image.facts.token_estimate,
        }
    return result


@methods.method("image.attach", w.PathParams, "ImageAttachResult")
async def image_attach(client: GatewayClient, params: w.PathParams) -> dict[str, Any]:
    image, remainder = await attachments.attach_image(client.session(params.session_id), params.path)
    return image_result(image, remainder)


@methods.method("image.attach_bytes", w.ImageAttachBytesParams, "ImageAttachResult")
async def image_attach_bytes(client: GatewayClient, params: w.ImageAttachBytesParams) -> dict[str, Any]:
    session = client.session(params.session_id)
    encoded = params.content_base64 or params.data
    if not encoded:
        raise InvalidParams("content_base64 is required")
    image = await attachments.attach_bytes(session, encoded, params.filename, params.ext)
    return {**image_result(image), "bytes": image.size}


@methods.method("image.detach", w.PathParams, "ImageDetachResult")
def image_detach(client: GatewayClient, params: w.PathParams) -> dict[str, Any]:
    detached, count = attachments.detach(client.session(params.session_id), params.path)
    return {"detached": detached, "count": count}


@methods.method("clipboard.paste", s.KeyedSessionParams, "ImageAttachResult")
async def clipboard_paste(client: GatewayClient, params: s.KeyedSessionParams) -> dict[str, Any]:
    """The image on the clipboard of the gateway's own machine."""
    session = client.session(params.session_id)
    data = await clipboard_image(client.server.services)
    if not data:
        return {"attached": False, "message": "there is no image on the clipboard"}
    image = await attachments.keep_image(session, data, None, "png")
    return {**image_result(image), "bytes": image.size}


@methods.method("file.attach", w.FileAttachParams, "FileAttachResult")
async def file_attach(client: GatewayClient, params: w.FileAttachParams) -> dict[str, Any]:
    session = client.session(params.session_id)
    file = await attachments.attach_file(session, params.path, params.data_url, params.name)
    return {
        "attached": True,
        "name": Path(file.path).name,
        "path": file.path,
        "ref_path": file.reference,
        "ref_text": f"@file:{file.reference}",
        "uploaded": file.uploaded,
    }


@methods.method("input.detect_drop", w.InputDetectDropParams, "InputDetectDropResult")
async def detect_drop(client: GatewayClient, params: w.InputDetectDropParams) -> dict[str, Any]:
    """Whether a text is a dropped file: an image is queued, any other file becomes a reference in the prompt."""
    session = client.session(params.session_id)
    named = dropped_path(params.text)
    if named is None:
        return {"matched": False}
    path = attachments.full_path(session, named.path)
    if await is_file(whole := attachments.full_path(session, params.text.strip())):
        # Some terminals write a path with spaces as it is.
        path, named = whole, DroppedPath(params.text.strip(), "")
    elif not await is_file(path):
        return {"matched": False}
    if attachments.names_image(path):
        try:
            image, remainder = await attachments.attach_image(session, params.text)
        except HermesError:
            return {"matched": False}
        found = image_result(image)
        kept = ("path", "name", "count", "width", "height", "token_estimate")
        shown = {name: found[name] for name in kept if name in found}
        return {"matched": True, "is_image": True, "text": remainder, **shown}
    beside = os.path.relpath(path, session.memory.cwd)  # noqa: ASYNC240 (touches no file)
    reference = beside if path.startswith(session.memory.cwd + os.sep) else path
    text = f"@file:{reference} {named.remainder}".strip()
    return {"matched": True, "is_image": False, "path": path, "name": Path(path).name, "text": text}


@methods.method("paste.collapse", w.PasteCollapseParams, "PasteCollapseResult")
async def paste_collapse(client: GatewayClient, params: w.PasteCollapseParams) -> dict[str, Any]:
    if not params.text:
        raise EmptyText("there is nothing to paste")
    client.pastes += 1
    services = client.server.services
    return await attachments.collapse_paste(services.home, client.pastes, params.text, services.clock())
