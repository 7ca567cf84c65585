"""Runs over the wire: admission, events and their replay, approvals, steer, stop, idempotency, retention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from hermes.agent.ports import TurnBegun
from hermes.agent.store.memory import MemoryStore
from hermes.errors import SessionOwnedElsewhere
from hermes.messages import Row
from hermes.outcomes import CancelReason, Cause
from hermes.settings import Settings
from tests.support.core import call, clock, hang, say
from tests.support.failing_store import FailingStore
from tests.support.http_surface import Frame, Surface, frames, http_surface


async def start(surface: Surface, text: str = "go", **body: Any) -> str:
    answer = await surface.post("/v1/runs", {"input": text, **body})
    assert answer.status_code == 202, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def events(surface: Surface, run_id: str, query: str = "", **headers: str) -> list[Frame]:
    answer = await surface.get(f"/v1/runs/{run_id}/events{query}", **headers)
    assert answer.status_code == 200, answer.text
    return frames(answer.text)


async def waits_for_approval(surface: Surface, run_id: str) -> dict[str, Any]:
    with trio.fail_after(5):
        while True:
            status: dict[str, Any] = (await surface.get(f"/v1/runs/{run_id}")).json()
            if status["status"] == "waiting_for_approval":
                return status
            await trio.sleep(0.005)


async def test_a_run_is_accepted_and_found_under_its_location() -> None:
    async with http_surface(say("hello")) as surface:
        answer = await surface.post("/v1/runs", {"input": "hi"})
        body = answer.json()
        assert (answer.status_code, body["status"], body["replayed"]) == (202, "started", False)
        assert answer.headers["location"] == f"/v1/runs/{body['run_id']}"
        status = await surface.ended(body["run_id"])
        assert status["status"] == "completed"
        assert (status["completed"], status["partial"], status["interrupted"]) == (True, False, False)
        assert (status["output"], status["session_id"]) == ("hello", body["run_id"])
        assert status["usage"]["total_tokens"] == 15


async def test_events_are_numbered_from_zero_and_end_with_the_outcome() -> None:
    async with http_surface(say("a", calls=[call("nap", seconds=0)]), say("b")) as surface:
        run_id = await start(surface)
        seen = await events(surface, run_id)
        assert [frame.data["seq"] for frame in seen] == list(range(len(seen)))
        assert [frame.id for frame in seen] == [str(n) for n in range(len(seen))]
        assert all(frame.event is None for frame in seen)
        names = [frame.data["event"] for frame in seen]
        assert names.index("tool.started") < names.index("tool.completed")
        assert names[-1] == "run.completed"
        assert sum(name.startswith("run.") for name in names) == 1


async def test_named_frames_are_sent_when_asked_for() -> None:
    async with http_surface(say("a")) as surface:
        seen = await events(surface, await start(surface), "?named=1")
        assert [frame.event for frame in seen] == [frame.data["event"] for frame in seen]


@pytest.mark.parametrize("by", ["header", "after", "last_seq"])
async def test_a_reader_goes_on_behind_its_cursor(by: str) -> None:
    async with http_surface(say("a", "b", "c", "d")) as surface:
        run_id = await start(surface)
        whole = await events(surface, run_id)
        if by == "header":
            rest = await events(surface, run_id, Last_Event_ID="1")
        else:
            rest = await events(surface, run_id, f"?{by}=1")
        assert rest == whole[2:]


async def test_a_cursor_beyond_the_end_reads_nothing_and_garbage_reads_all() -> None:
    async with http_surface(say("a")) as surface:
        run_id = await start(surface)
        whole = await events(surface, run_id)
        assert await events(surface, run_id, "?after=99") == []
        for garbage in ("garbage", "1_0", "%2B1", "%D9%A3", "1e3", "", "--1", "-"):
            assert await events(surface, run_id, f"?after={garbage}") == whole, garbage
        assert await events(surface, run_id, "?after=-7") == whole


async def test_three_readers_see_the_same_whatever_they_do() -> None:
    pieces = [f"{n} " for n in range(60)]
    async with http_surface(say(*pieces, pause=0.004)) as surface:
        run_id = await start(surface)
        seen: dict[str, list[Frame]] = {}

        async def steady() -> None:
            seen["steady"] = await events(surface, run_id)

        async def restless() -> None:
            got: list[Frame] = []
            while not got or not got[-1].data["event"].startswith("run."):
                after = got[-1].data["seq"] if got else -1
                stream = await surface.raw("GET", f"/v1/runs/{run_id}/events", headers=f"Last-Event-ID: {after}\r\n")
                data = b""
                with trio.move_on_after(0.05):
                    async for part in stream:
                        data += part
                stream.socket.close()
                got += _whole_frames(data)
            seen["restless"] = got

        async with trio.open_nursery() as nursery:
            nursery.start_soon(steady)
            nursery.start_soon(restless)
        seen["late"] = await events(surface, run_id)
        assert seen["steady"] == seen["restless"] == seen["late"]
        assert "".join(f.data.get("delta", "") for f in seen["late"]) == "".join(pieces)


def _whole_frames(raw: bytes) -> list[Frame]:
    body = raw.partition(b"\r\n\r\n")[2]
    text = ""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16) if size else 0
        if not length or len(rest) < length:
            break
        text += rest[:length].decode()
        body = rest[length + 2 :]
    return frames(text.rpartition("\n\n")[0])


async def test_a_burst_that_outruns_the_sessions_window_loses_nothing() -> None:
    async with http_surface(say(*(["x"] * 3000))) as surface:
        seen = await events(surface, await start(surface))
        assert sum(len(frame.data.get("delta", "")) for frame in seen) == 3000
        assert [frame.data["seq"] for frame in seen] == list(range(len(seen)))


@pytest.mark.fault("B-108")
async def test_a_run_of_a_hundred_thousand_deltas_can_be_read_from_its_beginning_after_its_end() -> None:
    pieces = [f"{number} " for number in range(100_000)]
    async with http_surface(say(*pieces), within=150) as surface:
        run_id = await start(surface)
        await surface.ended(run_id, within=120)
        seen = await events(surface, run_id)
        assert seen[0].data["seq"] == 0
        assert "".join(frame.data.get("delta", "") for frame in seen) == "".join(pieces)
        assert seen[-1].data["event"] == "run.completed"


async def test_the_terminal_status_is_there_when_the_terminal_event_is() -> None:
    async with http_surface(*[say("x")] * 20) as surface:
        for _ in range(20):
            run_id = await start(surface)
            last = (await events(surface, run_id))[-1]
            status = (await surface.get(f"/v1/runs/{run_id}")).json()
            assert last.data["event"] == f"run.{status['status']}" == "run.completed"


async def test_a_finished_run_is_read_from_the_store() -> None:
    store = MemoryStore(now=clock)
    async with http_surface(say("a", "b"), store=store) as surface:
        run_id = await start(surface)
        whole = await events(surface, run_id)
        surface.surface.api.runs._finished.clear()
        assert await events(surface, run_id) == whole
        assert (await surface.get(f"/v1/runs/{run_id}")).json()["output"] == "ab"


async def test_an_unknown_run_is_not_found_on_every_route() -> None:
    async with http_surface() as surface:
        for method, path in [
            ("GET", ""),
            ("GET", "/events"),
            ("POST", "/stop"),
            ("POST", "/steer"),
            ("POST", "/approval"),
        ]:
            answer = await surface.client.request(method, f"/v1/runs/run_nope{path}", content=b"{}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "run_not_found"), path


async def test_a_foreign_run_is_not_there() -> None:
    async with http_surface(hang()) as surface:
        run_id = await start(surface)
        surface.surface.api.principal = "somebody else"
        assert (await surface.get(f"/v1/runs/{run_id}")).status_code == 404
        assert (await surface.post(f"/v1/runs/{run_id}/stop")).status_code == 404


# --- admission -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "missing_input"),
        ({"input": 7}, "missing_input"),
        ({"input": ["a"]}, "invalid_request"),
        ({"input": []}, "no_user_message"),
        ({"input": "  "}, "no_user_message"),
        ({"input": "x", "author": "me"}, "invalid_author"),
        ({"input": "x", "session_id": 5}, "invalid_session_id"),
        ({"input": "x", "session_id": "../x"}, "invalid_session_id"),
        ({"input": "x", "conversation_history": [{"role": "robot"}]}, "invalid_history"),
        ({"input": "x", "deadline_s": -1}, "invalid_limits"),
        ([1], "invalid_request"),
        ("x", "invalid_request"),
    ],
)
async def test_a_bad_request_starts_nothing(body: Any, code: str) -> None:
    async with http_surface() as surface:
        answer = await surface.post("/v1/runs", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}
        assert surface.surface.api.runs.active == 0
        assert surface.model.requests == []


async def test_an_unknown_previous_response_is_not_found() -> None:
    async with http_surface() as surface:
        answer = await surface.post("/v1/runs", {"input": "x", "previous_response_id": "resp_nope"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found")


async def test_two_names_for_the_session_must_agree() -> None:
    async with http_surface() as surface:
        answer = await surface.post("/v1/runs", {"input": "x", "session_id": "a"}, X_Hermes_Session_Id="b")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "session_conflict")


async def test_the_cap_refuses_with_retry_after_and_a_free_slot_is_used_again() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"max_concurrent_runs": 1}}})
    async with http_surface(hang(), say("second"), settings=settings) as surface:
        first = await start(surface)
        refused = await surface.post("/v1/runs", {"input": "x"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert refused.headers["retry-after"] == "1"
        await surface.post(f"/v1/runs/{first}/stop")
        await surface.ended(first)
        await surface.until(lambda: surface.surface.api.runs.active == 0)
        assert (await surface.ended(await start(surface)))["output"] == "second"


async def test_draining_refuses_new_runs_and_keeps_status_and_stop() -> None:
    async with http_surface(hang()) as surface:
        run_id = await start(surface)
        surface.tree.draining.set()
        for path, body in [("/v1/runs", {"input": "x"}), ("/v1/chat/completions", {"messages": []})]:
            refused = await surface.post(path, body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_draining")
            assert (refused.json()["error"]["type"], refused.headers["retry-after"]) == ("server_error", "1")
        await surface.until(lambda: surface.live_runs()[0].shutdown_requested_at is not None)
        assert "shutdown_requested_at" in (await surface.get(f"/v1/runs/{run_id}")).json()
        assert (await surface.post(f"/v1/runs/{run_id}/stop")).json() == {"run_id": run_id, "status": "stopping"}


async def test_shutdown_interrupts_a_run_and_says_so() -> None:
    async with http_surface(hang()) as surface:
        run_id = await start(surface)
        await surface.until(lambda: surface.model.open == 1)
        surface.tree.draining.set()
        await surface.tree.registry.close_all(CancelReason(Cause.SHUTDOWN))
        status = await surface.ended(run_id)
        assert (status["status"], status["interrupted"], status["cause"]) == ("interrupted", True, "shutdown")
        last = (await events(surface, run_id))[-1].data
        assert (last["event"], last["error"]) == ("run.interrupted", status["error"])


# --- idempotency -----------------------------------------------------------------------------------------------------


async def test_parallel_duplicates_are_one_run() -> None:
    async with http_surface(say("once", pause=0.05)) as surface:
        answers: list[Any] = []

        async def submit() -> None:
            answers.append(await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k"))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(submit)
        bodies = [answer.json() for answer in answers]
        assert len({body["run_id"] for body in bodies}) == 1
        assert sorted(body["replayed"] for body in bodies) == [False, *[True] * 9]
        await surface.ended(bodies[0]["run_id"])
        assert len(surface.model.requests) == 1


async def test_a_replay_is_answered_at_the_cap_and_tells_the_current_status() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"max_concurrent_runs": 1}}})
    async with http_surface(hang(), settings=settings) as surface:
        first = (await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k")).json()
        await surface.until(lambda: surface.model.open == 1)
        replay = await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k")
        assert replay.json() == {"run_id": first["run_id"], "status": "running", "replayed": True}
        assert (replay.status_code, replay.headers["idempotency-replayed"]) == (202, "true")


async def test_the_same_key_with_another_body_or_session_key_conflicts() -> None:
    async with http_surface(say("x")) as surface:
        await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k")
        for body, extra in [({"input": "y"}, {}), ({"input": "x"}, {"X_Hermes_Session_Key": "other"})]:
            answer = await surface.post("/v1/runs", body, Idempotency_Key="k", **extra)
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_key_conflict")


async def test_a_key_belongs_to_the_session_that_the_request_names_in_either_way() -> None:
    async with http_surface(say("x")) as surface:
        first = await surface.post("/v1/runs", {"input": "x", "session_id": "a"}, Idempotency_Key="k")
        same = await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k", X_Hermes_Session_Id="a")
        assert (same.status_code, same.json()["run_id"]) == (202, first.json()["run_id"])
        other = await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k", X_Hermes_Session_Id="b")
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_conflict")


@pytest.mark.parametrize("key", ["", "x" * 256, "with space"])
async def test_a_malformed_key_is_refused(key: str) -> None:
    async with http_surface() as surface:
        answer = await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key=key)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_idempotency_key")


async def test_a_refused_start_gives_its_key_back() -> None:
    async with http_surface(say("now")) as surface:
        body = {"input": "x", "provider": 5}
        assert (await surface.post("/v1/runs", body, Idempotency_Key="k")).status_code == 400
        answer = await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k")
        assert (answer.status_code, answer.json()["replayed"]) == (202, False)


class SlowLeases(MemoryStore):
    """A store whose leases are given only when the gate is open."""

    def __init__(self) -> None:
        super().__init__(now=clock)
        self.gate = trio.Event()

    async def begin_turn(self, key: str, rows: Sequence[Row], **options: Any) -> TurnBegun:
        await self.gate.wait()
        return await super().begin_turn(key, rows, **options)


@pytest.mark.fault("B-129")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", {"input": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/responses", {"input": "x"}),
    ],
)
async def test_a_retry_after_a_lost_answer_finds_the_run_that_was_started(path: str, body: Any) -> None:
    store = SlowLeases()
    async with http_surface(say("once"), store=store) as surface:
        stream = await surface.raw("POST", path, body, "Idempotency-Key: k\r\n")
        await surface.until(lambda: bool(surface.live_runs()))
        (run,) = surface.live_runs()
        stream.socket.close()
        await trio.sleep(0.05)
        store.gate.set()
        answer = await surface.post(path, body, Idempotency_Key="k")
        assert answer.status_code < 300, answer.text
        assert answer.headers["idempotency-replayed"] == "true"
        assert answer.json().get("run_id", answer.json().get("id")) == run.run_id
        await surface.ended(run.run_id)
        assert len(surface.model.requests) == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_refused_turn_gives_its_key_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(now=clock)
    async with http_surface(say("now"), store=store) as surface:
        body = {"messages": [{"role": "user", "content": "x"}], "input": "x"}

        async def refuse(*_: Any, **__: Any) -> int:
            await trio.lowlevel.checkpoint()
            raise SessionOwnedElsewhere("pid 1 on elsewhere")

        with monkeypatch.context() as patch:
            patch.setattr(store, "begin_turn", refuse)
            refused = await surface.post(path, body, Idempotency_Key="k")
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_active_turn")
        answer = await surface.post(path, body, Idempotency_Key="k")
        assert answer.status_code == 200, answer.text
        assert "idempotency-replayed" not in answer.headers


@pytest.mark.fault("B-034")
async def test_a_run_of_a_dead_process_is_interrupted() -> None:
    store = MemoryStore(now=clock)
    async with http_surface(hang(), store=store) as surface:
        run_id = (await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k")).json()["run_id"]
        await surface.until(lambda: surface.model.open == 1)
        with trio.fail_after(5):
            while True:
                record = await store.get_record("keyed_run", run_id)
                if record is not None and record["status"] is not None:
                    break
                await trio.sleep(0.002)
        principal = surface.surface.api.principal
    # The store as a process finds it that starts after a kill: the owner is a process that does not exist.
    dead = {"host": "test", "pid": 4_000_000, "start_time": 1, "nonce": "gone"}
    await store.put_record("keyed_run", run_id, {**record, "owner": dead}, owner=principal)
    async with http_surface(store=store) as surface:
        # Ids are counted in tests; in real life they are random and never come twice.
        surface.tree.services.ids("run")
        status = (await surface.get(f"/v1/runs/{run_id}")).json()
        assert (status["status"], status["interrupted"], status["completed"]) == ("interrupted", True, False)
        replay = (await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k")).json()
        assert replay == {"run_id": run_id, "status": "interrupted", "replayed": True}


async def test_retention_forgets_ended_runs_and_never_live_ones() -> None:
    settings = Settings.model_validate({"limits": {"run_retention": 0.001}})
    async with http_surface(say("x"), hang(), settings=settings) as surface:
        ended = await start(surface)
        await surface.ended(ended)
        live = await start(surface)
        await surface.until(lambda: surface.model.open == 1)
        await trio.sleep(0.01)
        await surface.surface.api.runs.sweep()
        assert (await surface.get(f"/v1/runs/{ended}")).status_code == 404
        assert (await surface.get(f"/v1/runs/{live}")).json()["status"] == "running"


# --- approvals, steer, stop ------------------------------------------------------------------------------------------


async def test_an_approval_is_shown_answered_once_and_told() -> None:
    async with http_surface(say("", calls=[call("ask")]), say("done")) as surface:
        run_id = await start(surface)
        status = await waits_for_approval(surface, run_id)
        request_id = status["approval"]["request_id"]
        body = {"choice": "approve", "request_id": request_id}
        answer = await surface.post(f"/v1/runs/{run_id}/approval", body)
        assert answer.json() == {
            "object": "hermes.run.approval_response",
            "run_id": run_id,
            "choice": "once",
            "request_id": request_id,
            "resolved": 1,
        }
        again = await surface.post(f"/v1/runs/{run_id}/approval", body)
        assert (again.status_code, again.json()["error"]["code"]) in [
            (409, "approval_not_pending"),
            (409, "approval_not_active"),
        ]
        assert (await surface.ended(run_id))["status"] == "completed"
        seen = [frame.data for frame in await events(surface, run_id)]
        asked = next(event for event in seen if event["event"] == "approval.request")
        assert asked["request_id"] == request_id
        assert asked["choices"] == ["once", "session", "always", "deny"]
        told = [event for event in seen if event["event"] == "approval.responded"]
        assert [(event["choice"], event["resolved"]) for event in told] == [("once", 1)]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"choice": "maybe"}, 400, "invalid_approval_choice"),
        ({}, 400, "invalid_approval_choice"),
        ({"choice": "once", "request_id": ""}, 400, "invalid_approval_request"),
        ({"choice": "once", "request_id": 5}, 400, "invalid_approval_request"),
        ({"choice": "once", "request_id": "other"}, 409, "approval_not_pending"),
    ],
)
async def test_a_wrong_answer_leaves_the_question_open(body: Any, status: int, code: str) -> None:
    async with http_surface(say("", calls=[call("ask")])) as surface:
        run_id = await start(surface)
        await waits_for_approval(surface, run_id)
        answer = await surface.post(f"/v1/runs/{run_id}/approval", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        await waits_for_approval(surface, run_id)


async def test_deny_lets_the_turn_go_on() -> None:
    async with http_surface(say("", calls=[call("ask")]), say("without it")) as surface:
        run_id = await start(surface)
        await waits_for_approval(surface, run_id)
        await surface.post(f"/v1/runs/{run_id}/approval", {"choice": "DENY"})
        assert (await surface.ended(run_id))["output"] == "without it"


@pytest.mark.fault("B-086")
async def test_stop_while_an_approval_waits_withdraws_it() -> None:
    async with http_surface(say("", calls=[call("ask")])) as surface:
        run_id = await start(surface)
        await waits_for_approval(surface, run_id)
        await surface.post(f"/v1/runs/{run_id}/stop")
        status = await surface.ended(run_id)
        assert (status["status"], status["cause"]) == ("cancelled", "run_stop")
        late = await surface.post(f"/v1/runs/{run_id}/approval", {"choice": "once"})
        assert (late.status_code, late.json()["error"]["code"]) == (409, "approval_not_active")
        withdrawn = next(f.data for f in await events(surface, run_id) if f.data["event"] == "approval.responded")
        assert (withdrawn["resolved"], withdrawn["outcome"]) == (0, "withdrawn")


async def test_stop_in_the_model_call_and_twice() -> None:
    async with http_surface(hang()) as surface:
        run_id = await start(surface)
        await surface.until(lambda: surface.model.open == 1)
        for _ in range(2):
            answer = await surface.post(f"/v1/runs/{run_id}/stop", {"reason": "enough"})
            assert answer.status_code == 200
        status = await surface.ended(run_id)
        assert (status["status"], status["cause"], status["reason"]) == ("cancelled", "run_stop", "enough")
        assert surface.model.open == 0


async def test_stop_after_the_end_changes_nothing() -> None:
    async with http_surface(say("x")) as surface:
        run_id = await start(surface)
        before = await surface.ended(run_id)
        for _ in range(2):
            assert (await surface.post(f"/v1/runs/{run_id}/stop")).json() == before


@pytest.mark.fault("B-001")
async def test_stop_of_a_waiting_run_never_reaches_the_model() -> None:
    async with http_surface(hang()) as surface:
        first = await start(surface, session_id="s")
        await surface.until(lambda: surface.model.open == 1)
        waiting = await start(surface, session_id="s")
        assert (await surface.get(f"/v1/runs/{waiting}")).json()["status"] == "queued"
        await surface.post(f"/v1/runs/{waiting}/stop")
        assert (await surface.ended(waiting))["status"] == "cancelled"
        await surface.post(f"/v1/runs/{first}/stop")
        await surface.ended(first)
        assert len(surface.model.requests) == 1


async def test_a_stopped_run_keeps_what_was_said_and_spent() -> None:
    async with http_surface(say("half", calls=[call("nap", seconds=3600)])) as surface:
        run_id = await start(surface)
        await surface.until(lambda: bool(surface.live_runs()) and surface.live_runs()[0].last_event == "tool.started")
        await surface.post(f"/v1/runs/{run_id}/stop")
        status = await surface.ended(run_id)
        assert status["usage"]["total_tokens"] == 15
        assert status["completed"] is False


async def test_a_steer_is_delivered_at_the_next_boundary() -> None:
    async with http_surface(say("", calls=[call("nap", seconds=0.2)]), say("ok")) as surface:
        run_id = await start(surface)
        await surface.until(lambda: surface.live_runs()[0].last_event == "tool.started")
        answer = await surface.post(f"/v1/runs/{run_id}/steer", {"text": "mind the gap"})
        assert answer.json() == {"object": "hermes.run.steer", "run_id": run_id, "accepted": True}
        status = await surface.ended(run_id)
        assert "pending_steer" not in status
        assert any("mind the gap" in row.text for row in surface.model.requests[-1].messages)
        assert "run.steered" in [frame.data["event"] for frame in await events(surface, run_id)]


async def test_a_steer_that_no_model_saw_comes_back() -> None:
    async with http_surface(hang()) as surface:
        run_id = await start(surface)
        await surface.until(lambda: surface.model.open == 1)
        await surface.post(f"/v1/runs/{run_id}/steer", {"input": [{"type": "text", "text": "hello"}]})
        await surface.post(f"/v1/runs/{run_id}/stop")
        assert (await surface.ended(run_id))["pending_steer"] == "hello"


async def test_a_steer_is_judged_by_the_state_before_its_text() -> None:
    async with http_surface(hang()) as surface:
        run_id = await start(surface)
        await surface.until(lambda: surface.model.open == 1)
        empty = await surface.post(f"/v1/runs/{run_id}/steer", {"text": " "})
        assert (empty.status_code, empty.json()["error"]["code"]) == (400, "invalid_steer_input")
        await surface.post(f"/v1/runs/{run_id}/stop")
        await surface.ended(run_id)
        late = await surface.post(f"/v1/runs/{run_id}/steer", {"text": ""})
        assert (late.status_code, late.json()["error"]["code"]) == (409, "run_not_accepting_steer")


async def test_a_deadline_of_the_caller_cancels_with_its_cause() -> None:
    async with http_surface(hang()) as surface:
        run_id = await start(surface, deadline_s=0.05)
        status = await surface.ended(run_id)
        assert (status["status"], status["cause"]) == ("cancelled", "deadline")


async def test_history_comes_from_the_request_the_chain_or_the_session() -> None:
    async with http_surface(say("one"), say("two"), say("three")) as surface:
        await surface.ended(await start(surface, "first", session_id="s"))
        await surface.ended(await start(surface, "second", session_id="s"))
        assert [row.text for row in surface.model.requests[-1].messages] == ["first", "one", "second"]
        history = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]
        await surface.ended(await start(surface, "third", session_id="s", conversation_history=history))
        assert [row.text for row in surface.model.requests[-1].messages] == ["A", "B", "third"]


async def test_a_steer_that_races_with_the_end_is_in_the_transcript_or_handed_back() -> None:
    rounds = 100
    async with http_surface(*[say("x", pause=0.001)] * rounds) as surface:
        for number in range(rounds):
            run_id = await start(surface, session_id="s")
            text = f"steer {number}"
            accepted = False
            with trio.move_on_after(0.02):
                while not accepted:
                    answer = await surface.post(f"/v1/runs/{run_id}/steer", {"text": text})
                    accepted = answer.status_code == 200
                    if not accepted and answer.json()["error"]["code"] != "run_not_accepting_steer":
                        assert answer.json()["error"]["code"] == "steer_not_accepted"
            status = await surface.ended(run_id)
            messages = (await surface.get("/api/sessions/s/messages")).json()["data"]
            stored = sum(text in str(entry["content"]) for entry in messages)
            handed_back = status.get("pending_steer", "").split("\n").count(text)
            assert stored + handed_back == int(accepted), (number, stored, handed_back, accepted)


async def test_a_request_that_starts_a_run_takes_one_slot_and_not_two() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"max_concurrent_runs": 2}}})
    gate = trio.Event()

    async def before(name: str) -> None:
        if name == "begin_turn":
            await gate.wait()

    store = FailingStore(before=before)
    async with http_surface(hang(), hang(), settings=settings, store=store) as surface:
        answers: list[int] = []

        async def one(session_id: str) -> None:
            answers.append((await surface.post("/v1/runs", {"input": "x", "session_id": session_id})).status_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "a")
            await surface.until(lambda: len(surface.live_runs()) == 1)
            assert surface.surface.api.runs.active == 1
            nursery.start_soon(one, "b")
            await surface.until(lambda: len(surface.live_runs()) == 2)
            gate.set()
        assert answers == [202, 202]
        assert (await surface.post("/v1/runs", {"input": "x"})).status_code == 429


async def test_a_run_that_is_chained_to_an_older_response_leaves_the_newer_ones_out() -> None:
    async with http_surface(*[say(f"r{number}") for number in range(3)]) as surface:
        first = (await surface.post("/v1/responses", {"input": "one"})).json()
        await surface.post("/v1/responses", {"input": "two", "previous_response_id": first["id"]})
        run_id = await start(surface, "three", previous_response_id=first["id"])
        await surface.ended(run_id)
        told = [row.text for row in surface.model.requests[-1].messages if row.role in ("user", "assistant")]
        assert told == ["one", "r0", "three"]
