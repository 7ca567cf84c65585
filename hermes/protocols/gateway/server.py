"""What all gateway connections of a process share: the tree, the launch options, the replay epoch."""

from __future__ import annotations

import contextlib
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import trio

from hermes.agent.model_catalog import check_served
from hermes.errors import Draining, InvalidValue, ProviderNotConfigured
from hermes.nurseries.repeats import Repeats
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.services import Services
from hermes.nurseries.session_registry import SessionRegistry
from hermes.protocols.gateway.announcements import Announcements
from hermes.protocols.gateway.events import Shown
from hermes.protocols.gateway.fan_out import FanOuts
from hermes.records import dataclass
from hermes.settings import Settings

SERVER_REQUESTS: Final = ("approval", "clarify", "secret", "sudo")
"""Questions to a person (gateway §7.2), which every host is expected to show."""

BRIDGED_REQUESTS: Final = (
    "connection",
    "preview.act",
    "preview.read",
    "terminal.read",
    "tour",
    "vault.code",
    "vault.save_login",
    "vault.unlock_prompt",
    "window.read",
)
"""Requests to the host's own windows. The model gets tools for them only where a declared host other than a plain
terminal made the session."""


@dataclass(frozen=True, slots=True)
class GatewayServer:
    """Parameters: ``legacy_requests``, undeclared clients get questions as events of the older dialect as well;
    ``epoch``, 32 hex digits that change with every process; ``skin``, colours for hosts, may be empty."""

    tree: ServerTree
    epoch: str
    legacy_requests: bool = False
    skin: dict[str, Any] = field(default_factory=dict)
    repeats: Repeats = field(default_factory=Repeats)
    fan_outs: FanOuts = field(default_factory=FanOuts)
    announcements: Announcements = field(default_factory=Announcements)
    checking: trio.Lock = field(default_factory=trio.Lock)
    """Held while a provider is being checked: one such check at a time (gateway §9.9)."""

    @property
    def services(self) -> Services:
        return self.tree.services

    @property
    def registry(self) -> SessionRegistry:
        return self.tree.registry

    @property
    def settings(self) -> Settings:
        settings: Settings = self.tree.services.settings()
        return settings

    def shown(self) -> Shown:
        display = self.settings.display
        return Shown(
            reasoning=display.show_reasoning,
            interim=display.interim_assistant_messages,
            tools="off" if display.focus else display.tool_progress,
            diffs=display.inline_diffs,
        )

    def refuse_when_draining(self) -> None:
        if self.tree.draining.is_set():
            raise Draining

    def default_cwd(self) -> str:
        """Where new sessions work: the configured directory, relative to the process's own."""
        return str(Path(self.settings.terminal.cwd or ".").expanduser().absolute())

    def check_model(self, model: str | None, provider: str | None) -> None:
        """The offline guard of §3.3. Raises ``ModelNotServed``."""
        if model and not provider:
            # Nobody to ask is no conflict: the session will say what is missing.
            with contextlib.suppress(ProviderNotConfigured, InvalidValue):
                provider = self.tree.services.models.default_provider(model)
        if model:
            check_served(model, provider)
