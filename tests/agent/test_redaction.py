"""What is masked, and what only looks like a secret and must survive."""

from __future__ import annotations

import pytest

from hermes.agent.redaction import MASK, SENTINEL, has_mask, key_lines, mask, redact, redact_file, redact_value

TOKEN = "sk-ant-api03-abcdefghijklmnop1234"

SECRETS: tuple[tuple[str, str], ...] = (
    (f"key is {TOKEN}", TOKEN),
    ("ghp_abcdefghijklmnopqrstuvwxyz012345", "ghp_abcdefghijklmnopqrstuvwxyz012345"),
    ("AWS AKIAIOSFODNN7EXAMPLE here", "AKIAIOSFODNN7EXAMPLE"),
    ("xoxb-123456789012-abcdefghij", "xoxb-123456789012-abcdefghij"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "AIzaSyA1234567890abcdefghijklmnopqrstuv"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc123", "eyJhbGciOiJIUzI1NiJ9"),
    ("OPENAI_API_KEY=abc123def456", "abc123def456"),
    ("export DB_PASSWORD='hunter2pass'", "hunter2pass"),
    ("MY_SECRET=swordfish", "swordfish"),
    ('{"api_key": "Zx81kkQ9-22"}', "Zx81kkQ9-22"),
    ("password: hunter2!x", "hunter2!x"),
    ("  client_secret: a1b2c3d4e5", "a1b2c3d4e5"),
    ("  api_server:\n    key: Qf3T_x9bLm2-Zk81kkQ9vv0aPq\n    port: 1", "Qf3T_x9bLm2-Zk81kkQ9vv0aPq"),
    ("Authorization: Bearer abcdef123456", "abcdef123456"),
    ('curl -H "Authorization: Basic dXNlcjpwYXNz" x', "dXNlcjpwYXNz"),
    ("x-api-key: abcd-efgh-1234", "abcd-efgh-1234"),
    ("postgres://ada:s3cr3tpw@db.example.com/shop", "s3cr3tpw"),
    ("https://ada:t0ken@github.com/x.git", "t0ken"),
    ("GET /x?api_key=abcdef123&y=1", "abcdef123"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAK\nabc\n-----END RSA PRIVATE KEY-----", "MIIEowIBAAK"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk", "b3BlbnNzaC1rZXk"),
)

SURVIVORS: tuple[str, ...] = (
    "token = get_token()",
    "token=get_token()",
    "password=os.environ['DB_PASSWORD']",
    "password = self.password",
    "secret: str",
    "api_key: Optional[str] = None",
    "api_key=api_key,",
    "token=None",
    "token: null",
    "def login(password, token):",
    "tokens = tokenizer.encode(text)",
    "max_tokens: 4096",
    "max_tokens=8192",
    "total_tokens: 123",
    "password: ${DB_PASSWORD}",
    "password: $DB_PASSWORD",
    "API_KEY=<your key>",
    "api_key = 'your-key-here'",
    "if token == expected_token:",
    "self.token = token",
    'data["token"] = token',
    "the password is not stored",
    "secret_key: changeme",
    "sk-short",
    "task-force-one-two-three-four",
    "https://example.com/a:b@c",
    "https://example.com/path?page=2",
    "git@github.com:org/repo.git",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "550e8400-e29b-41d4-a716-446655440000",
    'const tokenType = "bearer"',
    "Authorization: Bearer $TOKEN",
    "headers = {'Authorization': f'Bearer {token}'}",
    "password_field: 'password'",
    "key: build-linux-x86-64-release-cache",
    "key: 3f786850e387550fdab836ed7e6dc881de23001b",
    "key: RuntimeClassOfTheOperatorV2x",
    "  key: value",
)


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secret_is_masked_in_both_forms(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert secret not in redact_file(text)
    assert SENTINEL in redact_file(text)


@pytest.mark.parametrize("text", SURVIVORS)
def test_text_that_only_looks_like_a_secret_survives(text: str) -> None:
    assert redact(text) == text
    assert redact_file(text) == text


@pytest.mark.parametrize(("text", "_secret"), SECRETS)
def test_masking_twice_changes_nothing_more(text: str, _secret: str) -> None:
    once = redact(text)
    assert redact(once) == once
    filed = redact_file(text)
    assert redact_file(filed) == filed


def test_long_value_keeps_its_ends_and_a_short_one_nothing() -> None:
    assert mask("abcdefghijklmnopqrst") == "abcdef...qrst"
    assert mask("short") == MASK


def test_masked_text_is_recognized_before_it_is_written() -> None:
    assert has_mask(redact_file(f"KEY={TOKEN}"))
    assert has_mask(redact(f"KEY={TOKEN}"))
    assert not has_mask("nothing to see")


def test_data_is_redacted_at_every_depth_and_by_the_names_of_its_entries() -> None:
    data = {
        "command": f"API_KEY={TOKEN} run",
        "tasks": [{"goal": f"use {TOKEN}", "count": 2, "done": None}],
        "settings": {"api_key": "plain-value-of-a-service", "pattern": "password", "key": "Enter"},
    }
    shown = redact_value(data, redact)
    assert TOKEN not in repr(shown)
    assert "plain-value" not in repr(shown)
    assert shown["settings"]["pattern"] == "password" and shown["settings"]["key"] == "Enter"
    assert shown["tasks"][0]["count"] == 2 and shown["tasks"][0]["done"] is None
    assert shown["command"].endswith(" run")


@pytest.mark.parametrize(
    "text",
    [
        "password =\n   'abc123DEF456'",
        "first line\npassword: abc123DEF456\nlast line",
        "key\nİ İ İ\nexport API_KEY=abc123DEF456",
        "token=abc123DEF456\nnothing\n\ntoken=abc123DEF456",
    ],
)
def test_values_given_to_names_are_found_between_other_lines(text: str) -> None:
    assert "abc123DEF456" not in redact(text)
    assert redact(text).count("\n") == text.count("\n")


def test_the_lines_inside_private_keys_are_known() -> None:
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    assert key_lines(f"a\n{begin}\nx\ny\n{end}\nz\n{begin}\nq") == [range(3, 5), range(8, 9)]
    assert key_lines("no key at all") == []
