"""A conversation while it is live: what it lets in, what it tells, what it remembers, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import ResolvedModel, ToolContext
from hermes.errors import Draining, EmptyText, ProviderError, SessionBusy, SessionClosing, TitleTaken
from hermes.events import (
    Notice,
    SessionClosed,
    SessionInfoChanged,
    SessionTitled,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRefused,
)
from hermes.messages import ImagePart, Prompt, RewindIntent, TextPart
from hermes.nurseries.client_requests import Attachment
from hermes.nurseries.session import Session
from hermes.nurseries.turn import Turn
from hermes.nurseries.turn_slot import Accepted, BusyPolicy
from hermes.outcomes import CancelReason, Cause
from hermes.settings import Settings
from tests.support.core import (
    PlainTool,
    ScriptedModel,
    call,
    events_of,
    hang,
    make_services,
    running_tree,
    say,
)
from tests.support.failing_store import FailingStore
from tests.support.invariants import assert_events_are_well_formed

STOP = CancelReason(Cause.USER_INTERRUPT, "enough")
CLOSE = CancelReason(Cause.SESSION_CLOSED)


async def started(session: Session, text: str = "hello", **options: Any) -> Turn:
    turn = await session.submit_nowait(Prompt(text, **options)).wait_turn()
    assert turn is not None
    await trio.testing.wait_all_tasks_blocked()
    return turn


def typed(text: str) -> Prompt:
    return Prompt(text, source="gateway")


async def test_submitting_is_synchronous_and_takes_the_slot_at_once(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        with trio.testing.assert_no_checkpoints():
            first = session.submit_nowait(Prompt("one"))
            second = session.submit_nowait(Prompt("two"))
        assert (first.status, second.status) == ("streaming", "queued")
        assert session.running and session.status == "starting"
        assert session.info().running


async def test_nothing_is_stored_until_a_prompt_is_accepted(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("hi"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/work", title="mine")
        assert await services.store.get_session(session.key) is None
        accepted = await session.submit_nowait(Prompt("one")).wait_accepted()
        stored = await services.store.get_session(session.key)
        assert stored is not None
        assert (stored.title, stored.cwd, accepted.user_row_id) == ("mine", "/work", session.rows[0].row_id)


async def test_a_session_can_be_stored_early_and_stays_out_of_the_lists(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="acp", cwd="/")
        await session.ensure_stored()
        await session.ensure_stored()
        assert await services.store.get_session(session.key) is not None
        assert await services.store.list_sessions() == []


async def test_adjacent_typed_prompts_become_one_turn_and_one_with_an_image_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, model = make_services(say("one", pause=5), say("two"), say("three"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await started(session, "first")
        queued = [session.submit_nowait(typed("a")), session.submit_nowait(typed("b"))]
        picture = Prompt((TextPart("look"), ImagePart("image/png", "x")), source="gateway")
        queued.append(session.submit_nowait(picture))
        turns = [await submission.wait_turn() for submission in queued]
        assert turns[0] is turns[1] is not turns[2]
        accepted = [await submission.wait_accepted() for submission in queued[:2]]
        assert accepted[0] == accepted[1] != Accepted(None)
        assert turns[2] is not None
        await turns[2].wait_ended()
        assert [row.text for row in session.rows if row.role == "user"] == ["first", "a\n\nb", "look"]
        assert len(model.requests) == 3


async def test_a_failed_turn_does_not_empty_the_queue(autojump_clock: trio.testing.MockClock) -> None:
    async def broken(request: Any, on_delta: Any) -> Any:
        await trio.sleep(1)
        raise KeyError("a bug")

    services, _ = make_services(*[broken] * 8, say("went on"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        first = await started(session)
        second = await session.submit_nowait(Prompt("next")).wait_turn()
        assert second is not None
        assert first.ended.value is not None and first.ended.value.failed
        assert first.ended.value.exit_reason == "repeated_outer_errors(KeyError)"
        assert "KeyError" not in (first.ended.value.error or "")
        assert (await second.wait_ended()).text == "went on"


async def test_the_busy_policy_routes_a_prompt_into_the_turn_or_behind_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(say("a", "b", pause=5), say("c", "d", calls=[call("nap", seconds=5)], pause=5))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(6)
        redirected = session.submit_nowait(typed(" other "), policy=BusyPolicy.REDIRECT)
        steered = session.submit_nowait(typed("mind"), policy=BusyPolicy.STEER)
        queued = session.submit_nowait(typed("later"), policy=BusyPolicy.QUEUE)
        image = session.submit_nowait(
            Prompt((TextPart("look"), ImagePart("image/png", "x")), source="gateway"), policy=BusyPolicy.REDIRECT
        )
        blank = session.submit_nowait(typed("  "), policy=BusyPolicy.STEER)
        assert [one.status for one in (redirected, steered, queued, image, blank)] == [
            "redirected", "steered", "queued", "queued", "queued",
        ]  # fmt: skip
        for given in (redirected, steered):
            assert await given.wait_turn() is None
            assert await given.wait_accepted() == Accepted(None)
        await trio.sleep(12)
        assert turn.in_tools
        during = session.submit_nowait(typed("while napping"), policy=BusyPolicy.REDIRECT)
        assert during.status == "steered"
        await turn.wait_ended()
        texts = [row.text for row in session.rows]
        assert "other" in texts
        assert "mind\nwhile napping" in texts


async def test_a_rewind_is_refused_while_the_slot_is_taken_in_any_way(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("one"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session)).wait_ended()
        session.slot.held = "compressing"
        assert session.status == "working"
        with pytest.raises(SessionBusy):
            session.submit_nowait(Prompt("again"), rewind=RewindIntent(ordinal=0))
        assert session.submit_nowait(Prompt("waits")).status == "queued"
        session.slot.held = None
        session.start_next_queued()
        assert session.running


async def test_empty_steers_are_refused_and_an_idle_session_takes_none(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        with pytest.raises(EmptyText):
            session.steer(" \n")
        with pytest.raises(EmptyText):
            session.redirect("")
        assert not session.steer("words")
        assert session.redirect("words") == "rejected"


async def test_a_redirect_becomes_a_steer_while_tools_run(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("", calls=[call("nap", seconds=5)]), say("done"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(1)
        assert session.redirect("differently") == "queued"
        await turn.wait_ended()
        assert "differently" in [row.text for row in session.rows if row.display_kind == "steer"]


async def test_status_and_inflight_follow_the_turn(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("Look", "ing", calls=[call("ask", secret="x")], pause=1), say("done"), hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        assert (session.status, session.inflight()) == ("idle", None)
        turn = await started(session)
        await trio.sleep(1.5)
        assert session.status == "working"
        session.steer("careful")
        inflight = session.inflight()
        assert inflight is not None
        assert (inflight["user"], inflight["assistant"], inflight["streaming"]) == ("hello", "Look", True)
        assert inflight["pending_steers"] == ["careful"]
        await trio.sleep(1)
        assert session.status == "waiting"
        inflight = session.inflight()
        assert inflight is not None
        assert [tool["name"] for tool in inflight["tools"]] == ["ask"]
        session.requests.respond_approval("once", approval_id=None, every=False, by="test")
        await turn.wait_ended()
        assert (session.status, session.inflight()) == ("idle", None)


async def test_a_failed_turn_is_shown_until_the_next_one_starts(autojump_clock: trio.testing.MockClock) -> None:
    store = FailingStore(at=2)
    services, model = make_services(say("lost"), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session)).wait_ended()
        inflight = session.inflight()
        assert inflight is not None
        assert (inflight["status"], inflight["streaming"], inflight["assistant"]) == ("error", False, "lost")
        assert inflight["error_surface"]["code"] == "session_persistence_failed:full"
        store.recover()
        model.replies[:] = [say("fine")]
        await (await started(session)).wait_ended()
        assert session.inflight() is None


async def test_info_tells_the_facts_of_the_moment(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("hi"))
    async with running_tree(services) as tree:
        session = tree.registry.create(
            source="tui", cwd="/work", model_config={"reasoning_effort": "high", "yolo": True, "mode": "plan"}
        )
        info = session.info()
        assert (info.cwd, info.reasoning_effort, info.yolo, info.mode, info.lazy) == (
            "/work",
            "high",
            True,
            "plan",
            True,
        )
        await (await started(session)).wait_ended()
        info = session.info()
        assert (info.model, info.provider, info.lazy, info.message_count) == ("scripted-1", "custom", False, 2)
        assert info.usage.total_tokens == 15
        assert info.context_max == 1_000_000


async def test_a_title_is_kept_as_the_store_has_it(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("hi"), say("hi"))
    async with running_tree(services) as tree:
        first = tree.registry.create(source="test", cwd="/")
        await (await started(first, "fix the bug\nplease")).wait_ended()
        assert first.stored.title == "fix the bug"
        second = tree.registry.create(source="test", cwd="/")
        await (await started(second, "fix the bug")).wait_ended()
        stored = await services.store.get_session(second.key)
        assert stored is not None
        assert second.stored.title == stored.title == second.info().title == "fix the bug #2"
        assert [event.title for event in events_of(second) if isinstance(event, SessionTitled)] == ["fix the bug #2"]
        with pytest.raises(TitleTaken):
            await second.set_title("fix the bug")
        assert second.stored.title == "fix the bug #2"
        await second.set_title("another")
        assert second.scope.name == "another"


async def test_a_title_of_an_unstored_session_waits_for_the_first_prompt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(say("hi"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await session.set_title("early")
        assert await services.store.get_session(session.key) is None
        await (await started(session)).wait_ended()
        stored = await services.store.get_session(session.key)
        assert stored is not None and stored.title == "early"


async def test_closing_tells_once_and_last_and_lets_nothing_in_afterwards(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, model = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await started(session)
        queued = session.submit_nowait(Prompt("never"))
        assert session.cancel(CLOSE)
        assert not session.cancel(STOP)
        assert session.closing
        for refused in (
            lambda: session.submit_nowait(Prompt("late")),
            lambda: session.start_soon(trio.sleep, 1, name="x"),
        ):
            with pytest.raises(SessionClosing):
                refused()
        assert await session.wait_closed() == "session_closed"
        assert await queued.wait_turn() is None
        events = events_of(session)
        assert events[-1] == SessionClosed("session_closed")
        assert sum(isinstance(event, SessionClosed) for event in events) == 1
        assert session.log.closed
        assert model.open == 0
        assert_events_are_well_formed(events)
        stored = await services.store.get_session(session.key)
        assert stored is not None and stored.ended_at is not None


async def test_a_session_that_the_server_closes_refuses_as_draining(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.cancel(CancelReason(Cause.SHUTDOWN))
        with pytest.raises(Draining):
            session.submit_nowait(Prompt("late"))
        assert await session.wait_closed() == "shutdown"


async def test_a_crash_below_closes_this_session_and_nothing_else(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(hang(), say("alive"))
    async with running_tree(services) as tree:
        broken = tree.registry.create(source="test", cwd="/")
        other = tree.registry.create(source="test", cwd="/")
        turn = await started(broken)

        async def crash() -> None:
            await trio.sleep(1)
            raise RuntimeError("a bug")

        broken.start_soon(crash, name="crash")
        assert await broken.wait_closed() == "session_closed"
        record = turn.ended.value
        assert record is not None
        assert (record.cause, record.reason_text) == (Cause.SESSION_CLOSED, "an error in the server")
        assert_events_are_well_formed(events_of(broken))
        await trio.testing.wait_all_tasks_blocked()
        assert tree.registry.live() == [other]
        assert (await (await started(other)).wait_ended()).text == "alive"


async def test_the_end_of_a_session_is_told_even_if_it_cannot_be_stored(autojump_clock: trio.testing.MockClock) -> None:
    store = FailingStore(error=lambda: RuntimeError("a bug"))
    services, _ = make_services(say("hi"), store=store)
    with trio.fail_after(60):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="test", cwd="/")
            await (await started(session)).wait_ended()
            store.refused = frozenset({"update_session"})
            session.cancel(CLOSE)
            await session.wait_closed()
            assert events_of(session)[-1] == SessionClosed("session_closed")


async def test_work_that_is_given_before_the_session_runs_is_started_with_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services()
    ran = trio.Event()

    async def work() -> None:
        ran.set()

    with trio.fail_after(5):
        async with running_tree(services) as tree:
            tree.registry.create(source="test", cwd="/").start_soon(work, name="work")
            await ran.wait()


async def test_clients_come_and_go(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.attach(Attachment("one", lambda method: True))
        session.attach(Attachment("two", lambda method: True))
        session.detach("one")
        assert session.detached_at is None
        session.detach("two")
        assert session.detached_at == trio.current_time()
        session.attach(Attachment("one", lambda method: True))
        assert session.detached_at is None


async def test_notices_and_info_are_events_of_the_session(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.notice("mind", level="warning")
        session.announce_info()
        assert events_of(session) == [Notice("mind", "warning"), SessionInfoChanged(session.info())]


async def test_a_capability_of_the_client_is_used_if_it_offers_one(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        assert await session.client_tool("read_file", {}) is None

        async def read(params: Mapping[str, Any]) -> Mapping[str, Any]:
            await trio.lowlevel.checkpoint()
            return {"content": params["path"]}

        session.client_tools["read_file"] = read
        assert await session.client_tool("read_file", {"path": "x"}) == {"content": "x"}


async def test_the_auxiliary_model_is_asked_within_a_bound(autojump_clock: trio.testing.MockClock) -> None:
    services, model = make_services(say("a title"), hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        answer = await session.ask_auxiliary("sys", "user", max_tokens=9, timeout=5, scope=session.scope)
        assert (answer, model.requests[0].tools, model.requests[0].max_output_tokens) == ("a title", (), 9)
        with pytest.raises(ProviderError, match="no answer within 5 s"):
            await session.ask_auxiliary("sys", "user", max_tokens=9, timeout=5, scope=session.scope)
        assert model.open == 0
        assert session.scope.children == {}


async def test_tools_that_belong_to_one_session_are_offered_to_it_alone(autojump_clock: trio.testing.MockClock) -> None:
    async def echo(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await trio.lowlevel.checkpoint()
        return "own"

    services, model = make_services(say("", calls=[call("own_tool")]), say("x"), say("y"))
    async with running_tree(services) as tree:
        first = tree.registry.create(source="test", cwd="/")
        second = tree.registry.create(source="test", cwd="/")
        first.extra_tools.append(PlainTool("own_tool", echo))
        await (await started(first)).wait_ended()
        await (await started(second)).wait_ended()
        assert ["own_tool" in [spec.name for spec in request.tools] for request in model.requests] == [
            True,
            True,
            False,
        ]
        assert "own" in [row.text for row in first.rows]


async def test_what_is_shown_of_a_turn_is_redacted(autojump_clock: trio.testing.MockClock) -> None:
    from dataclasses import replace

    services, _ = make_services(say("", calls=[call("nap", seconds=5, key="sk-secret")]), say("done"))
    services = replace(services, redact=lambda text: text.replace("sk-secret", "***"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(1)
        assert "sk-secret" not in repr(tree.snapshot())
        assert "sk-secret" not in repr(session.inflight())
        (node,) = [node for node in tree.scope.walk() if node.kind == "tool_call"]
        assert node.snapshot()["details"] == {"arguments": {"seconds": 5, "key": "***"}}
        await turn.wait_ended()
        shown = [event for event in events_of(session) if isinstance(event, (ToolStarted, ToolEnded))]
        assert [event.args for event in shown] == [{"seconds": 5, "key": "***"}] * 2


async def test_a_model_that_is_asked_for_in_a_prompt_is_used_for_that_turn_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, model = make_services(say("a"), say("b"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/", model="usual")
        record = await (await started(session, model="other")).wait_ended()
        assert (record.model, record.requested_model) == ("other", "other")
        await (await started(session)).wait_ended()
        assert [request.model for request in model.requests] == ["other", "usual"]
        assert isinstance(session.resolved, ResolvedModel)


async def test_a_watcher_who_comes_late_reads_the_same_events(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("a", "b", pause=1), settings=Settings())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        early = session.log.subscribe(0)
        turn = await started(session)
        await turn.wait_ended()
        await trio.testing.wait_all_tasks_blocked()
        late = session.log.subscribe(0)
        first, second = early.next_nowait(1000), late.next_nowait(1000)
        assert first == second
        assert [entry.event.text for entry in first if isinstance(entry.event, TextDelta)] == ["a", "b"]


async def test_a_lagged_watcher_is_told_and_resynchronises_from_the_snapshot(
    autojump_clock: trio.testing.MockClock,
) -> None:
    from hermes.nurseries.event_log import Lagged

    settings = Settings()
    settings = settings.model_copy(update={"limits": settings.limits.model_copy(update={"replay_events": 16})})
    services, _ = make_services(say(*"abcdefghijklmnopqrstuvwxyz", pause=1), settings=settings)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        slow = session.log.subscribe(0)
        turn = await started(session)
        await trio.sleep(25.5)
        with pytest.raises(Lagged):
            await slow.next()
        snapshot, seq = session.inflight(), session.log.latest_seq
        assert snapshot is not None and snapshot["assistant"] == "abcdefghijklmnopqrstuvwxy"
        again = session.log.subscribe(seq)
        await turn.wait_ended()
        rest = "".join(entry.event.text for entry in again.next_nowait() if isinstance(entry.event, TextDelta))
        assert snapshot["assistant"] + rest == "abcdefghijklmnopqrstuvwxyz"


async def test_a_prompt_that_no_provider_serves_is_refused_and_the_next_one_is_tried_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    from hermes.agent.ports import Provider
    from hermes.errors import ProviderNotConfigured
    from tests.support.core import OneModel

    class Unset(OneModel):
        ready = False

        def provider_for(self, resolved: ResolvedModel) -> Provider:
            if not self.ready:
                raise ProviderNotConfigured
            return super().provider_for(resolved)

    from dataclasses import replace

    model = ScriptedModel(say("now"))
    gateway = Unset(model)
    services, _ = make_services(model=model)
    services = replace(services, models=gateway)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        record = await turn.wait_ended()
        assert record.exit_reason == "provider_not_configured"
        (refused,) = [event for event in events_of(session) if isinstance(event, TurnRefused)]
        assert refused.code == "provider_not_configured"
        assert not any(isinstance(event, TurnEnded) for event in events_of(session))
        assert session.rows[-1].role == "assistant", "the history is whole without an answer too"
        gateway.ready = True
        assert (await (await started(session)).wait_ended()).text == "now"


async def test_a_prompt_that_is_sent_again_while_it_runs_is_accepted_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, model = make_services(say("a", "b", pause=5))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        first = session.submit_nowait(typed("hello"))
        again = session.submit_nowait(typed("hello"), policy=BusyPolicy.REDIRECT)
        assert await again.wait_accepted() == await first.wait_accepted()
        turn = await first.wait_turn()
        assert turn is await again.wait_turn() and turn is not None
        await turn.wait_ended()
        assert len(model.requests) == 1


async def test_a_redirect_in_the_tick_in_which_the_answer_is_complete_is_not_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sessions: list[Session] = []
    plain = say("the old answer")

    async def overtaken(request: Any, on_delta: Any) -> Any:
        finished = await plain(request, on_delta)
        assert sessions[0].redirect("the other way") == "redirected"
        return finished

    services, _ = make_services(overtaken, say("the new answer"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        sessions.append(session)
        record = await (await started(session)).wait_ended()
        assert (record.text, record.user_intervened) == ("the new answer", True)
        assert [row.text for row in session.rows] == ["hello", "the old answer", "the other way", "the new answer"]


async def test_a_question_that_cannot_be_recorded_does_not_hold_the_end_of_the_session_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    closing = False

    async def broken(method: str) -> None:
        await trio.lowlevel.checkpoint()
        if closing and method.endswith("_record"):
            raise KeyError("a bug in the store")

    services, _ = make_services(say("", calls=[call("ask")]), store=FailingStore(before=broken))
    with trio.fail_after(60):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="test", cwd="/")
            await started(session)
            closing = True
            session.cancel(CLOSE)
            assert await session.wait_closed() == "session_closed"
            assert events_of(session)[-1] == SessionClosed("session_closed")
