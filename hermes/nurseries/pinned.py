"""What a session keeps from turn to turn, byte for byte: its system prompt and its list of tools (TL-7, TL-8).

Both are stored with the first rows behind the prompt of the first turn, and taken from there in another process.
Whatever makes one of them wrong (another directory, a compression, other toolsets) says ``forget_prompt`` or
``forget_tools``; the next turn builds it anew. Another model changes the two lines that name it, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes.agent.context_files import HEAD_SHARE, TAIL_SHARE, size_limit
from hermes.agent.ports import ResolvedModel, ToolSet
from hermes.agent.prompt import fits, restore, stored_form
from hermes.agent.prompt_identity import with_model
from hermes.agent.tool_results import PathHints
from hermes.nurseries.path_hints import SessionHints

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

HINTS = "directory_hints"
FILE_LIMIT = "context_file_limit"
"""Key in the session's memory: the characters of one project file in the pinned prompt."""


def forget_prompt(session: Session) -> None:
    """The next turn builds the system prompt anew."""
    session.pinned_prompt = None
    session.to_pin = {name: value for name, value in session.to_pin.items() if name != "system_prompt"}
    session.stored = replace(session.stored, system_prompt=None)


def forget_tools(session: Session) -> None:
    """The next turn lists the tools anew."""
    session.to_pin = {name: value for name, value in session.to_pin.items() if name != "tool_names"}
    session.stored = replace(session.stored, tool_names=None)


def tool_set(session: Session, *, allow_clarify: bool) -> ToolSet:
    """The session's tools as of now: the pinned ones, in their order, if they have been pinned."""
    requests = session.requests
    return session.services.build_tools(
        session,
        allow_clarify=allow_clarify,
        depth=session.depth,
        answers=lambda method: any(client.answers(method) for client in requests.attached),
        pinned=session.stored.tool_names,
        extra=session.extra_tools,
    )


async def system_prompt(session: Session, tools: ToolSet, resolved: ResolvedModel, *, own: bool) -> tuple[str, ...]:
    """The prompt of a turn: the pinned one, else the stored one if it still fits, else a new one.

    ``own``: the model is the session's, not one of this turn alone; then its name is pinned too.
    """
    stored = session.stored.system_prompt
    if session.pinned_prompt is None and stored and _still_right(session, stored):
        session.pinned_prompt = restore(stored)
    if session.pinned_prompt is None or (own and _files_fit_otherwise(session, resolved)):
        return await build_prompt(session, tools, resolved)
    prompt = with_model(session.pinned_prompt, resolved.model, resolved.provider)
    if own:
        session.pinned_prompt = prompt
    return prompt


def _files_fit_otherwise(session: Session, resolved: ResolvedModel) -> bool:
    """The session's model has changed to one with another window, and that makes a difference to the project files:
    they were cut for the former, or are too long for this one."""
    limit = size_limit(resolved.context_length, session.services.settings().context_file_max_chars)
    former: int = session.memory.extras.get(FILE_LIMIT, limit)
    session.memory.extras[FILE_LIMIT] = limit
    rest = (session.pinned_prompt or ("",))[-1]
    # A file that was cut leaves its head and its tail.
    return limit != former and len(rest) >= (HEAD_SHARE + TAIL_SHARE) * min(limit, former)


async def build_prompt(session: Session, tools: ToolSet, resolved: ResolvedModel) -> tuple[str, ...]:
    limit = size_limit(resolved.context_length, session.services.settings().context_file_max_chars)
    session.memory.extras[FILE_LIMIT] = limit
    session.pinned_prompt = await session.services.build_prompt(
        session, tools=tools, resolved=resolved, system_extra=session.system_message
    )
    return session.pinned_prompt


def keep(session: Session) -> None:
    """What is pinned and has changed goes to the store with the next rows of the session."""
    columns: dict[str, Any] = {}
    prompt = None if session.pinned_prompt is None else stored_form(session.pinned_prompt)
    if prompt != session.stored.system_prompt:
        columns["system_prompt"] = prompt
    if session.stored.tool_names is None:
        # Listed as if the user could be asked: a turn that may not ask leaves `clarify` out for itself alone.
        columns["tool_names"] = tuple(tool_set(session, allow_clarify=True).names())
    session.to_pin = columns


def _still_right(session: Session, stored: str) -> bool:
    personality = session.stored.model_config.get("personality")
    return fits(
        stored,
        cwd=session.memory.cwd,
        system_message=session.system_message,
        personality=personality if isinstance(personality, str) else None,
    )


def directory_hints(session: Session) -> PathHints | None:
    """Finds instruction files near touched paths, each given once to a session in one directory (TL-11)."""
    make = session.services.directory_hints
    if make is None:
        return None
    memory, place = session.memory, session.stored.cwd or session.memory.cwd
    known: SessionHints | None = memory.extras.get(HINTS)
    if known is None or known.place != place:
        known = memory.extras[HINTS] = SessionHints(make, place, memory)
    return known
