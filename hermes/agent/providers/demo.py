"""The built-in ``demo`` provider: what answers when no model is configured. It says so, and it can run a command.

It is scripted, streams at a visible pace, and needs no network and no key. ``run: <command>`` in a message makes it
call the ``terminal`` tool, so that tools, approvals and stopping can be tried before any provider is set up.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import orjson
import trio

from hermes.agent.compression import SUMMARY_SYSTEM
from hermes.agent.ports import DeltaSink, ModelFinished, ModelRequest, ResolvedModel
from hermes.agent.providers.scripted import Call, Delay, ScriptedProvider, Step, Text
from hermes.errors import ProviderError
from hermes.messages import Row
from hermes.patterns import lazy_pattern

DEMO_MODEL: Final = "demo"
WORD_PAUSE: Final = 0.03
INTRODUCTION: Final = (
    "This is a demonstration: no model provider is configured, so a script answers instead of a model. "
    "To use a real one, set a key such as OPENROUTER_API_KEY, ANTHROPIC_API_KEY or OPENAI_API_KEY, "
    "or set model.base_url to an OpenAI-compatible endpoint."
)
_HOW_TO: Final = 'Write "run: <command>" to see a tool at work, and stop it whenever you like.'
_COMMAND: Final = lazy_pattern(r"\brun:\s*(.+)", re.IGNORECASE)
_WORD: Final = lazy_pattern(r"\s*\S+|\s+$")
_MAX_SHOWN: Final = 600


class DemoProvider:
    """``Provider`` without a model. It refuses to summarize, so that a compression extracts what was said."""

    name = "demo"
    base_url = ""

    def __init__(
        self, *, word_pause: float = WORD_PAUSE, sleep: Callable[[float], Awaitable[None]] = trio.sleep
    ) -> None:
        self._word_pause = word_pause
        self._sleep = sleep

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        if request.system[:1] == (SUMMARY_SYSTEM,):
            # Its answer would stand in the conversation as what has happened there; what asks can do without.
            raise ProviderError("the demonstration cannot summarize", error_class="unknown", provider=self.name)
        # A script of its own for each call: calls of many sessions share nothing.
        provider = ScriptedProvider(
            lambda asked: demo_answer(asked, self._word_pause), sleep=self._sleep, name=self.name
        )
        return await provider.call(request, on_delta)

    async def aclose(self) -> None:
        """Nothing to close."""


def demo_model() -> ResolvedModel:
    return ResolvedModel(model=DEMO_MODEL, provider="demo", vision=False, route_source="demo", demo=True)


def demo_answer(request: ModelRequest, word_pause: float) -> Iterator[Step]:
    last = request.messages[-1] if request.messages else None
    if last is not None and last.role == "tool":
        yield from _spoken(_summary(last), word_pause)
        return
    user = next((row for row in reversed(request.messages) if row.role == "user"), None)
    text = user.text if user is not None else ""
    command = _COMMAND.search(text)
    offered = any(tool.name == "terminal" for tool in request.tools)
    said_before = any(row.role == "assistant" for row in request.messages)
    if command is not None and offered:
        opening = "Running it." if said_before else f"{INTRODUCTION}\n\nRunning your command."
        yield from _spoken(opening, word_pause)
        yield Call("terminal", orjson.dumps({"command": command.group(1).strip().strip("`")}).decode())
        return
    shown = " ".join(text.split())[:200]
    reply = f"You wrote: {shown}\n\n{_HOW_TO}" if shown else _HOW_TO
    yield from _spoken(f"{INTRODUCTION}\n\n{reply}", word_pause)


def _spoken(text: str, pause: float) -> Iterator[Step]:
    for word in _WORD.findall(text):
        yield Text(word)
        yield Delay(pause)


def _summary(row: Row) -> str:
    """What the tool gave back, in a sentence or two."""
    content = row.text
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict) and value.get("status") == "blocked":
        why = str(value.get("error") or "").removeprefix("BLOCKED: ").partition(". ")[0]
        return f"The command was not run: {why.removesuffix('.')}."
    if isinstance(value, dict):
        output = str(value.get("output") or value.get("error") or value.get("message") or "").strip()
        code = value.get("exit_code")
        ending = f" with exit code {code}" if code is not None else ""
    else:
        output, ending = content.strip(), ""
    lines = output.count("\n") + 1 if output else 0
    if not output:
        return f"The command ended{ending} and printed nothing."
    shown = output if len(output) <= _MAX_SHOWN else output[:_MAX_SHOWN] + " …"
    return f"The command ended{ending}. It printed {lines} line{'s' if lines != 1 else ''}:\n\n{shown}"
