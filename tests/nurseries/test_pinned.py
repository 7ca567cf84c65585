"""What a session keeps byte for byte: the system prompt and the list of tools, from turn to turn and process to
process, whatever host drives it; and what makes it build them anew."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from hermes.agent.context_files import DirectoryHints, bounded, size_limit
from hermes.agent.ports import ModelRequest, ResolvedModel
from hermes.agent.prompt import PromptFacts, assemble, restore, stored_form
from hermes.agent.store.memory import MemoryStore
from hermes.agent.tools.registry import Tools
from hermes.messages import Prompt
from hermes.nurseries import path_hints
from hermes.nurseries.pinned import directory_hints, forget_prompt, forget_tools
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.nurseries.session_changes import set_cwd, set_model, set_personality
from hermes.prompt_sources import PromptSources
from hermes.settings import Settings
from tests.support.core import OneModel, PlainTool, clock, make_services, plain_tools, running_tree, say


class Home:
    """Processes that share one store. ``days`` and ``offered`` are what differs between them."""

    def __init__(self) -> None:
        self.store = MemoryStore(now=clock)
        self.built: list[tuple[str, ...]] = []
        self.notes = "likes tea"
        self.offered = ["nap", "ask", "fail"]
        self.requests: list[ModelRequest] = []

    def process(self) -> Services:
        services, model = make_services(*[say("done") for _ in range(20)], store=self.store)
        model.requests = self.requests
        return replace(services, build_prompt=self._build, build_tools=self._tools)

    async def _build(
        self, session: Session, *, tools: Any, resolved: ResolvedModel, system_extra: str | None
    ) -> tuple[str, ...]:
        personality = session.stored.model_config.get("personality")
        facts = PromptFacts(
            model=resolved.model,
            provider=resolved.provider,
            cwd=session.memory.cwd,
            date="2026-01-01",
            host=session.stored.source,
            tools=tuple(tools.names()),
            memory=self.notes,
            system_message=system_extra,
            personality=personality if isinstance(personality, str) else None,
        )
        self.built.append(assemble(facts).tiers)
        return self.built[-1]

    def _tools(self, session: Session, *, pinned: Any, **_: Any) -> Tools:
        found = {tool.name: tool for tool in [*plain_tools(), PlainTool("late", plain_tools()[0].run_it)]}
        return Tools([found[name] for name in self.offered], pinned)


async def turn(session: Session, text: str = "hello") -> None:
    running = await session.submit_nowait(Prompt(text)).wait_turn()
    assert running is not None
    record = await running.wait_ended()
    assert record.completed, record


async def test_hosts_that_drive_one_session_in_sequence_send_the_same_system_prompt_and_tools(
    autojump_clock: trio.testing.MockClock,
) -> None:
    home, key = Home(), ""
    for source in ("tui", "acp", "api_server"):
        async with running_tree(home.process()) as tree:
            session = await tree.registry.resume(key) if key else tree.registry.create(source=source, cwd="/")
            await turn(session, f"from {source}")
            await turn(session, f"again from {source}")
            key = session.key
        home.notes += f", and {source}"
        home.offered = ["late", *reversed(home.offered)][:4]
    assert len(home.built) == 1
    assert {request.system for request in home.requests} == {home.built[0]}
    assert {tuple(spec.name for spec in request.tools) for request in home.requests} == {("nap", "ask", "fail")}
    stored = await home.store.get_session(key)
    assert stored is not None
    assert stored.system_prompt == stored_form(home.built[0])
    assert stored.tool_names == ("nap", "ask", "fail")


async def test_another_model_changes_the_two_lines_that_name_it_and_no_other_byte(
    autojump_clock: trio.testing.MockClock,
) -> None:
    home = Home()
    async with running_tree(home.process()) as tree:
        session = tree.registry.create(source="tui", cwd="/")
        await turn(session)
        home.notes = "likes coffee"
        await set_model(session, "other-model", None)
        await turn(session)
        key = session.key
    before, after = ("\n\n".join(request.system) for request in home.requests[-2:])
    assert after == before.replace("Model: scripted-1", "Model: other-model") != before
    async with running_tree(home.process()) as tree:
        await turn(await tree.registry.resume(key))
    assert "\n\n".join(home.requests[-1].system) == after
    assert len(home.built) == 1


async def test_a_model_for_one_prompt_names_itself_in_that_prompt_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    home = Home()
    async with running_tree(home.process()) as tree:
        session = tree.registry.create(source="tui", cwd="/")
        running = await session.submit_nowait(Prompt("once", model="guest")).wait_turn()
        assert running is not None
        await running.wait_ended()
        await turn(session)
    assert ["Model: guest" in request.system[-1] for request in home.requests] == [True, False]


async def _cwd(session: Session, tmp_path: Path) -> None:
    await set_cwd(session, str(tmp_path))


async def _personality(session: Session, tmp_path: Path) -> None:
    await set_personality(session, "terse")


async def _forget(session: Session, tmp_path: Path) -> None:
    forget_prompt(session)


@pytest.mark.parametrize("change", [_cwd, _personality, _forget])
async def test_what_makes_the_prompt_wrong_has_it_built_anew_and_stored(
    change: Callable[[Session, Path], Any], tmp_path: Path
) -> None:
    home = Home()
    async with running_tree(home.process()) as tree:
        session = tree.registry.create(source="tui", cwd="/")
        await turn(session)
        home.notes = "likes coffee"
        await change(session, tmp_path)
        await turn(session)
        stored = await home.store.get_session(session.key)
    assert len(home.built) == 2
    assert home.requests[-1].system == home.built[1]
    assert stored is not None and stored.system_prompt == stored_form(home.built[1])


@pytest.mark.parametrize("change", [_cwd, _personality])
async def test_a_change_behind_which_the_process_ended_is_seen_by_the_next_one(
    change: Callable[[Session, Path], Any], tmp_path: Path
) -> None:
    home = Home()
    async with running_tree(home.process()) as tree:
        session = tree.registry.create(source="tui", cwd="/")
        await turn(session)
        await change(session, tmp_path)
        key = session.key
    async with running_tree(home.process()) as tree:
        await turn(await tree.registry.resume(key))
    assert len(home.built) == 2
    assert home.requests[-1].system == home.built[1]


async def test_a_reload_of_tools_is_what_lets_new_ones_in(autojump_clock: trio.testing.MockClock) -> None:
    home = Home()
    async with running_tree(home.process()) as tree:
        session = tree.registry.create(source="tui", cwd="/")
        await turn(session)
        home.offered = ["late", "nap"]
        await turn(session)
        forget_tools(session)
        await turn(session)
    assert [tuple(spec.name for spec in request.tools) for request in home.requests] == [
        ("nap", "ask", "fail"),
        ("nap",),
        ("late", "nap"),
    ]


def test_tools_that_come_with_a_client_are_offered_behind_the_pinned_ones() -> None:
    tools = {tool.name: tool for tool in plain_tools()}
    made = Tools([tools["fail"], tools["ask"], tools["nap"]], ["nap"], passing={"fail"})
    assert made.names() == ("nap", "fail")


def test_a_stored_prompt_comes_back_in_the_tiers_it_was_sent_in() -> None:
    facts = PromptFacts("m", "p", "/w", "2026-01-01", system_message="be brief", memory="# Session\n\nnot a title")
    prompt = assemble(facts)
    assert restore(prompt.join()) == prompt.tiers


async def test_instruction_files_near_touched_paths_are_given_once(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "AGENTS.md").write_text("of the project")
    (project / "part" / "deep").mkdir(parents=True)
    (project / "part" / "AGENTS.md").write_text("of this part")
    (tmp_path / "AGENTS.md").write_text("of nobody")
    sources = PromptSources(tmp_path / "home", tmp_path, Settings())
    services, _ = make_services()
    services = replace(services, directory_hints=sources.directory_hints)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="tui", cwd=str(project))
        hints = directory_hints(session)
        assert hints is not None
        assert await hints([str(tmp_path / "x")]) is None
        assert await hints(["AGENTS.md", "."]) is None
        session.memory.cwd = str(project / "part")
        found = await hints(["deep/file.py"])
        assert found is not None and "of this part" in found and "of the project" not in found
        later = directory_hints(session)
        assert later is not None and await later(["other.py"]) is None


async def test_a_disk_that_does_not_answer_holds_up_neither_the_loop_nor_more_than_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "part" / "AGENTS.md").write_text("of this part")
    hangs, looks = threading.Event(), 0

    class SlowFiles:
        def read(self, path: str) -> str | None:
            nonlocal looks
            looks += 1
            hangs.wait(20)
            return None

        def names(self, directory: str) -> Sequence[str]:
            return ()

    monkeypatch.setattr(path_hints, "LOOK_WITHIN", 0.05)
    services, _ = make_services()
    services = replace(services, directory_hints=lambda cwd: DirectoryHints(SlowFiles(), cwd, lambda text: ()))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="tui", cwd=str(tmp_path))
        hints = directory_hints(session)
        assert hints is not None
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await trio.sleep(0.001)
                ticks += 1

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tick)
                with trio.fail_after(5):
                    assert await hints(["part/file.py"]) is None
                    assert await hints(["other/file.py"]) is None
                nursery.cancel_scope.cancel()
        finally:
            hangs.set()
        assert ticks > 5 and looks == 1


class Windows:
    """Builds prompts as long as the window of the model allows."""

    def __init__(self, rules: int) -> None:
        self.rules = "r" * rules
        self.built: list[int] = []

    async def __call__(self, session: Session, *, resolved: ResolvedModel, **_: Any) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        self.built.append(resolved.context_length)
        limit = size_limit(resolved.context_length, None)
        facts = PromptFacts(resolved.model, resolved.provider, session.memory.cwd, "2026-01-01")
        return assemble(replace(facts, context_files=bounded(self.rules, limit))).tiers


@pytest.mark.parametrize(
    ("rules", "windows", "built"),
    [
        (1_000, (1_000_000, 100_000), [1_000_000]),
        (200_000, (1_000_000, 100_000), [1_000_000, 100_000]),
        (200_000, (100_000, 1_000_000), [100_000, 1_000_000]),
        (200_000, (1_000_000, 1_000_000), [1_000_000]),
        (200_000, (10_000, 64_000), [10_000]),
    ],
    ids=["small files", "a smaller window", "a larger window", "the same window", "the same limit"],
)
async def test_project_files_fit_the_window_of_the_model_that_reads_them(
    rules: int, windows: tuple[int, int], built: list[int], autojump_clock: trio.testing.MockClock
) -> None:
    services, model = make_services()
    prompts = Windows(rules)
    lengths = dict(zip(("first", "second"), windows, strict=True))

    class Models(OneModel):
        async def resolve(self, name: str | None, provider: str | None) -> ResolvedModel:
            resolved = await super().resolve(name or "first", provider)
            return replace(resolved, context_length=lengths[resolved.model])

    services = replace(services, models=Models(model), build_prompt=prompts)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="tui", cwd="/")
        await turn(session)
        await turn(session)
        await set_model(session, "second", None)
        await turn(session)
        await turn(session)
    assert prompts.built == built
    assert "Model: second" in "".join(model.requests[-1].system)
