"""When the trouble is over: everything is healed and asked to stop; then nothing is left, and everything works."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import trio
import trio_websocket

from tests.chaos.gateway import SocketClient, walk
from tests.chaos.injuries import tool_processes
from tests.chaos.ledger import Fate
from tests.chaos.lives import Life
from tests.chaos.trace import Violation
from tests.support.server_process import open_descriptors

if TYPE_CHECKING:
    from tests.chaos.play import Stage

WITHIN = 30.0
RESTLESS = (
    "turn",
    "tool_call",
    "tool_group",
    "model_call",
    "backoff",
    "question",
    "subagent",
    "delegation",
    "background",
)
SPARE_DESCRIPTORS, SPARE_THREADS = 25, 12
GROWTH = 150 * 2**20


async def check(one: Stage) -> None:
    one.lives.check_alive()
    for life in list(one.lives.current.values()):
        life.check_words()
    serve = await one.lives.ensure("serve")
    await one.lives.ensure("gateway")
    async with trio.open_nursery() as nursery:
        url = f"ws://127.0.0.1:{serve.port}/api/ws?token={serve.key}"
        with trio.fail_after(WITHIN):
            ws = await trio_websocket.connect_websocket_url(nursery, url, max_message_size=2**26)
        witness = SocketClient(one, "witness", one.dice, serve, ws)
        nursery.start_soon(witness.pump)
        await _rest(one, witness)
        await _no_tools(one)
        await _every_session_works(one, witness)
        witness.left = True
        await ws.aclose()
        nursery.cancel_scope.cancel()
    await _back_to_the_start(one, serve)
    one.ledger.check(gone=one.gone)
    refused = [record.id for record in one.provider.requests if record.status == 400]
    if refused:
        raise Violation("history", f"the strict provider refused a history: {refused[:3]}")
    one.provider.requests.clear()
    one.trace.counts["looked at"] += 1


async def _rest(one: Stage, witness: SocketClient) -> None:
    """A stop of every session is answered, and then nothing runs and no question is open."""
    active = (await witness.call("session.active_list", {}))["sessions"]
    for entry in active:
        with trio.move_on_after(WITHIN) as waiting:
            answer = await witness.request("session.interrupt", {"session_id": entry["id"]})
        if waiting.cancelled_caught:
            raise Violation("I3", f"an interrupt is not answered: {entry}")
        if "error" in answer:
            witness.refused(answer, "session.interrupt", "", (4001, 4007))
    await witness.request("process.stop", {})
    with trio.move_on_after(WITHIN) as waiting:
        while left := await _running(witness):
            await trio.sleep(0.05)
    if waiting.cancelled_caught:
        raise Violation("I3", f"still running {WITHIN:.0f} s after the stop: {left}")


async def _running(witness: SocketClient) -> list[str]:
    tree = (await witness.call("tree.get", {}))["tree"]
    return [f"{node['kind']} {node['name']} {node.get('state')}" for node in walk(tree) if node["kind"] in RESTLESS]


async def _no_tools(one: Stage) -> None:
    await _becomes(lambda: not tool_processes(one), lambda: f"left running: {told(one)}", "I5")


def told(one: Stage) -> str:
    """What is left, whose it is, and which servers there are."""
    found = []
    for pid, line in tool_processes(one).items():
        with contextlib.suppress(OSError):
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            marks = [entry.decode(errors="replace") for entry in environ if b"HERMES" in entry]
            found.append(
                f"{pid} (of {Path(f'/proc/{pid}/stat').read_text().split(')')[1][:12]}) ...{line[-60:]} {marks}"
            )
    servers = [f"{life.name} is {life.pid}" for life in one.lives.current.values()]
    return "; ".join([*found, *servers])


async def _becomes(holds: Callable[[], bool], text: Callable[[], str], invariant: str) -> None:
    with trio.move_on_after(WITHIN):
        while not holds():
            await trio.sleep(0.05)
    if not holds():
        raise Violation(invariant, text())


async def _every_session_works(one: Stage, witness: SocketClient) -> None:
    """Each takes the next prompt and ends it; no question is open; what was heard can be heard again."""
    for key in [key for key in one.keys if key not in one.gone]:
        answer = await witness.request("session.resume", {"session_id": key, "omit_messages": True}, key)
        if "error" in answer:
            # Never stored: its first prompt was refused, or its server died before.
            if answer["error"]["code"] != 4007:
                raise Violation("I3", f"cannot be resumed: {answer['error']}", key)
            one.keys.remove(key)
            continue
        runtime, result = answer["result"]["session_id"], answer["result"]
        if asked := [entry for entry in result["open_requests"] if not entry.get("interrupted")]:
            raise Violation("I6", f"open at rest: {asked}", key)
        witness.meet(runtime, key, running=False)
        await _one_turn(one, witness, runtime, key)
        await witness.check_replay(runtime)


async def _one_turn(one: Stage, witness: SocketClient, runtime: str, key: str) -> None:
    prompt = one.ledger.write(key, "say")
    view = witness.views[runtime]
    answer = await witness.request("prompt.submit", {"session_id": runtime, "text": prompt.text}, key)
    if "error" in answer:
        raise Violation("I3", f"refused at rest: {answer['error']}", key)
    one.ledger.settle(prompt, Fate.ACCEPTED)
    ended = [False]

    def over() -> bool:
        ended[0] = any(event["type"] in ("message.complete", "error") for event in view.heard[-400:])
        return ended[0] and view.in_turn is False

    await _becomes(over, lambda: f"no end of {prompt.text}: {[e['type'] for e in view.heard[-5:]]}", "I1")
    last = [event for event in view.heard if event["type"] == "message.complete"][-1]["payload"]
    if last["status"] != "complete":
        raise Violation("I3", f"a plain prompt ended so: {last}", key)


async def _back_to_the_start(one: Stage, life: Life) -> None:
    """Descriptors, threads and memory: those of the first rest of this life, and little more."""
    async with httpx2.AsyncClient(base_url=life.origin, headers={"Authorization": f"Bearer {life.key}"}) as client:
        tree: dict[str, Any] = (await client.get("/v1/tree")).json()
    one.trace.tell("witness", f"at rest: {len(walk(tree.get('tree', tree)))} nodes")
    first = life.baseline or (open_descriptors(life.pid), threads(life.pid), resident(life.pid))
    life.baseline = first
    most = first[0] + SPARE_DESCRIPTORS, first[1] + SPARE_THREADS
    await _becomes(
        lambda: open_descriptors(life.pid) <= most[0] and threads(life.pid) <= most[1],
        lambda: f"{open_descriptors(life.pid)} descriptors, {threads(life.pid)} threads; at first {first[:2]}",
        "I8",
    )
    if (grown := resident(life.pid) - first[2]) > GROWTH:
        raise Violation("I8", f"{life.name} has grown by {grown / 2**20:.0f} MiB")


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def first_violation(error: BaseException) -> Violation | None:
    if isinstance(error, Violation):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := first_violation(one)) is not None), None)
    return None


def story(one: Stage, error: BaseException) -> str:
    found = first_violation(error)
    session, needle = (found.session, found.needle) if found is not None else ("", "")
    return f"{found or error!r}\n\nlast of {session or 'all'}:\n{one.trace.last_of(session, needle)}"
