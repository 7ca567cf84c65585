"""``Provider`` over HTTP: one wire format driven over one endpoint.

Owns: the request's headers and deadlines, which kind of answer came (a stream, a whole JSON answer although a stream
was asked for, an error), and what this endpoint has taught us not to send. Retries belong to the loop; the only second
request made here is the one without a field the endpoint has just refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from hermes.agent.ports import DeltaSink, ModelFinished, ModelRequest
from hermes.agent.providers.anthropic_messages import MessagesFormat
from hermes.agent.providers.command_keys import CommandKeys
from hermes.agent.providers.delta_runs import DeltaRuns
from hermes.agent.providers.error_reports import response_error
from hermes.agent.providers.http_stream import HttpClient, HttpRequest, HttpResponse, Patience, Timeouts
from hermes.agent.providers.openai_chat import ChatFormat
from hermes.agent.providers.openai_responses import ResponsesFormat
from hermes.agent.providers.sse_reader import SseReader
from hermes.agent.providers.wire_format import Endpoint, StreamParser, WireFormat, dump_body
from hermes.errors import ProviderError
from hermes.known_secrets import MASK, SHORTEST
from hermes.patterns import lazy_pattern

USER_AGENT: Final = "hermes-agent-server"
MAX_ERROR_BODY: Final = 256 * 1024
MAX_WHOLE_ANSWER: Final = 64 * 1024 * 1024
_ERROR_BODY_PATIENCE: Final = 10.0
_SHAPE_ERRORS: Final = (AttributeError, TypeError, KeyError, IndexError, ValueError)

FORMATS: Final[Mapping[str, WireFormat]] = {
    "chat_completions": ChatFormat(),
    "anthropic_messages": MessagesFormat(),
    "codex_responses": ResponsesFormat(),
}

# Fields that some endpoints refuse and that a request can do without.
OPTIONAL_FIELDS: Final = (
    "stream_options",
    "max_completion_tokens",
    "max_tokens",
    "parallel_tool_calls",
    "reasoning_effort",
    "prompt_cache_key",
    "temperature",
    "include",
    "output_config",
    "store",
)
_REFUSAL: Final = lazy_pattern(
    r"unsupported|not supported|unknown|unrecogni[sz]ed|not permitted|not allowed|unexpected"
    r"|extra (inputs?|fields?)|invalid param",
    re.IGNORECASE,
)


class HttpProvider:
    """One endpoint. Calls may run side by side."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: HttpClient,
        *,
        clock: Callable[[], float] = time.time,
        keys: CommandKeys | None = None,
    ) -> None:
        self.name = endpoint.name
        self.base_url = endpoint.base_url
        self._endpoint = endpoint
        self._wire = FORMATS[endpoint.api_mode]
        self._client = client
        self._clock = clock
        self._keys = keys or CommandKeys()
        self._refused: frozenset[str] = frozenset()

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        endpoint = await self._with_key()
        for _ in OPTIONAL_FIELDS:
            body = self._wire.body(request, endpoint, self._refused)
            try:
                return await self._attempt(request, body, endpoint, on_delta)
            except ProviderError as error:
                field = refused_field(error, body)
                if field is None:
                    self._judge_key(error, endpoint)
                    error.provider = error.provider or self.name
                    error.model = error.model or request.model
                    raise
                self._refused |= {field}
        raise ProviderError(
            f"{self.name} refuses the request", error_class="format_error", provider=self.name, model=request.model
        )

    async def aclose(self) -> None:
        """The client is shared and closed by its owner."""

    async def _with_key(self) -> Endpoint:
        endpoint = self._endpoint
        if not endpoint.key_cmd:
            return endpoint
        return replace(endpoint, api_key=await self._keys.key(endpoint.key_cmd, self.name))

    def _judge_key(self, error: ProviderError, endpoint: Endpoint) -> None:
        """A refused key of a command is asked for again by the next try; no error shows the key it is about."""
        key = endpoint.api_key or ""
        if len(key) >= SHORTEST and key in error.message:
            error.message = error.message.replace(key, MASK)
            error.args = (error.message,)
        if endpoint.key_cmd and error.status == 401 and error.error_class.startswith("auth"):
            self._keys.refused(endpoint.key_cmd, endpoint.api_key)
            # Revoked or expired is what its successor replaces.
            error.error_class = "auth"

    async def _attempt(
        self, request: ModelRequest, body: dict[str, Any], endpoint: Endpoint, on_delta: DeltaSink
    ) -> ModelFinished:
        data = dump_body(body)
        headers = [
            ("User-Agent", USER_AGENT),
            ("Content-Type", "application/json"),
            ("Accept", "text/event-stream" if request.stream else "application/json"),
            *self._wire.headers(request, endpoint),
        ]
        own = {name.lower() for name, _ in endpoint.headers}
        headers = [pair for pair in headers if pair[0].lower() not in own] + list(endpoint.headers)
        deltas = DeltaRuns(on_delta)
        parser = self._wire.parser(request, endpoint, deltas)
        message = HttpRequest("POST", self._wire.url(endpoint), headers, data)
        response = await self._client.open(message, timeouts_for(endpoint, request, len(data)))
        with response:
            if not 200 <= response.status < 300:
                text = await response.read(MAX_ERROR_BODY, _ERROR_BODY_PATIENCE)
                raise response_error(
                    response.status,
                    response.headers,
                    text,
                    provider=self.name,
                    model=request.model,
                    now=self._clock(),
                )
            return await self._read_answer(response, parser, deltas)

    async def _read_answer(self, response: HttpResponse, parser: StreamParser, deltas: DeltaRuns) -> ModelFinished:
        reader = AnswerReader(parser)

        def consume(data: bytes) -> Patience:
            try:
                return reader.consume(data)
            finally:
                deltas.flush()

        try:
            await response.pump(consume)
            finished = reader.finish(response.headers.get("content-type", ""))
            deltas.flush()
            return finished
        except _SHAPE_ERRORS as error:
            raise ProviderError(
                f"{self.name} sent an answer of an unknown shape", error_class="stream_dropped"
            ) from error


class AnswerReader:
    """Bytes of a body to a parser: server-sent events, or whole JSON, whatever the headers say."""

    def __init__(self, parser: StreamParser) -> None:
        self._parser = parser
        self._sse = SseReader()
        self._begun = False
        self._whole: list[bytes] | None = None
        self._size = 0
        self._events = 0
        self._patience: Patience = None

    def consume(self, data: bytes) -> Patience:
        if not self._begun:
            start = data.lstrip(b"\xef\xbb\xbf \r\n\t")
            if not start:
                return None
            self._begun = True
            if start.startswith((b"{", b"[", b"<")):
                self._whole = []
        if self._whole is not None:
            self._size += len(data)
            if self._size > MAX_WHOLE_ANSWER:
                raise ValueError("the answer is too long")
            self._whole.append(data)
            return None
        for payload in self._sse.feed(data):
            self._take(payload)
        return self._patience

    def finish(self, content_type: str) -> ModelFinished:
        """The body has ended. Raises ``ProviderError`` if it was no answer."""
        if self._whole is not None:
            self._read_whole(b"".join(self._whole), content_type)
        else:
            for payload in self._sse.flush():
                self._take(payload)
            if not self._events:
                raise ProviderError("the stream ended without an answer", error_class="stream_dropped")
        return self._parser.finish()

    def _take(self, payload: bytes) -> None:
        if payload and not self._parser.ended:
            self._events += 1
            self._patience = self._parser.event(payload)

    def _read_whole(self, data: bytes, content_type: str) -> None:
        try:
            answer = orjson.loads(data.lstrip(b"\xef\xbb\xbf"))
        except orjson.JSONDecodeError as error:
            if data.lstrip().startswith(b"<") or "html" in content_type:
                message, error_class = "the endpoint answers with a web page; check the base URL", "format_error"
            else:
                message, error_class = "the answer is not complete JSON", "stream_dropped"
            raise ProviderError(message, error_class=error_class) from error
        if isinstance(answer, list) and answer:
            answer = answer[0]
        self._parser.whole(answer)


def timeouts_for(endpoint: Endpoint, request: ModelRequest, size: int) -> Timeouts:
    """Deadlines of one request. ``size`` is the body's, in bytes: a fourth of it is about its tokens."""
    given = endpoint.deadlines
    usual = Timeouts(connect=given.connect, total=endpoint.total_timeout or given.request)
    silence = endpoint.idle_timeout
    if silence is None and endpoint.local:
        silence = given.local
    elif silence is None and request.stream:
        if given.stream is None:
            return usual
        silence = given.stream
    elif silence is None:
        tokens = size / 4
        silence = given.call or (240.0 if tokens > 100_000 else 150.0 if tokens > 50_000 else 90.0)
    return replace(usual, first_byte=silence, idle=silence)


def refused_field(error: ProviderError, body: Mapping[str, Any]) -> str | None:
    """The optional field of the body that the endpoint says it does not know."""
    if error.status not in (400, 422) or not _REFUSAL.search(error.message):
        return None
    named = [
        (error.message.find(field), field) for field in OPTIONAL_FIELDS if field in body and field in error.message
    ]
    return min(named)[1] if named else None
