"""Models that have just failed and are left alone for a while, so that the next turn does not wait for them again.

One for the whole server: what one session has met, the others need not find out (agent-core §1.13, fallback chain).
"""

from __future__ import annotations

from hermes.agent.ports import ResolvedModel
from hermes.errors import ProviderError

USUAL = 60.0
LONGEST = 600.0
COOLING = frozenset(
    {"rate_limit", "upstream_rate_limit", "upstream_blocked", "overloaded", "server_error", "timeout", "stream_dropped"}
    | {"auth", "auth_permanent", "billing", "model_entitlement"}
)
"""Classes of errors that say something about the endpoint; the others are about this one request."""

Key = tuple[str, str, str]


class Cooldowns:
    """Which models are left alone, until when. The times are monotonic seconds."""

    def __init__(self) -> None:
        self._until: dict[Key, float] = {}

    def begin(self, model: ResolvedModel, error: ProviderError, now: float) -> None:
        """Leave it alone for as long as its provider asks, or a minute; not for errors of a single request."""
        if error.error_class not in COOLING:
            return
        self._until = {key: until for key, until in self._until.items() if until > now}
        seconds = USUAL if error.retry_after is None else min(max(error.retry_after, 0.0), LONGEST)
        self._until[_key(model)] = now + seconds

    def left(self, model: ResolvedModel, now: float) -> float:
        """Seconds for which it is left alone yet; 0 if it may be asked."""
        return max(self._until.get(_key(model), now) - now, 0.0)


def _key(model: ResolvedModel) -> Key:
    return model.provider, model.base_url, model.model
