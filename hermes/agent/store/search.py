"""Full-text search over what was said. Words through the index; scripts without spaces through a bounded scan.

The index cuts text at spaces and punctuation, so a Chinese or Japanese sentence is one word for it. A query with such
characters therefore looks for its words as substrings, newest rows first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.patterns import lazy_pattern

MAX_QUERY_CHARS = 1000
MAX_TERMS = 32
SNIPPET_TOKENS = 24
SNIPPET_CHARS = 80

TERM = lazy_pattern(r'"([^"]*)"?|([^\s"]+)')
OPERATORS = frozenset({"AND", "OR", "NOT"})
UNSPACED = lazy_pattern(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)

# Rows that a rewind archived are not found; compacted ones are.
FOUND_ROWS = (
    "(m.active = 1 OR m.compacted = 1) AND m.cut_id IS NULL AND m.display_kind IS NOT 'hidden' "
    "AND CASE WHEN :key IS NULL THEN s.hidden = 0 ELSE m.session_key = :key END"
)
FOUND_COLUMNS = "m.session_key, m.id, m.role, m.timestamp, s.title"


def search(connection: sqlite3.Connection, query: str, *, limit: int, key: str | None) -> list[Mapping[str, Any]]:
    """Best matches first; an empty list for a query without words. Hidden sessions only if named by ``key``."""
    terms = split_terms(query)
    words = [term for term, kind in terms if kind != "operator"]
    if not words:
        return []
    if any(UNSPACED.search(word) for word in words):
        return scan(connection, words, limit=limit, key=key)
    records = connection.execute(
        f"SELECT {FOUND_COLUMNS}, snippet(message_search, -1, '', '', '…', {SNIPPET_TOKENS}) "
        "FROM message_search JOIN messages AS m ON m.id = message_search.rowid "
        "JOIN sessions AS s ON s.key = m.session_key "
        f"WHERE message_search MATCH :match AND {FOUND_ROWS} ORDER BY message_search.rank, m.id DESC LIMIT :limit",
        {"key": key, "match": match_expression(terms), "limit": limit},
    )
    return [found(record) for record in records]


def scan(
    connection: sqlite3.Connection, words: Sequence[str], *, limit: int, key: str | None
) -> list[Mapping[str, Any]]:
    conditions = " AND ".join(f"instr(t.body, :word{number}) > 0" for number in range(len(words)))
    records = connection.execute(
        f"SELECT {FOUND_COLUMNS}, substr(t.body, max(1, instr(t.body, :word0) - {SNIPPET_CHARS}), {SNIPPET_CHARS * 2}) "
        "FROM messages AS m JOIN message_text AS t ON t.id = m.id JOIN sessions AS s ON s.key = m.session_key "
        f"WHERE {FOUND_ROWS} AND {conditions} ORDER BY m.id DESC LIMIT :limit",
        {"key": key, "limit": limit} | {f"word{number}": word for number, word in enumerate(words)},
    )
    return [found(record) for record in records]


def found(record: tuple[Any, ...]) -> Mapping[str, Any]:
    session_key, row_id, role, timestamp, title, snippet = record
    return {
        "session_key": session_key,
        "row_id": row_id,
        "role": role,
        "snippet": snippet,
        "timestamp": timestamp,
        "title": title,
    }


# --- queries ---------------------------------------------------------------------------------------------------------


def split_terms(query: str) -> list[tuple[str, str]]:
    """``(text, kind)`` with kind word, prefix, phrase or operator. Whatever holds no letter or digit is dropped, and
    so is an operator that does not stand between two terms."""
    terms: list[tuple[str, str]] = []
    for match in TERM.finditer(query[:MAX_QUERY_CHARS]):
        phrase, word = match.groups()
        if word in OPERATORS:
            if terms and terms[-1][1] != "operator":
                terms.append((word, "operator"))
            continue
        text = phrase if word is None else word
        if not any(character.isalnum() for character in text):
            continue
        kind = "phrase" if word is None else ("prefix" if word.endswith("*") else "word")
        terms.append((text.rstrip("*") if kind == "prefix" else text, kind))
    terms = terms[:MAX_TERMS]
    if terms and terms[-1][1] == "operator":
        terms.pop()
    return terms


def match_expression(terms: Sequence[tuple[str, str]]) -> str:
    """An FTS5 expression that cannot be malformed: every term is quoted, so no character in it is syntax."""
    words = []
    for text, kind in terms:
        # A NUL would end the expression in the middle of a string.
        quoted = '"{}"'.format(text.replace("\x00", " "))
        words.append(text if kind == "operator" else quoted + ("*" if kind == "prefix" else ""))
    return " ".join(words)
