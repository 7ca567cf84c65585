"""The page of a turn's phases and outcomes, made from the tables that every change of phase is checked against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes.outcomes import PHASE_STATUS, SYSTEM_ISSUERS, TERMINAL_STATUSES, TURN_TRANSITIONS, Cause, TurnPhase

INTRODUCTION = """# The states of a turn

<!-- Made by `make docs` (`hermes schema turns`); changes here are overwritten. -->

A turn is in one phase at a time. A change that is not in this picture is a bug of the server and raises; no arrow
leaves `ended`. Made from `TURN_TRANSITIONS` in `hermes/outcomes.py`.
"""

OUTCOMES = """## Outcomes

`ended` has exactly one outcome, decided in one place after the turn's scope has been left:

| outcome | status | when |
| --- | --- | --- |
| Completed | `completed` | the model gave its final answer, also if a stop came in the same moment |
| Cancelled | `cancelled` | a stop reached it; `cause` and `reason` say whose and why |
| Cancelled by `shutdown` | `interrupted` | the server stopped; the next start shows it as interrupted |
| Failed | `failed` | the provider, the store or the server itself failed; the error says what to change |
"""


def markdown() -> str:
    return "\n".join([INTRODUCTION, *_diagram(), "", *_phases(), "", OUTCOMES, *_causes(), ""])


def schema() -> Any:
    return {
        "transitions": {
            phase.value: sorted(to.value for to in following) for phase, following in TURN_TRANSITIONS.items()
        },
        "status": {phase.value: status.value for phase, status in PHASE_STATUS.items()},
        "terminal": sorted(status.value for status in TERMINAL_STATUSES),
        "causes": [cause.value for cause in Cause],
    }


def _diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {TurnPhase.QUEUED.value}"
    for phase in TurnPhase:
        for following in TurnPhase:
            if following in TURN_TRANSITIONS[phase]:
                yield f"    {phase.value} --> {following.value}"
    for phase in TurnPhase:
        if not TURN_TRANSITIONS[phase]:
            yield f"    {phase.value} --> [*]"
    yield "```"


def _phases() -> Iterator[str]:
    yield "| phase | may become | status of its run |"
    yield "| --- | --- | --- |"
    for phase in TurnPhase:
        following = ", ".join(f"`{to.value}`" for to in TurnPhase if to in TURN_TRANSITIONS[phase]) or "nothing"
        status = PHASE_STATUS.get(phase)
        yield f"| `{phase.value}` | {following} | {f'`{status.value}`' if status else 'that of its outcome'} |"


def _causes() -> Iterator[str]:
    yield "## Causes of a cancellation"
    yield ""
    yield "| cause | in `turn_exit_reason` |"
    yield "| --- | --- |"
    for cause in Cause:
        issuer = SYSTEM_ISSUERS.get(cause)
        yield f"| `{cause.value}` | `{f'interrupted_by_system({issuer})' if issuer else 'interrupted_by_user'}` |"
