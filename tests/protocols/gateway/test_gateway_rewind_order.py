"""The check order of a truncating submit (gateway §5.2), with every combination of faults: the first one is told.

Only what is refused is sent: nothing of it may change anything.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio.testing

from tests.support.core import hang, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, Refusal, connected

ABSENT = object()
ROW_IDS = (ABSENT, None, "first", "second", "dropped", "elsewhere", "answer", 10**9, 0, -1, True, "3", 2.0, [1])
ORDINALS: tuple[Any, ...] = (ABSENT, 0, 1, 7, -1, False, "0", 1.5, {})
MESSAGE_IDS = (ABSENT, "m1", "unknown", 5)
NAMES = (
    "truncate_before_row_id",
    "truncate_before_user_ordinal",
    "truncate_before_message_id",
    "confirm_truncate",
    "confirm_empty_truncate",
)
CONFIRMS = (ABSENT, True, False, 1, "true")
EMPTIES = (ABSENT, True, "true")


def expected(
    row_id: Any, ordinal: Any, message_id: Any, confirm: Any, empty: Any, *, busy: bool, known: bool
) -> int | None:
    """The code of the table; None: it is accepted, or is no rewind."""
    row_id, ordinal, message_id = (None if one is ABSENT else one for one in (row_id, ordinal, message_id))
    targets = [one for one in (row_id, ordinal, message_id) if one is not None]
    if not targets and confirm is not True:
        return None
    if not known:
        return 4001
    if busy:
        return 4009
    malformed_row = isinstance(row_id, bool | float | list) or row_id == "3"
    malformed = malformed_row or isinstance(ordinal, bool | float | str | dict) or isinstance(message_id, int)
    if not targets or malformed:
        return 4004
    if confirm is not True:
        return 4029
    index = None
    if row_id is not None:
        index = {"first": 0, "second": 1}.get(row_id)
    elif message_id is not None:
        index = {"m1": 1}.get(message_id)
    elif 0 <= ordinal <= 1:
        index = ordinal
    if index is None:
        return 4018
    if ordinal is not None and ordinal != index:
        return 4030
    return 4028 if index == 0 and empty is not True else None


@pytest.mark.parametrize("busy", [False, True])
async def test_of_all_faults_at_once_the_first_of_the_order_is_told(autojump_clock: Any, busy: bool) -> None:
    services, model = make_services(say("a"), say("b"), say("c"), say("d"), hang())
    async with running_tree(services) as tree, connected(tree) as host:
        session_id, other = [(await host.call("session.create"))["session_id"] for _ in range(2)]
        ids: dict[str, int] = {}

        async def submit(session_id: str, text: str, **more: Any) -> int:
            answer = await host.call("prompt.submit", session_id=session_id, text=text, **more)
            await host.event("message.complete")
            return int(answer["user_row_id"])

        ids["first"] = await submit(session_id, "one", client_message_id="m0")
        ids["dropped"] = await submit(session_id, "two")
        confirmed = {"truncate_before_row_id": ids["dropped"], "confirm_truncate": True}
        ids["second"] = await submit(session_id, "three", client_message_id="m1", **confirmed)
        ids["elsewhere"] = await submit(other, "four")
        rows = tree.registry.get(session_id).rows
        ids["answer"] = next(row.row_id for row in rows if row.role == "assistant" and row.row_id)
        if busy:
            await host.call("prompt.submit", session_id=session_id, text="works")
        before, asked = list(rows), len(model.requests)
        for known in (True, False):
            await refuse_all(host, session_id if known else "00000000", ids, busy=busy, known=known)
        assert list(rows) == before
        await trio.testing.wait_all_tasks_blocked()
        assert len(model.requests) <= asked + busy


async def refuse_all(host: GatewayHost, session_id: str, ids: dict[str, int], *, busy: bool, known: bool) -> None:
    wrong = []
    for values in itertools.product(ROW_IDS, ORDINALS, MESSAGE_IDS, CONFIRMS, EMPTIES):
        code = expected(*values, busy=busy, known=known)
        if code is None:
            continue
        params = {name: value for name, value in zip(NAMES, values, strict=True) if value is not ABSENT}
        row_id = params.get(NAMES[0])
        if isinstance(row_id, str) and row_id in ids:
            params[NAMES[0]] = ids[row_id]
        try:
            await host.call("prompt.submit", session_id=session_id, text="again", **params)
            told = None
        except Refusal as refusal:
            told = refusal.code
        if told != code:
            wrong.append((params, code, told))
        host.channel.sent.clear()
        host.read = 0
        if told is None:
            break
    assert wrong == []
