"""One connection has one negotiated version; what differs between versions is in one file."""

from __future__ import annotations

import re
from pathlib import Path

import hermes.protocols.acp

FOLDER = Path(hermes.protocols.acp.__path__[0])
WORDS = re.compile(r'"(end_turn|max_tokens|max_turn_requests|refusal)"|stop_?[rR]eason|PROTOCOL_VERSION(: Final)? =')


def test_only_one_file_knows_how_a_version_says_the_end_of_a_turn() -> None:
    found = {path.name for path in FOLDER.glob("*.py") if WORDS.search(path.read_text(encoding="utf-8"))}
    # The shape of the answer is data; its words and the number of the version are in the other.
    assert found == {"prompt_end.py", "schemas.py"}


def test_the_core_knows_no_words_of_the_protocol() -> None:
    core = [*(FOLDER.parents[1] / "nurseries").glob("*.py"), *(FOLDER.parents[1] / "agent").rglob("*.py")]
    words = re.compile(r"stopReason|stop_reason_of_acp|sessionUpdate|session/update|session/prompt")
    assert [path.name for path in core if words.search(path.read_text(encoding="utf-8"))] == []
