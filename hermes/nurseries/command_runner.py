"""Runs slash commands on a live session: one place for every surface that takes them (agent-core §8).

The catalogue is ``agent/commands.py``; here each command has its effect. What a command gives is data for the host:
text to print, a prompt to submit, text for the editor, another command. Commands that need an idle session refuse with
"busy" and change nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hermes.agent.commands import PROMPTS, Command, find_command, help_text, prompt_for, resolve_command
from hermes.agent.history import last_prompt
from hermes.agent.stored_views import clean_title
from hermes.errors import (
    CommandFailed,
    CommandNotFound,
    EmptyText,
    InvalidParams,
    InvalidValue,
    NothingToUndo,
    TitleTaken,
)
from hermes.messages import Prompt
from hermes.nurseries import command_views as views
from hermes.nurseries import session_history, session_skills
from hermes.nurseries.background import start_background, start_btw
from hermes.nurseries.host_config import KeyRequest, change, read_key, set_key
from hermes.nurseries.host_processes import run_own
from hermes.nurseries.model_choice import picker, switch
from hermes.nurseries.pinned import forget_tools
from hermes.nurseries.session_export import export, read_export
from hermes.nurseries.session_ready import session_tool_set
from hermes.nurseries.turn_slot import BusyPolicy
from hermes.outcomes import CancelReason, Cause

if TYPE_CHECKING:
    from hermes.nurseries.server_tree import ServerTree
    from hermes.nurseries.session import Session

Kind = Literal["exec", "alias", "plugin", "send", "skill", "prefill"]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """``changed``: what the host should read again (model, session, title, history)."""

    type: Kind
    output: str | None = None
    message: str | None = None
    target: str | None = None
    name: str | None = None
    notice: str | None = None
    display: str | None = None
    warning: str | None = None
    changed: tuple[str, ...] = ()


def printed(text: str, *changed: str, warning: str | None = None) -> CommandResult:
    return CommandResult("exec", output=text, warning=warning, changed=changed)


@dataclass(frozen=True, slots=True)
class Run:
    """One command on its way."""

    tree: ServerTree
    session: Session
    command: Command
    arg: str

    async def set(self, key: str, value: Any) -> dict[str, Any]:
        return await set_key(self.session.services, self.session, KeyRequest(key, value))


async def run_command(tree: ServerTree, session: Session, name: str, arg: str) -> CommandResult:
    """Run it. Built-in commands come first, then quick commands, then skills. Raises ``CommandNotFound``,
    ``SessionBusy`` and what the command itself refuses."""
    command = find_command(name)
    if command is not None:
        if command.busy == "reject" and session.slot.taken:
            raise session.slot.busy()
        if command.host:
            return printed(f"/{command.name} is done by the host")
        return await HANDLERS[command.name](Run(tree, session, command, arg))
    quick = session.services.settings().quick_commands
    spec = quick.get(name) or quick.get(name.lower())
    if spec is not None:
        return await quick_command(session, spec, arg)
    skill = session_skills.find(await session_skills.list_skills(session.services, session.memory.cwd), name)
    if skill is not None:
        made = await session_skills.as_command(skill, arg)
        return CommandResult("skill", message=made.message, name=made.name, display=made.display)
    resolve_command(name)
    raise CommandNotFound


async def quick_command(session: Session, spec: Mapping[str, Any], arg: str) -> CommandResult:
    """The user's own command: a shell command to run, a prompt to send, or another command it stands for."""
    if spec.get("command"):
        ended = await run_own(session.services, str(spec["command"]), session.memory.cwd)
        if ended.timed_out or ended.code != 0:
            why = "took too long and was ended" if ended.timed_out else f"ended with code {ended.code}"
            raise CommandFailed(f"the quick command {why}: {ended.output[-500:].strip()}".rstrip(": "))
        return printed(ended.output.rstrip())
    if spec.get("target") or spec.get("alias"):
        return CommandResult("alias", target=f"{spec.get('target') or spec['alias']} {arg}".strip())
    text = str(spec.get("prompt") or spec.get("message") or "")
    if not text:
        raise InvalidValue("this quick command has neither a command, a prompt nor a target")
    return CommandResult("send", message=f"{text} {arg}".strip())


# --- the session -----------------------------------------------------------------------------------------------------


async def _title(run: Run) -> CommandResult:
    if not run.arg:
        return printed(run.session.stored.title or "(no title)")
    title = clean_title(run.arg)
    if not title:
        raise InvalidValue("this title has no visible characters")
    taken = await run.session.services.store.find_by_title(title)
    if taken is not None and taken.key != run.session.key:
        raise TitleTaken
    await run.session.set_title(title)
    return printed(f"title: {title}", "title")


async def _history(run: Run) -> CommandResult:
    return printed(views.history_text(await session_history.transcript(run.session)))


async def _save(run: Run) -> CommandResult:
    return printed(f"saved to {await export(run.session, read_export(run.arg))}")


async def _branch(run: Run) -> CommandResult:
    name = run.arg.removeprefix("--here").strip() or None
    made = await session_history.branch(run.tree.registry, run.session, name=name)
    return printed(f"branched to {made.key} ({made.stored.title or 'no title'})", "session")


async def _compress(run: Run) -> CommandResult:
    result = await session_history.compress(run.session, run.arg or None)
    if result.lock_held:
        return printed(result.message or "another process is using this session")
    lines = [result.summary.headline, result.summary.token_line, result.summary.note]
    return printed("\n".join(line for line in lines if line) or result.status, "history")


async def _undo(run: Run) -> CommandResult:
    count = int(run.arg) if run.arg.isdecimal() and int(run.arg) > 0 else 1
    result = await session_history.undo(run.session, count)
    return CommandResult(
        "prefill", message=result.text, notice=f"{result.removed} messages taken back", changed=("history",)
    )


async def _retry(run: Run) -> CommandResult:
    prompt = last_prompt(run.session.rows)
    if prompt is None:
        raise NothingToUndo("there is nothing to retry")
    result = await session_history.undo(run.session)
    return CommandResult("send", message=prompt.text or result.text, changed=("history",))


async def _stop(run: Run) -> CommandResult:
    stop = run.session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, "/stop"))
    result = await stop.wait_settled(run.session.services.settings().limits.interrupt_ack)
    killed = await run.session.processes.stop_all()
    turn = "the turn was stopped" if result.status == "interrupted" else "no turn was running"
    return printed(f"{turn}; {killed} background processes ended")


async def _steer(run: Run) -> CommandResult:
    if not run.arg:
        raise EmptyText("usage: /steer text")
    if run.session.steer(run.arg):
        return printed("the running turn will read it behind the next tool")
    return CommandResult("send", message=run.arg)


async def _queue(run: Run) -> CommandResult:
    word, _, rest = run.arg.partition(" ")
    queued = run.session.slot.queued
    match word:
        case "":
            raise EmptyText("usage: /queue prompt")
        case "list":
            return printed(views.numbered([one.prompt.text for one in queued]) or "the queue is empty")
        case "clear":
            return printed(f"{len(run.session.drop_queue())} prompts dropped")
        case "rm" if rest.isdecimal():
            number = int(rest)
            if not 1 <= number <= len(queued):
                raise InvalidParams(f"there are {len(queued)} queued prompts")
            run.session.slot.drop(queued[number - 1])
            return printed("dropped")
        case "edit" | "move" if rest.partition(" ")[0].isdecimal():
            return _change_queue(run, word, rest)
    if not run.session.slot.taken:
        return CommandResult("send", message=run.arg)
    run.session.submit_nowait(Prompt(run.arg, source="gateway"), policy=BusyPolicy.QUEUE)
    return printed("queued for the next turn")


def _change_queue(run: Run, word: str, rest: str) -> CommandResult:
    queued = run.session.slot.queued
    first, _, second = rest.partition(" ")
    numbers = [int(first), int(second) if word == "move" and second.isdecimal() else 1]
    if not all(1 <= number <= len(queued) for number in numbers):
        raise InvalidParams(f"there are {len(queued)} queued prompts")
    if not second.strip():
        raise InvalidParams("usage: /queue edit N text, or /queue move A B")
    if word == "edit":
        queued[numbers[0] - 1].prompt = replace(queued[numbers[0] - 1].prompt, content=second.strip())
        return printed("changed")
    run.session.slot.move(queued[numbers[0] - 1], numbers[1] - 1)
    return printed("moved")


async def _bg(run: Run) -> CommandResult:
    return printed(f"started {start_background(run.session, run.arg)}")


async def _btw(run: Run) -> CommandResult:
    return printed(f"started {start_btw(run.session, run.arg)}")


# --- configuration ---------------------------------------------------------------------------------------------------


async def _model(run: Run) -> CommandResult:
    if not run.arg:
        info = run.session.info()
        return printed(f"model: {info.model or '(none yet)'} ({info.provider or 'no provider yet'})")
    done = await switch(run.session, run.arg, confirmed=True)
    return printed(done.sentence, "model", "session", warning=done.warning)


async def _models(run: Run) -> CommandResult:
    menu = await picker(
        run.session.services, run.session, refresh=False, include_unconfigured=False, explicit_only=False
    )
    return printed(views.models_text(menu))


def _setting(key: str, *changed: str) -> Callable[[Run], Awaitable[CommandResult]]:
    """A command that reads a key without an argument, and sets it with one."""

    async def run_it(run: Run) -> CommandResult:
        if not run.arg or run.arg == "status":
            answer = read_key(run.session.services, key, run.session, None)
            return printed(f"{run.command.name}: {answer['value']}")
        answer = await run.set(key, run.arg)
        return printed(f"{run.command.name}: {answer['value']}", *changed)

    return run_it


def _switched(key: str, *changed: str) -> Callable[[Run], Awaitable[CommandResult]]:
    """A command that toggles a key without an argument."""

    async def run_it(run: Run) -> CommandResult:
        answer = await run.set(key, run.arg or None)
        word = {"1": "on", "0": "off"}.get(str(answer["value"]), str(answer["value"]))
        return printed(f"{run.command.name}: {word}", *changed)

    return run_it


# --- prompts, tools, host --------------------------------------------------------------------------------------------


async def _prompt(run: Run) -> CommandResult:
    return CommandResult(
        "send", message=prompt_for(run.command.name, run.arg), display=f"/{run.command.name} {run.arg}".strip()
    )


async def _help(run: Run) -> CommandResult:
    skills = await session_skills.list_skills(run.session.services, run.session.memory.cwd)
    return printed(help_text(run.arg, session_skills.as_pairs(skills)))


async def _skills(run: Run) -> CommandResult:
    skills = await session_skills.list_skills(run.session.services, run.session.memory.cwd)
    word, _, name = run.arg.partition(" ")
    if word == "inspect":
        skill = session_skills.find(skills, name)
        if skill is None:
            raise CommandNotFound(f"there is no skill {name!r}")
        return printed(f"{skill.name}: {skill.description}\n\n{await session_skills.skill_text(skill)}")
    return printed("\n".join(f"/{skill.slug} — {skill.description}" for skill in skills) or "no skills are installed")


async def _reload(run: Run) -> CommandResult:
    config = run.session.services.config
    changed = await config.reload() if config is not None else ()
    return printed(f"{len(changed)} areas changed{': ' if changed else ''}{', '.join(changed)}")


async def _reload_mcp(run: Run) -> CommandResult:
    if run.tree.mcp is None:
        return printed("no MCP servers are configured")
    done = await run.tree.mcp.reload(lambda: run.session.services.settings().mcp_servers)
    for session in run.tree.registry.live():
        forget_tools(session)
    return printed(f"MCP servers reloaded ({done.revision or 'none'})")


async def _tools(run: Run) -> CommandResult:
    word, _, rest = run.arg.partition(" ")
    if word not in ("enable", "disable"):
        return printed(views.tools_text(run.session))
    services, names = run.session.services, rest.split()
    if not names:
        raise InvalidParams("usage: /tools enable|disable name…")
    disabled = list(services.settings().agent.disabled_toolsets)
    unknown = set(names) - set(views.toolsets(run.session)) - set(disabled)
    if unknown:
        raise InvalidValue(f"there is no toolset {', '.join(sorted(unknown))}")
    kept = [name for name in disabled if name not in names]
    await change(services, "agent.disabled_toolsets", kept if word == "enable" else [*kept, *names])
    return printed(f"{word}d: {', '.join(names)}; sessions take it up with their next turn", "session")


async def _plugins(run: Run) -> CommandResult:
    tools = session_tool_set(run.session)
    found = [tools.find(name) for name in tools.names()]
    ours = {"shell", "files", "planning", "clarify", "delegation", "memory", "skills", "client"}
    names = sorted({tool.flags.toolset for tool in found if tool is not None} - ours)
    return printed("\n".join(name for name in names if not name.startswith("mcp")) or "no plug-ins are installed")


async def _insights(run: Run) -> CommandResult:
    days = int(run.arg) if run.arg.isdecimal() and int(run.arg) > 0 else 30
    sessions, messages = await views.used_lately(run.session.services, days)
    return printed(f"{days} days: {sessions} sessions, {messages} messages")


async def _rollback(run: Run) -> CommandResult:
    return printed("file checkpoints are not kept by this server; use version control")


def _view(text: Callable[[Run], str]) -> Callable[[Run], Awaitable[CommandResult]]:
    async def run_it(run: Run) -> CommandResult:
        return printed(text(run))

    return run_it


async def _diff(run: Run) -> CommandResult:
    return printed(await views.diff_text(run.session, run.arg))


async def _memory(run: Run) -> CommandResult:
    return printed(await views.memory_text(run.session))


Handler = Callable[[Run], Awaitable[CommandResult]]

HANDLERS: Mapping[str, Handler] = {
    "history": _history,
    "save": _save,
    "title": _title,
    "branch": _branch,
    "compress": _compress,
    "undo": _undo,
    "retry": _retry,
    "rollback": _rollback,
    "stop": _stop,
    "steer": _steer,
    "queue": _queue,
    "busy": _setting("busy"),
    "bg": _bg,
    "btw": _btw,
    "agents": _view(lambda run: views.agents_text(run.session)),
    "status": _view(lambda run: views.status_text(run.session)),
    "usage": _view(lambda run: views.usage_text(run.session)),
    "context": _view(lambda run: views.context_text(run.session)),
    "help": _help,
    "profile": _view(lambda run: views.profile_text(run.session)),
    "whoami": _view(lambda run: views.whoami_text(run.session)),
    "version": _view(lambda run: views.version_text()),
    "debug": _view(lambda run: views.debug_text(run.session)),
    "diff": _diff,
    "models": _models,
    "model": _model,
    "reasoning": _setting("reasoning", "session"),
    "fast": _setting("fast", "session"),
    "personality": _setting("personality", "session"),
    "yolo": _switched("yolo", "session"),
    "approvals": _setting("approval_mode", "session"),
    "config": _view(lambda run: views.config_text(run.session)),
    "verbose": _switched("verbose"),
    "focus": _switched("focus"),
    "statusbar": _setting("statusbar"),
    "indicator": _setting("indicator"),
    "skin": _setting("skin"),
    "battery": _switched("battery"),
    "mouse": _setting("mouse"),
    "density": _setting("density"),
    "tools": _tools,
    "toolsets": _view(lambda run: views.toolsets_text(run.session)),
    "skills": _skills,
    "memory": _memory,
    "plugins": _plugins,
    "insights": _insights,
    "timestamps": _switched("timestamps"),
    "footer": _switched("footer"),
    "reload": _reload,
    "reload-mcp": _reload_mcp,
    "reload-skills": _skills,
    **dict.fromkeys(PROMPTS, _prompt),
}
