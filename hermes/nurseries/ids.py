"""Fresh ids by kind of thing, in the forms that the protocols name (gateway §3.1, §7.1; api-server §4.3).

Ids come in from outside (rule 17): a test hands in a counter and replays a conversation byte for byte.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable


def random_ids(clock: Callable[[], float] = time.time) -> Callable[[str], str]:
    """The server's id source."""

    def fresh(kind: str) -> str:
        match kind:
            case "session":
                return time.strftime("%Y%m%d_%H%M%S_", time.localtime(clock())) + secrets.token_hex(3)
            case "runtime" | "approval" | "turn":
                return secrets.token_hex(4)
            case "srq":
                return f"srq-{secrets.token_hex(6)}"
            case "bg" | "btw":
                return f"{kind}_{secrets.token_hex(3)}"
            case "proc":
                return f"proc_{secrets.token_hex(6)}"
            case "chatcmpl":
                return f"chatcmpl-{secrets.token_hex(15)[:29]}"
            case "resp":
                return f"resp_{secrets.token_hex(14)}"
            case "api_session":
                return f"api_{int(clock())}_{secrets.token_hex(4)}"
            case "run" | "msg" | "rs" | "fc" | "fco":
                return f"{kind}_{secrets.token_hex(16)}"
            case _:
                return f"{kind}_{secrets.token_hex(4)}"

    return fresh


def counting_ids() -> Callable[[str], str]:
    """The same forms, counted: for tests and recorded conversations."""
    counts: dict[str, int] = {}

    def fresh(kind: str) -> str:
        number = counts[kind] = counts.get(kind, 0) + 1
        match kind:
            case "session":
                return f"20260101_000000_{number:06x}"
            case "runtime" | "approval" | "turn":
                return f"{number:08x}"
            case "srq":
                return f"srq-{number}"
            case "proc":
                return f"proc_{number:012x}"
            case _:
                return f"{kind}_{number}"

    return fresh
