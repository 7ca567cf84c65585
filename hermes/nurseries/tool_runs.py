"""Which tool events of a turn repeat the tool before them: hosts may be told of a tool only where another follows."""

from __future__ import annotations

from dataclasses import replace

from hermes.events import ToolEnded, ToolGenerating, ToolStarted

ToolEvent = ToolGenerating | ToolStarted | ToolEnded


class ToolRuns:
    """Marks the events of one turn, in their order. A call ends as it began, whatever began meanwhile."""

    def __init__(self) -> None:
        self._generated = ""
        self._started = ""
        self._repeated: set[str] = set()

    def marked(self, event: ToolEvent) -> ToolEvent:
        """The event, with ``repeats`` set where it is one of a run of the same tool and not the first."""
        match event:
            case ToolGenerating(name=name):
                repeats = name == self._generated
                self._generated = name
            case ToolStarted(name=name, call_id=call_id):
                repeats = name == self._started
                # Also when nothing told that it was being written.
                self._started = self._generated = name
                if repeats:
                    self._repeated.add(call_id)
            case ToolEnded(call_id=call_id):
                repeats = call_id in self._repeated
                self._repeated.discard(call_id)
        return replace(event, repeats=True) if repeats else event
