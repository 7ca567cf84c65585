"""Fresh ids in the forms that the protocols name; counted ones in the same forms."""

from __future__ import annotations

import re

import pytest

from hermes.nurseries.ids import counting_ids, random_ids

FORMS = {
    "session": r"\d{8}_\d{6}_[0-9a-f]{6}",
    "runtime": r"[0-9a-f]{8}",
    "approval": r"[0-9a-f]{8}",
    "turn": r"[0-9a-f]{8}",
    "srq": r"srq-[0-9a-f]+",
    "proc": r"proc_[0-9a-f]{12}",
    "run": r"run_[0-9a-f]+",
    "chatcmpl": r"chatcmpl[-_][0-9a-zA-Z]+",
    "resp": r"resp_[0-9a-f]+",
    "aux": r"aux_[0-9a-f]+",
}


@pytest.mark.parametrize("kind", list(FORMS))
def test_an_id_has_the_form_of_its_kind(kind: str) -> None:
    for source in (random_ids(), counting_ids()):
        assert re.fullmatch(FORMS[kind], source(kind)), source(kind)


@pytest.mark.parametrize("kind", list(FORMS))
def test_ids_of_one_kind_differ(kind: str) -> None:
    for source in (random_ids(), counting_ids()):
        assert len({source(kind) for _ in range(50)}) == 50


def test_a_session_id_tells_when_it_was_made() -> None:
    assert random_ids(lambda: 0.0)("session")[:8] in ("19700101", "19691231")


def test_counted_ids_replay_a_conversation() -> None:
    first, second = counting_ids(), counting_ids()
    kinds = ["session", "runtime", "turn", "srq", "turn", "proc"]
    assert [first(kind) for kind in kinds] == [second(kind) for kind in kinds]
