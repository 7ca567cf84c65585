"""MCP tools as the loop sees them: names, schemas, results; and the tool itself, which only asks its server.

What a server says is data from outside: names are reduced and cut, schemas are copied within bounds and without
cycles, results are text and images and nothing else. Each tool of a listing is judged alone: one that cannot be used
costs no other, and is named.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from hermes.agent.ports import ParallelClass, ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.tool_display import tool_preview
from hermes.messages import ImagePart
from hermes.nurseries.mcp_config import McpServerConfig
from hermes.records import dataclass

MAX_NAME = 64
MAX_TOOLS = 512
MAX_DESCRIPTION = 8_000
MAX_SCHEMA_NODES = 4_000
MAX_SCHEMA_DEPTH = 40
MAX_IMAGES = 8
MAX_IMAGE_CHARS = 8 * 1024 * 1024
RESULT_CHARS = 50_000
SHOWN_NAMES = 5
SHOWN_CHARS = 60

JsonObject = Mapping[str, Any]


class ToolServer(Protocol):
    """What a tool needs of the server that offers it."""

    config: McpServerConfig

    async def call(self, tool: str, arguments: JsonObject, on_progress: Callable[[str], None]) -> ToolOutput:
        """One call. Raises ``ToolFailure``; a cancel is passed on to the server."""
        ...


class McpTool:
    """One tool of one server. Implements ``ports.Tool``."""

    def __init__(self, server: ToolServer, remote_name: str, spec: ToolSpec) -> None:
        self.spec = spec
        self.remote_name = remote_name
        self._server = server
        self.flags = ToolFlags(
            parallel=ParallelClass.FREE if server.config.parallel else ParallelClass.BARRIER,
            untrusted_output=True,
            result_limit=RESULT_CHARS,
            toolset=f"mcp-{server.config.name}",
        )

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        return await self._server.call(self.remote_name, arguments, ctx.progress)

    def preview(self, arguments: Mapping[str, Any]) -> str:
        return tool_preview(self.spec.name, arguments)

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return ()


@dataclass(frozen=True, slots=True)
class Offer:
    """What a listing comes to. ``notice`` says which tools of it cannot be used, and why; "" when all can."""

    tools: tuple[McpTool, ...] = ()
    notice: str = ""


def tools_from_listing(server: ToolServer, listing: Sequence[Any]) -> Offer:
    """The tools of a listing (``{name, description, inputSchema}`` each) that can be used and that the configuration
    lets through."""
    tools: dict[str, McpTool] = {}
    left_out: list[str] = []
    seen: set[str] = set()
    for number, entry in enumerate(listing, start=1):
        remote = entry.get("name") if isinstance(entry, Mapping) else None
        if isinstance(remote, str) and remote and not server.config.offers(remote):
            continue
        problem = _problem(entry, seen)
        name = "" if problem else _free_name(server.config.name, str(remote), tools)
        if not name:
            label = shown(remote) if isinstance(remote, str) and remote else f"no. {number}"
            left_out.append(f"{label} ({problem or 'its name would be that of another tool'})")
            continue
        if len(tools) >= MAX_TOOLS:
            left_out.append(f"all from {shown(str(remote))} on (more than {MAX_TOOLS} are too many)")
            break
        seen.add(str(remote))
        tools[name] = McpTool(server, str(remote), ToolSpec(name, _description(entry), plain_schema(_schema(entry))))
    return Offer(tuple(tools.values()), notice_of(left_out))


def notice_of(left_out: Sequence[str]) -> str:
    """In one sentence, the first few by name; "" for nothing."""
    if not left_out:
        return ""
    more = len(left_out) - SHOWN_NAMES
    return "tools that cannot be used: " + ", ".join(left_out[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def shown(name: str) -> str:
    """A name from outside for a person: printable, in quotes, not too long."""
    return repr(name[:SHOWN_CHARS]) + ("…" if len(name) > SHOWN_CHARS else "")


def _problem(entry: Any, seen: Collection[str]) -> str:
    """Why this entry of a listing is no tool; "" if it is one."""
    if not isinstance(entry, Mapping):
        return "it is not an object"
    name, schema = entry.get("name"), _schema(entry)
    if not isinstance(name, str) or not name:
        return "it has no name"
    if name in seen:
        return "it is there twice"
    if schema is not None and (not isinstance(schema, Mapping) or schema.get("type", "object") != "object"):
        return "its inputSchema is not the schema of an object"
    properties = None if schema is None else schema.get("properties")
    if properties is None:
        return ""
    # A provider refuses the whole request for one property without a schema.
    sound = isinstance(properties, Mapping) and all(isinstance(one, Mapping | bool) for one in properties.values())
    return "" if sound else "the properties of its inputSchema are not schemas"


def _schema(entry: JsonObject) -> Any:
    return entry.get("inputSchema")


def _description(entry: JsonObject) -> str:
    words = (entry.get("description"), entry.get("title"), entry["name"])
    return next(word for word in words if isinstance(word, str) and word)[:MAX_DESCRIPTION]


def _free_name(server: str, tool: str, taken: Collection[str]) -> str:
    names = (tool_name(server, tool), tool_name(server, tool, distinct=True))
    return next((name for name in names if name not in taken), "")


def tool_name(server: str, tool: str, *, distinct: bool = False) -> str:
    """``mcp__<server>__<tool>`` in letters, digits, ``_`` and ``-``, at most 64 characters.

    A longer name, and one that would be another tool's (``distinct``), ends in a hash of what it stands for.
    """
    name = f"mcp__{_reduced(server)}__{_reduced(tool)}"
    if len(name) <= MAX_NAME and not distinct:
        return name
    mark = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{mark}"


def _reduced(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", part) or "_"


def plain_schema(schema: Any) -> dict[str, Any]:
    """A copy with an object at its root, local references put in place, and nothing that refers to itself.

    What cannot be resolved, nests too deep or is too much becomes ``{}``: anything goes.
    """
    if not isinstance(schema, Mapping):
        return {"type": "object", "properties": {}}
    plain = _Copier(schema).copy(schema, (), 0)
    if not isinstance(plain, dict):
        plain = {}
    for key in ("$schema", "$id", "$defs", "definitions"):
        plain.pop(key, None)
    plain["type"] = "object"
    if not isinstance(plain.get("properties"), dict):
        plain["properties"] = {}
    required = plain.get("required")
    if required is not None and not (isinstance(required, list) and all(isinstance(one, str) for one in required)):
        del plain["required"]
    return plain


class _Copier:
    """Copies one schema; ``path`` are the references that are being resolved, to see a cycle."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._left = MAX_SCHEMA_NODES

    def copy(self, node: Any, path: tuple[str, ...], depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_SCHEMA_DEPTH:
            return {}
        if isinstance(node, Mapping):
            reference = node.get("$ref")
            if isinstance(reference, str):
                return self._resolved(node, reference, path, depth)
            return {
                str(key): self.copy(value, path, depth + 1)
                for key, value in node.items()
                if not (depth == 0 and key in ("$defs", "definitions"))
            }
        if isinstance(node, list | tuple):
            return [self.copy(value, path, depth + 1) for value in node]
        return node

    def _resolved(self, node: JsonObject, reference: str, path: tuple[str, ...], depth: int) -> Any:
        target = self._target(reference)
        if reference in path or not isinstance(target, Mapping):
            return {key: value for key, value in node.items() if key in ("description", "title")}
        copied = self.copy(target, (*path, reference), depth + 1)
        beside = {key: value for key, value in node.items() if key != "$ref"}
        if beside and isinstance(copied, dict):
            copied = {**copied, **self.copy(beside, path, depth + 1)}
        return copied

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, Mapping) else None
        return found


def tool_output(result: JsonObject) -> ToolOutput:
    """What the model gets of a ``tools/call`` result."""
    texts: list[str] = []
    images: list[ImagePart] = []
    for block in result.get("content") or ():
        _add_block(block, texts, images)
    structured = result.get("structuredContent")
    if structured is not None and not texts and not images:
        texts.append(json.dumps(structured, ensure_ascii=False))
    failed = bool(result.get("isError"))
    text = "\n".join(texts) or ("the tool failed without a message" if failed else "")
    return ToolOutput(text, is_error=failed, status="error" if failed else "ok", images=tuple(images))


def _add_block(block: JsonObject, texts: list[str], images: list[ImagePart]) -> None:
    match block.get("type"):
        case "text":
            texts.append(str(block.get("text", "")))
        case "image":
            data, kind = str(block.get("data", "")), str(block.get("mimeType", ""))
            if len(images) < MAX_IMAGES and len(data) <= MAX_IMAGE_CHARS and kind.startswith("image/"):
                images.append(ImagePart(kind, data=data))
            else:
                texts.append(f"[an image of {len(data)} characters ({kind}) was left out]")
        case "resource":
            resource = block.get("resource") or {}
            where = resource.get("uri", "")
            texts.append(str(resource["text"]) if "text" in resource else f"[binary resource {where} was left out]")
        case "resource_link":
            texts.append(f"[resource {block.get('name', '')}: {block.get('uri', '')}]")
        case other:
            texts.append(f"[content of type {other} was left out]")
