"""Hermes: an agent server on Trio, and an agent for your own program.

``from hermes import AIAgent`` gives the blocking agent, ``open_agent`` and ``open_server`` the async one. What is named
here is loaded when it is first used, so that importing the package costs nothing and does nothing.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "AIAgent": "embedding.blocking",
    "Agent": "embedding.agent",
    "AgentClosed": "embedding.blocking",
    "CancelReason": "outcomes",
    "Cause": "outcomes",
    "HermesError": "errors",
    "Prompt": "messages",
    "RunStatus": "outcomes",
    "Server": "embedding.agent",
    "Settings": "settings",
    "TurnRecord": "outcomes",
    "open_agent": "embedding.agent",
    "open_server": "embedding.agent",
}

__all__ = [
    "AIAgent",
    "Agent",
    "AgentClosed",
    "CancelReason",
    "Cause",
    "HermesError",
    "Prompt",
    "RunStatus",
    "Server",
    "Settings",
    "TurnRecord",
    "open_agent",
    "open_server",
]


def __getattr__(name: str) -> object:
    """The names above, and every event type of ``hermes.events``."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"{__name__}.{_HOMES.get(name, 'events')}")
    if name not in _HOMES and not (isinstance(getattr(home, name, None), type) and name[:1].isupper()):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(home, name)
