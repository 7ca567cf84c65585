"""What a session has used, and what fills its context: numbers for people. Estimates say that they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.agent.tokens import rows_tokens, spec_tokens, text_tokens
from hermes.nurseries.pinned import tool_set
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.agent.ports import ToolSet
    from hermes.nurseries.session import Session
    from hermes.outcomes import Usage


@dataclass(frozen=True, slots=True)
class SessionNumbers:
    """``session.usage`` (gateway §3.9). What is not known is None."""

    model: str
    provider: str
    usage: Usage
    compressions: int
    active_subagents: int
    context_used: int | None
    context_max: int | None

    @property
    def context_percent(self) -> int | None:
        if not self.context_used or not self.context_max:
            return None
        return min(100, round(100 * self.context_used / self.context_max))


@dataclass(frozen=True, slots=True)
class ContextCategory:
    id: str
    label: str
    tokens: int
    color: str


@dataclass(frozen=True, slots=True)
class ContextBreakdown:
    """``context_used`` is the provider's own number where ``estimated`` is false."""

    categories: tuple[ContextCategory, ...]
    model: str
    context_max: int | None
    context_used: int
    estimated_total: int
    estimated: bool

    @property
    def context_percent(self) -> int:
        return min(100, round(100 * self.context_used / self.context_max)) if self.context_max else 0


def usage(session: Session) -> SessionNumbers:
    """The session's totals as they are now; a running turn's calls count once they are stored."""
    info = session.info()
    return SessionNumbers(
        model=info.model,
        provider=info.provider,
        usage=session.usage,
        compressions=session.stored.compression_count,
        active_subagents=len(session.children.live()),
        context_used=info.context_used,
        context_max=info.context_max,
    )


def context_breakdown(session: Session) -> ContextBreakdown:
    """What the next request would hold, by kind."""
    rows = session.rows
    tools = session.tools if session.tools is not None else _tools(session)
    sizes = (
        ("system", "System prompt", sum(map(text_tokens, session.pinned_prompt or ())), "#7c9cff"),
        ("tools", "Tools", spec_tokens(tools.specs()), "#b48ead"),
        ("summary", "Summaries", rows_tokens(row for row in rows if row.compacted_summary), "#d08770"),
        (
            "user",
            "Your messages",
            rows_tokens(row for row in rows if row.role == "user" and not row.compacted_summary),
            "#a3be8c",
        ),
        ("assistant", "Answers", rows_tokens(row for row in rows if row.role == "assistant"), "#88c0d0"),
        ("tool_results", "Tool results", rows_tokens(row for row in rows if row.role == "tool"), "#ebcb8b"),
    )
    total = sum(size for _, _, size, _ in sizes)
    info = session.info()
    return ContextBreakdown(
        tuple(ContextCategory(*entry) for entry in sizes),
        model=info.model,
        context_max=info.context_max,
        context_used=session.last_prompt_tokens or total,
        estimated_total=total,
        estimated=not session.last_prompt_tokens,
    )


def _tools(session: Session) -> ToolSet:
    return tool_set(session, allow_clarify=True)
