"""Asks a person before something dangerous: one shared place for commands and edits.

Silence, a closed window, an unknown word: none of them is consent. Identical requests that are open at the same time
share one prompt; an answer "once" serves only the call that asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import trio

from hermes.agent.approvals import (
    REVIEW_PROMPT,
    Allow,
    ApprovalPolicy,
    Ask,
    Block,
    Choice,
    approval_mode,
    choice_of,
    decide,
    read_verdict,
)
from hermes.agent.path_rules import ALWAYS_ASK
from hermes.agent.ports import ToolContext, ToolFailure
from hermes.agent.redaction import redact
from hermes.agent.tool_display import bounded_diffs
from hermes.agent.tools.base import as_json
from hermes.agent.tools.services import ToolServices
from hermes.agent.tools.sudo_password import known_sudo_password
from hermes.errors import HermesError
from hermes.messages import Answered, ClientAnswer, FileDiff, Question, TimedOut, Withdrawn
from hermes.records import dataclass

_OPEN = "open_approvals"
_NO_RETRY = "Do not retry it, rephrase it or reach the same effect by other means; continue without it or ask the user."
_REVIEW_TIMEOUT = 30.0
_MOST_REVIEWED = 8000
"""Characters of a command that the reviewer is shown."""
_LONG_COMMAND = 4000
"""Longer ones are judged in a thread: that takes milliseconds which others would have to wait."""


@dataclass(slots=True)
class _Shared:
    """One open prompt that identical requests wait for."""

    settled: trio.Event = field(default_factory=trio.Event)
    choice: Choice | None = None
    failure: ToolFailure | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """It may run; ``note`` tells the model that a person said so, if one did."""

    note: str | None = None


def refusal(message: str, **more: Any) -> ToolFailure:
    """A blocked command as the terminal reports it."""
    body = {"output": "", "exit_code": -1, "error": f"BLOCKED: {message} {_NO_RETRY}", "status": "blocked", **more}
    return ToolFailure(as_json(body), status="blocked")


def policy_for(ctx: ToolContext, services: ToolServices, cwd: str) -> ApprovalPolicy:
    """The policy of this call, from the settings and the session."""
    settings = ctx.settings
    auto = ctx.depth > 0
    if auto:
        unattended_mode = "approve" if settings.delegation.subagent_auto_approve else "deny"
    elif ctx.source == "cron":
        unattended_mode = settings.approvals.cron_mode
    elif ctx.source in ("cli", "single_query", "oneshot"):
        unattended_mode = settings.approvals.single_query_mode
    else:
        unattended_mode = settings.approvals.unattended_mode
    return ApprovalPolicy(
        mode=approval_mode(settings.approvals.mode),
        deny=tuple(settings.approvals.deny),
        yolo=ctx.memory.yolo or settings.host.yolo,
        unattended=ctx.unattended or auto,
        unattended_mode=unattended_mode,
        sudo_password_known=known_sudo_password(ctx, services) is not None,
        permanent=frozenset(settings.command_allowlist) | frozenset(services.permanent),
        scene=services.scene(cwd),
    )


async def approve_command(ctx: ToolContext, services: ToolServices, command: str, cwd: str) -> Approval:
    """Let a shell command pass, or raise the ``ToolFailure`` that the model reads."""
    policy = policy_for(ctx, services, cwd)
    while True:
        grants = frozenset(ctx.memory.grants) | frozenset(services.permanent)
        if len(command) > _LONG_COMMAND:
            decision = await trio.to_thread.run_sync(decide, command, policy, grants)
        else:
            decision = decide(command, policy, grants)
        match decision:
            case Allow():
                return Approval()
            case Block(reason=reason):
                raise refusal(f"{reason}.")
            case Ask():
                approval = await _reviewed(ctx, services, decision, command, cwd)
                if approval is not None:
                    return approval


async def _reviewed(ctx: ToolContext, services: ToolServices, ask: Ask, command: str, cwd: str) -> Approval | None:
    """One round: reviewer, then a person. None: another call's answer may have changed the decision; look again."""
    smart_denied = False
    if ask.smart:
        verdict = await _review(ctx, command, ask.description)
        if verdict == "approve":
            ctx.memory.denials_in_a_row = 0
            return Approval()
        smart_denied = verdict == "deny"
    params = {
        "command": redact(command),
        "description": ask.description,
        "pattern_key": ask.pattern_keys[0],
        "pattern_keys": list(ask.pattern_keys),
        "allow_session": ask.allow_session and not smart_denied,
        "allow_permanent": ask.allow_permanent and not smart_denied,
        "smart_denied": smart_denied,
        "cwd": cwd,
        "tool_name": "terminal",
    }
    choices = ask.choices(smart_denied=smart_denied)
    choice = await _ask_shared(ctx, ("command", command, cwd, smart_denied), params, choices)
    if choice is None:
        return None
    await _remember(ctx, services, ask.pattern_keys, choice)
    return Approval("the user approved this command")


async def _review(ctx: ToolContext, command: str, description: str) -> str:
    shown = redact(command)
    if len(shown) > _MOST_REVIEWED:
        # What the reviewer has not seen it has not approved.
        return "escalate"
    question = f"Warning: {description}\nDirectory: {ctx.memory.cwd}\nCommand:\n{shown}"
    try:
        answer = await ctx.ask_model(REVIEW_PROMPT, question, max_tokens=16, timeout=_REVIEW_TIMEOUT)
    except HermesError:
        return "escalate"
    verdict = read_verdict(answer)
    if verdict == "deny":
        _count_denial(ctx)
    return verdict


async def _ask_shared(
    ctx: ToolContext, key: object, params: Mapping[str, Any], choices: Sequence[Choice]
) -> Choice | None:
    """Ask, or wait for the identical request that is open. None: somebody else's "once" or grant; decide again."""
    waiting: dict[object, _Shared] = ctx.memory.extras.setdefault(_OPEN, {})
    shared = waiting.get(key)
    if shared is not None:
        await shared.settled.wait()
        if shared.failure is not None:
            raise ToolFailure(shared.failure.content, status="blocked")
        return None
    shared = waiting[key] = _Shared()
    try:
        timeout = float(ctx.settings.approval_timeout)
        question = Question(
            "approval",
            {**params, "choices": list(choices), "tool_call_id": ctx.call_id},
            tuple(choices),
            timeout if timeout > 0 else None,
            ctx.call_id,
        )
        answer = await ctx.ask(question)
        shared.choice = _choice(ctx, answer, choices, counted=bool(params["smart_denied"]))
        return shared.choice
    except ToolFailure as error:
        shared.failure = error
        raise
    finally:
        # Also when this call was cancelled: the next one then asks for itself.
        del waiting[key]
        shared.settled.set()


def _choice(ctx: ToolContext, answer: ClientAnswer, choices: Sequence[Choice], *, counted: bool) -> Choice:
    """The choice that lets it run, or the refusal. ``counted``: the reviewer's denial of it has been counted."""
    match answer:
        case Answered(value=value):
            choice = choice_of(value, tuple(choices))
            if choice != "deny":
                ctx.memory.denials_in_a_row = 0
                return choice
            if not counted:
                _count_denial(ctx)
            reason = value.get("reason")
            said = f" The user said: {reason[:500]}." if isinstance(reason, str) and reason else ""
            raise refusal(f"the user denied this.{said}{_breaker(ctx)}", outcome="denied")
        case TimedOut():
            raise refusal("nobody answered the approval request in time.", outcome="timed_out")
        case Withdrawn(reason=reason):
            raise refusal(
                f"the approval request was withdrawn before the user answered ({reason}).", outcome="withdrawn"
            )
        case _:
            raise refusal("the approval request was withdrawn: no client could show it.", outcome="withdrawn")


def _count_denial(ctx: ToolContext) -> None:
    ctx.memory.denials_in_a_row += 1


def _breaker(ctx: ToolContext) -> str:
    if ctx.memory.denials_in_a_row < ctx.settings.approvals.denial_breaker_threshold:
        return ""
    return f" This was denial {ctx.memory.denials_in_a_row} in a row: stop trying variants and report to the user."


async def _remember(ctx: ToolContext, services: ToolServices, keys: Sequence[str], choice: Choice) -> None:
    if choice in ("session", "always"):
        ctx.memory.grants.update(keys)
    if choice == "always":
        for key in keys:
            services.permanent.add(key)
            await services.remember_permanently(key)


# --- edits -----------------------------------------------------------------------------------------------------------


async def approve_edit(
    ctx: ToolContext, services: ToolServices, tool: str, diffs: Sequence[FileDiff], protected: Sequence[str]
) -> None:
    """Let a file edit pass, or raise ``ToolFailure``.

    Asked are writes under the pattern keys ``protected`` (instruction files), and, where the host wants to see edits
    (``memory.extras["edit_permission"]``: ``default``, ``accept_edits`` or ``dont_ask``), those its mode does not pass.
    """
    keys = tuple(
        dict.fromkeys(key for key in protected if key not in ctx.memory.grants and key not in services.permanent)
    )
    mode = ctx.memory.extras.get("edit_permission")
    wanted = mode is not None and any(_edit_asks(str(mode), diff.path, ctx.memory.cwd) for diff in diffs)
    policy = policy_for(ctx, services, ctx.memory.cwd)
    if not wanted and (not keys or policy.yolo or policy.mode == "off"):
        return
    if policy.unattended:
        if policy.unattended_mode in ("allow", "approve"):
            return
        raise _edit_refused("it needs approval and nobody can be asked here")
    paths = [diff.path for diff in diffs]
    choices: tuple[Choice, ...] = ("once", "session", "deny") if keys and not wanted else ("once", "deny")
    params = {
        "command": f"{tool} {' '.join(paths)}",
        "description": ", ".join(keys) or "edit a file",
        "pattern_keys": list(keys),
        "allow_session": "session" in choices,
        "allow_permanent": False,
        "smart_denied": False,
        "tool_name": tool,
        "kind": "edit",
        "paths": paths,
        "diffs": bounded_diffs(diffs),
        "cwd": ctx.memory.cwd,
    }
    try:
        choice = await _ask_shared(ctx, ("edit", ctx.call_id), params, choices)
    except ToolFailure as error:
        raise ToolFailure(error.content.replace('"output":"","exit_code":-1,', ""), status="blocked") from None
    if choice == "session":
        ctx.memory.grants.update(keys)


def _edit_asks(mode: str, path: str, cwd: str) -> bool:
    if ALWAYS_ASK.search(path):
        return True
    if mode == "dont_ask":
        return False
    inside = any(path == root or path.startswith(root.rstrip("/") + "/") for root in (cwd, "/tmp", "/private/tmp"))
    return not (mode == "accept_edits" and inside)


def _edit_refused(why: str) -> ToolFailure:
    return ToolFailure(as_json({"error": f"BLOCKED: {why}. {_NO_RETRY}", "status": "blocked"}), status="blocked")
