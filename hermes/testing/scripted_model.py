"""The model of a test: a provider in the same process that says what a script says. No network, no threads.

The script is the same one that the fake HTTP provider plays (``hermes.testing.script``), so a conversation that was
tried here can be played against a whole server later. Faults of the bytes on a wire have no meaning here; those that a
caller can see have: hanging, dropping, errors with a status, slowness, answers without an end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import trio

from hermes import messages
from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest, Provider, ResolvedModel
from hermes.errors import ProviderError
from hermes.outcomes import Usage
from hermes.testing.script import (
    Conversation,
    Delay,
    Faults,
    Finish,
    ReasoningChunk,
    RedactedReasoning,
    RefusalChunk,
    Reply,
    Script,
    ScriptCursor,
    Step,
    TextChunk,
    ToolCall,
    WaitFor,
)

AnyScript = Script | Reply | str | Path | Sequence[Reply]

# How a status of the endpoint is classified (agent-core §1.13).
STATUS_CLASSES: tuple[tuple[int, str], ...] = (
    (401, "auth"),
    (402, "billing"),
    (403, "auth_permanent"),
    (404, "model_not_found"),
    (413, "payload_too_large"),
    (429, "rate_limit"),
    (529, "overloaded"),
)


def as_script(script: AnyScript) -> Script:
    """A script out of what is at hand: one, its text (YAML or JSON), a file, a reply, or several.

    A plain line of text is a model that says just that. Raises ``ScriptError``.
    """
    match script:
        case Script():
            return script
        case Reply():
            return Script.of(script)
        case Path():
            return Script.parse(script.read_text(encoding="utf-8"))
        case str():
            looks_like_one = "\n" in script or script.lstrip()[:1] in ("{", "[")
            return Script.parse(script) if looks_like_one else Script.of(Reply.of({"text": script}))
        case _:
            return Script.of(*script)


class ScriptedModel:
    """A ``Provider`` and, because it is the only model there is, the ``ModelGateway`` as well.

    ``requests`` holds every request in order; ``open_calls`` how many are being answered right now: 0 after a stop, or
    something was left behind.
    """

    name = "scripted"
    base_url = ""

    def __init__(self, script: AnyScript = (), *, context_length: int = 1_000_000) -> None:
        self.script = as_script(script)
        self.requests: list[ModelRequest] = []
        self.open_calls = 0
        self.cancelled_calls = 0
        self._cursor = ScriptCursor(self.script)
        self._gates: dict[str, trio.Event] = {}
        self._context_length = context_length

    def release(self, gate: str) -> None:
        """Let every reply go on that waits for this gate (``wait_for``), now and later."""
        self._gate(gate).set()

    # --- Provider ---

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        self.requests.append(request)
        conversation = conversation_of(request, len(self.requests))
        reply = self._cursor.next_reply(conversation)
        # Every real call is a checkpoint.
        await trio.lowlevel.checkpoint()
        if reply is None:
            raise ProviderError("the script has nothing more to say", error_class="unknown", provider=self.name)
        self.open_calls += 1
        ended = False
        try:
            finished = await self._play(reply, conversation, request, on_delta)
            ended = True
        except ProviderError:
            ended = True
            raise
        finally:
            self.open_calls -= 1
            self.cancelled_calls += not ended
        return finished

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    # --- ModelGateway ---

    async def resolve(self, model: str | None, provider: str | None) -> ResolvedModel:
        await trio.lowlevel.checkpoint()
        name = model or self.script.models[0]
        return ResolvedModel(name, provider or self.name, context_length=self._context_length)

    def provider_for(self, resolved: ResolvedModel) -> Provider:
        return self

    def fallbacks(self) -> Sequence[ResolvedModel]:
        return ()

    def auxiliary(self, current: ResolvedModel) -> ResolvedModel:
        return current

    def default_provider(self, model: str | None = None) -> str:
        return self.name

    def has_credentials(self, provider: str) -> bool:
        return provider == self.name

    def authenticated_providers(self) -> frozenset[str]:
        return frozenset({self.name})

    # --- one answer ---

    async def _play(
        self, reply: Reply, conversation: Conversation, request: ModelRequest, on_delta: DeltaSink
    ) -> ModelFinished:
        faults = reply.faults
        _raise_at_once(faults)
        if faults.hang:
            await trio.sleep_forever()
        answer = _Answer(request, on_delta)
        for number, step in enumerate(reply.steps(conversation)):
            self._raise_in_stream(faults, number)
            if faults.hang_after is not None and number >= faults.hang_after:
                await trio.sleep_forever()
            if faults.slow:
                await trio.sleep(faults.slow)
            match step:
                case Delay(seconds=seconds):
                    await trio.sleep(seconds)
                case WaitFor(gate=gate):
                    await self._gate(gate).wait()
                case _:
                    answer.take(step)
        return answer.finished(faults)

    def _raise_in_stream(self, faults: Faults, number: int) -> None:
        dropped, error = faults.dropped_after, faults.mid_stream_error
        if dropped is not None and number >= dropped:
            raise ProviderError("the stream broke off", error_class="stream_dropped", provider=self.name)
        if error is not None and number >= error.after:
            raise ProviderError(error.message, error_class="server_error", provider=self.name)

    def _gate(self, name: str) -> trio.Event:
        return self._gates.setdefault(name, trio.Event())


class _Answer:
    """What has been said so far."""

    def __init__(self, request: ModelRequest, on_delta: DeltaSink) -> None:
        self._request = request
        self._on_delta = on_delta
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[messages.ToolCall] = []
        self._reason: str | None = None
        self._usage: Usage | None = None

    def take(self, step: Step) -> None:
        match step:
            case TextChunk(text=text):
                self._text.append(text)
                self._on_delta(DeltaKind.TEXT, text)
            case ReasoningChunk(text=text):
                self._reasoning.append(text)
                self._on_delta(DeltaKind.REASONING, text)
            case RefusalChunk(text=text):
                self._refusal.append(text)
            case ToolCall():
                self._on_delta(DeltaKind.TOOL_NAME, step.name)
                call_id = "" if step.id is None else str(step.id)
                self._calls.append(messages.ToolCall(call_id, step.name, step.arguments))
            case Finish(reason=reason, usage=usage):
                self._reason = reason
                if usage is not None:
                    self._usage = Usage(
                        input_tokens=usage.input_tokens,
                        output_tokens=usage.output_tokens,
                        cache_read_tokens=usage.cached_tokens,
                        reasoning_tokens=usage.reasoning_tokens,
                        calls=1,
                    )
            case Delay() | WaitFor() | RedactedReasoning():
                pass

    def finished(self, faults: Faults) -> ModelFinished:
        return ModelFinished(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(self._calls),
            finish_reason=None if faults.no_finish_reason else self._reason,
            usage=self._usage,
            refusal="".join(self._refusal) or None,
            served_model=self._request.model,
        )


def _raise_at_once(faults: Faults) -> None:
    if faults.status is None and not faults.error_at_200:
        return
    status = faults.status or 200
    error_class = dict(STATUS_CLASSES).get(status, "server_error" if status >= 500 or status == 200 else "format_error")
    retry_after = faults.retry_after if isinstance(faults.retry_after, int | float) else None
    raise ProviderError(
        f"the scripted model answers with status {status}",
        error_class=error_class,
        status=status,
        retry_after=retry_after,
        provider=ScriptedModel.name,
    )


def conversation_of(request: ModelRequest, number: int) -> Conversation:
    """A request as the rules of a script see it."""
    rows = request.messages
    results: list[str] = []
    for row in reversed(rows):
        if row.role == "assistant":
            break
        if row.role == "tool":
            results.insert(0, row.text)
    return Conversation(
        number=number,
        model=request.model,
        last_role=rows[-1].role if rows else "",
        last_user=next((row.text for row in reversed(rows) if row.role == "user"), ""),
        tool_results="\n".join(results),
        characters=sum(len(json.dumps(row.text)) for row in rows) + sum(map(len, request.system)),
    )
