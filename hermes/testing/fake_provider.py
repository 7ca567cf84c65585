"""A model provider on loopback that says what a script says, in three wire formats, and remembers every request.

It serves `POST /v1/chat/completions`, `POST /v1/messages`, `POST /v1/responses` and `GET /v1/models`. Tests in the same
process use the object; tests in another process use the control routes:

    GET  /__log                 every model request, as JSON            GET  /__open           how many are open
    GET  /__request/{n}         wait until the n-th has arrived         GET  /__closed/{n}     wait until it has ended
    POST /__script              replace the script (YAML or JSON)       POST /__release/{gate} open a gate
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import trio

from hermes.testing.conversation import conversation_of
from hermes.testing.delivery import ConnectionDropped, Delivery
from hermes.testing.http_connection import HttpConnection, HttpRequest
from hermes.testing.request_log import RequestLog, RequestRecord
from hermes.testing.script import Script, ScriptCursor, ScriptError
from hermes.testing.strict import MalformedHistory, check_request
from hermes.testing.wire_frames import Json, WireFormat, error_body


class FakeProvider:
    """Serve with `await nursery.start(provider.serve)`, or as `async with FakeProvider(script) as provider`.

    Everything is bound to one run of Trio: make a new provider for each test. An exception that leaves the body of the
    `async with` comes out as it is, not in a group.
    """

    def __init__(self, script: Script | None = None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self._port = port
        self._log = RequestLog()
        self._gates: dict[str, trio.Event] = {}
        self._cursor = ScriptCursor(script or Script())
        self._running: AbstractAsyncContextManager[None] | None = None

    # --- for tests

    @property
    def origin(self) -> str:
        """Scheme, host and port: what the client library for messages calls its base URL."""
        return f"http://{self._host}:{self._port}"

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    @property
    def requests(self) -> list[RequestRecord]:
        """Model requests in order of arrival. Listings of models are not among them."""
        return self._log.records

    @property
    def open_requests(self) -> int:
        return self._log.open_count

    async def wait_for_request(self, number: int) -> RequestRecord:
        """Wait until the request of this number, from 1, has arrived."""
        await self._log.wait_until(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def wait_chunks(self, number: int, chunks: int) -> RequestRecord:
        """Wait until that request has been sent so many frames of its stream."""
        record = await self.wait_for_request(number)
        await self._log.wait_until(lambda: record.chunks_sent >= chunks)
        return record

    async def wait_closed(self, number: int) -> RequestRecord:
        record = await self.wait_for_request(number)
        await self._log.wait_until(lambda: record.closed_at is not None)
        return record

    def release(self, gate: str) -> None:
        """Open a gate, for good: replies that come to it later do not wait."""
        self._gates.setdefault(gate, trio.Event()).set()

    def replace_script(self, script: Script) -> None:
        """From its first reply. Answers that are on their way are not touched, gates are closed again."""
        self._cursor = ScriptCursor(script)
        self._gates = {name: event for name, event in self._gates.items() if not event.is_set()}

    # --- serving

    async def serve(self, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Reports the base URL when it listens; raises OSError if it cannot."""
        listeners = await self._listen()
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._serve_connection, listeners)
            task_status.started(self.base_url)

    async def _listen(self) -> list[trio.SocketListener]:
        listeners = await trio.open_tcp_listeners(self._port, host=self._host)
        self._port = listeners[0].socket.getsockname()[1]
        return listeners

    async def __aenter__(self) -> FakeProvider:
        self._running = self._serving()
        await self._running.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._running is not None, "left without having been entered"
        # The nursery is not told of an error of the body, so that it is not wrapped in a group: it goes on by itself
        # when this returns.
        await self._running.__aexit__(None, None, None)  # noqa: ASYNC102 (it cancels what it waits for)

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        # Before the nursery, which would make a group of an error.
        listeners = await self._listen()
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._serve_connection, listeners)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        connection = HttpConnection(stream)
        try:
            while (request := await connection.next_request()) is not None:
                goes_on = await self._answer_while_peer_stays(connection, request)
                if not goes_on or not connection.reuse():
                    return
        finally:
            await connection.aclose()

    async def _answer_while_peer_stays(self, connection: HttpConnection, request: HttpRequest) -> bool:
        """Answer; False if the connection is of no use afterwards.

        A read is always pending, so that a client that leaves is noticed at once, even while we are silent."""
        goes_on = False
        path = request.target.partition("?")[0]
        wire = next((wire for wire in WireFormat if path.endswith("/" + wire.value)), None)
        record = RequestRecord(0, path, trio.current_time(), None, {})
        if wire is not None and request.method == "POST":
            record = self._log.open(path, _parsed(request.body), request.headers)
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await connection.wait_peer_gone()
                self._log.close(record, "client")
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                delivery = Delivery(connection, self._log, record, self._wait_gate)
                await self._answer(delivery, request, path, wire, record)
                goes_on = True
            except trio.BrokenResourceError:
                self._log.close(record, "client")
            except ConnectionDropped:
                pass  # the caller closes it, once the watcher no longer reads
            finally:
                self._log.close(record, "server")
                nursery.cancel_scope.cancel()
        return goes_on

    async def _answer(
        self, delivery: Delivery, request: HttpRequest, path: str, wire: WireFormat | None, record: RequestRecord
    ) -> None:
        if path.startswith("/__"):
            status, answer = await self._control(request, path)
            await delivery.json(status, answer)
        elif wire is not None and request.method == "POST":
            await self._answer_model_request(delivery, wire, record)
        elif path.endswith("/models") and request.method == "GET":
            await delivery.json(200, self._models())
        else:
            await delivery.json(404, error_body(WireFormat.CHAT, 404, f"No route {request.method} {path}."))

    async def _answer_model_request(self, delivery: Delivery, wire: WireFormat, record: RequestRecord) -> None:
        body = record.body
        if not isinstance(body, dict):
            await delivery.json(400, error_body(wire, 400, "The body is not a JSON object."))
            return
        if self._cursor.script.strict:
            try:
                check_request(wire, body)
            except MalformedHistory as error:
                await delivery.json(400, error_body(wire, 400, str(error), "malformed_history"))
                return
        conversation = conversation_of(wire, body, record.id)
        reply = self._cursor.next_reply(conversation)
        if reply is None:
            message = f"The script has no reply left for request {record.id}."
            await delivery.json(400, error_body(wire, 400, message, "script_used_up"))
            return
        await delivery.reply(reply, wire, body, conversation)

    async def _wait_gate(self, gate: str) -> None:
        await self._gates.setdefault(gate, trio.Event()).wait()

    def _models(self) -> Json:
        """Readable by clients of both families."""
        models = [
            {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "fake", "type": "model"}
            | {"display_name": name, "created_at": "2024-01-01T00:00:00Z"}
            for name in self._cursor.script.models
        ]
        first, last = (models[0]["id"], models[-1]["id"]) if models else (None, None)
        return {"object": "list", "data": models, "has_more": False, "first_id": first, "last_id": last}

    async def _control(self, request: HttpRequest, path: str) -> tuple[int, Json]:
        """The control routes: status and answer."""
        verb, _, argument = path.removeprefix("/__").partition("/")
        match request.method, verb:
            case "GET", "log":
                return 200, {"requests": [record.to_json() for record in self.requests], "open": self.open_requests}
            case "GET", "open":
                return 200, {"open": self.open_requests}
            case "GET", "request" if argument.isdecimal() and int(argument) > 0:
                return 200, (await self.wait_for_request(int(argument))).to_json()
            case "GET", "closed" if argument.isdecimal() and int(argument) > 0:
                return 200, (await self.wait_closed(int(argument))).to_json()
            case "POST", "release" if argument:
                self.release(argument)
                return 200, {"released": argument}
            case "POST", "script":
                return self._replace_from_text(request.body)
            case _:
                return 404, {"error": {"message": f"No control route {request.method} {path}."}}

    def _replace_from_text(self, body: bytes) -> tuple[int, Json]:
        try:
            script = Script.parse(body.decode())
        except (ScriptError, UnicodeDecodeError) as error:
            return 400, {"error": {"message": str(error)}}
        self.replace_script(script)
        return 200, {"replies": len(script.replies)}


async def run(
    script_path: Path | None,
    host: str,
    port: int,
    *,
    report: Callable[[str], None],
    strict: bool = False,
) -> None:
    """Serve a script file until cancelled; without a file, echo. Raises ScriptError or OSError before it listens."""
    script = Script() if script_path is None else await _read_script(script_path)
    if strict:
        script = script.model_copy(update={"strict": True})
    async with FakeProvider(script, host=host, port=port) as provider:
        report(f"Fake provider listening on {provider.base_url} ({len(script.replies)} replies).")
        await trio.sleep_forever()


async def _read_script(path: Path) -> Script:
    try:
        return Script.parse(await trio.Path(path).read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise ScriptError(f"the script is not text in UTF-8: {error}") from error


def _parsed(body: bytes) -> Any:
    """None for what is not JSON; such a request is logged and refused."""
    try:
        return json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
