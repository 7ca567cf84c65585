"""search_files: find text in files, or files by name. With ripgrep where it is installed."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from hermes.agent.path_rules import may_read
from hermes.agent.ports import (
    ParallelClass,
    ProcessOutcome,
    ProcessRequest,
    ToolContext,
    ToolFlags,
    ToolOutput,
    ToolSpec,
)
from hermes.agent.redaction import SENTINEL, key_lines, redact_file
from hermes.agent.tools.base import BuiltinTool, absolute, choice, failure, is_text, number, parameters, result, text
from hermes.agent.tools.search_walk import MAX_LINE, VCS, Found, Walk, glob_matches, may_take_for_ever, text_lines
from hermes.errors import HermesError

_TIMEOUT = 60.0
_MAX_HITS = 5000
_DENSE_FROM = 5
_MAX_OUTPUT = 16_000_000


class SearchFiles(BuiltinTool):
    spec = ToolSpec(
        "search_files",
        "Search the content of files with a regular expression, or find files by a glob (target: files). Hidden "
        "and ignored files are left out.",
        parameters(
            {
                "pattern": text("The regular expression; with target: files a glob such as *.py."),
                "target": choice("What to search.", "content", "files", default="content"),
                "path": text("Directory or file to search in.", default="."),
                "file_glob": text("Only files whose name matches this glob."),
                "limit": number("Number of results.", minimum=1, maximum=1000, default=50),
                "offset": number("Results to skip.", minimum=0, default=0),
                "order": choice("Order of files.", "discovery", "modified", default="discovery"),
                "output_mode": choice("Form of the result.", "content", "files_only", "count", default="content"),
                "context": number("Lines of context around each hit.", minimum=0, maximum=20, default=0),
            },
            "pattern",
        ),
    )
    flags = ToolFlags(ParallelClass.PATH_READ, read_only=True, toolset="files", kind="search")

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return (str(arguments.get("path") or "."),)

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        root = absolute(ctx, str(arguments.get("path") or "."))
        try:
            there, usable = root.exists(), root.is_dir() or root.is_file()
        except OSError as error:
            raise failure(f"{root} cannot be searched: {error.strerror or error}") from None
        if not there:
            raise failure(f"{root} does not exist")
        if not usable:
            raise failure(f"{root} is neither a directory nor a regular file")
        by_name = arguments.get("target") == "files"
        pattern = str(arguments["pattern"])
        if "\0" in pattern or not is_text(pattern, errors="surrogateescape"):
            raise failure("the pattern holds a NUL or half a character (a lone surrogate)")
        try:
            compiled = None if by_name else re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            compiled = None
            if self.services.ripgrep is None:
                raise failure(f"the pattern is no valid regular expression: {error}") from None
        glob = pattern if by_name else arguments.get("file_glob")
        walk = Walk(
            root,
            str(glob) if glob else None,
            compiled,
            context=min(max(0, int(arguments.get("context") or 0)), 20),
            most=_MAX_HITS,
        )
        refused = None
        if self.services.ripgrep is not None and not by_name:
            refused = await self._ripgrep(ctx, walk, pattern)
            if refused is not None and compiled is None:
                raise failure(f"the pattern was refused: {refused}")
        if self.services.ripgrep is None or by_name or refused is not None:
            # Looking around and back references are in Python's dialect only.
            if not by_name and self.services.child is not None and may_take_for_ever(pattern):
                await self._in_child(ctx, walk, pattern)
            while not walk.done:
                await trio.to_thread.run_sync(walk.slice)
        await self._order(walk, arguments)
        await trio.to_thread.run_sync(self._hide, walk)
        if self.services.redact:
            await trio.to_thread.run_sync(_mask_keys, walk)
        return self._result(ctx, walk, arguments, by_name=by_name)

    async def _ripgrep(self, ctx: ToolContext, walk: Walk, pattern: str) -> str | None:
        """Search with ripgrep; returns what it has against the pattern, if anything."""
        argv = [
            str(self.services.ripgrep),
            "--json",
            "--no-config",
            "--no-require-git",
            "--max-filesize",
            "5M",
            "--crlf",
        ]
        # Of the ignore files only those that the walk reads too: the result must not depend on what is installed.
        argv += ["--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global"]
        argv += ["--sort", "path", "-C", str(walk.context)]
        for name in VCS:
            argv += ["--glob", f"!{name}/"]
        request = ProcessRequest(
            (*argv, "--regexp", pattern, "--", str(walk.root)),
            cwd=ctx.memory.cwd,
            env={"PATH": self.services.environment.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8"},
            timeout=_TIMEOUT,
            max_output_bytes=_MAX_OUTPUT,
        )
        outcome = await self._run(ctx, request)
        if outcome.exit_code == 2 and not outcome.output.startswith(b"{"):
            return outcome.output.decode("utf-8", "replace").strip()[:500]
        await trio.to_thread.run_sync(read_ripgrep, outcome.output, walk)
        return None

    async def _in_child(self, ctx: ToolContext, walk: Walk, pattern: str) -> None:
        """Python's own expressions: one of them may take for ever, and nothing else would run meanwhile."""
        assert self.services.child is not None
        arguments = {
            "root": str(walk.root),
            "glob": walk.glob,
            "pattern": pattern,
            "context": walk.context,
            "most": walk.most,
        }
        message = {"function": "hermes.agent.tools.search_walk:walk_alone", "arguments": arguments}
        request = ProcessRequest(
            self.services.child,
            cwd=ctx.memory.cwd,
            env={"PATH": self.services.environment.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8"},
            stdin=json.dumps(message).encode() + b"\n",
            timeout=_TIMEOUT,
            max_output_bytes=_MAX_OUTPUT,
        )
        outcome = await self._run(ctx, request)
        for line in outcome.output.splitlines():
            if line.startswith(b'{"result": '):
                answer = json.loads(line)["result"]
                walk.found += [Found(*one) for one in answer["found"]]
                walk.files += answer["files"]
                walk.counts.update(answer["counts"])
                walk.done = True
                return
        raise failure(f"the search broke off: {outcome.output[-400:].decode('utf-8', 'replace').strip()}")

    async def _run(self, ctx: ToolContext, request: ProcessRequest) -> ProcessOutcome:
        try:
            outcome = await ctx.run_process(request, lambda _chunk: None)
        except (OSError, HermesError) as error:
            raise failure(f"the search could not be started: {error}") from None
        if outcome.timed_out:
            raise failure(f"the search took longer than {_TIMEOUT:.0f} s; narrow the path or the pattern")
        return outcome

    async def _order(self, walk: Walk, arguments: Mapping[str, Any]) -> None:
        if arguments.get("order") != "modified":
            return
        times = await trio.to_thread.run_sync(_modified, walk.files)
        walk.files.sort(key=lambda path: -times.get(path, 0.0))
        walk.found.sort(key=lambda found: (-times.get(found.path, 0.0), found.path, found.line))

    def _hide(self, walk: Walk) -> None:
        """Files that may not be read are not searched either, whatever links lead to them. Blocking."""
        policy = self.services.path_policy("", protect_instructions=False)
        folders: dict[str, str] = {}

        def followed(path: str) -> str:
            folder, name = os.path.split(path)
            if os.path.islink(path):
                return os.path.realpath(path)
            if folder not in folders:
                folders[folder] = os.path.realpath(folder)
            return os.path.join(folders[folder], name)

        hidden = {path for path in walk.files if may_read(Path(followed(path)), policy).verdict == "deny"}
        walk.files[:] = [path for path in walk.files if path not in hidden]
        walk.found[:] = [found for found in walk.found if found.path not in hidden]
        for path in hidden:
            walk.counts.pop(path, None)

    def _result(self, ctx: ToolContext, walk: Walk, arguments: Mapping[str, Any], *, by_name: bool) -> ToolOutput:
        limit, offset = max(1, int(arguments.get("limit") or 50)), max(0, int(arguments.get("offset") or 0))
        mode = "files_only" if by_name else arguments.get("output_mode") or "content"
        cwd = ctx.memory.cwd
        if mode == "files_only":
            total = len(walk.files)
            body: dict[str, Any] = {"files": [_shown(path, cwd) for path in walk.files[offset : offset + limit]]}
        elif mode == "count":
            counted = [(path, count) for path, count in walk.counts.items() if count]
            total = sum(count for _, count in counted)
            body = {"counts": {_shown(path, cwd): count for path, count in counted[offset : offset + limit]}}
            return self._bounded(body, total, len(counted), offset, limit, walk)
        else:
            groups = _with_context(walk.found)
            total = len(groups)
            chosen = [found for group in groups[offset : offset + limit] for found in group]
            body = self._matches(chosen, cwd)
        return self._bounded(body, total, total, offset, limit, walk)

    def _bounded(self, body: dict[str, Any], total: int, items: int, offset: int, limit: int, walk: Walk) -> ToolOutput:
        body = {"total_count": total, **body}
        if items > offset + limit:
            body["truncated"] = True
            body["hint"] = f"{items - offset - limit} more results; go on with offset {offset + limit}"
        elif walk.full:
            body["truncated"] = True
            body["hint"] = "too many results; narrow the pattern or the path"
        return result(body, summary=f"{total} results")

    def _matches(self, chosen: Sequence[Found], cwd: str) -> dict[str, Any]:
        redacted = [(found, redact_file(found.content) if self.services.redact else found.content) for found in chosen]
        if len(chosen) < _DENSE_FROM:
            return {
                "matches": [
                    {"path": _shown(found.path, cwd), "line": found.line, "content": content}
                    for found, content in redacted
                ]
            }
        lines: list[str] = []
        current = ""
        for found, content in redacted:
            if found.path != current:
                current = found.path
                lines.append(_shown(current, cwd))
            lines.append(f"  {found.line}{':' if found.hit else '-'} {content}")
        return {"text": "\n".join(lines)}


def _mask_keys(walk: Walk) -> None:
    """A line of a private key shows by itself nothing that tells it from other text: its file has to be asked."""
    keys = {path: key_lines("\n".join(text_lines(path))) for path in {found.path for found in walk.found}}
    for place, found in enumerate(walk.found):
        if any(found.line in lines for lines in keys[found.path]):
            walk.found[place] = replace(found, content=SENTINEL)


def _with_context(found: Sequence[Found]) -> list[list[Found]]:
    """Hits with the context lines before them (and, for the last of a run, behind)."""
    groups: list[list[Found]] = []
    waiting: list[Found] = []
    for one in found:
        if one.hit:
            groups.append([*waiting, one])
            waiting = []
        elif groups and groups[-1][-1].path == one.path and groups[-1][-1].line == one.line - 1:
            groups[-1].append(one)
        else:
            waiting.append(one)
    return groups


def read_ripgrep(output: bytes, walk: Walk) -> None:
    """Take the results out of ``rg --json``; broken lines (a cut middle) are skipped."""
    for raw in output.split(b"\n"):
        try:
            message = json.loads(raw)
        except ValueError:
            continue
        data = message.get("data", {}) if isinstance(message, dict) else {}
        path = _text_in(data.get("path"), "surrogateescape")
        if walk.full and path != walk.found[-1].path:
            break
        if path and message["type"] == "end" and data.get("binary_offset") is not None:
            _forget(walk, path)
        if not path or message["type"] not in ("match", "context"):
            continue
        if walk.glob and not glob_matches(walk.glob, Path(path), walk.root):
            continue
        line = _text_in(data.get("lines"), "replace").rstrip("\r\n")
        hit = message["type"] == "match"
        if hit:
            if path not in walk.counts:
                walk.files.append(path)
            walk.counts[path] = walk.counts.get(path, 0) + 1
        if len(walk.found) < walk.most:
            walk.found.append(Found(path, int(data.get("line_number") or 0), line[:MAX_LINE], hit))
    walk.done = True


def _forget(walk: Walk, path: str) -> None:
    """A file that turned out to be binary behind its first hits."""
    if walk.counts.pop(path, None) is not None:
        walk.files.remove(path)
    walk.found[:] = [found for found in walk.found if found.path != path]


def _text_in(value: Any, errors: str) -> str:
    """The text of ripgrep's ``{"text": …}``, or ``{"bytes": …}`` (base64) for what is no UTF-8."""
    if not isinstance(value, dict):
        return ""
    if "bytes" in value:
        return base64.b64decode(value["bytes"]).decode("utf-8", errors)
    return str(value.get("text") or "")


def _modified(paths: Sequence[str]) -> dict[str, float]:
    times: dict[str, float] = {}
    for path in paths:
        try:
            times[path] = Path(path).stat().st_mtime
        except OSError:
            times[path] = 0.0
    return times


def _shown(path: str, cwd: str) -> str:
    return path[len(cwd.rstrip("/")) + 1 :] if path.startswith(cwd.rstrip("/") + "/") else path
