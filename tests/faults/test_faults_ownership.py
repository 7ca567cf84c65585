"""Two processes of one home, a store that fails, killers that may not kill, threads that do not come back."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.embedding.callbacks import CallbackPump
from hermes.nurseries.process_spec import ProcessSpec
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from hermes.testing import FakeProvider, Reply, Script
from hermes.testing.cancel_sweep import run_seeded
from tests.nurseries.test_steer_races import Race, places
from tests.support.core import make_services, running_tree, say
from tests.support.failing_store import FailingStore
from tests.support.gateway_host import Refusal, connected
from tests.support.mortal_server import mortal_servers
from tests.support.process_probe import Marks, running_with

MARKS = Marks()


@pytest.mark.e2e
@pytest.mark.fault("B-093")
@pytest.mark.fault("B-112")
async def test_a_question_is_answered_at_its_owner_and_another_process_neither_answers_nor_runs_a_turn(
    tmp_path: Path,
) -> None:
    ask = Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": "rm -rf build; echo ran"}}})
    with trio.fail_after(60):
        async with FakeProvider(Script.of(ask, Reply.of({"text": "done"}), strict=True)) as provider:
            environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}
            async with mortal_servers(tmp_path / "home", environ) as servers:
                owner, other = await servers.start("gateway"), await servers.start("gateway")
                await owner.call("client.capabilities", {"server_requests": True})
                made = await owner.call("session.create", {})
                await owner.call("prompt.submit", {"session_id": made["session_id"], "text": "go"})
                question = await owner.frame(lambda one: one.get("method") == "approval")
                there = await other.call("session.resume", {"session_id": made["stored_session_id"]})
                wrong = {"session_id": there["session_id"], "choice": "once", "request_id": question["id"]}
                answered = await other.request("approval.respond", wrong)
                assert "error" in answered or answered["result"]["resolved"] == 0, answered
                refused = await other.request("prompt.submit", {"session_id": there["session_id"], "text": "me"})
                assert refused["error"]["code"] == 4090
                assert refused["error"]["data"]["owner"].startswith(f"pid {owner.pid} on ")
                state = await owner.call("session.activate", {"session_id": made["session_id"]})
                assert [one["id"] for one in state["open_requests"]] == [question["id"]]
                await owner.send({"jsonrpc": "2.0", "id": question["id"], "result": {"choice": "once"}})
                end = await owner.event("message.complete")
                assert end["params"]["payload"]["status"] == "complete"
                assert len(provider.requests) == 2


@pytest.mark.fault("B-119")
async def test_a_rewind_that_cannot_be_stored_changes_neither_memory_nor_store(autojump_clock: Any) -> None:
    store = FailingStore(refused=frozenset({"rewind"}))
    services, model = make_services(say("one"), say("two"), store=store)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        for text in ("first", "second"):
            await host.call("prompt.submit", session_id=session_id, text=text)
            await host.event("message.complete")
        before = await host.call("session.history", session_id=session_id)
        session = tree.registry.get(session_id)
        stored = await store.inner.load_rows(session.key)
        with pytest.raises(Refusal) as refused:
            await host.call(
                "prompt.submit",
                session_id=session_id,
                text="anew",
                truncate_before_user_ordinal=0,
                confirm_truncate=True,
                confirm_empty_truncate=True,
            )
        assert refused.value.code in (5008, 5070, 5071)
        assert await host.call("session.history", session_id=session_id) == before
        assert await store.inner.load_rows(session.key) == stored
        assert len(model.requests) == 2


@pytest.mark.fault("B-124")
@pytest.mark.parametrize("stop", [False, True], ids=["to the end", "hard stop"])
def test_a_steer_that_races_with_the_end_is_in_exactly_one_place(stop: bool) -> None:
    for seed in range(100):
        said = run_seeded(Race(seed, stop=stop, redirects=False).run, seed)
        for text in (*said.taken, *said.refused):
            assert sum(places(said, text).values()) == 1, f"seed {seed}: {text}"


@pytest.mark.fault("B-133")
async def test_every_session_begins_and_ends_once_however_it_came_to_life(autojump_clock: Any) -> None:
    services, _ = make_services(say("one"), say("two"))
    async with running_tree(services) as tree, connected(tree) as host:
        made = await host.call("session.create")
        await host.call("prompt.submit", session_id=made["session_id"], text="hi")
        await host.event("message.complete")
        key = made["stored_session_id"]
        branch = await host.call("session.branch", session_id=made["session_id"])
        # Neither a second resume nor a switch back is a second session.
        again = await host.call("session.resume", session_id=key)
        await host.call("session.activate", session_id=made["session_id"])
        assert again["session_id"] == made["session_id"]
        assert len({one.runtime_id for one in tree.registry.live()}) == len(tree.registry.live()) == 2
        watched = {one.runtime_id: one for one in tree.registry.live()}
        for session_id in (made["session_id"], branch["session_id"]):
            await host.call("session.close", session_id=session_id)
        assert list(tree.registry.live()) == []
        for session in watched.values():
            kinds = [type(entry.event).__name__ for entry in session.log.since(0)[0]]
            assert (kinds.count("SessionClosed"), kinds[-1]) == (1, "SessionClosed")
        back = await host.call("session.resume", session_id=key)
        assert back["session_id"] not in watched
        assert len(tree.registry.live()) == 1


@pytest.mark.fault("B-173")
@pytest.mark.parametrize("all_signals", [False, True], ids=["TERM", "TERM and KILL"])
async def test_a_killer_that_may_not_signal_falls_back_and_the_call_ends(
    all_signals: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.killpg
    tried: list[int] = []

    def refused(group: int, number: int) -> None:
        tried.append(number)
        if all_signals or number == signal.SIGTERM:
            raise PermissionError
        real(group, number)

    monkeypatch.setattr(os, "killpg", refused)
    mark = MARKS.next()
    supervisor = ProcessSupervisor(owner_tag("no permission"), kill_grace=0.1)
    spec = ProcessSpec(argv=("bash", "-c", f"sleep {mark}; :"), env={"PATH": os.environ["PATH"]})

    class Output:
        def write(self, data: bytes) -> None:
            """The shell may tell of its child's end."""

    with trio.fail_after(60), trio.move_on_after(0.2) as stopped:
        await supervisor.run(spec, Output().write)
    assert stopped.cancelled_caught
    assert running_with(mark) == []
    assert "may not be sent SIGTERM" in caplog.text and tried


@pytest.mark.fault("B-179")
async def test_callbacks_that_never_return_take_no_threads_of_anybody_else() -> None:
    held = threading.Event()
    began = threading.Semaphore(0)

    def approval_callback(*_: Any) -> str:
        began.release()
        held.wait(20)
        return "deny"

    trio.to_thread.current_default_thread_limiter().total_tokens = 4
    pump = CallbackPump({"approval_callback": approval_callback})
    try:
        with trio.fail_after(15):
            for _ in range(8):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(pump.ask, "approval_callback", "?")
                    while not began.acquire(blocking=False):
                        await trio.sleep(0.001)
                    nursery.cancel_scope.cancel()
            # Nested: a thread that calls back into the loop, which starts a thread again.
            done: list[int] = []

            def inner(number: int) -> None:
                done.append(number)

            for number in range(8):
                await trio.to_thread.run_sync(inner, number)
            assert done == list(range(8))
    finally:
        held.set()
