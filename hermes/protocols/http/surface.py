"""The HTTP surface: the route table, the application behind the listener, and the one exception-to-wire boundary.

``HttpSurface(tree, options)`` builds everything; ``app`` is what the listener serves and ``serve`` runs both the
listener and the followers of the runs until the sessions have ended.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

import trio
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from hermes.errors import HermesError
from hermes.logs import log_fields
from hermes.nurseries.containment import run_until_one_ends
from hermes.nurseries.runs import RunRegistry
from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.channels.http_listener import HttpListener, ListenerLimits, WebSocketHandler
from hermes.protocols.error_table import HttpError, HttpRefusal, http_error
from hermes.protocols.http import browser_control, chat_completions, openapi, response_records
from hermes.protocols.http.access import Access
from hermes.protocols.http.body_guard import SECURITY_HEADERS, BodyGuard, Receive, Refusal, Scope, Send
from hermes.protocols.http.call import (
    Api,
    Call,
    HttpOptions,
    Reply,
    Route,
    Work,
    error_body,
    error_reply,
    json_reply,
    principal_of,
)
from hermes.protocols.http.handshakes import answer_as_request
from hermes.protocols.http.metrics import Metrics
from hermes.protocols.http.routes import ROUTES, UNSUPPORTED
from hermes.protocols.http.run_wire import run_wire
from hermes.protocols.http.streaming import quart_response
from hermes.protocols.wire.json_codec import encode

log = logging.getLogger(__name__)

WORK = "hermes.work"
STORE_AGAIN = 5.0
"""Seconds between two tries to write what can wait."""
_BAD_LENGTH = "Content-Length is not a number, or stands beside Transfer-Encoding"
PLACEHOLDER = re.compile(r"\{(\w+)\}")


class HttpSurface:
    """One HTTP surface over a server tree.

    Parameters: ``websockets``, handlers by path that share the port (the gateway's); ``mint_ticket`` makes a ticket for
    one upgrade there.
    """

    def __init__(
        self,
        tree: ServerTree,
        options: HttpOptions,
        *,
        websockets: Mapping[str, WebSocketHandler] | None = None,
        mint_ticket: Callable[[], str] | None = None,
    ) -> None:
        services = tree.services
        self._numbers = count(1)
        wire = run_wire(services.redact, lambda: bool(services.settings().display.interim_assistant_messages))
        runs = RunRegistry(
            services,
            wire,
            cap=lambda: int(services.settings().gateway.api_server.max_concurrent_runs),
            draining=tree.draining.is_set,
        )
        metrics = Metrics(services.clock)
        runs.on_end.append(lambda _run, record: metrics.run_ended(record))
        services.turn_observers.append(metrics.turn_ended)
        principal = principal_of(options.profile, options.key)
        routes = (*ROUTES, *DESCRIPTIONS)
        self.api = Api(tree, options, runs, metrics, mint_ticket=mint_ticket, routes=routes, principal=principal)
        sockets: dict[str, WebSocketHandler] = {
            **(websockets or {}),
            browser_control.WS_PATH: lambda request: browser_control.serve_controller(self.api, request),
        }
        runs.on_end.append(lambda run, record: chat_completions.keep_ended(self.api, run, record))
        self.websockets = {**sockets, **{f"/p/{options.profile}{path}": one for path, one in sockets.items()}}
        self._public = tuple((route.method, _pattern(route.path)) for route in routes if route.public)
        self._access = Access(
            key=options.key,
            origins=lambda: self.api.server.cors_origins,
            host=options.host,
            is_public=self._is_public,
        )
        self._guarded = BodyGuard(
            _quart_app(self.api),
            too_large=_refusal(HttpRefusal("body_too_large", "the request body is too large")),
            bad_length=_refusal(HttpRefusal("invalid_content_length", _BAD_LENGTH)),
            too_slow=_refusal(HttpRefusal("body_too_slow", "the request body came too slowly")),
            admit=self._access.admit,
            max_body=services.settings().limits.max_body_bytes,
        )

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application. A client that goes away is noticed here, whatever the handler is waiting for."""
        if scope["type"] == "websocket":
            await answer_as_request(self.app, scope, receive, send)
            return
        if scope["type"] != "http":
            await self._guarded(scope, receive, send)
            return
        scope["path"] = _without_profile(_without_host(scope["path"]), self.api.options.profile)
        work = scope[WORK] = Work()
        cors = self._access.cors_headers(scope)

        async def receive_watched() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                work.client_gone()
            return message

        async def send_with_cors(message: Any) -> None:
            if message["type"] == "http.response.start" and cors:
                message = {**message, "headers": [*message.get("headers", ()), *cors]}
            await send(message)

        try:
            with log_fields(request=f"http {scope['method']} {scope['path']} #{next(self._numbers)}"):
                await self._guarded(scope, receive_watched, send_with_cors)
        finally:
            work.client_gone()

    async def serve(
        self,
        listeners: list[trio.SocketListener],
        *,
        limits: ListenerLimits | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled, or until the sessions have ended and what was left to write is written."""
        listener = HttpListener(self.app, websockets=self.websockets, limits=limits, always=SECURITY_HEADERS)
        self.api.counts = listener.counts
        listen = partial(listener.serve, listeners, drain=self.api.tree.sessions_ended)
        closed = await self._end_abandoned()
        # The sockets listen already: who connects from now on is heard.
        task_status.started()

        async def mark_draining() -> None:
            await self.api.tree.draining.wait()
            self.api.runs.shutdown_requested()
            await trio.sleep_forever()

        async def end_abandoned_later() -> None:
            done = closed
            while not done:
                await trio.sleep(STORE_AGAIN)
                done = await self._end_abandoned()
            await trio.sleep_forever()

        tasks = (
            ("http runs", self.api.runs.run),
            ("http", listen),
            ("http draining", mark_draining),
            ("http abandoned responses", end_abandoned_later),
        )
        with self.api.loop.watching():
            await run_until_one_ends(*tasks)

    async def _end_abandoned(self) -> bool:
        """False if the store could not be written now: another program may hold it, and that is no reason not to
        serve."""
        try:
            await response_records.end_abandoned(self.api)
        except HermesError as error:
            log.warning("responses that an earlier server left open cannot be closed yet: %s", error)
            return False
        return True

    def _is_public(self, method: str, path: str) -> bool:
        if path == browser_control.REGISTER_PATH and not browser_control.enabled(self.api):
            # What is switched off says so to everybody.
            return True
        wanted = "GET" if method == "HEAD" else method
        return any(wanted == public and pattern.fullmatch(path) for public, pattern in self._public)


async def _openapi(_call: Call) -> Reply:
    """The description is large: it is built in a thread."""
    return json_reply(await trio.to_thread.run_sync(openapi.document))


async def _openapi_for_viewer(_call: Call) -> Reply:
    return json_reply(await trio.to_thread.run_sync(openapi.document_for_viewer))


DESCRIPTIONS = (
    Route("GET", "/openapi.json", _openapi, "This description", public=True),
    Route("GET", "/docs/openapi.json", _openapi_for_viewer, "The same for the viewer", public=True),
)


def _without_host(path: str) -> str:
    """A proxy may send the whole address as the target."""
    if path.startswith(("http://", "https://")):
        return "/" + path.split("//", 1)[1].partition("/")[2]
    return path


def _without_profile(path: str, profile: str) -> str:
    """``/p/<profile>/…`` is the same route, for the profile that is served."""
    prefix = f"/p/{profile}/"
    return path[len(prefix) - 1 :] if path.startswith(prefix) else path


def _pattern(path: str) -> re.Pattern[str]:
    if path.endswith("{name:path}"):
        return re.compile(re.escape(path.removesuffix("{name:path}")) + ".*")
    return re.compile(PLACEHOLDER.sub("[^/]+", path))


def _refusal(error: HttpRefusal) -> Refusal:
    known = http_error(error, "http body")
    return Refusal(known.status, encode(error_body(known)))


# --- Quart -----------------------------------------------------------------------------------------------------------


def _quart_app(api: Api) -> Any:
    app = QuartTrio("hermes", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = None
    app.config["PROPAGATE_EXCEPTIONS"] = False
    for route in api.routes:
        rule = PLACEHOLDER.sub(r"<\1>", route.path).replace("{name:path}", "<path:name>")
        endpoint = f"{route.method} {route.path}"
        app.add_url_rule(rule, endpoint, _view(api, route), methods=[route.method], provide_automatic_options=False)

    async def refused_by_router(error: HTTPException) -> Response:
        return _router_error(api, error)

    app.register_error_handler(HTTPException, refused_by_router)
    return app


def _view(api: Api, route: Route) -> Any:
    async def view(**path: str) -> Response:
        if request.method == "HEAD" and not route.head:
            raise MethodNotAllowed(valid_methods=[route.method])
        reply = await answer(api, route, await _call(api, route, path))
        api.metrics.request(route.path, reply.status)
        return quart_response(reply)

    return view


async def _call(api: Api, route: Route, path: Mapping[str, str]) -> Call:
    scope: Any = request.scope
    body: Any = await request.get_data(as_text=False, parse_form_data=False)
    return Call(
        api=api,
        method=request.method,
        route=route.path,
        path=dict(path),
        query=request.args.to_dict(),
        headers={name.lower(): _text(value) for name, value in request.headers.items()},
        body=body,
        peer=str((scope.get("client") or ("",))[0]),
        work=scope[WORK],
        principal=api.principal,
    )


def _text(value: str) -> str:
    """A header's value. Clients put UTF-8 where the protocol knows bytes only; what is none is Latin-1."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


async def answer(api: Api, route: Route, call: Call) -> Reply:
    """The handler's reply, or the envelope of what it raised: the boundary between exceptions and the wire."""
    try:
        return await route.handler(call)
    except HermesError as error:
        return error_reply(http_error(error, route.path), api.services.redact)
    except Exception as error:
        return error_reply(http_error(error, f"{route.method} {route.path}"), api.services.redact)


def _router_error(api: Api, error: HTTPException) -> Response:
    """What the router refused, in the same envelope as everything else."""
    code = error.code or 0
    method_known = code == http_error(HttpRefusal("method_not_allowed", ""), "").status
    if method_known:
        refusal = HttpRefusal("method_not_allowed", f"{request.method} is not served here")
    elif request.path.startswith(UNSUPPORTED):
        refusal = HttpRefusal("endpoint_not_supported", "this server does not offer this endpoint")
    else:
        refusal = HttpRefusal(
            "not_found", f"there is no {request.path}; paths begin with /v1 or /api, without a final slash"
        )
    known: HttpError = http_error(refusal, "router")
    api.metrics.request("(unrouted)", known.status)
    response = quart_response(error_reply(known, api.services.redact))
    if method_known and (allowed := getattr(error, "valid_methods", None)):
        response.headers["Allow"] = ", ".join(sorted(allowed))
    return response
