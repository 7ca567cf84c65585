"""AIAgent: the agent for programs that know nothing of Trio. An ordinary object for ordinary threads.

    with AIAgent(provider="openrouter", model="…") as agent:
        print(agent.chat("hello"))

The agent lives on a thread of its own, which starts with the first use. Every method may be called from any thread,
also from a callback; control methods (``interrupt``, ``steer``, ``redirect``) return at once while another thread waits
in ``run_conversation``. Ctrl-C in that thread stops the turn.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, Unpack

import outcome
import trio

from hermes.embedding import arguments as given_arguments
from hermes.embedding.agent import Agent, Conversation, open_agent
from hermes.embedding.arguments import Arguments
from hermes.errors import SessionBusy

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_WITHIN = 5.0
"""Seconds that ``close`` waits for the end of what runs (EM-4)."""


class AgentClosed(RuntimeError):
    """The agent was closed; make another one."""


class _Worker:
    """The thread, and the way into it. It holds no reference to the ``AIAgent``, which may so be forgotten."""

    def __init__(self, given: Arguments) -> None:
        self._given = given
        # Reentrant: a collected agent is closed wherever the collection happens to run.
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._agent: Agent | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._closing: trio.Event | None = None
        self._error: BaseException | None = None
        self._closed = False

    def agent(self) -> Agent:
        """The agent, started if need be. Raises what the start raised, ``AgentClosed``."""
        with self._starting:
            if self._closed:
                raise AgentClosed("the agent is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hermes agent", daemon=True)
                self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error
        assert self._agent is not None
        return self._agent

    def now(self, fn: Callable[[Agent], T]) -> T:
        """Call ``fn(agent)`` in the agent's thread; it does not wait."""
        agent = self.agent()
        try:
            return trio.from_thread.run_sync(fn, agent, trio_token=self._token)
        except trio.RunFinishedError:
            raise AgentClosed("the agent is closed") from None

    def wait(self, fn: Callable[[Agent], Awaitable[T]]) -> T:
        """Await ``fn(agent)`` in the agent's thread."""
        agent = self.agent()
        if self._thread is threading.current_thread():
            raise RuntimeError("this would wait for itself; use open_agent in code that runs on Trio")
        try:
            return trio.from_thread.run(fn, agent, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):  # noqa: ASYNC103 (this thread is not Trio's)
            raise AgentClosed("the agent was closed") from None  # noqa: ASYNC104

    def close(self) -> None:
        with self._starting:
            self._closed = True
            thread = self._thread
        if thread is None:
            return
        self._ready.wait(CLOSE_WITHIN)
        if self._token is not None and self._closing is not None:
            try:
                self._token.run_sync_soon(self._closing.set)
            except trio.RunFinishedError:
                return
        if thread is not threading.current_thread():
            thread.join(CLOSE_WITHIN + 1)

    def _run(self) -> None:
        result = outcome.capture(trio.run, self._main)
        if isinstance(result, outcome.Error):
            if self._ready.is_set():
                log.error("the agent ended with an error", exc_info=result.error)
            self._error = result.error
        self._ready.set()

    async def _main(self) -> None:
        async with open_agent(**self._given) as agent:
            self._agent, self._token, self._closing = agent, trio.lowlevel.current_trio_token(), trio.Event()
            self._ready.set()
            await self._closing.wait()


class AIAgent:
    """One conversation with a model and tools, blocking. Arguments: ``hermes.embedding.arguments.Arguments``."""

    def __init__(self, **arguments: Unpack[Arguments]) -> None:
        self._worker = _Worker(given_arguments.check(arguments))
        # A forgotten agent, and the end of the program, end what it runs.
        self._finalizer = weakref.finalize(self, self._worker.close)

    # --- turns ---

    def run_conversation(self, user_message: str | Sequence[Any] | None, *args: Any, **options: Any) -> dict[str, Any]:
        """One turn: ``system_message``, ``conversation_history``, ``stream_callback``, ``persist_user_message`` …

        Returns the result record with all its keys, however the turn ended. Raises ``SessionBusy`` while another thread
        has a turn, and what refused the prompt.
        """
        # Two steps, so that an interrupt that comes right behind the call finds the turn.
        conversation = self._begin(user_message, *args, **options)
        try:
            return self._worker.wait(lambda agent: agent.finish(conversation))
        except KeyboardInterrupt:
            self.interrupt("Ctrl-C")
            raise

    def _begin(self, *args: Any, **options: Any) -> Conversation:
        while True:
            try:
                return self._worker.now(lambda agent: agent.begin(*args, **options))
            except SessionBusy:
                # The former turn may only need its last moment.
                if not self._worker.wait(lambda agent: agent.wait_stopped()):
                    raise

    def chat(self, message: str, stream_callback: Callable[[str], Any] | None = None) -> str:
        """One turn; its final answer, empty if there is none."""
        return self.run_conversation(message, stream_callback=stream_callback)["final_response"] or ""

    # --- stop and steer ---

    def interrupt(self, message: str | None = None) -> bool:
        """Stop the running turn; see ``Agent.interrupt``."""
        return self._worker.now(lambda agent: agent.interrupt(message))

    def hard_interrupt(self, message: str | None = None) -> bool:
        return self._worker.now(lambda agent: agent.hard_interrupt(message))

    def clear_interrupt(self) -> None:
        self._worker.now(lambda agent: agent.clear_interrupt())

    @property
    def is_interrupted(self) -> bool:
        return self._worker.now(lambda agent: agent.is_interrupted)

    def steer(self, text: str) -> bool:
        return self._worker.now(lambda agent: agent.steer(text))

    def redirect(self, text: str) -> bool:
        return self._worker.now(lambda agent: agent.redirect(text))

    # --- changing and looking ---

    def switch_model(
        self, new_model: str, new_provider: str | None = None, api_key: str = "", base_url: str = "", api_mode: str = ""
    ) -> str:
        """Use another configured model from the next turn on. A new endpoint is an agent of its own: pass its address
        to another ``AIAgent``."""
        if api_key or base_url or api_mode:
            raise ValueError("switch_model chooses among configured models; name the endpoint when you make an agent")
        return self._worker.wait(lambda agent: agent.switch_model(new_model, new_provider))

    def compress(
        self, focus_topic: str | None = None, keep_last: int | None = None, preview: bool = False
    ) -> dict[str, Any]:
        return self._worker.wait(lambda agent: agent.compress(focus_topic, keep_last, preview))

    def inflight(self) -> dict[str, Any] | None:
        return self._worker.now(lambda agent: agent.inflight())

    def pending_prompts(self) -> list[str]:
        return self._worker.now(lambda agent: agent.pending_prompts())

    def reset_session_state(self) -> None:
        self._worker.now(lambda agent: agent.reset_session_state())

    @property
    def session_id(self) -> str:
        return self._worker.now(lambda agent: agent.session_id)

    @property
    def model(self) -> str:
        return self._worker.now(lambda agent: agent.model)

    @property
    def provider(self) -> str:
        return self._worker.now(lambda agent: agent.provider)

    @property
    def base_url(self) -> str:
        return self._worker.now(lambda agent: agent.base_url)

    @property
    def api_mode(self) -> str:
        return self._worker.now(lambda agent: agent.api_mode)

    def __getattr__(self, name: str) -> Any:
        """The counters ``session_input_tokens`` …, ``session_api_calls``, ``session_estimated_cost_usd``."""
        if not name.startswith("session_"):
            raise AttributeError(f"an agent has no attribute {name!r}")
        counters = self._worker.now(lambda agent: agent.counters())
        if name not in counters:
            raise AttributeError(f"an agent has no attribute {name!r}")
        return counters[name]

    # --- the end ---

    def close(self) -> None:
        """Stop what runs and let go of everything, within five seconds. May be called again."""
        self._finalizer()

    def __enter__(self) -> AIAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
