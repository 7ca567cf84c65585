"""What hosts ask beside the conversations: the machine, what was used, one question to a model (gateway §10.1, B)."""

from __future__ import annotations

from typing import Any

import trio

from hermes.agent.machine_facts import battery, machine
from hermes.errors import EmptyText, HermesError, InvalidValue
from hermes.nurseries.command_views import used_lately
from hermes.nurseries.one_shot import ask_once
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway import schemas_config as c
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.rpc.method_table import Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()


@methods.method("insights.get", c.InsightsGetParams, "InsightsGetResult")
async def insights(client: GatewayClient, params: c.InsightsGetParams) -> dict[str, Any]:
    """How many sessions were used in the last days, and how many messages they have."""
    sessions, messages = await used_lately(client.server.services, params.days)
    return {"days": params.days, "sessions": sessions, "messages": messages}


@methods.method("system.battery", s.EmptyParams, "SystemBatteryResult")
async def system_battery(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    """The battery of the server's machine, if it has one."""
    return await trio.to_thread.run_sync(battery)


@methods.method("machine.facts", s.EmptyParams, "MachineFactsResult")
async def machine_facts(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    """What kind of machine the server runs on."""
    return await trio.to_thread.run_sync(machine)


@methods.method("profiles.list", c.ProfilesListParams, "ProfilesListResult")
def profiles_list(client: GatewayClient, params: c.ProfilesListParams) -> dict[str, Any]:
    """The one profile that a server has."""
    services = client.server.services
    row: dict[str, Any] = {"name": "default", "path": str(services.home), "is_default": True}
    try:
        row["provider"] = services.models.default_provider()
    except HermesError:
        row["provider"] = ""
    row["model"] = client.server.settings.model.default
    return {"profiles": [row]}


@methods.method("llm.oneshot", c.LlmOneshotParams, "LlmOneshotResult")
def llm_oneshot(client: GatewayClient, params: c.LlmOneshotParams) -> Awaiting[Any]:
    """One question to the small model: no tools, no history, nothing stored."""
    if params.template is not None or params.variables:
        raise InvalidValue("this server has no templates; say what is wanted in instructions and input")
    instructions, text = (params.instructions or "").strip(), (params.input or "").strip()
    if not instructions and not text:
        raise EmptyText("instructions or input is required")
    session = client.session(params.session_id) if params.session_id is not None else None

    async def ask() -> dict[str, Any]:
        said = await ask_once(
            client.server.services,
            session.resolved if session is not None else None,
            instructions,
            text,
            max_tokens=params.max_tokens,
            temperature=params.temperature,
        )
        return {"text": said}

    return Awaiting(ask)
