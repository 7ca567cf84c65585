"""What host authors need to test against: a fake model provider, its script format, a sweep of cancellations.

Names are loaded on first use, so that importing the package costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes.testing.cancel_sweep import (
        InScope,
        SweepFailed,
        SweepReport,
        SweepRun,
        cancel_at_every_step,
        run_seeded,
    )
    from hermes.testing.fake_provider import FakeProvider
    from hermes.testing.request_log import RequestRecord
    from hermes.testing.script import Conversation, Faults, Reply, Script, ScriptCursor, ScriptError
    from hermes.testing.scripted_model import ScriptedModel
    from hermes.testing.scripted_server import FunctionTool, ScriptedServer, prompt, server, until
    from hermes.testing.strict import MalformedHistory, check_request

_HOMES: Final = {
    "Conversation": "script",
    "FakeProvider": "fake_provider",
    "Faults": "script",
    "FunctionTool": "scripted_server",
    "InScope": "cancel_sweep",
    "MalformedHistory": "strict",
    "Reply": "script",
    "RequestRecord": "request_log",
    "Script": "script",
    "ScriptCursor": "script",
    "ScriptError": "script",
    "ScriptedModel": "scripted_model",
    "ScriptedServer": "scripted_server",
    "SweepFailed": "cancel_sweep",
    "SweepReport": "cancel_sweep",
    "SweepRun": "cancel_sweep",
    "cancel_at_every_step": "cancel_sweep",
    "check_request": "strict",
    "prompt": "scripted_server",
    "run_seeded": "cancel_sweep",
    "server": "scripted_server",
    "until": "scripted_server",
}

__all__ = [
    "Conversation",
    "FakeProvider",
    "Faults",
    "FunctionTool",
    "InScope",
    "MalformedHistory",
    "Reply",
    "RequestRecord",
    "Script",
    "ScriptCursor",
    "ScriptError",
    "ScriptedModel",
    "ScriptedServer",
    "SweepFailed",
    "SweepReport",
    "SweepRun",
    "cancel_at_every_step",
    "check_request",
    "prompt",
    "run_seeded",
    "server",
    "until",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
