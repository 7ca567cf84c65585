"""What to do about each class of provider error: one table (agent-core §1.13).

The classes themselves are given by the providers (``ProviderError.error_class``); here stands only what follows from
them. ``retries.py`` reads the table, and nothing else decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from hermes.records import dataclass

Repair = Literal[
    "merge_roles",
    "drop_signed_reasoning",
    "drop_replay_items",
    "require_reasoning",
    "simplify_schemas",
    "strip_images",
    "flatten_tool_content",
]


@dataclass(frozen=True, slots=True)
class ErrorAction:
    """Steps in the order in which they are tried; each that is False is skipped.

    ``reopen``: at once, while nothing was delivered. ``repair``: change the wire copy once. ``refresh``: take the
    credentials anew, once. ``compress``: shorten the history. ``retry``: with backoff. ``rebuild``: a new client, the
    tries begin again. ``fall_back``: the next model. ``ladder``: long waits, while nothing was delivered.
    ``retryable`` is what a person is told: whether the same prompt may work later.
    """

    reopen: bool = False
    repair: Repair | None = None
    refresh: bool = False
    compress: bool = False
    retry: bool = False
    rebuild: bool = False
    fall_back: bool = False
    ladder: bool = False
    retryable: bool = False
    hint: str = ""


_CONNECTION = ErrorAction(retry=True, rebuild=True, fall_back=True, ladder=True, retryable=True)
_SERVER = ErrorAction(retry=True, fall_back=True, ladder=True, retryable=True)
_LIMITED = ErrorAction(retry=True, fall_back=True, retryable=True)
_NO_MODEL = ErrorAction(fall_back=True, hint="choose another model")

ERROR_ACTIONS: Mapping[str, ErrorAction] = MappingProxyType(
    {
        "auth": ErrorAction(refresh=True, fall_back=True, hint="check the API key of this provider"),
        "auth_permanent": ErrorAction(fall_back=True, hint="the API key is revoked or disabled"),
        "provider_not_configured": ErrorAction(fall_back=True),
        "billing": ErrorAction(fall_back=True, hint="the account has no credit left"),
        "rate_limit": ErrorAction(retry=True, refresh=True, fall_back=True, retryable=True),
        "upstream_rate_limit": _LIMITED,
        "upstream_blocked": _LIMITED,
        "overloaded": _SERVER,
        "server_error": _SERVER,
        "timeout": _CONNECTION,
        "stream_dropped": ErrorAction(
            reopen=True, retry=True, rebuild=True, fall_back=True, ladder=True, retryable=True
        ),
        "ssl_cert_verification": ErrorAction(hint="the certificate of the endpoint could not be verified"),
        "context_overflow": ErrorAction(compress=True),
        "payload_too_large": ErrorAction(compress=True),
        "long_context_tier": ErrorAction(compress=True),
        "oauth_long_context_beta_forbidden": ErrorAction(compress=True),
        "image_too_large": ErrorAction(repair="strip_images"),
        "image_corrupt": ErrorAction(repair="strip_images"),
        "multimodal_tool_content_unsupported": ErrorAction(repair="flatten_tool_content"),
        "model_not_found": _NO_MODEL,
        "model_entitlement": ErrorAction(fall_back=True, hint="the plan does not include this model"),
        "provider_policy_blocked": ErrorAction(fall_back=True, hint="the data policy of the provider forbids it"),
        "content_policy_blocked": ErrorAction(fall_back=True),
        "incomplete_response": ErrorAction(fall_back=True, retryable=True),
        "format_error": ErrorAction(fall_back=True),
        "role_alternation": ErrorAction(repair="merge_roles", fall_back=True),
        "thinking_signature": ErrorAction(repair="drop_signed_reasoning", fall_back=True),
        "invalid_encrypted_content": ErrorAction(repair="drop_replay_items", fall_back=True),
        "reasoning_mandatory": ErrorAction(repair="require_reasoning", fall_back=True),
        "llama_cpp_grammar_pattern": ErrorAction(repair="simplify_schemas", fall_back=True),
        "unknown": ErrorAction(retry=True, fall_back=True, retryable=True),
    }
)


def action_for(error_class: str) -> ErrorAction:
    """The row of this class; a class that the table does not know is treated as unknown."""
    return ERROR_ACTIONS.get(error_class, ERROR_ACTIONS["unknown"])
