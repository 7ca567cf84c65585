"""Methods that change something take ``request_key`` (or ``idempotency_key``): a repeat is answered, not done again.

``adapted`` puts that around every method whose parameters are ``KeyedParams`` while the surface's table is made. For
``prompt.submit`` the ``client_message_id`` is such a key too. Beside it stands what the older dialect gets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Final

from hermes.errors import SessionNotFound
from hermes.nurseries.repeats import Outcome
from hermes.nurseries.session import Session
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.legacy import legacy_result
from hermes.protocols.gateway.schemas import KeyedParams, PromptSubmitParams
from hermes.protocols.rpc.method_table import Answer, Awaiting, Method, to_wire
from hermes.protocols.wire.json_codec import Unencodable, encode

OUTSIDE_THE_BODY: Final = frozenset(
    {"request_key", "idempotency_key", "session_id", "profile", "client_message_id", "cols"}
)
MAKES_A_SESSION: Final = frozenset(
    {"session.create", "session.branch", "session.branch_whole", "session.branch_stored"}
)


def adapted(method: Method[GatewayClient]) -> Method[GatewayClient]:
    """The method as the surface serves it."""
    call: Callable[[GatewayClient, Any], Any] = method.call
    if method.params is not None and issubclass(method.params, KeyedParams):
        call = _keyed(method)

    @wraps(method.handler)
    def handler(client: GatewayClient, params: Any) -> Any:
        outcome = call(client, params)
        return _in_older_shape(client, method.name, outcome) if client.older else outcome

    return replace(method, handler=handler, waits=False)


def _keyed(method: Method[GatewayClient]) -> Callable[[GatewayClient, Any], Any]:
    def call(client: GatewayClient, params: Any) -> Any:
        key = params.request_key or params.idempotency_key
        if key is None and isinstance(params, PromptSubmitParams):
            key = params.client_message_id
        return method.call(client, params) if key is None else once(client, method, params, key)

    return call


def once(client: GatewayClient, method: Method[GatewayClient], params: Any, key: str) -> Any:
    """Do it, or give what it came to before. Raises ``IdempotencyConflict`` when the key was for something else."""
    repeats = client.server.repeats
    keys = _keys(client, method.name, params, key)
    body = encode(params.model_dump(mode="json", exclude=OUTSIDE_THE_BODY))
    found = repeats.find(keys, body)
    if found is not None and not _is_gone(client, method.name, found):
        return Awaiting(lambda: _again(client, method.name, params, found))
    outcome = repeats.begin(keys, body)
    try:
        answer = method.call(client, params)
    except BaseException:
        repeats.forget(outcome)
        raise
    if not isinstance(answer, Awaiting):
        repeats.settle(outcome, answer, _size(answer))
        return answer
    client.server.registry.carry_through(
        lambda: repeats.run(outcome, method.name, answer.run, _size), name=f"keyed {method.name}"
    )
    return Awaiting(outcome.wait, answer.on_cancel)


def _size(answer: Any) -> int:
    """What it takes on the wire, near enough to what it holds in memory."""
    try:
        return len(encode(to_wire(answer.result if isinstance(answer, Answer) else answer)))
    except Unencodable:
        # Its first answer is an internal error; so will the repeat's be.
        return 0


def _keys(client: GatewayClient, name: str, params: Any, key: str) -> list[str]:
    """A key is meant for one method of one session, whichever of its two ids the client knows now."""
    runtime_id = getattr(params, "session_id", None) or ""
    keys = [f"{name}\0{runtime_id}\0{key}"]
    session = _live(client, runtime_id)
    if session is not None:
        keys.append(f"{name}\0{session.key}\0{key}")
    return keys


def _live(client: GatewayClient, runtime_id: str) -> Session | None:
    try:
        return client.session(runtime_id)
    except SessionNotFound:
        return None


def _made(name: str, outcome: Outcome) -> str | None:
    """The session that the request made, where that is what it does and it is done."""
    answer = outcome.settled.value if outcome.settled.settled else None
    result = answer.result if isinstance(answer, Answer) else answer
    return result["session_id"] if name in MAKES_A_SESSION and isinstance(result, dict) else None


def _is_gone(client: GatewayClient, name: str, outcome: Outcome) -> bool:
    """A session that was made and has been closed meanwhile is no answer: it is made again."""
    made = _made(name, outcome)
    return made is not None and _live(client, made) is None


async def _again(client: GatewayClient, name: str, params: Any, outcome: Outcome) -> Any:
    answer = await outcome.wait()
    made = _made(name, outcome)
    session = _live(client, made if made is not None else getattr(params, "session_id", None) or "")
    if session is not None and (made is not None or name == "prompt.submit"):
        client.make_current(session)
    return answer


def _in_older_shape(client: GatewayClient, name: str, outcome: Any) -> Any:
    if isinstance(outcome, Awaiting):
        run = outcome.run

        async def shaped() -> Any:
            return _in_older_shape(client, name, await run())

        return Awaiting(shaped, outcome.on_cancel)
    if isinstance(outcome, Answer):
        return Answer(legacy_result(name, outcome.result), outcome.after)
    return legacy_result(name, outcome)
