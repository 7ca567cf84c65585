"""Settings whose effect is easily lost on the way: from the file's words to where they count."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes import events as ev
from hermes.agent.model_switch import ModelWorld, parse_model_command, resolve_switch
from hermes.config import load_settings
from hermes.messages import FileDiff, Prompt, ToolResult
from hermes.nurseries.turn_settings import loop_settings
from hermes.prompt_sources import PromptSources
from hermes.protocols.gateway.events import Shown, translate
from hermes.serve import listener_limits
from hermes.settings import Settings
from hermes.start import open_store
from tests.support.core import make_services, running_tree, say


def settings(**areas: Any) -> Settings:
    return Settings.model_validate(areas)


def test_the_reasoning_effort_of_a_model_stands_before_the_one_for_all_and_behind_the_session_s() -> None:
    given = settings(
        agent={"reasoning_effort": "low", "reasoning_overrides": {"big": "high"}},
        delegation={"reasoning_effort": "minimal"},
    )

    def effort(model: str, own: str | None = None, depth: int = 0) -> str | None:
        return loop_settings(given, Prompt(""), depth=depth, reasoning_effort=own, model=model).reasoning_effort

    assert (effort("big"), effort("small"), effort("big", "medium")) == ("high", "low", "medium")
    assert (effort("small", depth=1), effort("big", depth=1)) == ("minimal", "high")


def test_the_limit_of_approvals_can_be_set_in_one_place_for_all() -> None:
    assert settings(approvals={"timeout": 60}).approval_timeout == 60
    assert settings(approvals={"timeout": 60}, limits={"approval_timeout": 5}).approval_timeout == 5


def test_busy_connections_have_the_drain_grace(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("limits: {drain_grace: 0.25}\n")
    assert listener_limits(load_settings({}, None, tmp_path)).drain_grace == 0.25


def test_diffs_are_sent_unless_they_are_switched_off() -> None:
    output = ToolResult("c", "patch", "done", diffs=(FileDiff("a.txt", "old\n", "new\n"),))
    event = ev.ToolEnded("t", "c", "patch", {}, output, 0.1)
    for shown, expected in ((Shown(), True), (Shown(diffs=False), False)):
        wire = translate(event, shown)
        assert wire is not None and wire.payload is not None
        assert ("inline_diff" in wire.payload) is expected


async def test_the_journal_of_the_database_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    for word in ("delete", "wal"):
        home = tmp_path / word
        home.mkdir()
        (home / "config.yaml").write_text(f"database: {{journal_mode: {word}}}\n")
        async with await open_store(load_settings({}, None, home)):
            pass
        connection = sqlite3.connect(home / "sessions.db")
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == word
        connection.close()


async def prompt_of(tmp_path: Path, given: Settings, model: str) -> str:
    sources = PromptSources(tmp_path / "home", tmp_path, given)
    services, _ = make_services(say("unused"))
    services = replace(services, settings=lambda: given)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="tui", cwd=str(tmp_path))
        resolved = replace(await services.models.resolve(None, None), model=model)
        tools = services.build_tools(
            session, allow_clarify=True, depth=0, answers=lambda _: False, pinned=None, extra=()
        )
        return "\n".join(await sources(session, tools=tools, resolved=resolved, system_extra=None))


async def test_guidance_is_switched_by_its_settings_and_skills_are_loaded_at_the_start(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    skill = tmp_path / "home" / "skills" / "writing" / "tidy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: Tidy\ndescription: Cleans.\n---\nSweep everything.\n")
    usual = await prompt_of(tmp_path, settings(), "some-model")
    assert "Sweep everything." not in usual
    off = {"task_completion_guidance": "off", "parallel_tool_call_guidance": "off", "coding_context": "on"}
    changed = await prompt_of(
        tmp_path, settings(agent=off, skills={"auto_load": ["tidy", "no-such-skill"]}), "some-model"
    )
    assert "Sweep everything." in changed
    lost = [line for line in usual.splitlines() if line and line not in changed]
    assert lost, "what was switched off is gone"


@pytest.mark.parametrize(("limit", "asked"), [(200_000, False), (100_000, True)])
def test_a_switch_to_a_smaller_window_asks_from_the_configured_length_on(limit: int, asked: bool) -> None:
    world = ModelWorld("openai-api", "gpt-5", context_tokens=150_000, confirm_tokens=limit)
    switch = resolve_switch(parse_model_command("gpt-4 --session"), world)
    assert switch.success, switch.error_message
    assert (switch.confirm_message is not None) is asked
