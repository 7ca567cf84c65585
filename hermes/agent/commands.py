"""Slash commands as data: the catalogue, how a typed line is read, which command it names (agent-core §8; gateway §8).

Pure. What a command does to a session is ``nurseries/command_runner.py``; what a host does by itself (``host``) is only
listed here. Every surface's list, help, completion and dispatch come from this one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Literal

from hermes.errors import CommandNotFound
from hermes.records import dataclass

Busy = Literal["reject", "run"]


@dataclass(frozen=True, slots=True)
class Command:
    """``args`` is the hint shown to people. ``busy``: refused or run while a turn runs. ``host``: the host acts, the
    server only says so when it is asked to run it."""

    name: str
    category: str
    description: str
    args: str = ""
    aliases: tuple[str, ...] = ()
    subcommands: tuple[str, ...] = ()
    busy: Busy = "run"
    host: bool = False

    @property
    def argument_mode(self) -> str | None:
        """``options``, ``text`` or ``mixed``; None without arguments."""
        if not self.args:
            return None
        if self.subcommands:
            return "mixed" if "prompt" in self.args or "text" in self.args else "options"
        return "text"


EFFORT_WORDS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

LONGEST_NAME: Final = 100
"""Characters of a name that are compared with those that there are: everybody waits for each of them."""

COMMANDS: Final[tuple[Command, ...]] = (
    Command("new", "Session", "Start a new session", "[name]", ("reset",), host=True),
    Command("clear", "Session", "Start a new session and clear the screen", host=True),
    Command("resume", "Session", "Resume a stored session", "[name]", host=True),
    Command("sessions", "Session", "Browse stored sessions", host=True),
    Command("history", "Session", "Show the conversation"),
    Command(
        "save", "Session", "Write the conversation to a file", "json|md|html [file] [redact]", ("export",),
        subcommands=("json", "md", "html"),
    ),
    Command("title", "Session", "Show or set the title", "[name]", ("rename",)),
    Command("branch", "Session", "Continue in a copy of this session", "[name]", ("fork",)),
    Command(
        "compress", "Session", "Summarize the older part of the conversation", "[here N|topic text|--preview]",
        ("compact",), busy="reject",
    ),
    Command("undo", "Session", "Take back the last turns", "[N]", busy="reject"),
    Command("retry", "Session", "Take back the last turn and send it again", busy="reject"),
    Command("rollback", "Session", "File checkpoints", "[n] [--all]", busy="reject"),
    Command("stop", "Session", "Stop the running turn and the background processes"),
    Command("steer", "Session", "Say something to the running turn", "text", ("s",)),
    Command(
        "queue", "Session", "Queue a prompt for the next turn", "prompt|list|edit N text|rm N|move A B|clear", ("q",),
        ("list", "edit", "rm", "move", "clear"),
    ),
    Command(
        "busy", "Configuration", "What a prompt does while a turn runs", "queue|steer|interrupt|status",
        subcommands=("queue", "steer", "interrupt", "status"),
    ),
    Command("bg", "Session", "Run a prompt in the background", "prompt", ("background",)),
    Command("btw", "Session", "Ask a side question", "question text"),
    Command("agents", "Session", "Subagents and processes", aliases=("tasks",)),
    Command("status", "Info", "Id, model, title, running state"),
    Command("usage", "Info", "Tokens and cost"),
    Command("context", "Info", "What fills the context window", aliases=("ctx",)),
    Command("help", "Info", "List the commands", "[filter]"),
    Command("profile", "Info", "Home directory and profile"),
    Command("whoami", "Info", "Who this server works for"),
    Command("version", "Info", "Version of the server", aliases=("v",)),
    Command("debug", "Info", "The live tree of this session"),
    Command("insights", "Info", "Sessions and messages of the last days", "[days]"),
    Command("diff", "Info", "Changes in the working directory", "[staged|--stat]", subcommands=("staged", "--stat")),
    Command("models", "Info", "Models that can be used"),
    Command(
        "model", "Configuration", "Show or switch the model",
        "[model] [--provider p] [--reasoning l] [--global|--session|--once] [--refresh]",
    ),
    Command(
        "reasoning", "Configuration", "Reasoning effort and display", "none…max|show|hide|full|clamp [--global]",
        ("effort",), (*EFFORT_WORDS, "show", "hide", "full", "clamp"),
    ),
    Command("fast", "Configuration", "Service tier", "normal|fast|auto", subcommands=("normal", "fast", "auto")),
    Command("personality", "Configuration", "Tone of the answers", "[name]"),
    Command("yolo", "Configuration", "Approve everything in this session, or stop doing so"),
    Command(
        "approvals", "Configuration", "When a human is asked", "manual|smart|off",
        subcommands=("manual", "smart", "off"),
    ),
    Command("config", "Configuration", "Show the configuration"),
    Command("verbose", "Configuration", "Cycle the tool events that are shown"),
    Command("focus", "Configuration", "Hide or show tool events", "[on|off]", subcommands=("on", "off")),
    Command("statusbar", "Configuration", "Place of the status line", "[top|bottom|off]", ("sb",)),
    Command("indicator", "Configuration", "Busy sign", "[name]"),
    Command("skin", "Configuration", "Colours", "[name]"),
    Command("battery", "Configuration", "Battery in the status line", "[on|off]"),
    Command("mouse", "Configuration", "Mouse reporting", "[all|off]"),
    Command("timestamps", "Configuration", "Times beside messages", "[on|off]", ("ts",), ("on", "off")),
    Command("footer", "Configuration", "A line below answers", "[on|off]", subcommands=("on", "off")),
    Command("density", "Configuration", "Compact view", "[on|off]"),
    Command(
        "tools", "Tools", "List the tools; switch toolsets on or off", "[enable|disable name]",
        subcommands=("enable", "disable"),
    ),
    Command("toolsets", "Tools", "List the toolsets"),
    Command("skills", "Tools", "List the skills", "[list|inspect name]", subcommands=("list", "inspect")),
    Command("memory", "Tools", "Show the notes"),
    Command("plugins", "Tools", "List the plug-ins"),
    Command("init", "Tools", "Write the project's instruction file", "[notes text]"),
    Command("plan", "Tools", "Make a plan before any change", "[task text]"),
    Command("learn", "Tools", "Turn what was learned into a skill or a note", "[topic text]"),
    Command("refine", "Tools", "Improve the last answer", "[wish text]"),
    Command("review", "Tools", "Review the changes in the working directory", "[focus text]"),
    Command("reload", "Tools", "Read the environment file again"),
    Command("reload-mcp", "Tools", "Reconnect the MCP servers", "[now|always]", ("reload_mcp",), ("now", "always")),
    Command("reload-skills", "Tools", "Look for skills again", aliases=("reload_skills",)),
    Command("image", "Host", "Attach an image to the next prompt", "path", host=True),
    Command("paste", "Host", "Attach the clipboard's image", host=True),
    Command("copy", "Host", "Copy an answer", "[n]", host=True),
    Command("logs", "Host", "Show the host's log", host=True),
    Command("quit", "Exit", "Leave", "[--delete]", ("exit",), host=True),
)  # fmt: skip

PROMPTS: Final[Mapping[str, str]] = {
    "init": (
        "Look at this project and write or update AGENTS.md in its root: what it is, how it is built, tested and run, "
        "its layout and its conventions. Keep it short and factual; check each command before you write it down."
    ),
    "plan": (
        "Make a plan first. Look at what is there, but change nothing. Give the steps in order, what each touches, the "
        "risks, and what you would verify. Then wait for approval."
    ),
    "learn": (
        "Think about what was learned in this conversation that will be useful again: commands, pitfalls, decisions. "
        "Record it with the memory or skill tools, briefly, and say what you recorded."
    ),
    "refine": (
        "Look at your last answer critically: what is wrong, missing or longer than needed? Give an improved version."
    ),
    "review": (
        "Review the uncommitted changes in the working directory. Report problems by importance, with file and line, "
        "and say what is good only where it matters. Change nothing."
    ),
}
"""Commands that become a prompt; what the user adds stands behind it."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A typed line: the name as written, without its slash, and the rest."""

    name: str
    arg: str = ""


def read_line(line: str) -> CommandLine:
    """Split at the first white space; a leading slash is optional."""
    text = line.strip()
    text = text.removeprefix("/")
    name, _, arg = text.partition(" ") if " " in text else (text, "", "")
    if "\n" in name:
        name, _, arg = text.partition("\n")
    return CommandLine(name, arg.strip())


def is_command_line(text: str) -> bool:
    """A slash and one word without another slash: a path is plain text."""
    word = text.split(maxsplit=1)[0] if text.strip() else ""
    return text.startswith("/") and len(word) > 1 and "/" not in word[1:]


def canonical_name(name: str) -> str:
    return name.strip().removeprefix("/").lower().replace("_", "-")


def find_command(name: str) -> Command | None:
    """By name or alias, any case, dashes like underscores."""
    wanted = canonical_name(name)
    for command in COMMANDS:
        if wanted == command.name or wanted in (alias.replace("_", "-") for alias in command.aliases):
            return command
    return None


def resolve_command(name: str) -> Command:
    """The command; raises ``CommandNotFound`` with the nearest names."""
    command = find_command(name)
    if command is None:
        names = [one.name for one in COMMANDS]
        wanted = canonical_name(name)[:LONGEST_NAME]
        near = get_close_matches(wanted, names, n=3)
        hint = f"; did you mean {', '.join('/' + one for one in near)}?" if near else ""
        raise CommandNotFound(f"unknown command: /{wanted}{hint}")
    return command


def prompt_for(name: str, arg: str) -> str:
    """The prompt of a command that becomes one."""
    base = PROMPTS[name]
    return f"{base}\n\n{arg}" if arg else base


def help_text(wanted: str = "", extra: Sequence[tuple[str, str]] = ()) -> str:
    """One line per command, those that match the filter."""
    lines = []
    for command in COMMANDS:
        hint = f" {command.args}" if command.args else ""
        lines.append(f"/{command.name}{hint} — {command.description}")
    lines += [f"/{name} — {description}" for name, description in extra]
    wanted = wanted.strip().lower().removeprefix("/")
    shown = [line for line in lines if wanted in line.lower()]
    return "\n".join(shown) if shown else f"no command matches {wanted!r}"


def catalog(
    skills: Sequence[tuple[str, str]] = (), quick: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The payload of ``commands.catalog`` (gateway §8.2). ``skills``: slug and description of each."""
    pairs = [[f"/{command.name}", command.description] for command in COMMANDS]
    categories: dict[str, list[list[str]]] = {}
    for command in COMMANDS:
        categories.setdefault(command.category, []).append([f"/{command.name}", command.description])
    skill_pairs = [[f"/{slug}", description] for slug, description in skills if find_command(slug) is None]
    quick_pairs = [
        [f"/{name}", str(spec.get("description") or spec.get("prompt") or spec.get("command") or "")[:120]]
        for name, spec in (quick or {}).items()
        if find_command(name) is None
    ]
    for title, group in (("Quick commands", quick_pairs), ("Skills", skill_pairs)):
        if group:
            categories[title] = group
    return {
        "pairs": [*pairs, *quick_pairs, *skill_pairs],
        "sub": {f"/{command.name}": list(command.subcommands) for command in COMMANDS if command.subcommands},
        "canon": {f"/{alias}": f"/{command.name}" for command in COMMANDS for alias in command.aliases},
        "commands": {
            command.name: {"argument_mode": command.argument_mode} for command in COMMANDS if command.argument_mode
        },
        "categories": [{"name": name, "pairs": group} for name, group in categories.items()],
        "skills": {slug: {"origin": "local"} for slug, _ in skills},
        "skill_count": len(skills),
        "warning": "",
    }


def complete(text: str, skills: Sequence[tuple[str, str]] = ()) -> tuple[list[dict[str, str]], int]:
    """Completions of a slash line and the index where they replace (gateway §8.10). No slash line: nothing."""
    if not text.startswith("/"):
        return [], 0
    head, space, rest = text.partition(" ")
    if not space:
        return _complete_name(head[1:], skills), 1
    command = find_command(head)
    if command is None:
        return [], len(text)
    word = rest.rsplit(" ", 1)[-1]
    items = [
        {"text": sub, "display": sub, "meta": command.description, "kind": "option"}
        for sub in command.subcommands
        if sub.startswith(word.lower())
    ]
    return items, len(text) - len(word)


def _complete_name(begin: str, skills: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    wanted = begin.lower().replace("_", "-")
    items = []
    for command in COMMANDS:
        names = (command.name, *command.aliases)
        hit = next((name for name in names if name.replace("_", "-").startswith(wanted)), None)
        if hit is not None:
            shown = f"/{hit}"
            items.append({"text": hit, "display": shown, "meta": command.description, "kind": "command"})
    items += [
        {"text": slug, "display": f"/{slug}", "meta": description, "kind": "skill"}
        for slug, description in skills
        if slug.startswith(wanted) and find_command(slug) is None
    ]
    return items
