"""The system prompt: three tiers, most stable first, built once per session and then reused byte for byte (§1.5).

Pure. Everything that could differ from one build to the next comes in as a ``PromptFacts``; nothing finer than a date
is in it (TL-10), so a session that is resumed tomorrow still sends the bytes that the provider has cached.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from hermes.agent.prompt_identity import MODEL_LINE, PROVIDER_LINE
from hermes.agent.steering import STEER_EXPLANATION
from hermes.records import dataclass

DEFAULT_IDENTITY = (
    "You are Hermes, an agent that works on the user's computer through tools. You are direct, careful and honest: you "
    "say what you did, what you found and what you are not sure of."
)
HELP_NOTE = "If the user asks what you can do, name your tools and the slash command /help."
TASK_COMPLETION = (
    "Work until the task is done. Check the result with your tools before you say that it is done. If you cannot "
    "go on, say what stands in the way."
)
PARALLEL_TOOLS = (
    "Calls that do not depend on each other belong in one message: reads and searches in it run side by side."
)
CODING_BRIEF = (
    "You work in a code repository. Read before you edit, keep to the style of the surrounding code, make the smallest "
    "change that solves the task, and run the tests that exist."
)
TOOL_USE_ENFORCEMENT = "When a tool is needed, call it; do not describe the call or write its arguments as text."

TOOL_GUIDANCE: Mapping[str, str] = MappingProxyType(
    {
        "memory": "Keep facts that will matter in later sessions with `memory`; not what is only about this task.",
        "session_search": "Use `session_search` when the user refers to earlier work that is not in this conversation.",
        "skill_view": "When a skill of the list fits the task, read it with `skill_view` before you begin.",
        "delegate_task": "Give independent pieces of work to `delegate_task`; each task must make sense on its own.",
        "todo_list": "Keep the steps of longer work in `todo_list` and keep it current.",
        "clarify": "Ask with `clarify` only when a decision is really the user's; otherwise choose and say so.",
    }
)
HOST_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "tui": "You are used from a terminal: short answers, plain Markdown.",
        "acp": "You are used from a code editor, which shows your edits as diffs: do not repeat them in the answer.",
        "api": "You are used through an API: there may be nobody who answers questions.",
    }
)
CWD_LINE = "Working directory: "
_CONTEXT_TITLE = "# Context"
_SESSION_TITLE = "# Session"
_MARK = "\x1e"
"""Stands before each tier but the first, in the stored form only; taken out of whatever goes into a prompt."""


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """What the prompt of one session is built from."""

    model: str
    provider: str
    cwd: str
    date: str
    time_zone: str = "UTC"
    host: str = "tui"
    session_key: str | None = None
    tools: Collection[str] = ()
    identity: str | None = None
    """The user's own SOUL.md."""
    family_needs_enforcement: bool = False
    code_workspace: bool = False
    environment: str = ""
    """Operating system, shell, package tools: one line each."""
    auto_skills: Sequence[tuple[str, str]] = ()
    system_message: str | None = None
    context_files: str = ""
    workspace: str = ""
    """Git root, branch, dirty count, as they were when the session began."""
    skills: Sequence[tuple[str, str]] = ()
    memory: str = ""
    user_profile: str = ""
    plugin_sections: Sequence[str] = ()
    personality: str | None = None
    task_completion: bool = True
    parallel_guidance: bool = True


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    stable: str
    context: str
    volatile: str

    @property
    def tiers(self) -> tuple[str, ...]:
        """For ``ModelRequest.system``: the stable tier and the rest; empty ones are left out."""
        rest = "\n\n".join(part for part in (self.context, self.volatile) if part)
        return tuple(part for part in (self.stable, rest) if part)

    def join(self) -> str:
        """The form in which it is stored."""
        return stored_form(self.tiers)


def assemble(facts: PromptFacts) -> SystemPrompt:
    """Build the prompt. The same facts give the same bytes."""
    return SystemPrompt(*(tier.replace(_MARK, "") for tier in (_stable(facts), _context(facts), _volatile(facts))))


def stored_form(tiers: Sequence[str]) -> str:
    """The tiers as one text that ``restore`` takes apart again, whatever headings the user's own files have."""
    return f"\n\n{_MARK}".join(tiers)


def restore(stored: str) -> tuple[str, ...]:
    """The tiers of a stored prompt, byte for byte as they were sent."""
    if _MARK in stored:
        return tuple(stored.split(f"\n\n{_MARK}"))
    # Stored before tiers were marked: the titles are looked for, and a file of the user's may have the same.
    positions = [stored.find(f"\n\n{title}\n\n") for title in (_CONTEXT_TITLE, _SESSION_TITLE)]
    found = [position for position in positions if position >= 0]
    if not found:
        return (stored,) if stored else ()
    at = min(found)
    return stored[:at], stored[at + 2 :]


def fits(stored: str, *, cwd: str, system_message: str | None, personality: str | None) -> bool:
    """True if a stored prompt still holds what the session needs; the lines of the model are written anew anyway."""
    lines = stored.rsplit("\n\n", 1)[-1].splitlines()
    session = stored[stored.rfind(f"\n\n{_SESSION_TITLE}\n\n") :]
    voice = f"\n\nPersonality: {personality}\n" if personality else ""
    return (
        f"{CWD_LINE}{cwd}" in lines
        and (system_message or "").strip() in stored
        and (voice in session if voice else "\n\nPersonality: " not in session)
    )


def mentions_session(stored: str, session_key: str) -> bool:
    """True if a branch must rebuild this prompt, because it names the session it was built for (TL-7)."""
    return session_key in stored


def host_note(host: str) -> str:
    """The note at the tail that a resume in another host may add; it changes nothing before it."""
    return HOST_HINTS.get(host, "")


def _stable(facts: PromptFacts) -> str:
    parts: list[str] = [(facts.identity or DEFAULT_IDENTITY).strip(), HELP_NOTE]
    if facts.task_completion:
        parts.append(TASK_COMPLETION)
    if facts.parallel_guidance and facts.tools:
        parts.append(PARALLEL_TOOLS)
    parts += [text for tool, text in TOOL_GUIDANCE.items() if tool in facts.tools]
    parts.append(STEER_EXPLANATION)
    if facts.family_needs_enforcement and facts.tools:
        parts.append(TOOL_USE_ENFORCEMENT)
    parts += [f"## Skill {name}\n\n{body.strip()}" for name, body in facts.auto_skills]
    if facts.code_workspace:
        parts.append(CODING_BRIEF)
    parts += [facts.environment.strip(), HOST_HINTS.get(facts.host, "")]
    return _paragraphs(parts)


def _context(facts: PromptFacts) -> str:
    parts = [(facts.system_message or "").strip(), facts.context_files.strip(), facts.workspace.strip()]
    body = _paragraphs(parts)
    return f"{_CONTEXT_TITLE}\n\n{body}" if body else ""


def _volatile(facts: PromptFacts) -> str:
    parts: list[str] = []
    if facts.skills:
        index = "\n".join(f"- {name}: {' '.join(description.split())}" for name, description in facts.skills)
        parts.append(f"Skills, to be read with skill_view when they fit:\n{index}")
    if facts.memory.strip():
        parts.append(f"What you remember from earlier sessions:\n{facts.memory.strip()}")
    if facts.user_profile.strip():
        parts.append(f"About the user:\n{facts.user_profile.strip()}")
    parts += [section.strip() for section in facts.plugin_sections]
    if facts.personality:
        parts.append(f"Personality: {facts.personality}")
    lines = [
        f"Conversation started: {facts.date} ({facts.time_zone})",
        f"{MODEL_LINE}{facts.model}",
        f"{PROVIDER_LINE}{facts.provider}",
        f"Host: {facts.host}",
    ]
    if facts.session_key:
        lines.append(f"Session: {facts.session_key}")
    lines.append(f"{CWD_LINE}{facts.cwd}")
    parts.append("\n".join(lines))
    return f"{_SESSION_TITLE}\n\n{_paragraphs(parts)}"


def _paragraphs(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part)
