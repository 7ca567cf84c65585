"""Stored responses: the public object, the transcript behind it, and the names of conversations (api-server §3.3).

Per principal, least recently used first to go. A row that cannot be read is deleted and counts as missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Final

from hermes.errors import ResponseNotFound
from hermes.messages import Row, ToolCall
from hermes.protocols.http.call import Api
from hermes.records import dataclass

RESPONSE: Final = "response"
USED: Final = "response_used"
"""One small record per stored response, written anew at each use: its order of age is the order of use."""
CONVERSATION: Final = "conversation"
MAX_STORED: Final = 1000


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One stored response. ``rows`` is the transcript up to and with it, ``input_items`` what was asked."""

    response: dict[str, Any]
    session_id: str
    rows: tuple[Row, ...] = ()
    instructions: str | None = None
    conversation: str | None = None
    input_items: list[Any] = field(default_factory=list)


async def load_response(api: Api, principal: str, response_id: str) -> StoredResponse:
    """Raises ``ResponseNotFound``. Reading counts as use."""
    store = api.services.store
    record = await store.get_record(RESPONSE, response_id)
    if record is None or record.get("principal") != principal:
        raise ResponseNotFound
    stored = _stored_from(record)
    if stored is None:
        await _forget(api, principal, response_id, record)
        raise ResponseNotFound
    await _used(api, principal, response_id)
    return stored


def _stored_from(record: Mapping[str, Any]) -> StoredResponse | None:
    """The record as it was saved, or None if it is damaged."""
    try:
        return StoredResponse(
            response=dict(record["response"]),
            session_id=str(record["session_id"]),
            rows=tuple(_row_from(value) for value in record["rows"]),
            instructions=record.get("instructions"),
            conversation=record.get("conversation"),
            input_items=list(record.get("input_items", ())),
        )
    except (KeyError, TypeError, ValueError):
        return None


async def _used(api: Api, principal: str, response_id: str) -> None:
    await api.services.store.delete_record(USED, response_id)
    await api.services.store.put_record(USED, response_id, {}, owner=principal)


async def save_response(api: Api, principal: str, stored: StoredResponse) -> None:
    """Insert or replace; the name of its conversation points to it from now on."""
    store = api.services.store
    response_id = str(stored.response["id"])
    value = {
        "principal": principal,
        "response": stored.response,
        "session_id": stored.session_id,
        "rows": [_row_value(row) for row in stored.rows],
        "instructions": stored.instructions,
        "conversation": stored.conversation,
        "input_items": stored.input_items,
        "owner": api.services.owner.nonce,
    }
    await store.put_record(RESPONSE, response_id, value, owner=principal)
    await _used(api, principal, response_id)
    if stored.conversation is not None:
        name = f"{principal}\0{stored.conversation}"
        newest = {"response_id": response_id, "session_id": stored.session_id}
        await store.put_record(CONVERSATION, name, newest, owner=principal)


async def make_room(api: Api, principal: str, most: int = MAX_STORED) -> None:
    """Forget the least recently used beyond the bound, with the conversation names that point to them."""
    store = api.services.store
    used = await store.list_records(USED, owner=principal)
    for response_id, _ in used[: max(0, len(used) - most)]:
        await _forget(api, principal, response_id, await store.get_record(RESPONSE, response_id) or {})


async def delete_response(api: Api, principal: str, response_id: str) -> None:
    """Raises ``ResponseNotFound``. A conversation whose newest response it was starts anew."""
    record = await api.services.store.get_record(RESPONSE, response_id)
    if record is None or record.get("principal") != principal:
        raise ResponseNotFound
    await _forget(api, principal, response_id, record)


async def _forget(api: Api, principal: str, response_id: str, record: Mapping[str, Any]) -> None:
    store = api.services.store
    await store.delete_record(RESPONSE, response_id)
    await store.delete_record(USED, response_id)
    if record.get("conversation") is not None:
        name = f"{principal}\0{record['conversation']}"
        newest = await store.get_record(CONVERSATION, name)
        if newest is not None and newest.get("response_id") == response_id:
            await store.delete_record(CONVERSATION, name)


async def latest_of_conversation(
    api: Api, principal: str, name: str, new_session: Callable[[], Awaitable[str]]
) -> tuple[str | None, str | None]:
    """Its newest response and its session. A new name is given a session here; all who ask at once get the same."""
    store, record_id = api.services.store, f"{principal}\0{name}"
    record = await store.get_record(CONVERSATION, record_id)
    if record is None:
        ours = {"session_id": await new_session()}
        record = await store.claim_record(CONVERSATION, record_id, ours, owner=principal) or ours
    return record.get("response_id"), record.get("session_id")


async def end_abandoned(api: Api) -> None:
    """At start: a response that was being streamed when its process ended is incomplete, not in progress."""
    for response_id, record in await api.services.store.list_records(RESPONSE):
        response = record.get("response")
        if isinstance(response, dict) and response.get("status") == "in_progress":
            if record.get("owner") == api.services.owner.nonce:
                continue
            ended = {**response, "status": "incomplete", "incomplete_details": {"reason": "interrupted"}}
            await api.services.store.put_record(RESPONSE, response_id, {**record, "response": ended})


def _row_value(row: Row) -> dict[str, Any]:
    value: dict[str, Any] = {"role": row.role, "content": row.text, "timestamp": row.timestamp}
    if row.tool_calls:
        value["tool_calls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in row.tool_calls]
    if row.tool_call_id is not None:
        value["tool_call_id"], value["tool_name"] = row.tool_call_id, row.tool_name
    return value


def _row_from(value: Mapping[str, Any]) -> Row:
    calls = tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in value.get("tool_calls", ()))
    return Row(
        role=value["role"],
        content=value["content"],
        timestamp=float(value.get("timestamp", 0.0)),
        tool_calls=calls,
        tool_call_id=value.get("tool_call_id"),
        tool_name=value.get("tool_name"),
    )
