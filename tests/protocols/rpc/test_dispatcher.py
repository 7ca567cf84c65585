"""A conversation through the real dispatcher: order, one answer each, errors, cancel by id."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from pydantic import ValidationError

from hermes.errors import Overloaded
from hermes.nurseries.connection import ConnectionEnd
from hermes.protocols.rpc.dispatcher import Dialect, RpcConnection
from hermes.protocols.rpc.method_table import Answer, Awaiting, MethodTable, Result, StrictParams
from hermes.protocols.wire.frame_values import MAX_VALUES
from hermes.protocols.wire.jsonrpc import INVALID_PARAMS, SERVER_ERROR, ErrorObject
from hermes.protocols.wire.ndjson import LineTooLong
from hermes.protocols.wire.peer import Reply
from tests.support.memory_channel import MemoryChannel


class World:
    """What handlers act on."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gate = trio.Event()
        self.connection: RpcConnection[World] | None = None


class NoteParams(StrictParams):
    text: str


class NoteResult(Result):
    text: str
    absent: str | None = None
    empty: str | None = None


methods: MethodTable[World] = MethodTable()


@methods.method("note", NoteParams, NoteResult)
def note(world: World, params: NoteParams) -> NoteResult:
    world.log.append(params.text)
    return NoteResult(text=params.text, empty=None)


@methods.method("wait", NoteParams)
def wait(world: World, params: NoteParams) -> Awaiting[dict[str, Any]]:
    world.log.append(f"begin {params.text}")

    async def rest() -> dict[str, Any]:
        await world.gate.wait()
        world.log.append(f"end {params.text}")
        return {"text": params.text}

    return Awaiting(rest)


@methods.method("polite", None)
def polite(world: World, params: dict[str, Any]) -> Awaiting[dict[str, Any]]:
    async def rest() -> dict[str, Any]:
        await world.gate.wait()
        return {"stopReason": "cancelled"}

    return Awaiting(rest, on_cancel=world.gate.set)


@methods.method("set", NoteParams)
async def set_(world: World, params: NoteParams) -> dict[str, Any]:
    world.log.append(f"set {params.text}")
    return {}


@methods.method("any", None)
def any_(world: World, params: dict[str, Any]) -> dict[str, Any]:
    world.log.append(f"any {params['session_id']}")
    return {}


@methods.method("stop", None)
def stop(world: World, params: dict[str, Any]) -> dict[str, Any]:
    world.log.append(f"stop {params['session_id']}")
    return {}


@methods.method("crash", None)
def crash(world: World, params: dict[str, Any]) -> None:
    raise ValueError("boom")


@methods.method("crash_later", None)
async def crash_later(world: World, params: dict[str, Any]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)


async def fail() -> None:
    raise ValueError("boom later")


@methods.method("unserialisable", None)
def unserialisable(world: World, params: dict[str, Any]) -> object:
    return {"x": object()}


@methods.method("greet", None)
def greet(world: World, params: dict[str, Any]) -> Answer[dict[str, Any]]:
    connection = world.connection
    assert connection is not None
    return Answer({"hello": True}, after=lambda: note_sent(connection))


def note_sent(connection: RpcConnection[World]) -> None:
    connection.notify("event", {"type": "greeted"})


def map_error(error: Exception, method: str) -> ErrorObject:
    if isinstance(error, Overloaded):
        return ErrorObject(5035, error.message)
    return ErrorObject(SERVER_ERROR, f"{method}: {error}")


def map_params_error(error: ValidationError, method: str) -> ErrorObject:
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    return ErrorObject(4000 if first["type"] == "extra_forbidden" else INVALID_PARAMS, f"{method}: {key}")


GATEWAY_LIKE = Dialect(map_error, map_params_error, answers_notifications=True)
ACP_LIKE = Dialect(map_error, map_params_error)


class Conversation:
    def __init__(self, client: MemoryChannel, world: World, connection: RpcConnection[World]) -> None:
        self.client = client
        self.world = world
        self.connection = connection
        self.ends: list[ConnectionEnd] = []


@asynccontextmanager
async def conversation(
    dialect: Dialect = GATEWAY_LIKE, *, max_requests: int = 256, on_open: Callable[[], None] | None = None
) -> AsyncIterator[Conversation]:
    client, world = MemoryChannel(), World()
    world.connection = RpcConnection(client, MethodTable.combined(methods), dialect, max_requests=max_requests)
    talk = Conversation(client, world, world.connection)

    async def run() -> None:
        talk.ends.append(await talk.connection.run(world, on_open=on_open))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            yield talk
            nursery.cancel_scope.cancel()


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def result(id: Any, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def code_of(frame: dict[str, Any]) -> tuple[Any, int]:
    return frame["id"], frame["error"]["code"]


async def test_synchronous_parts_run_in_order_of_arrival_and_waiting_holds_nothing_up() -> None:
    async with conversation() as talk:
        talk.client.say(
            request(1, "wait", text="a"),
            request(2, "note", text="b"),
            request(3, "wait", text="c"),
            request(4, "note", text="d"),
        )
        assert await talk.client.heard(2) == [
            result(2, {"text": "b", "empty": None}),
            result(4, {"text": "d", "empty": None}),
        ]
        assert talk.world.log == ["begin a", "b", "begin c", "d"]
        talk.world.gate.set()
        assert sorted(frame["id"] for frame in (await talk.client.heard(4))[2:]) == [1, 3]


async def test_each_kind_of_bad_call_gets_its_own_error_and_the_connection_lives() -> None:
    async with conversation() as talk:
        talk.client.say(
            b"{",
            b"[1]",
            {"id": 3},
            {"id": 4, "method": "nobody", "params": []},
            request(5, "nobody"),
            request(6, "note", text="a", extra=1),
            request(7, "note", text=1),
            request(8, "crash"),
            request(9, "unserialisable"),
            request(10, "crash_later"),
        )
        talk.client.say_fault(LineTooLong(5))
        frames = await talk.client.heard(11)
        assert sorted(map(code_of, frames), key=str) == sorted(
            [
                (None, -32700),
                (None, -32600),
                (3, -32600),
                (4, -32602),
                (5, -32601),
                (6, 4000),
                (7, -32602),
                (8, -32000),
                (9, -32603),
                (10, -32000),
                (None, -32600),
            ],
            key=str,
        )
        assert "boom later" in next(f for f in frames if f["id"] == 10)["error"]["message"]
        assert "extra" in next(f for f in frames if f["id"] == 6)["error"]["message"]
        talk.client.say(request(11, "note", text="still here"))
        assert (await talk.client.heard(12))[11] == result(11, {"text": "still here", "empty": None})


async def test_a_cancelled_request_is_answered_once_as_cancelled() -> None:
    async with conversation(ACP_LIKE) as talk:
        talk.client.say(request("p", "wait", text="a"), {"method": "$/cancel_request", "params": {"requestId": "p"}})
        assert [code_of(frame) for frame in await talk.client.heard(1)] == [("p", -32800)]
        talk.client.say(
            {"method": "$/cancel_request", "params": {"requestId": "p"}},
            {"method": "$/cancel_request", "params": {"requestId": "unknown"}},
            {"method": "$/cancel_request", "params": {}},
            request(2, "note", text="b"),
        )
        await talk.client.heard(2)
        assert [frame["id"] for frame in talk.client.sent] == ["p", 2]


async def test_a_cancel_right_behind_its_request_is_read_before_anything_has_begun() -> None:
    async with conversation(ACP_LIKE) as talk:
        for number in range(20):
            cancel = {"method": "$/cancel_request", "params": {"requestId": number}}
            talk.client.say(request(number, "set", text="a"), cancel)
            frames = await talk.client.heard(number + 1)
            assert code_of(frames[-1]) == (number, -32800)
        assert talk.world.log == []


async def test_work_that_answers_by_itself_is_asked_instead_of_cancelled() -> None:
    async with conversation(ACP_LIKE) as talk:
        talk.client.say(request(1, "polite"), {"method": "$/cancel_request", "params": {"id": 1}})
        assert await talk.client.heard(1) == [result(1, {"stopReason": "cancelled"})]


async def test_more_waiting_requests_than_allowed_are_refused_and_room_comes_back() -> None:
    async with conversation(max_requests=2) as talk:
        talk.client.say(*(request(i, "wait", text=str(i)) for i in range(3)))
        assert [code_of(frame) for frame in await talk.client.heard(1)] == [(2, 5035)]
        talk.world.gate.set()
        await talk.client.heard(3)
        talk.client.say(request(9, "wait", text="again"))
        assert (await talk.client.heard(4))[3] == result(9, {"text": "again"})


async def test_what_is_refused_because_too_many_wait_has_done_nothing_and_a_stop_is_taken_all_the_same() -> None:
    async with conversation(Dialect(map_error, map_params_error, always=frozenset({"set"})), max_requests=2) as talk:
        talk.client.say(
            request(0, "wait", text="a"),
            request(1, "wait", text="b"),
            request(2, "note", text="c"),
            request(3, "set", text="d"),
        )
        assert code_of((await talk.client.heard(1))[0]) == (2, 5035)
        assert (await talk.client.heard(2))[1] == result(3, {})
        assert talk.world.log == ["begin a", "begin b", "set d"]


HOLDING = Dialect(
    map_error,
    map_params_error,
    answers_notifications=True,
    always=frozenset({"set", "stop"}),
    holds=True,
    stops=frozenset({"stop"}),
)


async def test_where_calls_are_held_each_is_done_in_its_order_once_there_is_room() -> None:
    async with conversation(HOLDING, max_requests=3) as talk:
        talk.client.say(
            *(request(i, "wait", text=str(i)) for i in range(3)),
            request(3, "note", text="c"),
            request(4, "wait", text="d"),
            request(5, "set", text="e"),
        )
        assert await talk.client.heard(1) == [result(5, {})]
        await trio.testing.wait_all_tasks_blocked()
        assert talk.world.log == ["begin 0", "begin 1", "begin 2", "set e"]
        talk.world.gate.set()
        frames = await talk.client.heard(6)
        assert sorted(frame["id"] for frame in frames) == [*range(6)] and not any("error" in f for f in frames)
        assert [word for word in talk.world.log[4:] if not word.startswith("end")] == ["c", "begin d"]


async def test_when_as_many_are_held_as_may_be_nothing_more_is_read() -> None:
    async with conversation(HOLDING, max_requests=2) as talk:
        talk.client.say(*(request(i, "wait", text=str(i)) for i in range(4)), request(4, "set", text="e"))
        await trio.testing.wait_all_tasks_blocked()
        assert talk.client.sent == []
        talk.world.gate.set()
        frames = await talk.client.heard(5)
        assert sorted(frame["id"] for frame in frames) == [*range(5)] and not any("error" in f for f in frames)


async def test_a_stop_passes_what_is_held_and_nothing_of_its_session_begins_after_it() -> None:
    async with conversation(HOLDING, max_requests=3) as talk:
        talk.client.say(
            *(request(i, "wait", text=str(i)) for i in range(3)),
            request(3, "any", session_id="s"),
            request(4, "any", session_id="t"),
            request(5, "stop", session_id="s"),
        )
        assert [code_of(frame) for frame in (await talk.client.heard(1))[:1]] == [(3, -32800)]
        assert (await talk.client.heard(2))[1] == result(5, {})
        assert talk.world.log[3:] == ["stop s"]
        talk.world.gate.set()
        frames = await talk.client.heard(6)
        assert sorted(frame["id"] for frame in frames[2:]) == [0, 1, 2, 4]
        assert "any t" in talk.world.log and "any s" not in talk.world.log


async def test_a_held_request_can_be_cancelled() -> None:
    async with conversation(HOLDING, max_requests=2) as talk:
        talk.client.say(
            *(request(i, "wait", text=str(i)) for i in range(2)),
            request(2, "note", text="b"),
            {"id": 3, "method": "$/cancel_request", "params": {"id": 2}},
        )
        assert code_of((await talk.client.heard(1))[0]) == (2, -32800)
        talk.world.gate.set()
        await talk.client.heard(4)
        assert "b" not in talk.world.log


async def test_held_requests_are_answered_after_the_client_has_ended_its_input() -> None:
    async with conversation(HOLDING, max_requests=2) as talk:
        talk.client.say(*(request(i, "wait", text=str(i)) for i in range(4)))
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.connection.answered, 5)
            await trio.testing.wait_all_tasks_blocked()
            talk.world.gate.set()
        assert sorted(frame["id"] for frame in talk.client.sent) == [0, 1, 2, 3]


async def test_a_frame_of_too_many_values_is_refused_and_a_long_text_is_none() -> None:
    async with conversation() as talk:
        talk.client.say(
            b'{"id":1,"method":"note","params":{"text":[' + b"1," * MAX_VALUES + b"1]}}",
            request(2, "note", text='a,"\\' * MAX_VALUES),
        )
        frames = await talk.client.heard(2)
        assert code_of(frames[0]) == (None, -32600) and str(MAX_VALUES) in frames[0]["error"]["message"]
        assert frames[1]["id"] == 2 and "error" not in frames[1]


async def test_a_second_request_with_an_open_id_does_not_steal_its_answer() -> None:
    async with conversation() as talk:
        talk.client.say(request(1, "wait", text="a"), request(1, "note", text="b"))
        assert [code_of(frame) for frame in await talk.client.heard(1)] == [(None, -32600)]
        talk.world.gate.set()
        assert (await talk.client.heard(2))[1] == result(1, {"text": "a"})
        assert talk.world.log == ["begin a", "end a"]


async def test_notifications_are_answered_with_a_null_id_or_not_at_all() -> None:
    async with conversation(GATEWAY_LIKE) as talk:
        talk.client.say({"method": "note", "params": {"text": "x"}})
        assert await talk.client.heard(1) == [result(None, {"text": "x", "empty": None})]
    async with conversation(ACP_LIKE) as talk:
        talk.client.say(
            {"method": "note", "params": {"text": "x"}},
            {"method": "nobody"},
            {"method": "crash"},
            request(1, "note", text="y"),
        )
        await talk.client.heard(1)
        assert [frame["id"] for frame in talk.client.sent] == [1]
        assert talk.world.log == ["x", "y"]


async def test_our_own_request_gets_its_answer_in_the_reader_once() -> None:
    replies: list[Reply] = []
    async with conversation() as talk:
        talk.connection.ask("srq-1", "approval", {"a": 1}, replies.append)
        talk.connection.ask("srq-2", "approval", {}, replies.append)
        talk.connection.withdraw("srq-2")
        assert [frame["id"] for frame in await talk.client.heard(2)] == ["srq-1", "srq-2"]
        talk.client.say(result("srq-1", 1), result("srq-1", 2), result("srq-2", 3), request(1, "note", text="x"))
        await talk.client.heard(3)
    assert replies == [Reply("srq-1", 1, None)]


async def test_answers_that_nobody_waits_for_are_told_in_the_log_and_not_without_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with conversation() as talk:
        with caplog.at_level("INFO", logger="hermes.protocols.rpc.dispatcher"):
            talk.client.say(
                *({"id": f"srq-{i}", "result": {"choice": "once"}} for i in range(100)), request(1, "note", text="b")
            )
            await talk.client.heard(1)
    told = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert len(told) == 20
    assert "an answer to 'srq-0', for which nobody waits (any more)" in told[0]


async def test_what_follows_an_answer_comes_right_behind_it() -> None:
    async with conversation() as talk:
        talk.client.say(request(1, "greet"), request(2, "note", text="x"))
        frames = await talk.client.heard(3)
        assert frames[0] == result(1, {"hello": True})
        assert frames[1]["params"] == {"type": "greeted"}


async def test_a_call_refused_beforehand_reaches_no_handler() -> None:
    dialect = Dialect(map_error, map_params_error, before=lambda call: ErrorObject(5035, "retiring"))
    async with conversation(dialect) as talk:
        talk.client.say(request(1, "note", text="x"))
        assert [code_of(frame) for frame in await talk.client.heard(1)] == [(1, 5035)]
        assert talk.world.log == []


async def test_a_client_that_hangs_up_gets_what_was_answered_and_nothing_for_what_was_not() -> None:
    async with conversation() as talk:
        talk.client.say(request(1, "wait", text="a"), request(2, "note", text="b"))
        talk.client.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        assert talk.ends == [ConnectionEnd.PEER_HUNG_UP]
        assert [frame["id"] for frame in talk.client.sent] == [2]


async def test_closing_tells_the_client_the_code() -> None:
    async with conversation() as talk:
        talk.connection.notify("event", {"last": True})
        talk.connection.close(1001, "going away")
        await trio.testing.wait_all_tasks_blocked()
        assert talk.ends == [ConnectionEnd.CLOSED]
        assert talk.client.sent == [{"jsonrpc": "2.0", "method": "event", "params": {"last": True}}]
        assert talk.client.closed_with == (1001, "going away")
