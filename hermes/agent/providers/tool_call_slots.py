"""Tool calls that arrive in pieces, from servers that disagree on how to cut them (agent-core, stream parsing)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import orjson

from hermes.agent.ports import DeltaKind, DeltaSink
from hermes.agent.providers.wire_format import made_up_call_id
from hermes.messages import ToolCall
from hermes.records import dataclass


@dataclass(slots=True)
class _Slot:
    index: int
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    announced: bool = False
    renamed: bool = False
    """The name came again behind whole arguments: the next argument piece belongs to another call."""

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class ToolCallSlots:
    """Collects calls. ``add`` takes one piece; ``calls`` gives them in the order in which they began."""

    def __init__(self, request_id: str, on_delta: DeltaSink) -> None:
        self._request_id = request_id
        self._on_delta = on_delta
        self._slots: list[_Slot] = []
        self._current: dict[int, _Slot] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, index: Any, call_id: Any, name: Any, arguments: Any) -> None:
        """Any value may be missing (None) or of an odd type."""
        place = index if isinstance(index, int) else int(index) if isinstance(index, str) and index.isdigit() else 0
        given_id = "" if call_id is None else str(call_id)
        given_name = name if isinstance(name, str) else ""
        text = _argument_text(arguments)
        slot = self._current.get(place)
        if slot is None or self._begins_another(slot, given_id, given_name, text):
            if slot is not None:
                self._announce(slot)
                given_name = given_name or slot.name
            slot = _Slot(place)
            self._slots.append(slot)
            self._current[place] = slot
        if given_id and not slot.id:
            slot.id = given_id
        # Assigned, never concatenated: some servers repeat the name with every piece, some let it grow.
        if given_name and not slot.announced:
            slot.name = given_name
        if text:
            slot.pieces.append(text)
            self._announce(slot)

    def calls(self) -> tuple[ToolCall, ...]:
        used: set[str] = set()
        calls: list[ToolCall] = []
        for position, slot in enumerate(self._slots):
            self._announce(slot)
            if not slot.name and not slot.pieces:
                continue
            call_id = slot.id or made_up_call_id(self._request_id, position)
            if call_id in used:
                call_id = made_up_call_id(self._request_id, position)
            used.add(call_id)
            calls.append(ToolCall(id=call_id, name=slot.name, arguments=slot.arguments or "{}"))
        return tuple(calls)

    def _begins_another(self, slot: _Slot, call_id: str, name: str, text: str) -> bool:
        if call_id and slot.id and call_id != slot.id:
            # Servers that give every piece a fresh id exist; without a name it is a piece.
            return bool(name)
        if call_id and slot.id == call_id:
            return False
        if not (name or (slot.renamed and text)) or not slot.name or not _is_whole(slot.arguments):
            return False
        slot.renamed = True
        return bool(text) or name != slot.name

    def _announce(self, slot: _Slot) -> None:
        if not slot.announced and slot.name:
            slot.announced = True
            self._on_delta(DeltaKind.TOOL_NAME, slot.name)


def _argument_text(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return ""
    if isinstance(arguments, Mapping | list):
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return str(arguments)


def _is_whole(text: str) -> bool:
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
