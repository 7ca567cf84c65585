"""Finds text that tries to steer the model: in context files, memory, skills and the output of untrusted tools. Pure.

A small set of patterns against the plain cases; it proves nothing about a text in which it finds nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from hermes.patterns import lazy_pattern

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, lazy_pattern(pattern, re.I | re.S))
    for name, pattern in (
        (
            "instruction override",
            r"\b(ignore|disregard|forget|override)\b.{0,30}\b(all|any|previous|prior|above|earlier|your)\b.{0,30}"
            r"\b(instructions?|rules?|prompts?|guidelines?|directives?)\b",
        ),
        (
            "role change",
            r"\b(you are now|act as|pretend to be)\b.{0,40}\b(unrestricted|jailbroken|dan|developer mode|root)\b",
        ),
        (
            "hidden from the user",
            r"\b(do not|don't|never)\b.{0,20}\b(tell|inform|mention|reveal|show)\b.{0,20}\b(the )?(user|human|owner)\b",
        ),
        (
            "system prompt request",
            r"\b(print|reveal|repeat|output|show)\b.{0,30}\b(system prompt|hidden instructions)\b",
        ),
        (
            "forged system text",
            r"<\s*/?\s*(system|im_start|im_end)\s*>|<\|im_(start|end)\|>|^\s*\[?system\]?\s*:\s*you\b",
        ),
        (
            "exfiltration command",
            r"\b(curl|wget|nc)\b[^\n]{0,120}(\$\{?[A-Z_]*(KEY|TOKEN|SECRET|PASSWORD)|\.env\b|id_rsa|\.aws/credentials)",
        ),
        (
            "secret upload",
            r"\b(send|post|upload|exfiltrate)\b.{0,40}\b(api keys?|secrets?|credentials|passwords?|tokens?)\b.{0,40}\b(to|at)\b.{0,10}https?://",
        ),
    )
)
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_JOINERS = frozenset("\u200c\u200d\ufeff\u00ad")


def scan(text: str, *, limit: int = 200_000) -> tuple[str, ...]:
    """Names of what was found, in a fixed order; empty if nothing. Looks at the first ``limit`` characters."""
    head = text[:limit]
    plain = unicodedata.normalize("NFKC", head)
    found = [name for name, pattern in _PATTERNS if pattern.search(plain)]
    hidden = {char for char in head if char in _BIDI or (unicodedata.category(char) == "Cf" and char not in _JOINERS)}
    if hidden:
        found.append("invisible characters")
    return tuple(found)


def risk_of(findings: Sequence[str]) -> Literal["none", "low", "high"]:
    """How serious the findings are."""
    if not findings:
        return "none"
    return "low" if tuple(findings) == ("invisible characters",) else "high"
