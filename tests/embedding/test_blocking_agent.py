"""The blocking face: an ordinary object that any thread may use, and that leaves nothing behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes import AIAgent
from hermes.embedding.blocking import AgentClosed
from hermes.errors import EmptyText, InvalidValue, SessionBusy
from hermes.testing import Reply, ScriptedModel

SAY = Reply.of({"text": ["Hel", "lo"]})
HANGS = Reply.of({"text": "so far"}, {"wait_for": "never"})
WITHIN = 20.0


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "hermes agent"]


@contextmanager
def agent_saying(home: Path, *replies: Reply, **arguments: Any) -> Iterator[AIAgent]:
    with AIAgent(home=home, models=ScriptedModel(replies), cwd=str(home), **arguments) as agent:
        yield agent
    assert threads() == []


def in_thread(agent: AIAgent, message: str, said: threading.Event) -> tuple[threading.Thread, list[dict[str, Any]]]:
    """Run a turn in a thread of its own; returns when the model has begun to speak."""
    records: list[dict[str, Any]] = []

    def run() -> None:
        records.append(agent.run_conversation(message, stream_callback=lambda _: said.set()))

    thread = threading.Thread(target=run)
    thread.start()
    assert said.wait(WITHIN)
    return thread, records


def ended(thread: threading.Thread) -> bool:
    thread.join(WITHIN)
    return not thread.is_alive()


def test_a_conversation_from_an_ordinary_thread(tmp_path: Path) -> None:
    with agent_saying(tmp_path, SAY, Reply.of({"echo": "again: "})) as agent:
        record = agent.run_conversation("hi")
        assert (record["final_response"], record["session_id"]) == ("Hello", agent.session_id)
        assert agent.chat("more") == "again: more"
        assert (agent.model, agent.provider, agent.base_url, agent.api_mode) == (
            "fake-model", "scripted", "", "chat_completions",
        )  # fmt: skip
        assert agent.session_api_calls == 2
        assert agent.session_total_tokens == agent.session_input_tokens + agent.session_output_tokens > 0
        assert agent.session_estimated_cost_usd is None
        agent.reset_session_state()
        assert agent.session_total_tokens == 0
        assert (agent.inflight(), agent.pending_prompts()) == (None, [])


def test_making_an_agent_starts_nothing(tmp_path: Path) -> None:
    agent = AIAgent(home=tmp_path / "none")
    assert threads() == []
    agent.close()
    assert not (tmp_path / "none").exists()
    with pytest.raises(AgentClosed):
        agent.chat("hi")


def test_names_that_nobody_knows_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'modell'"):
        AIAgent(modell="m")  # type: ignore[call-arg]
    with agent_saying(tmp_path, SAY) as agent:
        for name in ("no_such", "session_colour"):
            with pytest.raises(AttributeError, match=name):
                getattr(agent, name)
        with pytest.raises(TypeError):
            agent.run_conversation("hi", colour="red")


def test_another_thread_can_stop_the_turn(tmp_path: Path) -> None:
    with agent_saying(tmp_path, HANGS, SAY) as agent:
        assert not agent.interrupt()
        thread, records = in_thread(agent, "go", threading.Event())
        with pytest.raises(SessionBusy):
            agent.chat("me too")
        assert agent.steer("mind")
        with pytest.raises(EmptyText):
            agent.steer(" ")
        assert agent.interrupt("instead")
        assert agent.is_interrupted
        assert ended(thread)
        assert (records[0]["interrupted"], records[0]["final_response"], records[0]["pending_steer"]) == (
            True, "so far", "mind",
        )  # fmt: skip
        assert records[0]["interrupt_message"] == "instead"
        agent.clear_interrupt()
        assert not agent.is_interrupted
        assert agent.chat("next") == "Hello"


def test_a_redirect_from_another_thread(tmp_path: Path) -> None:
    with agent_saying(tmp_path, HANGS, Reply.of({"text": "differently"})) as agent:
        thread, records = in_thread(agent, "go", threading.Event())
        assert agent.redirect("other")
        assert ended(thread)
        assert records[0]["final_response"] == "differently"
        assert not agent.hard_interrupt()


def test_a_callback_may_use_the_agent(tmp_path: Path) -> None:
    agents: list[AIAgent] = []

    def stop(text: str | None) -> None:
        if text is not None:
            agents[0].interrupt("from the callback")

    with agent_saying(tmp_path, HANGS, stream_delta_callback=stop) as agent:
        agents.append(agent)
        record = agent.run_conversation("go")
        assert record["interrupt_message"] == "from the callback"


def test_closing_stops_what_runs_and_may_be_repeated(tmp_path: Path) -> None:
    agent = AIAgent(home=tmp_path, models=ScriptedModel(HANGS))
    said = threading.Event()
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(agent.run_conversation("go", stream_callback=lambda _: said.set())["cause"])
        except AgentClosed as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert said.wait(WITHIN)
    agent.close()
    agent.close()
    assert ended(thread)
    assert threads() == []
    assert outcomes[0] == "shutdown" or isinstance(outcomes[0], AgentClosed)


def test_an_agent_that_is_forgotten_lets_go(tmp_path: Path) -> None:
    agent = AIAgent(home=tmp_path, models=ScriptedModel(SAY))
    assert agent.chat("hi") == "Hello"
    del agent
    gc.collect()
    assert threads() == []


def test_what_prevents_the_start_is_raised_each_time(tmp_path: Path) -> None:
    agent = AIAgent(home=tmp_path, settings={"limits.no_such": 1})
    for _ in range(2):
        with pytest.raises(InvalidValue, match="no_such"):
            agent.chat("hi")
    agent.close()


def test_the_model_and_the_length_of_the_conversation_can_be_changed(tmp_path: Path) -> None:
    with agent_saying(tmp_path, SAY) as agent:
        agent.chat("hi")
        assert agent.switch_model("other", "scripted") == "other"
        assert agent.model == "other"
        with pytest.raises(ValueError, match="endpoint"):
            agent.switch_model("other", base_url="http://x")
        assert agent.compress(preview=True)["removed"] == 0


def test_several_agents_side_by_side_do_not_mix(tmp_path: Path) -> None:
    agents = [AIAgent(home=tmp_path, models=ScriptedModel(Reply.of({"text": str(number)}))) for number in range(4)]
    said: dict[int, str] = {}

    def run(number: int) -> None:
        said[number] = agents[number].chat("who?")

    workers = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    assert all(ended(worker) for worker in workers)
    assert said == {number: str(number) for number in range(4)}
    for agent in agents:
        agent.close()


PROGRAM = """
import sys, threading
before = set(sys.modules)
import hermes
loaded = set(sys.modules) - before
assert not any(name.startswith(("trio", "pydantic", "hermes.")) for name in loaded), loaded
from hermes import AIAgent
agent = AIAgent(provider="demo", home=sys.argv[1])
assert threading.active_count() == 1
print(agent.chat("run: sleep 300" if len(sys.argv) > 2 else "hello")[:4])
"""


def test_a_program_that_just_ends_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "home")], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "This\n", "")
    assert not (tmp_path / "home").exists(), "nothing is written that nobody asked for"
