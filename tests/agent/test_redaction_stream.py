"""A text that comes in pieces is redacted as it would be as a whole, wherever it is cut."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hermes.agent.redaction import redact
from hermes.agent.redaction_stream import RedactedStream

SECRETS = (
    ("sk-ant-api03-abcdEFGH1234ijklMNOP5678qrst", "{}"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "{}"),
    ("xoxb-1234567890-abc", "{}"),
    ("hf_abcdefghijklmnopqrstuvwx", "{}"),
    ("AKIAABCDEFGHIJKLMNOP", "{}"),
    ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abcdefghijk", "{}"),
    ("hunter2-Xyzzy99", "DB_PASSWORD={}"),
    ("hunter2-Xyzzy99", "\npassword: {}"),
    ("hunter2-Xyzzy99", "export API_TOKEN='{}'"),
    ("hunter2-Xyzzy99", '{{"client_secret": "{}"}}'),
    ("hunter2-Xyzzy99", "postgres://app:{}@db.example/app"),
    ("hunter2-Xyzzy99", "https://api.example/v1?access_token={}&x=1"),
    ("YWxhZGRpbjpvcGVu", "Authorization: Basic {}"),
    ("0123456789abcdefghijkl", "authorization: Bearer {}"),
    ("hunter2-Xyzzy99", "x-api-key: {}"),
    ("MIIEpAIBAAKCAQEA7\nq3k2Zk9wQ1JXbGxv", "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----"),
)
INSIDE_A_LINE = [(secret, form) for secret, form in SECRETS if "\n" not in form]
WORDS = ("compiling", "module", "of", "200", "OK", "[12/40]", "-->", "done,", "3.5s;", "see", "./build/out.log", "(x)")


def streamed(pieces: Sequence[str]) -> str:
    stream = RedactedStream(redact)
    return "".join(stream.feed(piece) for piece in pieces) + stream.end()


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = [*sorted(places), len(text)]
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def shows_a_part(secret: str, text: str) -> bool:
    """Whether eight characters in a row of the secret are there that no mask shows (six in front, four behind)."""
    return any(secret[at : at + 8] in text for at in range(len(secret) - 7))


@pytest.mark.parametrize(("secret", "form"), SECRETS, ids=lambda value: value[:24])
def test_a_secret_that_is_cut_anywhere_never_comes_out(secret: str, form: str) -> None:
    text = f"first line\nbefore {form.format(secret)} \nafter it\n"
    for place in range(len(text)):
        out = streamed(cut(text, [place]))
        assert not shows_a_part(secret, out), (place, out)
        assert out.startswith("first line\nbefore ") and out.endswith("after it\n"), (place, out)
    assert not shows_a_part(secret, streamed(list(text)))


def test_pieces_of_any_size_give_what_the_whole_would() -> None:
    for seed in range(300):
        dice = random.Random(seed)
        text = "\n".join(random_line(dice) for _ in range(20)) + dice.choice(("", "\n"))
        out = streamed(cut(text, [dice.randint(0, len(text)) for _ in range(dice.randint(0, 60))]))
        for secret, _form in INSIDE_A_LINE:
            assert not shows_a_part(secret, out), seed
        # A line with a secret may be masked in more places, because its end was not known; the others are as they were.
        for before, after in zip(text.split("\n"), out.split("\n"), strict=True):
            assert before == after or redact(before) != before, seed


def random_line(dice: random.Random) -> str:
    words = dice.choices(WORDS, k=dice.randint(0, 9))
    if dice.random() < 0.4:
        secret, form = dice.choice(INSIDE_A_LINE)
        words.insert(dice.randint(0, len(words)), form.format(secret))
    return dice.choice(("", "  ", "\t")) + " ".join(words)


def test_text_without_secrets_passes_unchanged_and_a_prompt_is_not_held_back() -> None:
    stream = RedactedStream(redact)
    assert stream.feed("Continue? [y/N] ") == "Continue? [y/N] "
    assert stream.feed("y\nName:") == "y\nName:"
    assert stream.feed("\rdone") == "\rdone"
    assert stream.feed("\npassword:") + stream.feed(" hunter") + stream.feed("2Xyz\n") == "\npassword: ***\n"


def test_a_colour_inside_a_secret_does_not_show_it() -> None:
    secret = "sk-ant-api03-abcdEFGH1234ijklMNOP5678qrst"
    text = (
        f"\x1b[31mred\x1b[0m\nkey \x1b[01;31m\x1b[K{secret[:9]}\x1b[m\x1b[K{secret[9:]} end\n\x1b[32m{secret}\x1b[0m \n"
    )
    for place in range(len(text)):
        out = streamed(cut(text, [place]))
        assert out.startswith("\x1b[31mred\x1b[0m\n")
        assert not shows_a_part(secret, out), (place, out)


def test_a_word_without_end_is_given_out_and_a_secret_without_end_is_not() -> None:
    blob = streamed(["x" * 10_000] * 30)
    assert blob == "x" * 300_000
    long = streamed(["sk-", *["a" * 10_000] * 5, " and on\n"])
    assert len(long) < 100 and long.endswith(" and on\n")


def test_what_follows_a_private_key_that_never_ends_comes_after_a_while() -> None:
    out = streamed(["-----BEGIN PRIVATE KEY-----\n", *["MIIEvQIBADANBgkqhkiG9w0\n"] * 4000, "later\n"])
    assert out.endswith("later\n")
    assert out.count("MIIEvQ") < 1500


def test_without_redaction_everything_passes_at_once() -> None:
    stream = RedactedStream(lambda text: text)
    assert stream.feed("sk-ant-api03-abcdef") == "sk-ant-api03-abcdef"
    assert stream.feed("-----BEGIN PRIVATE KEY-----\nabc") == "-----BEGIN PRIVATE KEY-----\nabc"
    assert stream.end() == ""
