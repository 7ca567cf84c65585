"""Agent: one conversation with a model and tools, for programs that run on Trio; and the server it lives in.

    async with open_agent(provider="openrouter", model="…") as agent:
        print(await agent.chat("hello"))

What changes something is synchronous (``interrupt``, ``steer``); what waits only waits, and may be cancelled: leaving a
``run_conversation`` by a cancellation stops its turn. The blocking face is in ``blocking.py``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import trio

from hermes.agent.ports import ModelGateway, TranscriptStore
from hermes.agent.store.memory import MemoryStore
from hermes.agent.store.sqlite import SqliteStore
from hermes.composition import build_services, journal_mode
from hermes.config import LoadedSettings, home_from_environment, load_settings, make_home
from hermes.embedding import arguments as given_arguments
from hermes.embedding.arguments import CALLBACKS, SERVER_WIDE, Arguments, Database
from hermes.embedding.callbacks import CallbackPump
from hermes.embedding.messages import content_from, plain, record_dict, rows_from
from hermes.errors import InvalidParams, SessionBusy, StoredSessionNotFound
from hermes.events import ClientRequestOpened, SessionEvent
from hermes.messages import Content, Prompt, Question, Row
from hermes.nurseries import session_compression
from hermes.nurseries.client_requests import Attachment
from hermes.nurseries.event_log import Subscription
from hermes.nurseries.pinned import forget_prompt
from hermes.nurseries.server_tree import ServerTree, open_tree
from hermes.nurseries.session import Session
from hermes.nurseries.session_changes import set_model
from hermes.nurseries.turn import Turn
from hermes.nurseries.turn_slot import Submission
from hermes.outcomes import CancelReason, Cause, TurnPhase, TurnRecord, Usage

log = logging.getLogger(__name__)

DATABASE = "sessions.db"
QUESTIONS = {"approval": "approval_callback", "clarify": "clarify_callback"}
UNUSED_OF_A_TURN = frozenset({"task_id", "turn_author", "prelude", "moa_config", "relay_metadata"})
"""Arguments of ``run_conversation`` that code for other hosts passes and that mean nothing here."""


class Conversation:
    """A prompt that has been let in: whoever waits for it may come later."""

    def __init__(self, submission: Submission, turn: Turn) -> None:
        self.submission = submission
        self.turn = turn


class Agent:
    """One conversation. Made by ``open_agent`` or ``Server.agent``."""

    def __init__(self, tree: ServerTree, session: Session, given: Arguments) -> None:
        self.tree = tree
        self.session = session
        self._given = given
        self._options = given_arguments.model_options(given)
        self._limits = given_arguments.limits(given)
        self._prefill = rows_from(given.get("prefill_messages") or ())
        self._interrupt_message: str | None = None
        self._interrupted = False
        self._baseline = Usage()
        arguments: Mapping[str, Any] = given
        callbacks = {name: arguments[name] for name in CALLBACKS if arguments.get(name) is not None}
        self._pump = CallbackPump(callbacks)
        self._answers = frozenset(method for method, name in QUESTIONS.items() if name in callbacks)
        session.log.observers.append(self._observe)
        session.start_soon(self._pump.run, name="callbacks")
        session.attach(Attachment("embedding", lambda method: method in self._answers, "embedding"))

    # --- turns ---

    def begin(
        self,
        user_message: str | Sequence[Any] | None,
        system_message: str | None = None,
        conversation_history: Sequence[Mapping[str, Any]] | None = None,
        stream_callback: Callable[[str], Any] | None = None,
        persist_user_message: str | Sequence[Any] | None = None,
        **hints: Any,
    ) -> Conversation:
        """Let a prompt in, at once: from here on ``interrupt`` reaches it. Raises ``SessionBusy`` while a turn runs,
        ``InvalidParams`` for a message that is none."""
        prompt = self._prompt(user_message, conversation_history, persist_user_message, hints)
        if self.session.slot.taken:
            raise SessionBusy
        if system_message != self.session.system_message:
            self.session.system_message = system_message
            forget_prompt(self.session)
        self._pump.begin_turn(stream_callback)
        self.clear_interrupt()
        submission = self.session.submit_nowait(prompt)
        turn = self.session.slot.turn
        assert turn is not None
        return Conversation(submission, turn)

    async def finish(self, conversation: Conversation) -> dict[str, Any]:
        """Wait for the end of the turn and of its callbacks; the result record. Raises what refused the prompt."""
        turn = conversation.turn
        try:
            await conversation.submission.wait_accepted()
            record = await turn.wait_ended()
            await self._pump.wait_drained()
        finally:
            # Nobody waits for it any more: whoever cancels this call means the turn.
            turn.cancel(CancelReason(Cause.CLIENT_DISCONNECT))
        return record_dict(
            record,
            self._rows_of(turn),
            interrupt_message=self._interrupt_message,
            service_tier=self._given.get("service_tier"),
        )

    async def run_conversation(
        self, user_message: str | Sequence[Any] | None, *args: Any, **options: Any
    ) -> dict[str, Any]:
        """One turn, with the arguments of ``begin``; the result record with all its keys, however the turn ended."""
        await self.wait_stopped()
        return await self.finish(self.begin(user_message, *args, **options))

    async def wait_stopped(self) -> bool:
        """Wait for the end of a turn that has been asked to stop. False if there is none."""
        turn = self.session.slot.turn
        if turn is None or turn.phase is not TurnPhase.STOPPING:
            return False
        await turn.wait_ended()
        return True

    async def chat(self, message: str, stream_callback: Callable[[str], Any] | None = None) -> str:
        """One turn; its final answer, empty if there is none."""
        record = await self.run_conversation(message, stream_callback=stream_callback)
        return record["final_response"] or ""

    async def run_turn(self, prompt: Prompt) -> TurnRecord:
        """One turn with a prompt of our own form: every field of ``Prompt`` is available."""
        submission = self.session.submit_nowait(prompt)
        await submission.wait_accepted()
        turn = await submission.wait_turn()
        if turn is None:
            raise SessionBusy("the prompt was taken out of the queue")
        return await turn.wait_ended()

    def _prompt(
        self,
        user_message: str | Sequence[Any] | None,
        history: Sequence[Mapping[str, Any]] | None,
        shown: str | Sequence[Any] | None,
        hints: dict[str, Any],
    ) -> Prompt:
        message: Content = content_from(user_message)
        content = message if shown is None else content_from(shown)
        context = rows_from(history) if history is not None else None
        if self._prefill:
            context = (*self._prefill, *(self.session.rows if context is None else context))
        prompt = Prompt(
            content,
            source=self.session.stored.source,
            api_content=None if shown is None else message,
            display_kind=hints.pop("persist_user_display_kind", None),
            display_metadata=hints.pop("persist_user_display_metadata", None),
            client_message_id=hints.pop("persist_user_platform_id", None),
            title_text=hints.pop("title_user_message", None),
            unattended="approval" not in self._answers and "clarify" not in self._answers,
            allow_clarify="clarify" in self._answers,
            system_extra=given_arguments.system_extra(self._given, self.session.key),
            model_options=self._options or None,
            history=context,
            limits=self._limits,
        )
        unknown = hints.keys() - UNUSED_OF_A_TURN - {"persist_user_timestamp"}
        if unknown:
            raise TypeError(f"run_conversation has no argument {', '.join(sorted(unknown))}")
        return prompt

    def _rows_of(self, turn: Turn) -> tuple[Row, ...]:
        rows = tuple(turn.rows)
        return rows[len(self._prefill) :] if self._prefill and turn.prompt.history is not None else rows

    # --- stop and steer: synchronous ---

    def interrupt(self, message: str | None = None) -> bool:
        """Stop the running turn. ``message`` comes back in its record, for you to submit. False if nothing runs."""
        return self._stop(message, CancelReason(Cause.USER_INTERRUPT))

    def hard_interrupt(self, message: str | None = None) -> bool:
        """The same: a stop reaches everything below the turn, and a pending steer comes back in the record."""
        return self.interrupt(message)

    def clear_interrupt(self) -> None:
        self._interrupt_message, self._interrupted = None, False

    @property
    def is_interrupted(self) -> bool:
        """The turn was asked to stop, and no other has begun since."""
        return self._interrupted

    def steer(self, text: str) -> bool:
        """Words for the running turn's next tool boundary. False if it takes none. Raises ``EmptyText``."""
        return self.session.steer(text)

    def redirect(self, text: str) -> bool:
        """Replace the model call in progress, or steer if tools run. False if nothing runs. Raises ``EmptyText``."""
        return self.session.redirect(text) != "rejected"

    def _stop(self, message: str | None, reason: CancelReason) -> bool:
        turn = self.session.slot.turn
        if turn is None or not turn.cancel(reason):
            return False
        self._interrupt_message, self._interrupted = message, True
        return True

    # --- changing and looking ---

    async def switch_model(self, new_model: str, new_provider: str | None = None) -> str:
        """Use another model from the next turn on; returns its name. Raises ``ModelNotServed``,
        ``ProviderNotConfigured``."""
        return (await set_model(self.session, new_model, new_provider)).resolved.model

    async def compress(
        self, focus_topic: str | None = None, keep_last: int | None = None, preview: bool = False
    ) -> dict[str, Any]:
        """Summarize the older part of the conversation. ``preview`` changes nothing."""
        words = [f"--keep {keep_last}" if keep_last is not None else "", "--preview" if preview else "", focus_topic]
        result = await session_compression.compress(self.session, " ".join(word for word in words if word) or None)
        return {**plain(result), "removed": result.removed}

    def inflight(self) -> dict[str, Any] | None:
        """The running turn so far, or the last one if it failed."""
        return self.session.inflight()

    def pending_prompts(self) -> list[str]:
        """Prompts that wait for the running turn."""
        return [submission.prompt.text for submission in self.session.slot.queued]

    def events(self, after: int | None = None) -> Subscription[SessionEvent]:
        """A reader of the session's events, from now on or after a number; see ``EventLog``."""
        return self.session.log.subscribe(after)

    def reset_session_state(self) -> None:
        """Count from zero again; the conversation stays."""
        self._baseline = self.session.usage

    @property
    def session_id(self) -> str:
        return self.session.key

    @property
    def model(self) -> str:
        return self.session.info().model

    @property
    def provider(self) -> str:
        return self.session.info().provider

    @property
    def base_url(self) -> str:
        return self.session.resolved.base_url if self.session.resolved is not None else ""

    @property
    def api_mode(self) -> str:
        return self.session.resolved.api_mode if self.session.resolved is not None else ""

    def counters(self) -> dict[str, Any]:
        """``session_…`` since the start or the last ``reset_session_state``."""
        now, then = self.session.usage, self._baseline
        cost = None if now.cost_usd is None else now.cost_usd - (then.cost_usd or 0.0)
        return {
            "session_input_tokens": now.input_tokens - then.input_tokens,
            "session_output_tokens": now.output_tokens - then.output_tokens,
            "session_cache_read_tokens": now.cache_read_tokens - then.cache_read_tokens,
            "session_cache_write_tokens": now.cache_write_tokens - then.cache_write_tokens,
            "session_reasoning_tokens": now.reasoning_tokens - then.reasoning_tokens,
            "session_total_tokens": now.total_tokens - then.total_tokens,
            "session_api_calls": now.calls - then.calls,
            "session_estimated_cost_usd": cost,
        }

    # --- questions ---

    def _observe(self, event: SessionEvent) -> None:
        self._pump.push(event)
        if isinstance(event, ClientRequestOpened) and event.question.method in self._answers:
            self.session.start_soon(self._answer, event.request_id, event.question, name="question")

    async def _answer(self, request_id: str, question: Question) -> None:
        requests = self.session.requests
        if question.method == "approval":
            choice = await self._pump.ask("approval_callback", dict(question.params), question.choices)
            requests.answer_response(request_id, {"choice": choice}, by="embedding")
            return
        answers = {}
        for asked in question.params.get("questions", ()):
            answers[asked["qid"]] = await self._pump.ask(
                "clarify_callback", asked.get("question", ""), list(asked.get("choices", ()))
            )
        requests.answer_response(request_id, {"answers": answers}, by="embedding")


class Server:
    """A server in this program: several agents over one store, one set of models, one live tree."""

    def __init__(self, tree: ServerTree) -> None:
        self.tree = tree

    def snapshot(self) -> dict[str, Any]:
        """The live tree as data."""
        return self.tree.snapshot()

    async def agent(self, **arguments: Unpack[Arguments]) -> Agent:
        """A new agent, or that of a stored ``session_id``. Raises ``InvalidParams`` for what the server has to set."""
        misplaced = SERVER_WIDE & {name for name, value in arguments.items() if value is not None}
        if misplaced:
            raise InvalidParams(f"give these to open_server: {', '.join(sorted(misplaced))}")
        return await self._agent(given_arguments.check(arguments))

    async def _agent(self, given: Arguments) -> Agent:
        return Agent(self.tree, await self._session(given), given)

    async def _session(self, given: Arguments) -> Session:
        registry = self.tree.registry
        key = given.get("session_id")
        if key is not None:
            try:
                return await registry.resume(key)
            except StoredSessionNotFound:
                pass
        return registry.create(
            source=given.get("platform") or "embedding",
            cwd=given.get("cwd") or str(Path.cwd()),
            key=key,
            model=given.get("model"),
            provider=given.get("provider") or given.get("requested_provider"),
            parent_key=given.get("parent_session_id"),
        )


@asynccontextmanager
async def open_server(
    *,
    home: Path | str | None = None,
    session_db: Database = None,
    settings: Mapping[str, Any] | None = None,
    models: ModelGateway | None = None,
) -> AsyncIterator[Server]:
    """A server for the length of the block; see ``Arguments`` for what the parameters are.

    Raises ``InvalidValue`` for a setting that is none and ``StoreUnavailable`` for a database that cannot be opened.
    Leaving the block stops everything in order: turns settle, rows are written, processes end.
    """
    folder = Path(home).expanduser().absolute() if home is not None else home_from_environment()
    loaded = await trio.to_thread.run_sync(load_settings, dict(settings or {}), None, folder)
    store = await _open_store(session_db, loaded)
    services = build_services(loaded, store, overrides=settings)
    if models is not None:
        services = replace(services, models=models)
    # What a program of the same home has left that was killed.
    services.supervisor.sweep()
    async with open_tree(services) as tree:
        yield Server(tree)


async def _open_store(given: Database, loaded: LoadedSettings) -> TranscriptStore:
    match given:
        case None | False:
            return MemoryStore()
        case True:
            make_home(loaded.home)
            return await SqliteStore.open(loaded.home / DATABASE, journal_mode=journal_mode(loaded))
        case str() | Path():
            return await SqliteStore.open(Path(given).expanduser().absolute())
        case _:
            return given


@asynccontextmanager
async def open_agent(**arguments: Unpack[Arguments]) -> AsyncIterator[Agent]:
    """One agent in a server of its own, for the length of the block."""
    given = given_arguments.check(arguments)
    if given.get("verbose_logging"):
        logging.getLogger("hermes").setLevel(logging.DEBUG)
    async with open_server(
        home=given.get("home"),
        session_db=given.get("session_db"),
        settings=given_arguments.overrides(given),
        models=given.get("models"),
    ) as server:
        yield await server._agent(given)
