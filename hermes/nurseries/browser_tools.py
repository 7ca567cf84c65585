"""The ``browser_…`` tools of a turn whose conversation has a browser attached: each call is one command to it.

They exist only where a controller was registered for exactly this conversation; what it does not offer fails, and no
other browser is ever used instead. Files go to and from the page as artifacts, which the browser fetches and hands over
by the artifact routes; they never touch the disk.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.agent.ports import ParallelClass, Tool, ToolContext, ToolFailure, ToolFlags, ToolOutput, ToolSpec
from hermes.messages import ImagePart, Prompt
from hermes.nurseries.artifacts import MAX_BYTES, Artifacts
from hermes.nurseries.browser_broker import BrowserBroker, BrowserFailure, Lane

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}

# Action → what it does, and its arguments (those that must be given first).
ACTIONS: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "browser_navigate": ("Open a URL in the user's browser.", {"url": _TEXT}, ("url",)),
    "browser_back": ("Go back one page.", {}, ()),
    "browser_snapshot": ("The text and the elements of the current page.", {"full": {"type": "boolean"}}, ()),
    "browser_screenshot": ("A picture of the current page.", {}, ()),
    "browser_click": ("Click an element of the last snapshot.", {"ref": _TEXT}, ("ref",)),
    "browser_type": ("Type text into an element.", {"ref": _TEXT, "text": _TEXT}, ("ref", "text")),
    "browser_press": ("Press a key.", {"key": _TEXT}, ("key",)),
    "browser_scroll": ("Scroll the page.", {"direction": {"type": "string", "enum": ["up", "down"]}}, ("direction",)),
    "browser_tabs": ("List the open tabs.", {}, ()),
    "browser_tab_activate": ("Bring a tab to the front.", {"tab_id": _NUMBER}, ("tab_id",)),
    "browser_evaluate": ("Evaluate JavaScript in the page.", {"expression": _TEXT}, ("expression",)),
    "browser_cdp": ("Send a DevTools command.", {"method": _TEXT, "params": {"type": "object"}}, ("method",)),
}


ARTIFACT_ACTIONS: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "browser_artifact_upload": (
        "Put a text file into a file field of the page.",
        {"ref": _TEXT, "filename": _TEXT, "content": _TEXT},
        ("ref", "filename", "content"),
    ),
    "browser_artifact_download": (
        "Fetch a small file (text, JSON, image, PDF) that the page links to.",
        {"ref": _TEXT, "url": _TEXT},
        (),
    ),
}
TEXT_TYPES = ("text/plain", "application/json")


class BrowserTool:
    """One action of an attached browser."""

    def __init__(self, broker: BrowserBroker, lane: Lane, action: str) -> None:
        description, properties, required = ACTIONS.get(action) or ARTIFACT_ACTIONS[action]
        self._broker = broker
        self._lane = lane
        self._action = action
        parameters = {"type": "object", "properties": dict(properties), "required": list(required)}
        self.spec = ToolSpec(action, description, parameters)
        self.flags = ToolFlags(parallel=ParallelClass.BARRIER, untrusted_output=True, toolset="browser", kind="fetch")

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> str | ToolOutput:
        return self._text(await self._command(ctx, arguments))

    async def _command(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> Any:
        try:
            answer = await self._broker.dispatch(self._lane, self._action, arguments, ctx.call_id)
        except BrowserFailure as failure:
            raise ToolFailure(str(failure)) from None
        return answer.get("result")

    @staticmethod
    def _text(result: Any) -> str:
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)

    def preview(self, arguments: Mapping[str, Any]) -> str:
        return str(next(iter(arguments.values()), self._action))[:80]

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return ()


class ArtifactTool(BrowserTool):
    """An action that carries a file. Who may take the artifact: this conversation's principal, on its side."""

    def __init__(self, broker: BrowserBroker, lane: Lane, action: str, artifacts: Artifacts) -> None:
        super().__init__(broker, lane, action)
        self._artifacts = artifacts
        self._owner = (lane.principal_id, lane.transport_family)


class ArtifactUpload(ArtifactTool):
    """The model's text becomes an artifact; the browser is told where to fetch it, once."""

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        data = _encoded(arguments, "content")
        _encoded(arguments, "filename")
        if len(data) > MAX_BYTES:
            raise ToolFailure(f"a file for the browser may have {MAX_BYTES} bytes at most")
        held = self._artifacts.put(self._owner, str(arguments["filename"])[:160], TEXT_TYPES[0], data)
        told = {
            "ref": arguments["ref"],
            "artifact_id": held.artifact_id,
            "filename": held.filename,
            "content_type": held.content_type,
            "size_bytes": len(data),
            "sha256": held.sha256,
            "download_path": f"/v1/artifacts/download/{held.artifact_id}",
        }
        try:
            return self._text(await self._command(ctx, told))
        finally:
            # What the browser has not fetched by now, nobody fetches any more.
            self._artifacts.take(held.artifact_id)


def _encoded(arguments: Mapping[str, Any], name: str) -> bytes:
    try:
        return str(arguments[name]).encode()
    except UnicodeEncodeError:
        raise ToolFailure(f"{name} holds half a character (a lone surrogate)") from None


class ArtifactDownload(ArtifactTool):
    """The browser hands the file over as an artifact and answers with its id; what can be shown, the model gets."""

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> str | ToolOutput:
        if not arguments.get("ref") and not arguments.get("url"):
            raise ToolFailure("name the file: ref of a link in the last snapshot, or url")
        result = await self._command(ctx, arguments)
        named = result.get("artifact_id") if isinstance(result, Mapping) else None
        held = self._artifacts.look(named) if isinstance(named, str) else None
        if held is None or held.owner != self._owner or self._artifacts.is_expired(held):
            raise ToolFailure("the browser answered without handing a file over")
        self._artifacts.take(held.artifact_id)
        facts = f"{held.filename} ({held.content_type}, {len(held.data)} bytes, sha256 {held.sha256})"
        if held.content_type in TEXT_TYPES:
            return f"{facts}\n\n{held.data.decode('utf-8', 'replace')}"
        if held.content_type.startswith("image/"):
            picture = ImagePart(held.content_type, base64.b64encode(held.data).decode())
            return ToolOutput(facts, images=(picture,))
        return f"{facts}\n\nIts content cannot be shown here."


def browser_tools(broker: BrowserBroker, lane: Lane, artifacts: Artifacts | None = None) -> list[Tool]:
    """The tools of this lane: none where no browser was ever registered. Without ``artifacts`` no file goes across."""
    capabilities = broker.registered(lane)
    if capabilities is None:
        return []
    tools: list[Tool] = [BrowserTool(broker, lane, action) for action in ACTIONS if action in capabilities]
    if artifacts is not None:
        kinds = (("browser_artifact_upload", ArtifactUpload), ("browser_artifact_download", ArtifactDownload))
        tools += [kind(broker, lane, action, artifacts) for action, kind in kinds if action in capabilities]
    return tools


def bind_guests(tools: list[Tool], prompt: Prompt) -> None:
    """When a turn begins: the browser tools of the last turn's submitter go, those of this one's come."""
    own = [tool for tool in tools if not isinstance(tool, BrowserTool)]
    guests = prompt.guest_tools() if prompt.guest_tools is not None else ()
    tools[:] = [*own, *guests]
