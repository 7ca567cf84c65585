"""Modes, config options and models of a session."""

from __future__ import annotations

from typing import Any, Final

from hermes.errors import InvalidValue
from hermes.nurseries import session_options
from hermes.nurseries.session import Session
from hermes.protocols.acp import offers
from hermes.protocols.acp.context import AcpContext
from hermes.protocols.acp.schemas import (
    SessionSetConfigOptionParams,
    SessionSetConfigOptionResult,
    SessionSetModelParams,
    SessionSetModeParams,
)
from hermes.protocols.rpc.method_table import MethodTable

TABLE: Final[MethodTable[AcpContext]] = MethodTable()


@TABLE.method("session/set_mode", SessionSetModeParams)
async def set_mode(ctx: AcpContext, params: SessionSetModeParams) -> dict[str, Any]:
    await session_options.set_mode((await ctx.wait_view(params.session_id)).session, params.mode_id)
    return {}


@TABLE.method("session/set_model", SessionSetModelParams)
async def set_model(ctx: AcpContext, params: SessionSetModelParams) -> dict[str, Any]:
    await _switch((await ctx.wait_view(params.session_id)).session, params.model_id)
    return {}


@TABLE.method("session/set_config_option", SessionSetConfigOptionParams, SessionSetConfigOptionResult)
async def set_config_option(ctx: AcpContext, params: SessionSetConfigOptionParams) -> SessionSetConfigOptionResult:
    session = (await ctx.wait_view(params.session_id)).session
    value = params.value
    if not isinstance(value, str):
        raise InvalidValue(f"the value of {params.config_id} must be a string")
    match params.config_id:
        case offers.MODE_OPTION:
            await session_options.set_mode(session, value)
        case offers.POLICY_OPTION:
            await session_options.set_mode(session, offers.POLICY_MODES.get(value, value))
        case offers.MODEL_OPTION:
            await _switch(session, value)
        case _:
            raise InvalidValue(f"unknown config option {params.config_id}")
    return SessionSetConfigOptionResult(config_options=ctx.config_options(session))


async def _switch(session: Session, model_id: str) -> None:
    info = session.info()
    # The present model may be of a provider whose id the resolver would not take apart.
    if model_id != offers.model_id(info.provider, info.model):
        provider, colon, model = model_id.partition(":")
        known = colon and provider == info.provider
        await session_options.switch_model(session, model if known else model_id, provider if known else None)
