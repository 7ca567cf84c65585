"""The table of error classes, row by row, and what providers say about waiting."""

# ruff: noqa: E501  (a row of the table is one line, however long)
from __future__ import annotations

import logging
from email.utils import formatdate
from typing import Any

import orjson
import pytest

from hermes.agent.error_classes import ERROR_ACTIONS
from hermes.agent.providers.error_reports import RULES, parse_duration, payload_error, response_error
from hermes.errors import ProviderError

NOW = 1_800_000_000.0


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    return response_error(status, headers or {}, data, provider="p", model="m", now=NOW)


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


ROWS: list[tuple[int, Any, str]] = [
    (401, said("Incorrect API key provided"), "auth"),
    (403, said("Forbidden"), "auth"),
    (400, said("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT"), "auth"),
    (401, said("This API key has been revoked"), "auth_permanent"),
    (403, said("Your organization has been disabled."), "auth_permanent"),
    (402, said("Insufficient credits"), "billing"),
    (429, said("You exceeded your current quota", code="insufficient_quota"), "billing"),
    (400, said("Your credit balance is too low to access the API"), "billing"),
    (429, said("Rate limit reached for requests"), "rate_limit"),
    (429, said("Too many tokens per minute; reduce the length of messages"), "rate_limit"),
    (429, said("slow down", metadata={"provider_name": "Groq"}), "upstream_rate_limit"),
    (429, said("model x is temporarily rate-limited upstream"), "upstream_rate_limit"),
    (403, said("refused", metadata={"provider_name": "Groq"}), "upstream_blocked"),
    (503, said("no capacity"), "overloaded"),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
    (500, said("The model is overloaded, try later"), "overloaded"),
    (500, said("Internal server error"), "server_error"),
    (502, b"<html><title>502 Bad Gateway</title></html>", "server_error"),
    (504, b"", "server_error"),
    (520, b"", "server_error"),
    (500, said("1 validation error for ChatCompletionRequest"), "format_error"),
    (408, said("Request timeout"), "timeout"),
    (524, b"", "timeout"),
    (400, said("This model's maximum context length is 128000 tokens. However, you requested 130000"), "context_overflow"),
    (400, said("too big", code="context_length_exceeded"), "context_overflow"),
    (400, said("prompt is too long: 210000 tokens > 200000 maximum"), "context_overflow"),
    (400, said("The input token count (1200000) exceeds the maximum number of tokens allowed"), "context_overflow"),
    (500, said("the request exceeds the available context size"), "context_overflow"),
    (413, said("Prompt is too long"), "context_overflow"),
    (413, b"Request Entity Too Large", "payload_too_large"),
    (400, said("messages.0: image exceeds 5 MB maximum"), "image_too_large"),
    (400, said("Could not process image"), "image_corrupt"),
    (400, said("Image content is not supported in tool messages: tool message content must be a string"), "multimodal_tool_content_unsupported"),
    (404, said("The model `gpt-9` does not exist", code="model_not_found"), "model_not_found"),
    (400, said("foo/bar is not a valid model ID"), "model_not_found"),
    (404, said("No endpoints found for foo/bar."), "model_not_found"),
    (404, said("Not Found"), "format_error"),
    (404, b"404 page not found", "format_error"),
    (403, said("Your plan does not include this model"), "model_entitlement"),
    (400, said("Your organization must be verified to use the model `o3`"), "model_entitlement"),
    (404, said("No endpoints found matching your data policy (Free model publication)"), "provider_policy_blocked"),
    (400, said("The response was filtered due to the prompt triggering content management policy", code="content_filter"), "content_policy_blocked"),
    (403, said("Your chosen model requires moderation and your input was flagged", metadata={"reasons": ["x"], "provider_name": "OpenAI"}), "content_policy_blocked"),
    (400, said("messages: roles must alternate between \"user\" and \"assistant\""), "role_alternation"),
    (500, said("Conversation roles must alternate user/assistant/user"), "role_alternation"),
    (400, said("messages.1.content.0: Invalid `signature` in `thinking` block"), "thinking_signature"),
    (400, said("`thinking` blocks in the latest assistant message cannot be modified"), "thinking_signature"),
    (400, said("Expected `thinking` or `redacted_thinking`, but found `tool_use`"), "thinking_signature"),
    (400, said("The encrypted content could not be verified", code="invalid_encrypted_content"), "invalid_encrypted_content"),
    (400, said("Reasoning is mandatory for this endpoint and cannot be disabled."), "reasoning_mandatory"),
    (400, said("failed to parse grammar"), "llama_cpp_grammar_pattern"),
    (500, said("Error: Failed to initialize samplers: failed to parse grammar"), "llama_cpp_grammar_pattern"),
    (429, said("Extra usage is required for long context requests"), "long_context_tier"),
    (400, said("The long context beta is not yet available for this subscription."), "oauth_long_context_beta_forbidden"),
    (400, said("tools.0.function.name: string does not match pattern"), "format_error"),
    (422, {"detail": [{"loc": ["body"], "msg": "Field required"}]}, "format_error"),
    (302, b"", "format_error"),
    (403, b"<!DOCTYPE html><html>Attention Required! | Cloudflare</html>", "unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "error_class"), ROWS, ids=lambda value: str(value)[:60])
def test_an_answer_has_this_class(status: int, body: Any, error_class: str) -> None:
    error = answer(status, body)
    assert (error.error_class, error.status, error.provider, error.model) == (error_class, status, "p", "m")


def test_every_class_of_the_table_has_an_action_and_a_row_above() -> None:
    classes = {rule.error_class for rule in RULES}
    assert classes <= set(ERROR_ACTIONS)
    assert classes <= {row[2] for row in ROWS}


@pytest.mark.parametrize(
    ("payload", "error_class", "status"),
    [
        ({"error": {"type": "rate_limit_error", "message": "x"}}, "rate_limit", 429),
        ({"error": {"code": "529", "message": "x"}}, "overloaded", 529),
        (
            {"error": {"type": "invalid_request_error", "code": "context_length_exceeded", "message": "x"}},
            "context_overflow",
            400,
        ),
        ([{"error": {"code": 503, "status": "UNAVAILABLE", "message": "x"}}], "overloaded", 503),
        ({"error": "something odd"}, "unknown", None),
        ({"message": "no shape at all"}, "unknown", None),
        ("text", "unknown", None),
        (None, "unknown", None),
    ],
)
def test_an_object_without_http_status_is_classified_by_its_code(
    payload: Any, error_class: str, status: int | None
) -> None:
    error = payload_error(payload, provider="p", model="m", now=NOW)
    assert (error.error_class, error.status) == (error_class, status)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "7"}, {}, 7.0),
        ({"retry-after": "1.5"}, {}, 1.5),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, {}, 90.0),
        ({"retry-after": formatdate(500 + 30, usegmt=True), "date": formatdate(500, usegmt=True)}, {}, 30.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, {}, 0.0),
        ({"retry-after-ms": "250"}, {}, 0.25),
        ({"retry-after": "86400"}, {}, 600.0),
        ({"retry-after": "soon"}, {}, None),
        ({}, said("Please try again in 1.242s."), 1.242),
        ({}, said("Please try again in 6m0s."), 360.0),
        ({}, said("Please try again in 350ms."), 0.35),
        ({}, said("Please retry after 20 seconds."), 20.0),
        ({}, said("x", retry_after=12), 12.0),
        ({}, said("x", details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]), 34.0),
        ({}, said("x", resets_in_seconds=45), 45.0),
        ({}, said("x", resets_at=NOW + 50), 50.0),
        ({}, said("no hint"), None),
    ],
)
def test_what_the_provider_says_about_waiting_is_understood(
    headers: dict[str, str], body: Any, seconds: float | None
) -> None:
    error = answer(429, body, headers)
    assert error.retry_after == pytest.approx(seconds)
    assert error.error_class == "rate_limit"
    if seconds is not None and seconds < 600:
        assert error.resets_at == pytest.approx(NOW + seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12", 12.0),
        ("1.5s", 1.5),
        ("350ms", 0.35),
        ("6m0s", 360.0),
        ("1h2m", 3720.0),
        ("", None),
        ("x", None),
        ("-1", None),
    ],
)
def test_durations_have_many_forms(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


def test_a_message_is_short_plain_and_without_secrets() -> None:
    error = answer(401, said("Incorrect API key provided: sk-proj-abcdefgh12345678. Bearer abc.def " + "x" * 900))
    assert "abcdefgh" not in error.message
    assert "abc.def" not in error.message
    assert len(error.message) <= 300
    page = answer(502, b"<html><head><style>a{}</style><title>502 Bad Gateway</title></head><body>nginx</body></html>")
    assert page.message == "502 Bad Gateway nginx"


def test_the_raw_body_goes_to_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        error = answer(400, said("short", param="a detail"))
    assert "a detail" in caplog.text
    assert "a detail" not in str(error)


def test_an_error_without_words_names_the_status() -> None:
    assert answer(504, b"").message == "status 504"


def test_an_upstream_message_is_quoted() -> None:
    error = answer(400, said("Provider returned error", metadata={"raw": "bad schema", "provider_name": "X"}))
    assert error.message == "Provider returned error: bad schema"
