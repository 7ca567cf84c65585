"""What an error answer of a provider means: one table from status, code and wording to a class of failure.

The class decides what the retry engine does; this file decides nothing but the class, a short sentence without secrets,
and what the provider said about waiting. Error objects inside a stream that began with status 200 go the same way.
"""

# ruff: noqa: E501  (a row of the rule table is one line, however long)
from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from hermes.errors import ProviderError
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

_log = logging.getLogger(__name__)

MAX_RETRY_AFTER: Final = 600.0
_MAX_MESSAGE: Final = 300

_SECRET: Final = lazy_pattern(
    r"(?i)\b(?:sk|key|pk|xai|hf|gsk|nvapi|AIza)[-_][\w*.\-]{6,}|\bAIza[\w\-]{10,}|bearer\s+\S+"
)
_TAGS: Final = lazy_pattern(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>")


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """What can be read from an error answer. ``status`` may be derived from the code if the HTTP status was 200."""

    status: int | None
    code: str
    message: str
    html: bool = False
    upstream: str = ""
    retry_after: float | None = None
    resets_at: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Matches if the status is one of ``statuses`` (empty: any) and the code or the wording fits (neither: always)."""

    error_class: str
    statuses: frozenset[int] = frozenset()
    codes: frozenset[str] = frozenset()
    wording: re.Pattern[str] | None = None
    upstream: bool = False
    html: bool = False

    def matches(self, report: ErrorReport) -> bool:
        if self.statuses and report.status not in self.statuses:
            return False
        if (self.upstream and not report.upstream) or (self.html and not report.html):
            return False
        if not self.codes and self.wording is None:
            return True
        return report.code in self.codes or (self.wording is not None and bool(self.wording.search(report.message)))


def _rule(
    error_class: str,
    wording: str = "",
    *,
    on: tuple[int, ...] = (),
    codes: str = "",
    upstream: bool = False,
    html: bool = False,
) -> Rule:
    pattern = lazy_pattern(wording, re.IGNORECASE | re.DOTALL) if wording else None
    return Rule(error_class, frozenset(on), frozenset(codes.split()), pattern, upstream, html)


_CLIENT = (400, 403, 404, 409, 422)
_CLIENT_OR_500 = (*_CLIENT, 500)

# First match wins. Narrow wordings come first; a bare status comes last in its block.
RULES: Final[tuple[Rule, ...]] = (
    # repairs of the wire copy
    _rule("invalid_encrypted_content", r"encrypted[_ ]content.*(invalid|could not|cannot|verif)", on=_CLIENT, codes="invalid_encrypted_content"),
    _rule("thinking_signature", r"(thinking|reasoning).*signature|signature.*(thinking|reasoning)|thinking.{0,40}blocks?.*(cannot be modified|must remain)|expected .?thinking.?.*found", on=_CLIENT),
    _rule("reasoning_mandatory", r"reasoning (is mandatory|cannot be disabled|is required)|cannot disable (reasoning|thinking)|does not support disabling", on=_CLIENT),
    _rule("llama_cpp_grammar_pattern", r"(parse|initiali[sz]e|parsing|unable to generate).{0,40}(grammar|parser)|grammar.*(error|fail)|unsupported (regex|pattern)", on=_CLIENT_OR_500),
    _rule("role_alternation", r"roles? must alternate|must alternate between|consecutive .*(role|messages)|last (message|role).*(must be|should be|expected)|expected last role|first message must (be|use|have).*user", on=_CLIENT_OR_500),
    # images
    _rule("multimodal_tool_content_unsupported", r"(image|multimodal).*tool[ _](result|message|content|role)|tool (message|content|result).*(must be a string|only.*text)", on=_CLIENT),
    _rule("image_too_large", r"image.*(exceeds|too large|too big|larger than|max(imum)? (size|dimension))", on=(*_CLIENT, 413), codes="image_too_large"),
    _rule("image_corrupt", r"(could not|cannot|unable to|failed to) (process|decode|parse|read|load).{0,30}image|(invalid|corrupt|unsupported).{0,20}image", on=_CLIENT, codes="invalid_image invalid_image_format image_parse_error"),
    # vendor tiers
    _rule("oauth_long_context_beta_forbidden", r"long context beta is not", on=_CLIENT),
    _rule("long_context_tier", r"(extra usage|higher tier|tier).*long context|long context.*(extra usage|tier)", on=(*_CLIENT, 429)),
    # money and rate
    _rule("billing", on=(402,)),
    _rule("billing", codes="insufficient_quota billing_error billing_not_active billing_hard_limit_reached insufficient_balance", on=(400, 401, 403, 429)),
    _rule("billing", r"insufficient (credit|balance|fund|quota)|credit balance is too low|out of credits|payment required|billing (hard limit|is not active)|not enough (credit|balance)|run out of credit", on=(400, 401, 403, 429)),
    _rule("upstream_rate_limit", on=(429,), upstream=True),
    _rule("upstream_rate_limit", r"rate.?limited upstream", on=(429,)),
    _rule("rate_limit", on=(429,)),
    # size
    _rule("context_overflow", r"prompt is too long|context[ _](length|window|size)|maximum context|(input|prompt) token count.*exceed|too many (input |prompt )?tokens|reduce the (length|number of)|exceeds? .{0,40}(max_model_len|token limit)|longer than the model|maximum (prompt|input) (length|tokens)|input is too long", on=(*_CLIENT, 413, 500), codes="context_length_exceeded model_context_window_exceeded exceed_context_size_error"),
    _rule("payload_too_large", on=(413,)),
    # what may not be said, or not here
    _rule("provider_policy_blocked", r"data policy|privacy (settings|policy)|guardrail restrictions", on=(*_CLIENT, 503)),
    _rule("content_policy_blocked", r"content[ _](policy|filter|management)|flagged|moderation|safety (system|reason|filter)|violat.*(usage|policy|policies)|prohibited[ _]content", on=(400, 403, 422, 451), codes="content_policy_violation content_filter safety moderation_blocked"),
    # identity
    _rule("model_entitlement", r"plan .*(include|support|access|allow)|upgrade .*plan|(not|n't) have access to.{0,20}model|not (entitled|authorized) .*model|subscription.*(required|does not)|must be verified to use", on=(400, 401, 403, 404), codes="model_not_entitled"),
    _rule("model_not_found", r"model.{0,120}(not found|(does not|doesn't|not) exist|not supported|is not available|unknown)|(no such|unknown|invalid|unrecogni[sz]ed) model|not a valid model|no endpoints found", on=(400, 404, 422), codes="model_not_found invalid_model"),
    _rule("auth_permanent", r"(key|token|account|organi[sz]ation).*(revoked|disabled|deactivated|suspended|deleted)", on=(400, 401, 403), codes="account_deactivated api_key_revoked organization_disabled"),
    _rule("auth", on=(401,)),
    _rule("auth", r"api[ _]key (not valid|invalid|expired)|invalid (x-)?api[ _-]key|authentication", on=(400, 403), codes="invalid_api_key"),
    _rule("unknown", r"cloudflare|attention required|captcha|access denied|request blocked|ray id", on=(403,), html=True),
    _rule("upstream_blocked", on=(403,), upstream=True),
    _rule("auth", on=(403,)),
    # the other side has trouble
    _rule("timeout", on=(408, 524)),
    _rule("overloaded", on=(503, 529)),
    _rule("overloaded", r"overloaded|at capacity|server is busy|high demand|currently loading", on=(500, 502, 504, 520, 521, 522, 523), codes="overloaded_error"),
    _rule("format_error", r"validation error|invalid (request|parameter|type|value)|missing required|pydantic|unexpected keyword", on=(500, 502)),
    _rule("server_error", on=tuple(status for status in range(500, 600) if status not in (503, 524, 529))),
    # the rest
    _rule("format_error", on=tuple(range(300, 500))),
)  # fmt: skip

# Codes and types that stand for a status where the HTTP status says nothing: inside a stream, or in a body with 200.
CODE_STATUS: Final[Mapping[str, int]] = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "resource_exhausted": 429,
    "authentication_error": 401,
    "unauthenticated": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "not_found": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "billing_error": 402,
    "api_error": 500,
    "server_error": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "internal": 500,
    "timeout_error": 504,
    "deadline_exceeded": 504,
    "service_unavailable": 503,
    "unavailable": 503,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "bad_request": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
}

HINTS: Final[Mapping[str, str]] = {
    "auth": "check the API key of this provider",
    "ssl_cert_verification": "check the certificate or the base URL",
    "provider_policy_blocked": "check the privacy settings of your account there",
}


def classify(report: ErrorReport) -> str:
    """The class of an error answer; ``unknown`` if no rule knows it."""
    # A quota that refills by itself is a rate limit, whatever the wording says about billing.
    if report.status == 429 and report.retry_after is not None and report.code != "insufficient_quota":
        return "upstream_rate_limit" if report.upstream else "rate_limit"
    return next((rule.error_class for rule in RULES if rule.matches(report)), "unknown")


def response_error(
    status: int, headers: Mapping[str, str], body: bytes, *, provider: str, model: str, now: float
) -> ProviderError:
    """The error for an HTTP answer with an error status. ``now`` is wall-clock time, for dates."""
    _log.debug("error answer of %s, status %s: %s", provider, status, body[:4000])
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        payload = body.decode("utf-8", "replace")
    if 300 <= status < 400:
        payload = "the endpoint redirects; put the final address into the base URL"
    report = read_report(payload, status=status, headers=headers, now=now)
    return to_error(report, provider=provider, model=model)


def payload_error(payload: Any, *, provider: str, model: str, now: float) -> ProviderError:
    """The error for an error object inside a stream or in a body with status 200."""
    _log.debug("error object of %s: %s", provider, payload)
    return to_error(read_report(payload, status=None, headers={}, now=now), provider=provider, model=model)


def to_error(report: ErrorReport, *, provider: str, model: str) -> ProviderError:
    error_class = classify(report)
    message = report.message or f"status {report.status}"
    details: dict[str, Any] = {}
    if report.code:
        details["code"] = report.code
    if error_class in HINTS:
        details["hint"] = HINTS[error_class]
    if error_class == "context_overflow" and (limit := _stated_limit(report.message)):
        details["context_limit"] = limit
    if report.upstream:
        details["upstream"] = report.upstream
    return ProviderError(
        message,
        error_class=error_class,
        status=report.status,
        retry_after=report.retry_after,
        resets_at=report.resets_at,
        provider=provider,
        model=model,
        details=details,
    )


def read_report(payload: Any, *, status: int | None, headers: Mapping[str, str], now: float) -> ErrorReport:
    """Find code, message and hints in any of the shapes providers use."""
    if isinstance(payload, list) and payload:
        payload = payload[0]
    error = payload.get("error", payload) if isinstance(payload, Mapping) else payload
    if isinstance(error, str) and isinstance(payload, Mapping) and isinstance(payload.get("message"), str):
        error = {"code": error, "message": payload["message"]}
    if not isinstance(error, Mapping):
        error = {"message": error if isinstance(error, str) else ""}
    metadata = error.get("metadata") if isinstance(error.get("metadata"), Mapping) else {}
    code = next((str(v) for k in ("code", "type", "status") if isinstance(v := error.get(k), str) and v), "").lower()
    raw = _message(error, metadata)
    retry_after, resets_at = _waiting(error, headers, raw, now)
    return ErrorReport(
        status=status if status is not None else _derived_status(error, code),
        code=code,
        message=_short(raw),
        html="<html" in raw[:2000].lower() or "<!doctype" in raw[:200].lower(),
        upstream=str(metadata.get("provider_name") or ""),
        retry_after=retry_after,
        resets_at=resets_at,
    )


def _message(error: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    for key in ("message", "detail", "error", "error_message", "msg", "errors"):
        value = error.get(key)
        if isinstance(value, str) and value:
            inner = metadata.get("raw")
            return f"{value}: {inner}" if isinstance(inner, str) and inner else value
        if isinstance(value, list) and value:
            first = value[0]
            return str(first.get("msg") or first.get("message") or first) if isinstance(first, Mapping) else str(first)
        if isinstance(value, Mapping) and isinstance(value.get("message"), str):
            return str(value["message"])
    return ""


def _short(message: str) -> str:
    text = " ".join(_TAGS.sub(" ", message).split())
    text = _SECRET.sub("[redacted]", text)
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


def _derived_status(error: Mapping[str, Any], code: str) -> int | None:
    for key in ("code", "status", "status_code"):
        value = error.get(key)
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 300 <= value < 600:
            return value
    for key in ("type", "code", "status"):
        value = error.get(key)
        if isinstance(value, str) and value.lower() in CODE_STATUS:
            # The narrower of the two names wins: ``invalid_request_error`` says less than its code.
            return CODE_STATUS.get(code, CODE_STATUS[value.lower()])
    return None


_DURATION: Final = lazy_pattern(
    r"(?:(\d+)h)?\s*(?:(\d+)m(?!s))?\s*(?:(\d+(?:\.\d+)?)\s*(ms|s(?:ec(?:onds?)?)?)?)?", re.IGNORECASE
)
_TRY_AGAIN: Final = lazy_pattern(r"(?:try again|retry|wait)\w*\s+(?:in|after|for)?\s*((?:\d+h)?\s*(?:\d+m(?!s))?\s*(?:\d+(?:\.\d+)?\s*(?:ms|s))?)", re.IGNORECASE)  # fmt: skip


def parse_duration(text: str) -> float | None:
    """``12``, ``1.5s``, ``350ms``, ``6m0s``, ``1h2m``."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()[:3]):
        return None
    hours, minutes, amount, unit = match.groups()
    seconds = float(amount or 0) / (1000 if (unit or "").lower() == "ms" else 1)
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds


def _waiting(
    error: Mapping[str, Any], headers: Mapping[str, str], message: str, now: float
) -> tuple[float | None, float | None]:
    """Seconds to wait (capped) and the moment the limit ends, as far as the provider told."""
    wait = _header_wait(headers, now)
    if wait is None:
        wait = _body_wait(error, message)
    resets_at = next((float(v) for k in ("resets_at", "reset_at") if isinstance(v := error.get(k), int | float)), None)
    if resets_at is None and wait is not None:
        resets_at = now + wait
    elif wait is None and resets_at is not None:
        wait = max(0.0, resets_at - now)
    return (None if wait is None else min(max(wait, 0.0), MAX_RETRY_AFTER)), resets_at


def _header_wait(headers: Mapping[str, str], now: float) -> float | None:
    milliseconds = headers.get("retry-after-ms", "")
    if milliseconds.replace(".", "", 1).isdigit():
        return float(milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    if (seconds := parse_duration(value)) is not None:
        return seconds
    from email.utils import parsedate_to_datetime

    try:
        # The server's own clock is the reference, if it told it: ours may be wrong.
        reference = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else now
        return max(0.0, parsedate_to_datetime(value).timestamp() - reference)
    except (ValueError, TypeError):
        return None


def _body_wait(error: Mapping[str, Any], message: str) -> float | None:
    for key in ("retry_after", "retry_after_seconds", "resets_in_seconds"):
        value = error.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str) and (seconds := parse_duration(value)) is not None:
            return seconds
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping) and isinstance(delay := detail.get("retryDelay"), str):
            return parse_duration(delay)
    match = _TRY_AGAIN.search(message)
    return parse_duration(match.group(1)) if match else None


_LIMIT_WORDINGS: Final = tuple(
    lazy_pattern(pattern, re.IGNORECASE)
    for pattern in (
        r"maximum context length (?:is|of) ([\d,]+)",
        r"tokens? > ([\d,]+) maximum",
        r"context (?:size|window|length) (?:is |of |\()?\(?([\d,]+)",
        r"maximum (?:number of tokens|input|prompt)[^\d]{0,40}([\d,]+)",
        r"limit (?:is|of) ([\d,]+) tokens",
    )
)


def _stated_limit(message: str) -> int | None:
    for pattern in _LIMIT_WORDINGS:
        if match := pattern.search(message):
            return int(match.group(1).replace(",", ""))
    return None
