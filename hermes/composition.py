"""From settings to services: which adapter stands behind which port. Used by ``app`` and by ``embedding``."""

from __future__ import annotations

import functools
import logging
import os
import platform
import random
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes import __version__
from hermes.agent.ports import ResolvedModel, Tool, TranscriptStore
from hermes.agent.providers.command_keys import CommandKeys
from hermes.agent.providers.http_stream import HttpClient, ProxySettings
from hermes.agent.providers.registry import Models
from hermes.agent.redaction import redact
from hermes.agent.store.leases import current_owner, provably_dead
from hermes.agent.store.schema import JournalMode
from hermes.agent.tool_display import tool_preview
from hermes.agent.tools.registry import build_tools, knows_v4a, load_plugins
from hermes.agent.tools.services import ToolServices
from hermes.agent.tools.spillover import write_spillover
from hermes.config import LoadedSettings, child_environment, proxy_variables
from hermes.events import ConfigChanged, ServerEvent, event_cost
from hermes.known_secrets import KnownSecrets
from hermes.live_config import LiveConfig
from hermes.model_settings import custom_providers, fallback_specs, model_settings, route_specs
from hermes.nurseries.event_log import EventLog
from hermes.nurseries.ids import random_ids
from hermes.nurseries.key_commands import KeyCommands
from hermes.nurseries.local_model import LocalModelServer
from hermes.nurseries.mcp_servers import McpServers, session_tools
from hermes.nurseries.mcp_transport import TransportHost
from hermes.nurseries.node_log import NodeLog
from hermes.nurseries.node_spans import node_spans
from hermes.nurseries.plugin_process import CHILD, PluginHost
from hermes.nurseries.plugin_tools import adapt_plugins
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.scopes import LiveTree
from hermes.nurseries.services import Services, ToolBuilder
from hermes.nurseries.session import Session
from hermes.nurseries.stored_variables import DotenvVariables, McpConnections
from hermes.prompt_sources import PromptSources
from hermes.telemetry import tracer_provider

log = logging.getLogger(__name__)

TOOLSETS_BY_SOURCE: Mapping[str, str] = {"acp": "hermes-acp", "api_server": "hermes-api-server"}


def build_services(
    loaded: LoadedSettings, store: TranscriptStore, *, overrides: Mapping[str, Any] | None = None
) -> Services:
    """All adapters, wired. Starts nothing and does no network."""
    config = LiveConfig(loaded, overrides)
    home = loaded.home
    announce: EventLog[ServerEvent] = EventLog(cost=event_cost, clock=time.time, max_events=1024)
    supervisor = ProcessSupervisor(
        owner_tag(str(home)),
        kill_grace=loaded.settings.limits.kill_grace,
        limit_per_session=loaded.settings.limits.max_processes,
        home=home,
    )
    learned = KnownSecrets()
    hide = _hiding(learned) if loaded.settings.security.redact_secrets else _as_it_is

    def environment() -> Mapping[str, str]:
        return child_environment(config.current())

    local = LocalModelServer(supervisor, environment)
    keys = CommandKeys(KeyCommands(supervisor, environment, str(Path.home())), learned.add)
    models = _follow_config(config, announce, local, keys)
    mcp = McpServers(TransportHost(supervisor, environment, str(Path.home()), redact=hide))
    mcp.configure_from(loaded.settings.mcp_servers)
    tools = tool_services(loaded, config, mcp)

    @functools.cache
    def plugins() -> tuple[Tool, ...]:
        return adapt_plugins(load_plugins(tools), PluginHost(supervisor, environment))

    prompts = PromptSources(home, Path.home(), loaded.settings)
    return Services(
        store=store,
        models=models,
        settings=config.current,
        config=config,
        home=home,
        supervisor=supervisor,
        ids=random_ids(),
        clock=time.time,
        random=random.random,
        owner=current_owner(secrets.token_hex(8)),
        owner_lives=lambda owner: not provably_dead(owner, host=platform.node()),
        tree=_observed_tree(),
        build_tools=_tool_builder(config, tools, plugins, mcp),
        build_prompt=prompts,
        directory_hints=prompts.directory_hints,
        close_connections=models.aclose,
        announce=announce,
        spill=functools.partial(_spill, home),
        mcp=mcp,
        local_model=local,
        redact=hide,
        tool_summary=tool_preview,
    )


def journal_mode(loaded: LoadedSettings) -> JournalMode:
    """The word of the settings as the store knows it."""
    return "DELETE" if loaded.settings.database.journal_mode == "delete" else "WAL"


def _observed_tree() -> LiveTree:
    tree = LiveTree()
    tree.observers.append(NodeLog())
    provider = tracer_provider()
    if provider is not None:
        tree.observers.append(node_spans(provider, __version__))
    return tree


def _follow_config(
    config: LiveConfig, announce: EventLog[ServerEvent], local: LocalModelServer, keys: CommandKeys
) -> Models:
    """The model registry of the moment: a changed configuration changes it too, and everybody is told."""
    loaded = config.loaded
    models = Models(
        model_settings(loaded),
        loaded.credentials,
        HttpClient(proxies=ProxySettings.from_variables(proxy_variables())),
        custom=custom_providers(loaded),
        fallbacks=fallback_specs(loaded),
        routes=route_specs(loaded),
        local=local,
        keys=keys,
    )

    def config_changed(now: LoadedSettings, keys: Any) -> None:
        models.configure(
            model_settings(now),
            now.credentials,
            custom=custom_providers(now),
            fallbacks=fallback_specs(now),
            routes=route_specs(now),
        )
        announce.append(ConfigChanged(tuple(keys)))

    config.listen(config_changed)
    return models


def _tool_builder(
    config: LiveConfig, tools: ToolServices, plugins: Callable[[], Sequence[Tool]], mcp: McpServers
) -> ToolBuilder:
    """The tools of a session, by its host's toolset and the settings of the moment."""

    def tools_of(session: Session, **options: Any) -> Any:
        settings = config.current()
        depth = options.pop("depth")
        preset = settings.toolsets or (TOOLSETS_BY_SOURCE.get(session.stored.source, "hermes-cli"),)
        resolved: ResolvedModel | None = session.resolved
        return build_tools(
            tools,
            enabled=preset,
            disabled=settings.agent.disabled_toolsets,
            may_delegate=depth < settings.delegation.max_spawn_depth,
            child=depth > 0,
            v4a=resolved is not None and knows_v4a(resolved.model),
            memory=settings.memory.memory_enabled or settings.memory.user_profile_enabled,
            plugins=plugins(),
            attached=options.pop("extra"),
            extra=session_tools(session, mcp),
            **options,
        )

    return tools_of


def tool_services(loaded: LoadedSettings, config: LiveConfig, mcp: McpServers) -> ToolServices:
    permanent: set[str] = set()

    async def remember(key: str) -> None:
        allowed = (*config.current().command_allowlist, key)
        permanent.add(key)
        await config.change("command_allowlist", list(dict.fromkeys(allowed)))

    return ToolServices(
        environment=child_environment(loaded.settings),
        user_home=Path.home(),
        agent_home=loaded.home,
        remember_permanently=remember,
        own_pids=frozenset({os.getpid(), os.getpgrp()}),
        shell=shutil.which("bash") or "/bin/sh",
        redact=loaded.settings.security.redact_secrets,
        ripgrep=shutil.which("rg"),
        permanent=permanent,
        sudo_password=lambda: config.loaded.credentials.get("SUDO_PASSWORD"),
        variables=DotenvVariables(config),
        connections=McpConnections(mcp, config),
        child=CHILD,
    )


def _spill(home: Path, name: str, text: str) -> str | None:
    return write_spillover(home, name, text, now=time.time())


def _hiding(learned: KnownSecrets) -> Callable[[str], str]:
    """What looks like a secret, and what is known to be one."""
    return lambda text: redact(learned.hide(text))


def _as_it_is(text: str) -> str:
    return text
