"""Sessions in random order against a plain model: what a person may do, crashes and restarts at any moment between.

``PROOF=1`` runs ten times as many examples. A failure names the seed; ``SESSIONS_SEED`` runs it again.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hermes.errors import (
    EmptyRewindNotConfirmed,
    NothingToBranch,
    NothingToUndo,
    Overloaded,
    RewindTargetMismatch,
    SessionBusy,
    StaleRewindTarget,
)
from hermes.messages import Prompt, RewindIntent, Row
from hermes.nurseries import session_history, session_options
from hermes.nurseries.session import Session
from hermes.nurseries.turn_slot import Accepted
from hermes.outcomes import CancelReason, Cause
from tests.support.guest import Doing, GuestWorld
from tests.support.invariants import assert_events_are_well_formed, assert_history_is_whole
from tests.support.session_lives import MAX_QUEUED, ServerLife, Watcher, new_ids, new_store
from tests.support.session_story import ROLES, Story, prompts, repair_roles

EXAMPLES, STEPS = 280, 100
AT_LEAST = 20_000
PROOF = 10
STOP = CancelReason(Cause.USER_INTERRUPT)
KINDS = st.sampled_from(sorted(ROLES))
NUMBERS = st.integers(0, 11)


class SessionsMachine(RuleBasedStateMachine):
    """A server with a few sessions. Every rule does one thing and says what must have become of it."""

    steps = 0

    @initialize(number=st.integers(0, 2**16))
    def open(self, number: int) -> None:
        self.world = GuestWorld(number)
        self.store = new_store(self.world)
        self.ids = new_ids()
        self.lives = 0
        self.begin_life()
        self.stories: list[Story] = []
        self.watchers: list[Watcher] = []
        self.texts = 0
        self.touched: set[str] = set()
        self.create()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                if hasattr(self, "life"):
                    self.life.crash()
            finally:
                self.world.close()

    # --- tools ---

    def begin_life(self) -> None:
        self.lives += 1
        self.life = ServerLife(self.world, self.store, self.ids, self.lives)

    def story(self, number: int) -> Story:
        story = self.stories[number % len(self.stories)]
        self.touched.add(story.key)
        return story

    def text(self, kind: str) -> str:
        self.texts += 1
        return f"{kind} {self.texts}"

    def live(self, story: Story) -> Session:
        """The session in this life, resumed if it is not live."""
        registry = self.life.tree.registry
        session = registry.by_key(story.key)
        if session is None:
            session = self.life.adopt(self.world.do(registry.resume, story.key).value())
            assert tuple(session.rows) == story.known
            shown = [entry for entry in session.requests.entries() if entry.get("interrupted")]
            assert bool(shown) == story.lost_question, f"lost questions shown: {shown}"
        return session

    def stored(self, story: Story) -> tuple[Row, ...]:
        return self.world.do(self.store.load_rows, story.key).value()

    def transcript(self, key: str) -> tuple[Row, ...]:
        return self.world.do(self.store.load_transcript, key).value()

    def begin_submit(self, session: Session, text: str, rewind: RewindIntent | None = None) -> Doing[Accepted]:
        async def submit() -> Accepted:
            return await session.submit_nowait(Prompt(text), rewind=rewind).wait_accepted()

        return self.world.start(submit)

    def submit(self, session: Session, text: str, rewind: RewindIntent | None = None) -> Doing[Accepted]:
        doing = self.begin_submit(session, text, rewind)
        self.world.settle()
        return doing

    def idle(self) -> list[Story]:
        return [story for story in self.stories if story.running is None]

    def one_idle(self, number: int) -> Story:
        idle = self.idle()
        return self.story(self.stories.index(idle[number % len(idle)]))

    def highest_id(self) -> int:
        return max((row.row_id or 0 for story in self.stories for row in self.stored(story)), default=0)

    # --- prompts ---

    @precondition(lambda self: len(self.stories) < 4)
    @rule()
    def create(self) -> None:
        session = self.world.call(lambda: self.life.tree.registry.create(source="tui", cwd="."))
        self.life.adopt(session)
        self.stories.append(Story(session.key))

    @rule(number=NUMBERS, kind=KINDS)
    def prompt(self, number: int, kind: str) -> None:
        story, text = self.story(number), self.text(kind)
        queued = story.running is not None
        doing = self.submit(self.live(story), text)
        if len(story.queue) == MAX_QUEUED:
            assert isinstance(doing.error(), Overloaded)
            return
        story.prompt(text)
        if not queued:
            accepted = doing.value()
            assert [row.text for row in self.stored(story) if row.row_id == accepted.user_row_id] == [text]

    @rule()
    def time_passes(self) -> None:
        self.world.jump(2.5)
        for story in self.stories:
            if self.life.tree.registry.by_key(story.key) is not None and story.running is not None:
                self.touched.add(story.key)
                story.time_passes()

    @rule(number=NUMBERS)
    def interrupt(self, number: int) -> None:
        story = self.story(number)
        session = self.live(story)
        result = self.world.do(_interrupt, session).value()
        assert result.settled
        assert result.status == ("idle" if story.running is None else "interrupted")
        assert [item["text"] for item in result.dropped_prompts] == story.queue
        story.interrupted()

    @rule(number=NUMBERS)
    def answer(self, number: int) -> None:
        story = self.story(number)
        session = self.live(story)
        waiting = session.requests.open_requests()
        asks = story.running is not None and story.running.startswith("ask")
        assert len(waiting) == asks
        for request in waiting:
            assert self.world.call(
                lambda request=request: session.requests.answer_response(
                    request.request_id, {"choice": "once"}, by="host"
                )
            )
            self.world.settle()
            story.answered()

    # --- rewinds ---

    @precondition(lambda self: any(prompts(story.known) for story in self.idle()))
    @rule(number=NUMBERS, pick=NUMBERS, how=st.sampled_from(["row", "both", "context", "ordinal"]), kind=KINDS)
    def rewind(self, number: int, pick: int, how: str, kind: str) -> None:
        story = self.one_idle(number)
        if prompts(story.known):
            self.cut_at(story, pick, how, kind)

    def cut_at(self, story: Story, pick: int, how: str, kind: str) -> None:
        text = self.text(kind)
        intent, index = self.target(story, pick, how)
        accepted = self.submit(self.live(story), text, intent).value()
        assert accepted.survivors == story.survivors(story.known[index])
        assert accepted.user_row_id is not None
        story.cut(index, text, own_id=accepted.user_row_id)

    def target(self, story: Story, pick: int, how: str) -> tuple[RewindIntent, int]:
        targets = prompts(story.known)
        target = targets[pick % len(targets)]
        ordinal = prompts(story.whole).index(target)
        if how == "context":
            ordinal = targets.index(target)
        intent = RewindIntent(
            row_id=target.row_id if how != "ordinal" else None,
            ordinal=ordinal if how != "row" else None,
            confirm_empty=True,
        )
        return intent, story.known.index(target)

    @precondition(lambda self: any(story.running is not None and prompts(story.known) for story in self.stories))
    @rule(number=NUMBERS, pick=NUMBERS, kind=KINDS)
    def rewind_while_it_runs(self, number: int, pick: int, kind: str) -> None:
        """Refused as busy; after the interrupt's answer, accepted at the first try."""
        running = [story for story in self.stories if story.running is not None and prompts(story.known)]
        story = self.story(self.stories.index(running[number % len(running)]))
        session = self.live(story)
        intent, index = self.target(story, pick, "row")
        assert isinstance(self.submit(session, "quick refused", intent).error(), SessionBusy)

        async def stop_and_submit() -> tuple[tuple[Row, ...], Accepted]:
            assert (await _interrupt(session)).settled
            rows = tuple(session.rows)
            return rows, await session.submit_nowait(Prompt(text), rewind=intent).wait_accepted()

        text = self.text(kind)
        rows, accepted = self.world.do(stop_and_submit).value()
        story.interrupted()
        story.check(rows)
        assert accepted.user_row_id is not None
        story.cut(index, text, own_id=accepted.user_row_id)

    @precondition(lambda self: any(story.known for story in self.idle()))
    @rule(
        number=NUMBERS,
        pick=NUMBERS,
        how=st.sampled_from(
            ["dropped", "unknown", "foreign", "answer", "far", "negative", "both", "empty", "summary", "summarized"]
        ),
    )
    def rewind_to_a_wrong_target(self, number: int, pick: int, how: str) -> None:
        """Refused, and nothing has changed."""
        told = [story for story in self.idle() if story.known]
        story = self.story(self.stories.index(told[number % len(told)]))
        wrong = self.wrong_target(story, pick, how)
        if wrong is None:
            return
        intent, error = wrong
        before = self.stored(story)
        version = self.version(story)
        raised = self.submit(self.live(story), "quick refused", intent).error()
        assert type(raised) is error, f"{how}: {raised!r}"
        assert self.stored(story) == before
        assert self.live(story).slot.turn is None
        assert self.version(story) - version in (0, 1), "a refused rewind may take the session over, nothing else"

    def version(self, story: Story) -> int:
        stored = self.world.do(self.store.get_session, story.key).value()
        assert stored is not None
        return stored.history_version

    def wrong_target(self, story: Story, pick: int, how: str) -> tuple[RewindIntent, type[Exception]] | None:
        def some(ids: Sequence[int | None]) -> int | None:
            return ids[pick % len(ids)] if ids else None

        mine = prompts(story.known)
        if how == "dropped":
            row_id = some(sorted(story.dropped))
        elif how == "unknown":
            row_id = 10**9
        elif how == "foreign":
            row_id = some([row.row_id for other in self.stories if other is not story for row in prompts(other.known)])
        elif how == "answer":
            row_id = some([row.row_id for row in story.known if row.role != "user"])
        elif how == "summary":
            row_id = some([row.row_id for row in story.known if row.compacted_summary])
        elif how == "summarized":
            shown = prompts(story.whole)
            ordinal = some([index for index, row in enumerate(shown) if row.compacted])
            return None if ordinal is None else (RewindIntent(ordinal=ordinal, confirm_empty=True), StaleRewindTarget)
        elif how == "far":
            return RewindIntent(ordinal=10**6, confirm_empty=True), StaleRewindTarget
        elif how == "negative":
            return RewindIntent(ordinal=-1, confirm_empty=True), StaleRewindTarget
        elif how == "both" and mine:
            return RewindIntent(row_id=mine[0].row_id, ordinal=10**6, confirm_empty=True), RewindTargetMismatch
        elif how == "empty" and mine and mine[0] is story.known[0]:
            return RewindIntent(row_id=mine[0].row_id), EmptyRewindNotConfirmed
        else:
            return None
        # A valid ordinal beside it must not help.
        return (
            None if row_id is None else (RewindIntent(row_id=row_id, ordinal=0, confirm_empty=True), StaleRewindTarget)
        )

    @rule(number=NUMBERS)
    def undo(self, number: int) -> None:
        story = self.story(number)
        doing = self.world.do(session_history.undo, self.live(story))
        if story.running is not None:
            assert isinstance(doing.error(), SessionBusy)
        elif not self.undone_next(story):
            assert isinstance(doing.error(), NothingToUndo)
        else:
            target = self.undone_next(story)[0]
            assert doing.value().text == target.text
            story.cut(story.known.index(target), None, own_id=self.highest_ever(story))

    def undone_next(self, story: Story) -> list[Row]:
        """The last prompt that is shown, unless a summary stands for it."""
        return [row for row in prompts(story.whole)[-1:] if not row.compacted]

    def highest_ever(self, story: Story) -> int:
        return max([row.row_id or 0 for row in story.known] + list(story.dropped))

    @rule(number=NUMBERS)
    def undo_rewind(self, number: int) -> None:
        story = self.story(number)
        doing = self.world.do(session_history.undo_rewind, self.live(story))
        if story.running is not None:
            assert isinstance(doing.error(), SessionBusy)
        elif story.undo_refused():
            assert isinstance(doing.error(), NothingToUndo)
        else:
            doing.value()
            story.cut_undone()

    # --- compressions and branches ---

    @rule(number=NUMBERS)
    def compress(self, number: int) -> None:
        story = self.story(number)
        doing = self.world.do(session_history.compress, self.live(story), "here 1")
        if story.running is not None:
            assert isinstance(doing.error(), SessionBusy)
            return
        result = doing.value()
        if result.status == "compressed":
            self.take_summary(story, self.stored(story))

    @precondition(lambda self: self.idle())
    @rule(number=NUMBERS, turns=st.integers(4, 6))
    def talk_and_compress(self, number: int, turns: int) -> None:
        """So much that there is something to summarize."""
        story = self.one_idle(number)
        for _turn in range(turns):
            text = self.text("quick")
            self.submit(self.live(story), text).value()
            story.prompt(text)
        self.check_story(story)
        result = self.world.do(session_history.compress, self.live(story), "here 1").value()
        assert result.status == "compressed"
        self.take_summary(story, self.stored(story))

    def take_summary(self, story: Story, rows: tuple[Row, ...]) -> None:
        """One summary in the place of some rows; the others are the same, in their order, the last with them."""
        kept = [row for row in rows if row in story.known]
        fresh = [row for row in rows if row not in story.known]
        assert any(row.compacted_summary for row in fresh)
        assert kept == [row for row in story.known if row in kept]
        assert rows[-1] == story.known[-1]
        assert prompts(rows)[-1] == prompts(story.known)[-1]
        story.summarized(rows)

    @rule(number=NUMBERS)
    def put_away(self, number: int) -> None:
        """The whole history goes: nothing is shown, nothing can be named, nothing comes back."""
        story = self.story(number)
        doing = self.world.do(session_options.empty, self.live(story))
        if story.running is not None:
            assert isinstance(doing.error(), SessionBusy)
            return
        assert doing.value() == len(story.known)
        story.put_away()

    @precondition(lambda self: len(self.stories) < 4)
    @rule(number=NUMBERS, count=st.integers(0, 30))
    def branch(self, number: int, count: int) -> None:
        story = self.story(number)
        if story.running is not None:
            return
        doing = self.world.do(_branch, self.life.tree.registry, self.live(story), count)
        if not story.known:
            assert isinstance(doing.error(), NothingToBranch)
            return
        made = self.life.adopt(doing.value())
        whole = self.transcript(made.key)
        assert [_without_id(row) for row in whole] == [_without_id(row) for row in story.branched(count)]
        assert not {row.row_id for row in whole} & {row.row_id for row in story.whole}
        self.stories.append(Story(made.key, whole, repairs=(), has_turned=True))

    # --- ends and beginnings ---

    @rule(number=NUMBERS)
    def close_it(self, number: int) -> None:
        story = self.story(number)
        session = self.life.tree.registry.by_key(story.key)
        if session is None:
            return
        self.world.call(lambda: self.life.tree.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED)))
        self.world.do(session.wait_closed).value()
        story.interrupted()
        self.check_story(story)
        if not story.has_turned:
            self.stories.remove(story)
            if not self.stories:
                self.create()

    @rule()
    def restart(self) -> None:
        """The server is told to stop; every turn is closed, open questions come back as lost."""
        self.world.do(self.life.tree.registry.close_all, CancelReason(Cause.SHUTDOWN)).value()
        for story in self.stories:
            story.lost_question = story.lost_question or (story.running or "").startswith("ask")
            story.interrupted()
            self.check_story(story)
        self.new_life()

    @rule()
    def crash(self) -> None:
        """The server dies while everything rests."""
        self.die()

    def die(self) -> None:
        self.life.crash()
        self.bury()
        self.new_life()

    def bury(self, *, but: Story | None = None) -> None:
        """What every session must be after a crash."""
        for story in self.stories:
            if story is not but:
                rows = self.stored(story)
                story.check(rows, cut_short=True)
                story.crashed(rows)

    def new_life(self) -> None:
        self.watchers.clear()
        self.begin_life()
        self.stories = [story for story in self.stories if story.has_turned]
        if not self.stories:
            self.create()

    @rule(
        number=NUMBERS, passes=st.integers(0, 40), pick=NUMBERS, kind=KINDS, what=st.sampled_from(["prompt", "rewind"])
    )
    def crash_during_a_prompt(self, number: int, passes: int, pick: int, kind: str, what: str) -> None:
        """What was acknowledged is there; a cut and its new prompt are there together or not at all."""
        if not self.idle():
            return
        story = self.one_idle(number)
        if what == "rewind" and not prompts(story.known):
            return
        text = self.text(kind)
        intent, index = self.target(story, pick, "row") if what == "rewind" else (None, len(story.known))
        doing = self.begin_submit(self.live(story), text, intent)
        self.world.tick(passes)
        self.life.crash()
        self.bury(but=story)
        rows = self.stored(story)
        arrived = any(row.text == text for row in rows)
        durable = doing.done and doing.error() is None and doing.value().user_row_id is not None
        assert arrived or not durable, "an accepted prompt is gone"
        before = story.known
        if intent is not None and arrived:
            story.cut(index, text, own_id=next(row.row_id or 0 for row in rows if row.text == text))
            story.check(rows, cut_short=True)
        else:
            repairs = () if intent is not None else repair_roles(before)
            assert rows[: len(before)] == before, "rows are gone that nobody cut"
            expected = repairs + ROLES[kind]
            assert tuple(row.role for row in rows[len(before) :]) == expected[: len(rows) - len(before)]
        story.crashed(rows)
        story.has_turned = story.has_turned or bool(rows)
        # The record of an old question goes behind the new prompt; it may have stayed.
        story.lost_question = self.has_lost(story)
        self.new_life()

    @rule(number=NUMBERS, passes=st.integers(0, 25), what=st.sampled_from(["undo", "undo_rewind", "compress"]))
    def crash_during_a_change(self, number: int, passes: int, what: str) -> None:
        """It is there as a whole or not at all."""
        if not self.idle():
            return
        story = self.one_idle(number)
        if not prompts(story.known):
            return
        change: Callable[..., Any] = getattr(session_history, what)
        session = self.live(story)
        doing = self.world.start(change, session, *(["here 1"] if what == "compress" else []))
        self.world.tick(passes)
        self.life.crash()
        self.bury(but=story)
        rows = self.stored(story)
        if doing.done and doing.error() is None and what != "compress":
            assert rows != story.known
        if rows != story.known:
            if what == "compress":
                self.take_summary(story, rows)
            elif what == "undo":
                target = self.undone_next(story)[0]
                story.cut(story.known.index(target), None, own_id=self.highest_ever(story))
            else:
                assert not story.undo_refused()
                story.cut_undone()
        story.check(rows)
        story.crashed(rows)
        story.lost_question = self.has_lost(story)
        self.new_life()

    def has_lost(self, story: Story) -> bool:
        return bool(self.world.do(_records, self.store, story.key).value())

    # --- who watches ---

    @precondition(lambda self: len(self.watchers) < 6)
    @rule(number=NUMBERS)
    def subscribe(self, number: int) -> None:
        self.watchers.append(Watcher(self.live(self.story(number))))

    @precondition(lambda self: self.watchers)
    @rule(number=NUMBERS)
    def unsubscribe(self, number: int) -> None:
        self.watchers[number % len(self.watchers)].leave()

    @precondition(lambda self: self.watchers)
    @rule(number=NUMBERS)
    def come_back(self, number: int) -> None:
        self.watchers[number % len(self.watchers)].come_back()

    # --- after every step ---

    @invariant()
    def everything_holds(self) -> None:
        if not hasattr(self, "world"):
            return
        type(self).steps += 1
        for watcher in self.watchers:
            watcher.read()
        for story in self.stories:
            if story.key in self.touched:
                self.check_story(story)
        self.touched.clear()
        assert self.life.model.problems == []

    def check_story(self, story: Story) -> None:
        if not story.has_turned:
            return
        rows = self.stored(story)
        story.check(rows)
        whole = self.transcript(story.key)
        assert whole[: len(story.whole)] == story.whole, "what is shown has changed"
        assert tuple(row for row in whole if not row.compacted) == rows
        session = self.life.tree.registry.by_key(story.key)
        if session is None:
            return
        assert tuple(session.rows) == rows, "memory and store differ"
        assert self.world.do(session_history.transcript, session).value() == whole
        assert session.running == (story.running is not None), [row.text[:200] for row in rows[-3:]]
        assert [one.prompt.text for one in session.slot.queued] == story.queue
        told = self.life.told[session.runtime_id]
        assert session.log.latest_seq == len(told)
        retained = session.log.since(0)[0]
        assert [entry.event for entry in retained] == told[len(told) - len(retained) :]
        if story.running is None:
            assert_events_are_well_formed([event for event in told if not _is_lost(event, told)])
            if repair_roles(rows) == ():
                assert_history_is_whole(rows)


def _is_lost(event: Any, told: list[Any]) -> bool:
    """The close of a question that an earlier life has opened: its opening was told there."""
    if type(event).__name__ != "ClientRequestClosed":
        return False
    return not any(type(one).__name__ == "ClientRequestOpened" and one.request_id == event.request_id for one in told)


async def _interrupt(session: Session) -> Any:
    return await session.interrupt_nowait(STOP).wait_settled(0.9)


async def _branch(registry: Any, session: Session, count: int) -> Session:
    return await session_history.branch(registry, session, count=count)


async def _records(store: Any, key: str) -> Any:
    return await store.list_records("question", owner=key)


def _without_id(row: Row) -> Row:
    return row.with_id(0)


def test_sessions_do_what_the_model_says(capsys: pytest.CaptureFixture[str]) -> None:
    proof = PROOF if os.environ.get("PROOF") else 1
    number = int(os.environ.get("SESSIONS_SEED") or random.SystemRandom().randrange(2**32))
    SessionsMachine.steps = 0
    limits = settings(
        max_examples=EXAMPLES * proof,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=True,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    # Every crash logs what it could not store, many thousand times.
    logging.disable(logging.CRITICAL)
    try:
        run_state_machine_as_test(seed(number)(SessionsMachine), settings=limits)
    except BaseException as error:
        error.add_note(f"SESSIONS_SEED={number}")
        raise
    finally:
        logging.disable(logging.NOTSET)
    with capsys.disabled():
        print(f" [{SessionsMachine.steps} steps, seed {number}]", end="")
    assert SessionsMachine.steps >= AT_LEAST * proof
