"""Callers of the HTTP routes: streams that are read, left, reset or not read, runs that are stopped and read again."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx2
import trio

from tests.chaos.gateway import CANCELLED, walk
from tests.chaos.gateway_frames import PATIENCE
from tests.chaos.ledger import Fate, Prompt
from tests.chaos.lives import Life
from tests.chaos.trace import Violation
from tests.chaos.words import EVERY_WORD
from tests.protocols.http.test_http_disconnect import reset
from tests.support.sse_client import StreamingAnswer, streaming

if TYPE_CHECKING:
    from tests.chaos.play import Stage

ENDS = ("run.completed", "run.failed", "run.cancelled", "run.interrupted")
OVER = ("completed", "failed", "cancelled", "interrupted")
BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, httpx2.HTTPError)


class Forgotten(Exception):
    """The run is gone, and rightly."""


class Caller:
    def __init__(self, one: Stage, name: str, dice: random.Random, life: Life, client: httpx2.AsyncClient) -> None:
        self.one, self.name, self.dice, self.life, self.client = one, name, dice, life, client
        self.headers = {"Authorization": f"Bearer {life.key}"}

    async def ask(self, method: str, path: str, body: Any = None, session: str = "") -> httpx2.Response:
        with trio.move_on_after(PATIENCE):
            answer: httpx2.Response = await self.client.request(method, path, json=body)
            self.one.trace.tell(self.name, f"  {method} {path} -> {answer.status_code} {answer.text[:200]}", session)
            self.check(answer.status_code, answer.text, f"{method} {path}", session)
            return answer
        if self.life.alive:
            raise Violation("I4", f"{self.name}: {method} {path} was never answered", session)
        raise OSError("gone")

    def check(self, status: int, text: str, what: str, session: str) -> None:
        """A refusal is one of the table; never a crash."""
        if status >= 400:
            self.one.trace.counts[f"refused {status}"] += 1
            if "log_id" in text or not isinstance(json.loads(text).get("error"), dict):
                raise Violation("crash", f"{self.name}: {what}: {status} {text[:500]}", session)

    def forgets(self, session: str) -> bool:
        """The session was deleted with its runs, or days have passed for the server: what has ended is forgotten."""
        return session in self.one.gone or bool(self.one.trace.counts["clock jump"])

    def stream(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return streaming(self.life.port, method, path, headers={**self.headers, **headers}, body=body)

    def settle(self, prompt: Prompt, status: int) -> None:
        """Refused is not stored; what was begun may be, at most once."""
        refused = status in (400, 409, 429) or status == 503
        self.one.ledger.settle(prompt, Fate.REFUSED if refused else Fate.PERHAPS)


async def caller(one: Stage, name: str, dice: random.Random) -> None:
    while not one.quiet.is_set():
        life = one.lives.current.get("serve")
        if life is None or not life.alive:
            await trio.sleep(0.05)
            continue
        async with httpx2.AsyncClient(
            base_url=life.origin, headers={"Authorization": f"Bearer {life.key}"}, timeout=PATIENCE
        ) as client:
            me = Caller(one, name, dice, life, client)
            try:
                while life.alive and not one.quiet.is_set():
                    act = dice.choices(list(ACTS), [weight for weight, _ in ACTS.values()])[0]
                    await ACTS[act][1](me)
                    await trio.sleep(dice.choice([0, 0.02, 0.2]))
            except Forgotten:
                one.trace.counts["run forgotten"] += 1
            except BROKEN as error:
                if life.alive:
                    raise Violation("connection", f"{name}: {life.name} broke it off: {error!r}") from error
            except AssertionError as error:
                # The reader of streams says so when the connection ends before the head of the answer.
                if life.alive or isinstance(error, Violation):
                    raise


def _key(me: Caller) -> str:
    key = me.one.key(me.dice)
    if key is None:
        key = f"http-{me.dice.randrange(10**9):09}"
        me.one.keys.append(key)
    return key


# --- streams of one request -------------------------------------------------------------------------------------------


async def completion(me: Caller) -> None:
    key = _key(me)
    prompt = me.one.ledger.write(key, me.dice.choice(EVERY_WORD))
    body = {"model": "hermes-agent", "stream": True, "messages": [{"role": "user", "content": prompt.text}]}
    extra = {"X-Hermes-On-Disconnect": "continue"} if me.dice.random() < 0.3 else {}
    await _read_some(me, prompt, "/v1/chat/completions", body, **{"X-Hermes-Session-Id": key}, **extra)


async def response(me: Caller) -> None:
    key = _key(me)
    prompt = me.one.ledger.write(key, me.dice.choice(EVERY_WORD))
    body = {"model": "hermes-agent", "stream": True, "input": prompt.text}
    await _read_some(me, prompt, "/v1/responses", body, **{"X-Hermes-Session-Id": key})


async def session_chat(me: Caller) -> None:
    key = _key(me)
    prompt = me.one.ledger.write(key, me.dice.choice(EVERY_WORD))
    await _read_some(me, prompt, f"/api/sessions/{key}/chat/stream", {"message": prompt.text})


async def _read_some(me: Caller, prompt: Prompt, path: str, body: Any, **headers: str) -> None:
    """To the end, or a part and then gone: politely, with a reset, or asleep."""
    how = me.dice.choice(["read", "read", "fin", "reset", "stall"])
    me.one.trace.note(me.name, f"POST {path.split('/')[2]}, {how}", prompt.session, prompt.text)
    async with me.stream("POST", path, body, **headers) as answer:
        if answer.status != 200:
            await _read_refusal(me, prompt, path, answer)
            return
        me.one.ledger.settle(prompt, Fate.PERHAPS)
        seen: list[str] = []
        if how == "read":
            await _read_whole(me, prompt, path, answer, seen)
            return
        with trio.move_on_after(me.dice.uniform(0.05, 3)):
            for _ in range(me.dice.randrange(1, 30)):
                if await answer.line() is None:
                    return
        if how == "stall":
            with trio.move_on_after(me.dice.uniform(0, 5)):
                await me.one.quiet.wait()
        me.one.trace.tell(me.name, f"  leaves: {how}", prompt.session)
        if how == "reset":
            reset(answer.stream)


async def _read_whole(me: Caller, prompt: Prompt, path: str, answer: StreamingAnswer, seen: list[str]) -> None:
    """When the round is over, a stream that has no end yet is left."""
    with trio.move_on_after(PATIENCE) as waiting:
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                while (line := await answer.line()) is not None:
                    seen.append(line)
                _check_stream(me, prompt, path, seen)
                nursery.cancel_scope.cancel()

            nursery.start_soon(read)
            await me.one.quiet.wait()
            nursery.cancel_scope.cancel()
    if waiting.cancelled_caught and me.life.alive:
        raise Violation("I1", f"{me.name}: {path} came to no end: {seen[-5:]}", prompt.session)


async def _read_refusal(me: Caller, prompt: Prompt, path: str, answer: StreamingAnswer) -> None:
    text = await rest_of(answer)
    me.check(answer.status, text, path, prompt.session)
    me.one.trace.tell(me.name, f"  {path} -> {answer.status} {text[:200]}", prompt.session)
    me.settle(prompt, answer.status)


async def rest_of(answer: StreamingAnswer) -> str:
    """The body of a short answer, of whichever kind."""
    length = int(answer.headers.get("content-length", "0"))
    while len(answer._raw) < length:
        if not (more := await answer.stream.receive_some()):
            raise OSError("cut off")
        answer._raw += more
    return answer._raw[:length].decode()


def _check_stream(me: Caller, prompt: Prompt, path: str, lines: list[str]) -> None:
    """Read to its end, a stream has told one end."""
    if not me.life.alive:
        return
    datas = [line[6:] for line in lines if line.startswith("data: ")]
    if path.endswith("completions"):
        ends = datas.count("[DONE]")
        reasons = sum('"finish_reason":"' in data.replace('": "', '":"') for data in datas)
        good = ends == 1 and reasons <= 1
    elif path.endswith("responses"):
        kinds = [line[7:] for line in lines if line.startswith("event: ")]
        good = sum(k in ("response.completed", "response.failed", "response.incomplete") for k in kinds) == 1
    else:
        kinds = [line[7:] for line in lines if line.startswith("event: ")]
        good = sum(kind.startswith("run.") and kind != "run.started" for kind in kinds) == 1
    if not good:
        raise Violation("I1", f"{me.name}: {path} told no end, or two: {lines[-12:]}", prompt.session)


# --- runs -------------------------------------------------------------------------------------------------------------


async def run(me: Caller) -> None:
    """Start, read in pieces, perhaps stop or steer, read to the end: one uncut sequence with one end."""
    key = _key(me)
    prompt = me.one.ledger.write(key, me.dice.choice(EVERY_WORD))
    me.one.trace.note(me.name, "run", key, prompt.text)
    body: dict[str, Any] = {"input": prompt.text, "session_id": key}
    if me.dice.random() < 0.2:
        body["deadline_s"] = 0.5
    answer = await me.ask("POST", "/v1/runs", body, key)
    me.settle(prompt, answer.status_code)
    if answer.status_code != 202:
        return
    run_id: str = answer.json()["run_id"]
    seen: list[dict[str, Any]] = []
    for _ in range(me.dice.randrange(3)):
        await read_run(me, run_id, key, seen, me.dice.randrange(1, 15), me.dice.uniform(0.05, 1))
        await _meddle(me, run_id, key)
    with trio.move_on_after(4):
        if await read_run(me, run_id, key, seen, 10**6, 3.5):
            await check_run(me, run_id, seen, key)
            return
    await me.ask("POST", f"/v1/runs/{run_id}/stop", {"reason": "chaos"}, key)
    if not await read_run(me, run_id, key, seen, 10**6, PATIENCE) and me.life.alive:
        raise Violation("I1", f"{me.name}: {run_id} has no end, last {seen[-3:]}", key)
    await check_run(me, run_id, seen, key)


async def _meddle(me: Caller, run_id: str, key: str) -> None:
    what = me.dice.choice(["nothing", "steer", "stop", "approve", "status"])
    me.one.trace.note(me.name, f"run: {what}", key)
    if what == "steer":
        await me.ask("POST", f"/v1/runs/{run_id}/steer", {"text": "steer: tabs"}, key)
    elif what == "stop":
        await me.ask("POST", f"/v1/runs/{run_id}/stop", {}, key)
    elif what == "approve":
        await me.ask("POST", f"/v1/runs/{run_id}/approval", {"choice": me.dice.choice(["once", "deny", "odd"])}, key)
    elif what == "status":
        await me.ask("GET", f"/v1/runs/{run_id}", None, key)


async def read_run(me: Caller, run_id: str, key: str, seen: list[dict[str, Any]], count: int, seconds: float) -> bool:
    """Go on behind the last event. True at the end of the stream."""
    after = {"Last-Event-ID": str(seen[-1]["seq"])} if seen else {}
    with trio.move_on_after(seconds):
        async with me.stream("GET", f"/v1/runs/{run_id}/events", None, **after) as answer:
            if answer.status == 404 and me.forgets(key):
                raise Forgotten
            if answer.status != 200:
                raise Violation("I7", f"{me.name}: events of {run_id}: {answer.status} {await rest_of(answer)}")
            for _ in range(count):
                event = await answer.data()
                if event is None:
                    return True
                seen.append(event)
            if me.dice.random() < 0.5:
                reset(answer.stream)
    return False


async def check_run(me: Caller, run_id: str, seen: list[dict[str, Any]], key: str) -> None:
    if not me.life.alive:
        return
    numbers = [event["seq"] for event in seen]
    if numbers != list(range(len(numbers))):
        raise Violation("I7", f"{me.name}: events of {run_id} are numbered {numbers}", key)
    ends = [event["event"] for event in seen if event["event"] in ENDS]
    if len(ends) != 1 or seen[-1]["event"] not in ENDS:
        raise Violation("I1", f"{me.name}: {run_id} ended with {[one['event'] for one in seen[-6:]]}", key)
    answer = await me.ask("GET", f"/v1/runs/{run_id}", None, key)
    if answer.status_code == 404 and me.forgets(key):
        raise Forgotten
    status = answer.json()
    if f"run.{status['status']}" != ends[0]:
        raise Violation("I1", f"{me.name}: {run_id} said {ends[0]}, its status is {status['status']}", key)
    me.one.trace.note(me.name, ends[0], key)


# --- the rest ---------------------------------------------------------------------------------------------------------


async def cancel_node(me: Caller) -> None:
    tree = (await me.ask("GET", "/v1/tree")).json()
    nodes = [node for node in walk(tree.get("tree", tree)) if node.get("kind") in (*CANCELLED, "session")]
    if nodes:
        node = me.dice.choice(nodes)
        if node["kind"] != "session" or me.dice.random() < 0.1:
            me.one.trace.note(me.name, "DELETE node", detail=f"{node['kind']} {node['name']}")
            await me.ask("DELETE", f"/v1/tree/{node['node_id']}")


async def look(me: Caller) -> None:
    key = _key(me)
    path = me.dice.choice(
        ["/v1/models", "/metrics", "/health/detailed", "/api/sessions", f"/api/sessions/{key}/messages"]
    )
    me.one.trace.note(me.name, "GET", detail=path)
    if path == "/metrics":
        await me.client.get(path)
    else:
        await me.ask("GET", path)


async def wrong(me: Caller) -> None:
    """Refused, and in the form of an error."""
    key = _key(me)
    prompt = me.one.ledger.write(key, "say")
    me.one.ledger.settle(prompt, Fate.REFUSED)
    path, body = me.dice.choice(
        [
            ("/v1/chat/completions", {"messages": prompt.text}),
            ("/v1/runs", {"input": prompt.text, "session_id": key, "deadline_s": -1}),
            ("/v1/responses", {"input": prompt.text, "previous_response_id": "resp_none"}),
        ]
    )
    me.one.trace.note(me.name, "wrong request", key, path)
    answer = await me.ask("POST", path, body, key)
    if answer.status_code < 400:
        raise Violation("I10", f"{me.name}: {path} took {body}", key)


async def delete(me: Caller) -> None:
    alive = [key for key in me.one.keys if key not in me.one.gone]
    if len(alive) > 3:
        key = me.dice.choice(alive)
        me.one.trace.note(me.name, "DELETE session", key)
        me.one.gone.add(key)
        answer = await me.ask("DELETE", f"/api/sessions/{key}", None, key)
        if answer.status_code >= 400 and answer.status_code != 404:
            me.one.gone.discard(key)
        else:
            me.one.ledger.forget(key)


Act = Callable[[Caller], Awaitable[None]]
ACTS: dict[str, tuple[int, Act]] = {
    "completion": (6, completion),
    "response": (4, response),
    "session chat": (3, session_chat),
    "run": (8, run),
    "node": (3, cancel_node),
    "look": (3, look),
    "wrong": (2, wrong),
    "delete": (1, delete),
}
