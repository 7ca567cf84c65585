"""What a person sees of a session: gateway events as lines for a terminal, and the status line. Pure but for its state.

Streamed text goes out piece by piece; everything else is whole lines. What comes from a model or a tool is freed of
control sequences first; only diffs keep their colours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hermes.cli.gateway_peer import Event
from hermes.cli.markdown_text import MarkdownText
from hermes.cli.terminal_style import Style, printable

ARGUMENT_CHARS: Final = 100
RESULT_CHARS: Final = 160
FEWEST_CHARS: Final = 20
DIFF_LINES: Final = 60


class Output(Protocol):
    def write(self, text: str) -> None:
        """Whole lines; what was streamed and has no end of line yet gets one first."""
        ...

    def stream(self, text: str) -> None:
        """A piece of a line, or of several."""
        ...

    def preview(self, text: str) -> None:
        """What is still being written, as it is so far, in the place of the former one. It need not be shown."""
        ...


@dataclass(slots=True)
class Status:
    """What the status line says."""

    model: str = ""
    title: str = ""
    doing: str = ""
    running: bool = False
    usage: str = ""
    offline: bool = False

    def line(self) -> str:
        state = (self.doing or "working") if self.running else "not connected" if self.offline else "ready"
        return "  ·  ".join(part for part in (self.model, self.title, state, self.usage) if part)


class ChatView:
    """Shows the events of one session."""

    def __init__(
        self,
        output: Output,
        style: Style,
        markdown: MarkdownText | None = None,
        width: Callable[[], int] | None = None,
    ) -> None:
        """With ``markdown`` answers are drawn, block by block; else they are streamed as they come. ``width``: columns
        of a terminal, in which what is said of a tool in one line stays in one."""
        self.status = Status()
        self._markdown = markdown
        self._output = output
        self._style = style
        self._width = width
        self._streamed = False

    def show(self, event: Event) -> None:
        payload = event.payload
        match event.type:
            case "message.start":
                self.status.running, self.status.doing, self._streamed = True, "", False
            case "message.delta":
                self._stream(str(payload.get("text", "")))
            case "message.interim":
                self._finish_answer()
                if not payload.get("already_streamed"):
                    self._answer(str(payload.get("text", "")))
            case "message.complete":
                self._complete(payload)
            case "thinking.delta" | "reasoning.delta":
                self.status.doing = "thinking" if payload.get("text") else ""
            case "tool.generating":
                self.status.doing = f"preparing {printable(str(payload.get('name')))}"
            case "tool.start":
                self._tool_started(payload)
            case "tool.complete":
                self._tool_ended(payload)
            case "session.info":
                self._info(payload)
            case "session.title":
                self.status.title = printable(str(payload.get("title", "")))
            case "session.usage":
                self.status.usage = usage_words(payload.get("usage") or {})
            case _:
                self._aside(event)

    def _stream(self, text: str) -> None:
        text = printable(text)
        if not self._streamed:
            text = text.lstrip("\n")
        if text:
            self._streamed, self.status.doing = True, "answering"
            if self._markdown is None:
                self._output.stream(text)
                return
            drawn = self._markdown.feed(text)
            if drawn:
                self._output.write(f"{drawn}\n")
            self._output.preview(self._markdown.open)

    def _finish_answer(self) -> None:
        """What is left of an answer that was streamed."""
        if self._markdown is not None and self._markdown.open:
            self._output.preview("")
            self._output.write(self._markdown.finish())

    def _answer(self, text: str) -> None:
        """An answer in one piece."""
        text = printable(text.strip())
        self._line(text if self._markdown is None else self._markdown.feed(f"{text}\n\n") or text)

    def _line(self, text: str) -> None:
        self._output.write(text)

    def _complete(self, payload: Mapping[str, Any]) -> None:
        self._finish_answer()
        style, status = self._style, payload.get("status")
        self.status.running, self.status.doing = False, ""
        text = payload.get("text")
        if status == "error":
            self._line(style.red(printable(str(payload.get("error") or text or "the turn failed"))))
        elif not self._streamed and isinstance(text, str) and text.strip():
            self._answer(text)
        if status == "interrupted":
            why = " ".join(printable(str(payload[key])) for key in ("cause", "reason") if payload.get(key))
            self._line(style.yellow(f"{style.sign('■', '*')} interrupted" + (f" ({why})" if why else "")))
        if payload.get("warning"):
            self._line(style.yellow(printable(str(payload["warning"]))))
        if payload.get("pending_steer"):
            self._line(style.yellow(f"Not delivered: {printable(str(payload['pending_steer']))}"))
        self.status.usage = usage_words(payload.get("usage") or {})
        if self.status.usage:
            self._line(style.dim(self.status.usage))

    def _tool_started(self, payload: Mapping[str, Any]) -> None:
        self._finish_answer()
        name = printable(str(payload.get("name", "tool")))
        what = one_line(
            str(payload.get("context") or payload.get("preview") or ""), min(ARGUMENT_CHARS, self._room(len(name) + 3))
        )
        self.status.doing, self._streamed = f"running {name}", False
        style = self._style
        self._line(f"{style.cyan(style.sign('▸', '>') + ' ' + name)} {style.dim(what)}".rstrip())

    def _tool_ended(self, payload: Mapping[str, Any]) -> None:
        style = self._style
        took = payload.get("duration_s")
        seconds = f" {took:.1f}s" if isinstance(took, int | float) else ""
        self.status.doing = ""
        room = self._room(len(seconds) + 5)
        if payload.get("error"):
            words = one_line(str(payload["error"]), room)
            self._line(f"  {style.red(style.sign('✗', 'x'))}{style.dim(seconds)} {style.red(words)}".rstrip())
        else:
            words = one_line(result_words(payload), room)
            self._line(f"  {style.dim(style.sign('✓', 'ok') + seconds)} {style.dim(words)}".rstrip())
        if payload.get("inline_diff"):
            self._diff(str(payload["inline_diff"]))
        for item in payload.get("todos") or ():
            mark = {"completed": "x", "in_progress": ">", "cancelled": "-"}.get(str(item.get("status")), " ")
            self._line(style.dim(f"    [{mark}] {one_line(str(item.get('content', '')), ARGUMENT_CHARS)}"))

    def _room(self, used: int) -> int:
        return RESULT_CHARS if self._width is None else max(FEWEST_CHARS, min(RESULT_CHARS, self._width() - used))

    def _diff(self, text: str) -> None:
        lines = text.rstrip("\n").split("\n")
        shown = [f"    {self._style.coloured(line)}" for line in lines[:DIFF_LINES]]
        if len(lines) > DIFF_LINES:
            shown.append(self._style.dim(f"    … {len(lines) - DIFF_LINES} more lines"))
        self._line("\n".join(shown))

    def _info(self, payload: Mapping[str, Any]) -> None:
        self.status.model = printable(str(payload.get("model") or self.status.model))
        self.status.title = printable(str(payload.get("title") or self.status.title))
        if payload.get("credential_warning"):
            self._line(self._style.yellow(printable(str(payload["credential_warning"]))))

    def _aside(self, event: Event) -> None:
        """What is said beside the turn itself."""
        payload, style = event.payload, self._style
        match event.type:
            case "error":
                self._finish_answer()
                self.status.running = False
                self._line(style.red(printable(str(payload.get("message", "")))))
            case "status.update" | "notification.show" | "notice" | "review.summary":
                text = one_line(str(payload.get("text") or payload.get("message") or ""), RESULT_CHARS * 2)
                if text:
                    loud = payload.get("level") in ("warning", "error")
                    self._line(style.yellow(text) if loud else style.dim(text))
            case "background.complete" | "btw.complete":
                about = payload.get("question") or payload.get("task_id")
                self._line(style.cyan(one_line(str(about), ARGUMENT_CHARS)))
                self._line(printable(str(payload.get("text", ""))))
            case "subagent.start" | "subagent.complete":
                word = "starts" if event.type.endswith("start") else str(payload.get("status") or "ends")
                goal = one_line(str(payload.get("goal", "")), ARGUMENT_CHARS)
                self._line(style.dim(f"  {style.sign('↳', '-')} child {word}: {goal}"))
            case "tool.output_risk":
                self._line(
                    style.yellow(
                        f"  {printable(str(payload.get('name')))}: its output holds what looks like instructions"
                    )
                )
            case _:
                return


def one_line(text: str, most: int) -> str:
    words = " ".join(printable(text).split())
    return words if len(words) <= most else words[: most - 1] + "…"


def result_words(payload: Mapping[str, Any]) -> str:
    """One line about a result: its own summary, or what can be said of any result."""
    if payload.get("summary"):
        return one_line(str(payload["summary"]), RESULT_CHARS)
    result = payload.get("result")
    if isinstance(result, str):
        return one_line(result, RESULT_CHARS)
    if not isinstance(result, Mapping):
        return ""
    words = []
    if result.get("exit_code"):
        words.append(f"exit {result['exit_code']}")
    for key in ("output", "message", "status"):
        if isinstance(result.get(key), str) and result[key].strip():
            words.append(one_line(result[key], RESULT_CHARS))
            break
    return "  ".join(words)


def usage_words(usage: Mapping[str, Any]) -> str:
    """Tokens, cost and how full the context is, as far as they are known."""
    if not usage.get("calls") and not usage.get("total"):
        return ""
    words = [f"{short(usage.get('input', 0))} in", f"{short(usage.get('output', 0))} out"]
    if usage.get("cost_usd") is not None:
        words.append(f"{'~' if usage.get('cost_status') == 'estimated' else ''}${usage['cost_usd']:.4f}")
    if usage.get("context_percent") is not None:
        words.append(f"context {usage['context_percent']}%")
    return " · ".join(words)


def short(number: Any) -> str:
    value = int(number or 0)
    if value < 1000:
        return str(value)
    return f"{value / 1000:.1f}k" if value < 1_000_000 else f"{value / 1_000_000:.1f}M"
