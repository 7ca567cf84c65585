"""What a fake model says: the script format, as data.

A script is a list of replies. A reply is a list of steps, an optional rule that says which request it answers, and
optional faults. This module is pure: it parses, picks and expands, and does no I/O. The fake HTTP provider and an
in-process model both consume `Reply.steps()`, so one script serves both.

Two kinds of types live here. The pydantic models (`Script`, `Reply`, `Faults`, ...) are what a YAML or JSON file holds.
The frozen dataclasses (`TextChunk`, `ToolCall`, ...) are the typed steps that a reply expands to for one request.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

CHARACTERS_PER_TOKEN = 4


class ScriptError(ValueError):
    """The script cannot be read. The message says where and what to change."""


# --- the conversation that a reply answers --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the rules of a script can see of one request, whatever its wire format."""

    number: int = 1
    model: str = ""
    last_role: str = ""
    last_user: str = ""
    tool_results: str = ""
    characters: int = 0


# --- typed steps ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    """A piece of reasoning. The piece that ends a block carries the signature; None means that more may follow."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class RedactedReasoning:
    data: str


@dataclass(frozen=True, slots=True)
class RefusalChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call, its arguments already cut into the pieces in which they are streamed."""

    index: int
    id: str | int | None
    name: str
    argument_chunks: tuple[str, ...]

    @property
    def arguments(self) -> str:
        return "".join(self.argument_chunks)


@dataclass(frozen=True, slots=True)
class Delay:
    seconds: float


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Say nothing more until somebody releases the gate of this name."""

    gate: str


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Finish:
    """Always the last step, exactly once. `reason` uses the names of chat completions."""

    reason: str
    usage: Usage | None


Step = TextChunk | ReasoningChunk | RedactedReasoning | RefusalChunk | ToolCall | Delay | WaitFor | Finish


# --- the file format ------------------------------------------------------------------------------------------------


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ToolCallSpec(_Spec):
    """`arguments` is an object, or a string that is sent exactly as it stands."""

    name: str
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)
    id: str | int | None = None


class ReasoningSpec(_Spec):
    """`signature: ""` leaves the signature out; `redacted` sends an opaque block instead of text."""

    text: str | list[str] = ""
    signature: str | None = None
    redacted: str | None = None


class UsageSpec(_Spec):
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)


class StepSpec(_Spec):
    """One line of a reply: a mapping with exactly one key.

    A list of strings fixes the chunks; a string is cut at words."""

    text: str | list[str] | None = None
    echo: str | None = None
    reasoning: str | list[str] | ReasoningSpec | None = None
    tool_call: ToolCallSpec | None = None
    delay: float | None = Field(default=None, ge=0)
    wait_for: str | None = None
    usage: UsageSpec | None = None
    finish_reason: str | None = None
    refusal: str | list[str] | None = None

    @model_validator(mode="after")
    def _has_exactly_one_key(self) -> StepSpec:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"a step has exactly one of: {', '.join(type(self).model_fields)}")
        return self


class When(_Spec):
    """A rule. Every given condition must hold; text is compared without regard to case."""

    last_user_contains: str | None = None
    last_role: Literal["user", "assistant", "tool", "system", "developer"] | None = None
    tool_result_contains: str | None = None
    model: str | None = None

    def matches(self, conversation: Conversation) -> bool:
        return (
            _contains(conversation.last_user, self.last_user_contains)
            and _contains(conversation.tool_results, self.tool_result_contains)
            and self.last_role in (None, conversation.last_role)
            and self.model in (None, conversation.model)
        )


class MidStreamError(_Spec):
    """An error object inside a stream that began with status 200."""

    after: int = Field(default=1, ge=0)
    message: str = "The server had an error while processing the request."
    type: str = "server_error"
    code: str | None = None


class Faults(_Spec):
    """How a reply goes wrong. Positions count the frames of the stream, from 1."""

    hang: bool = Field(default=False, description="accept the request and send no byte")
    hang_after: int | None = Field(default=None, ge=0, description="send this many frames, then nothing")
    drop: bool = Field(default=False, description="close in the middle of the first frame; same as drop_after: 0")
    drop_after: int | None = Field(default=None, ge=0, description="send this many frames, then close in mid-frame")
    garbage: Literal["json", "sse", "bytes"] | None = Field(default=None, description="insert an unreadable frame")
    garbage_after: int = Field(default=1, ge=0, description="where the unreadable frame is inserted")
    mid_stream_error: MidStreamError | None = None
    slow: float = Field(default=0, ge=0, description="seconds before each frame")
    status: int | None = Field(default=None, ge=400, le=599, description="answer with this HTTP error")
    retry_after: float | str | None = Field(default=None, description="value of the Retry-After header")
    body: JsonValue = Field(default=None, description="body of the HTTP error, instead of the usual one")
    error_at_200: bool = Field(default=False, description="an error object as JSON, with status 200")
    empty: bool = Field(default=False, description="leave out all text, reasoning and calls")
    no_done: bool = Field(default=False, description="leave out the end marker of the stream")
    no_finish_reason: bool = Field(default=False, description="leave out the finish reason")
    no_usage: bool = Field(default=False, description="never tell the usage")
    usage_style: Literal["separate", "last_chunk", "every_chunk"] = "separate"
    keepalive: int = Field(default=0, ge=0, description="comment lines before each frame")
    missing_tool_ids: bool = False
    integer_tool_ids: bool = False
    same_tool_index: bool = Field(default=False, description="every call at index 0 (chat completions)")
    no_tool_index: bool = Field(default=False, description="calls without an index (chat completions)")
    arguments_as_object: bool = Field(default=False, description="arguments as an object (chat completions)")
    whole_message: bool = Field(
        default=False, description="calls in a final `message`, not in deltas (chat completions)"
    )
    split_arguments: int | None = Field(default=None, ge=1, description="cut arguments every n characters")
    broken_arguments: bool = Field(default=False, description="complete but invalid JSON as arguments")
    truncated_arguments: bool = Field(default=False, description="arguments that end in the middle")
    reasoning_field: Literal["reasoning_content", "reasoning", "reasoning_text", "reasoning_details"] = (
        "reasoning_content"
    )
    duplicate_final: bool = Field(default=False, description="the frame that ends the answer is sent twice")
    completed_without_output: bool = Field(default=False, description="the final event lists no output (Responses)")
    crlf: bool = Field(default=False, description="lines end in CR LF")
    split_bytes: int | None = Field(default=None, ge=1, description="write the body in pieces of n bytes")

    @property
    def dropped_after(self) -> int | None:
        return 0 if self.drop else self.drop_after


class Reply(_Spec):
    """One answer of the model."""

    step_specs: list[StepSpec] = Field(default_factory=list, alias="steps")
    when: When | None = None
    times: int | None = Field(default=None, ge=1, description="how often a reply with a rule may be used")
    faults: Faults = Field(default_factory=Faults)

    @classmethod
    def of(
        cls,
        *steps: Mapping[str, object],
        when: Mapping[str, object] | None = None,
        times: int | None = None,
        faults: Mapping[str, object] | None = None,
    ) -> Reply:
        """The same as in a file: `Reply.of({"text": "hello"}, faults={"no_done": True})`."""
        return cls.model_validate({"steps": list(steps), "when": when, "times": times, "faults": dict(faults or {})})

    def steps(self, conversation: Conversation | None = None) -> Iterator[Step]:
        """Expand for one request. Faults that change what is said are applied; those of the wire are not."""
        return _Expansion(self, conversation or Conversation()).steps()

    def input_tokens(self, conversation: Conversation) -> int:
        """Told by formats that announce it before the answer."""
        return _Expansion(self, conversation).usage(output_characters=0).input_tokens


class Script(_Spec):
    """Replies with a rule are tried first, in order; the others are used up one after the other."""

    replies: list[Reply] = Field(default_factory=list)
    when_used_up: Literal["error", "repeat", "echo"] = "error"
    models: list[str] = Field(default_factory=lambda: ["fake-model"])
    strict: bool = False

    @classmethod
    def of(cls, *replies: Reply, strict: bool = False) -> Script:
        return cls(replies=list(replies), strict=strict)

    @classmethod
    def parse(cls, text: str) -> Script:
        """Read YAML or JSON. Raises ScriptError."""
        try:
            data = _load(text)
        except (YAMLError, ValueError, RecursionError) as error:
            raise ScriptError(f"the script is neither YAML nor JSON: {error}") from error
        if data is None:
            return cls()
        try:
            return cls.model_validate({"replies": data} if isinstance(data, list) else data)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'script'}: {e['msg']}" for e in error.errors())
            raise ScriptError(problems) from error


def _load(text: str) -> Any:
    """JSON first: a YAML reader accepts most JSON, but not tabs between tokens."""
    if text.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(text)
    return YAML(typ="safe", pure=True).load(text)


ECHO = Reply.of({"echo": ""})


class ScriptCursor:
    """Where one run of a script stands. Not shared between providers."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._in_order = [reply for reply in script.replies if reply.when is None]
        self._position = 0
        self._uses: dict[int, int] = {}

    def next_reply(self, conversation: Conversation) -> Reply | None:
        """The reply to this request, or None if the script has nothing more to say."""
        for place, reply in enumerate(self.script.replies):
            if reply.when is None or not reply.when.matches(conversation):
                continue
            used = self._uses.get(place, 0)
            if reply.times is None or used < reply.times:
                self._uses[place] = used + 1
                return reply
        if self._position < len(self._in_order):
            self._position += 1
            return self._in_order[self._position - 1]
        if not self.script.replies or self.script.when_used_up == "echo":
            return ECHO
        if self.script.when_used_up == "repeat" and self._in_order:
            return self._in_order[-1]
        return None


# --- expansion ------------------------------------------------------------------------------------------------------


class _Expansion:
    """A reply meeting a request."""

    def __init__(self, reply: Reply, conversation: Conversation) -> None:
        self._specs = reply.step_specs
        self._faults = reply.faults
        self._conversation = conversation

    def steps(self) -> Iterator[Step]:
        spoken, calls, refused = 0, 0, False
        for spec in self._specs:
            if spec.delay is not None:
                yield Delay(spec.delay)
            elif spec.wait_for is not None:
                yield WaitFor(spec.wait_for)
            elif not self._faults.empty:
                for step in self._said(spec, calls):
                    calls += isinstance(step, ToolCall)
                    refused = refused or isinstance(step, RefusalChunk)
                    spoken += _length(step)
                    yield step
        usage = None if self._faults.no_usage else self.usage(output_characters=spoken)
        natural = "content_filter" if refused else "tool_calls" if calls else "stop"
        given = [spec.finish_reason for spec in self._specs if spec.finish_reason is not None]
        yield Finish(given[-1] if given else natural, usage)

    def usage(self, *, output_characters: int) -> Usage:
        given = [spec.usage for spec in self._specs if spec.usage is not None]
        if given:
            last = given[-1]
            return Usage(last.input_tokens, last.output_tokens, last.reasoning_tokens, last.cached_tokens)
        return Usage(_tokens(self._conversation.characters), _tokens(output_characters))

    def _said(self, spec: StepSpec, calls_before: int) -> Iterator[Step]:
        if spec.text is not None:
            yield from (TextChunk(piece) for piece in _pieces(spec.text))
        elif spec.echo is not None:
            yield from (TextChunk(piece) for piece in _pieces(spec.echo + self._conversation.last_user))
        elif spec.refusal is not None:
            yield from (RefusalChunk(piece) for piece in _pieces(spec.refusal))
        elif spec.reasoning is not None:
            yield from self._reasoning(spec.reasoning)
        elif spec.tool_call is not None:
            yield self._tool_call(spec.tool_call, calls_before)

    def _reasoning(self, given: str | list[str] | ReasoningSpec) -> Iterator[Step]:
        spec = given if isinstance(given, ReasoningSpec) else ReasoningSpec(text=given)
        if spec.redacted is not None:
            yield RedactedReasoning(spec.redacted)
            return
        signature = f"signature-{self._conversation.number}" if spec.signature is None else spec.signature
        pieces = _pieces(spec.text)
        yield from (ReasoningChunk(piece) for piece in pieces[:-1])
        if pieces:
            yield ReasoningChunk(pieces[-1], signature)

    def _tool_call(self, spec: ToolCallSpec, position: int) -> ToolCall:
        faults = self._faults
        call_id: str | int | None = f"call_{self._conversation.number}_{position}" if spec.id is None else spec.id
        if faults.missing_tool_ids:
            call_id = None
        elif faults.integer_tool_ids:
            call_id = position + 1
        text = spec.arguments if isinstance(spec.arguments, str) else json.dumps(spec.arguments, ensure_ascii=False)
        if faults.broken_arguments:
            text = text.rstrip().removesuffix("}") + ", broken}"
        if faults.truncated_arguments:
            text = text[: max(1, len(text) * 2 // 3)]
        size = faults.split_arguments or max(1, len(text))
        chunks = tuple(text[at : at + size] for at in range(0, len(text), size))
        return ToolCall(0 if faults.same_tool_index else position, call_id, spec.name, chunks)


def _pieces(text: str | list[str]) -> list[str]:
    """A list as given; a string cut before each run of white space, so that the pieces join to the same string."""
    return list(text) if isinstance(text, list) else re.findall(r"\s*\S+|\s+$", text)


def _length(step: Step) -> int:
    match step:
        case TextChunk(text) | RefusalChunk(text) | ReasoningChunk(text):
            return len(text)
        case ToolCall():
            return len(step.name) + len(step.arguments)
        case RedactedReasoning() | Delay() | WaitFor() | Finish():
            return 0


def _tokens(characters: int) -> int:
    return max(1, characters // CHARACTERS_PER_TOKEN)


def _contains(text: str, wanted: str | None) -> bool:
    return wanted is None or wanted.casefold() in text.casefold()
