"""What the system prompt of a session is built from: files of the project and the home, read in a thread.

Reads only; decides nothing. ``agent.prompt`` assembles the text, ``agent.context_files`` chooses the files.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import trio

from hermes.agent.context_files import DirectoryHints, find_context_files, render_context_files, size_limit
from hermes.agent.injection_scan import scan
from hermes.agent.model_catalog import plain_name
from hermes.agent.path_rules import PathPolicy, may_read, may_write
from hermes.agent.ports import ResolvedModel, ToolSet
from hermes.agent.prompt import PromptFacts, assemble
from hermes.agent.tools.memory import FILES, read_entries
from hermes.agent.tools.skill_library import (
    Skill,
    discover,
    read_skill_file,
    skill_roots,
    slug_of,
    split_front_matter,
)
from hermes.nurseries.session import Session
from hermes.settings import Settings

MAX_FILE_BYTES = 2_000_000
MAX_HINT_BYTES = 128_000
PROBE_EVERY = 60.0
"""Seconds for which the programs that were found are taken to be there."""
DESCRIBING_FAMILIES = ("gpt", "codex", "gemini", "gemma", "grok", "qwen", "glm", "deepseek")
"""Models that rather tell what they would do than do it, unless they are told to act."""
HOSTS: Mapping[str, str] = {"acp": "acp", "api_server": "api", "http": "api"}


class ProjectFiles:
    """``context_files.FileReader`` over the disk, through the read rules."""

    def __init__(self, policy: PathPolicy, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._policy = policy
        self._max_bytes = max_bytes

    def read(self, path: str) -> str | None:
        if not os.path.isfile(path):
            # Most that are looked for are not there; following links and rules costs ten times as much.
            return None
        real = Path(os.path.realpath(path))
        if may_read(real, self._policy).verdict != "allow" or self._leads_to_secrets(path, real):
            return None
        try:
            if not real.is_file() or real.stat().st_size > self._max_bytes:
                return None
            return real.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def _leads_to_secrets(self, path: str, real: Path) -> bool:
        """A link in a repository must not put credentials of the machine into the prompt, where nobody is asked."""
        return str(real) != os.path.normpath(path) and may_write(real, self._policy).verdict == "deny"

    def names(self, directory: str) -> Sequence[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError:
            return ()


class PromptSources:
    """``services.PromptBuilder``: gathers the facts and assembles the prompt."""

    def __init__(self, home: Path, user_home: Path, settings: Settings) -> None:
        self._home = home
        # Followed like the paths that are held against it.
        self._policy = PathPolicy(user_home, home.resolve())
        self._ignore_rules = settings.host.ignore_rules
        self._environment = ("", float("-inf"))

    async def __call__(
        self, session: Session, *, tools: ToolSet, resolved: ResolvedModel, system_extra: str | None
    ) -> tuple[str, ...]:
        settings = session.services.settings()
        started = session.stored.started_at or session.services.clock()
        personality = session.stored.model_config.get("personality")
        facts = PromptFacts(
            model=resolved.model,
            provider=resolved.provider,
            cwd=session.memory.cwd,
            date=time.strftime("%Y-%m-%d", time.localtime(started)),
            time_zone=time.tzname[0],
            host=HOSTS.get(session.stored.source, "tui"),
            tools=tuple(tools.names()),
            system_message=system_extra,
            personality=personality if isinstance(personality, str) else None,
        )
        return await trio.to_thread.run_sync(self._assemble, facts, settings, resolved.context_length)

    def _assemble(self, facts: PromptFacts, settings: Settings, window: int) -> tuple[str, ...]:
        root = git_root(facts.cwd)
        reader = ProjectFiles(self._policy)
        context = ""
        if not self._ignore_rules:
            limit = size_limit(window, settings.context_file_max_chars)
            context = render_context_files(find_context_files(reader, facts.cwd, root), limit, scan)
        roots = skill_roots(
            self._home,
            facts.cwd,
            trusted=settings.skills.trusted_project_dirs,
            create_dir=settings.skills.create_dir,
            external=settings.skills.external_dirs,
        )
        found = discover(roots)
        complete = replace(
            facts,
            identity=settings.agent.system_prompt or reader.read(str(self._home / "SOUL.md")),
            auto_skills=tuple(_bodies(found, settings.skills.auto_load)),
            task_completion=_switched(settings.agent.task_completion_guidance, auto=True),
            parallel_guidance=_switched(settings.agent.parallel_tool_call_guidance, auto=True),
            family_needs_enforcement=_switched(
                settings.agent.tool_use_enforcement, auto=plain_name(facts.model).startswith(DESCRIBING_FAMILIES)
            ),
            code_workspace=_switched(settings.agent.coding_context, auto=root is not None),
            environment=self._probed() if settings.agent.environment_probe else "",
            context_files=context,
            workspace=f"Git repository: {root}{branch_note(root)}" if root else "",
            skills=tuple((skill.qualified, skill.description) for skill in found),
            memory=self._notes(settings, "memory"),
            user_profile=self._notes(settings, "user"),
        )
        return assemble(complete).tiers

    def _probed(self) -> str:
        """Programs come and go seldom; looking for them takes a third of the time of a whole prompt."""
        text, at = self._environment
        if time.monotonic() - at > PROBE_EVERY:
            text = environment()
            self._environment = (text, time.monotonic())
        return text

    def directory_hints(self, cwd: str) -> DirectoryHints | None:
        """Instruction files below the working tree of ``cwd``, beyond those that the prompt holds (TL-11).

        Blocking, as is what it returns: at most six directories are read that were not touched before.
        """
        if self._ignore_rules:
            return None
        root = git_root(cwd)
        reader = ProjectFiles(self._policy, max_bytes=MAX_HINT_BYTES)
        known = [file.path for file in find_context_files(reader, cwd, root)]
        return DirectoryHints(reader, cwd, scan, root=root or cwd, already=known)

    def _notes(self, settings: Settings, target: str) -> str:
        enabled = settings.memory.memory_enabled if target == "memory" else settings.memory.user_profile_enabled
        return "\n".join(read_entries(self._home / "memories" / FILES[target])) if enabled else ""


def git_root(cwd: str) -> str | None:
    """The repository a directory is in, without running git."""
    folder = str(Path(cwd))
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder or "."


def git_branch(root: str | None) -> str | None:
    """The branch that is checked out, read from ``HEAD``."""
    if root is None:
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        head = (Path(root) / ".git" / "HEAD").read_text(encoding="utf-8").strip()
        if head.startswith("ref: refs/heads/"):
            return head.removeprefix("ref: refs/heads/")
    return None


def branch_note(root: str | None) -> str:
    branch = git_branch(root)
    return f", branch {branch}" if branch else ""


def environment() -> str:
    """Operating system, shell and package tools, one line each."""
    tools = [name for name in ("git", "rg", "python3", "node", "uv", "pip", "npm", "cargo", "go") if shutil.which(name)]
    return f"Operating system: {platform.system()} {platform.release()}\nPrograms found: {', '.join(tools)}"


def _switched(word: str, *, auto: bool) -> bool:
    return auto if word == "auto" else word == "on"


def _bodies(found: Sequence[Skill], wanted: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and text of the skills that every session starts with; names of none are passed over."""
    for name in wanted:
        skill = next((one for one in found if slug_of(name) == one.slug or name == one.qualified), None)
        content = read_skill_file(skill.directory, "SKILL.md") if skill is not None else None
        if skill is not None and content is not None:
            yield skill.name, split_front_matter(content)[1]
