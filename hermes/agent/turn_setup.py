"""What a turn is given, and what it gives back."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable
from dataclasses import field

from hermes.agent.cooldowns import Cooldowns
from hermes.agent.loop_settings import LoopSettings
from hermes.agent.ports import ModelGateway, ResolvedModel, ToolSet
from hermes.agent.progress import TurnProgress
from hermes.agent.row_memory import RowMemory
from hermes.agent.tool_plan import PathResolver
from hermes.agent.tool_results import PathHints, Spill
from hermes.messages import Prompt, Row
from hermes.outcomes import Completed, Failed
from hermes.records import dataclass

RefreshSystem = Callable[[], Awaitable[tuple[str, ...]]]
RefreshCredentials = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TurnSetup:
    """Everything ``run_turn`` needs besides the port.

    ``system`` is the pinned prompt, its stable tier first. ``resolve_path`` follows links and case (TL-21). ``spill``
    writes an oversize result away, ``hints`` finds instruction files near touched paths, ``redact`` masks secrets in
    error texts and summaries, ``refresh_system`` builds the prompt anew after a compression, ``refresh_credentials``
    reads keys again that a provider has refused. ``started_at`` is the monotonic time of the acceptance; None means
    that the turn begins when the loop does. ``may_fall_back``: another model may take over when this one fails.
    ``row_memory`` belongs to the session, ``cooldowns`` to the server; both are kept from turn to turn.
    """

    models: ModelGateway
    resolved: ResolvedModel
    tools: ToolSet
    prompt: Prompt
    system: tuple[str, ...] = ()
    settings: LoopSettings = LoopSettings()
    progress: TurnProgress = field(default_factory=TurnProgress)
    requested_model: str = ""
    may_fall_back: bool = True
    started_at: float | None = None
    resolve_path: PathResolver = posixpath.normpath
    spill: Spill | None = None
    hints: PathHints | None = None
    redact: Callable[[str], str] = str
    refresh_system: RefreshSystem | None = None
    refresh_credentials: RefreshCredentials | None = None
    cooldowns: Cooldowns = field(default_factory=Cooldowns, compare=False, repr=False)
    row_memory: RowMemory = field(default_factory=RowMemory, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoopEnd:
    """How the loop ended when nobody cancelled it. The other ingredients of the record are in ``progress``.

    ``pending_steer`` is text that was accepted and not delivered. ``final_row`` is the stored row that closes the turn,
    None if it could not be stored.
    """

    outcome: Completed | Failed
    exit_reason: str
    progress: TurnProgress
    pending_steer: str | None = None
    final_row: Row | None = None
