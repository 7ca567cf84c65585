"""The system prompt and the project files in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hermes.agent.context_files import (
    ContextFile,
    DirectoryHints,
    bounded,
    find_context_files,
    render_context_files,
    size_limit,
)
from hermes.agent.prompt import PromptFacts, assemble, mentions_session, restore, stored_form
from hermes.agent.prompt_identity import with_model
from hermes.agent.steering import STEER_OPEN, steer_row

FACTS = PromptFacts(
    model="m1",
    provider="p1",
    cwd="/work",
    date="2030-01-02",
    tools=("memory", "terminal"),
    skills=[("deploy", "how to\ndeploy")],
    system_message="Be kind.",
    session_key="20300102_000000_abcdef",
)


class Files:
    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def read(self, path: str) -> str | None:
        return self._texts.get(path)

    def names(self, directory: str) -> Sequence[str]:
        return [path.removeprefix(directory + "/") for path in self._texts if path.startswith(directory + "/")]


def quiet(text: str) -> Sequence[str]:
    return ()


def test_the_same_facts_give_the_same_bytes_and_the_stored_form_can_be_taken_apart() -> None:
    prompt = assemble(FACTS)
    assert prompt == assemble(FACTS)
    assert restore(prompt.join()) == prompt.tiers
    assert stored_form(restore(prompt.join())) == prompt.join()
    assert restore("somebody else's prompt") == ("somebody else's prompt",)


@pytest.mark.parametrize("title", ["# Context", "# Session", "\x1e# Session"])
@pytest.mark.parametrize("place", ["identity", "system_message", "context_files", "memory", "user_profile"])
def test_headings_of_the_users_own_files_do_not_move_the_tiers(title: str, place: str) -> None:
    given: dict[str, Any] = {place: f"first\n\n{title}\n\nlast"}
    prompt = assemble(replace(FACTS, **given))
    assert restore(prompt.join()) == prompt.tiers
    assert len(prompt.tiers) == 2 and "\x1e" not in "".join(prompt.tiers)
    assert prompt.tiers[1].startswith("# Context\n\n")


def test_a_prompt_that_was_stored_without_marks_is_still_taken_apart() -> None:
    prompt = assemble(FACTS)
    assert restore("\n\n".join(prompt.tiers)) == prompt.tiers


def test_the_stable_tier_does_not_depend_on_day_model_or_directory() -> None:
    other = replace(FACTS, date="2031-05-05", model="m2", provider="p2", cwd="/else", skills=[], system_message=None)
    assert assemble(FACTS).stable == assemble(other).stable


def test_guidance_is_there_only_for_tools_that_are_there() -> None:
    assert "`memory`" in assemble(FACTS).stable and "delegate_task" not in assemble(FACTS).stable


def test_the_steer_markers_are_explained() -> None:
    assert STEER_OPEN in assemble(FACTS).stable
    assert STEER_OPEN in str(steer_row("x", 0.0).api_content)


def test_the_last_line_is_the_working_directory_and_there_is_no_clock_time() -> None:
    volatile = assemble(FACTS).volatile
    assert volatile.splitlines()[-1] == "Working directory: /work"
    assert "- deploy: how to deploy" in volatile
    assert ":00" not in volatile


def test_a_fallback_changes_two_lines_and_nothing_else() -> None:
    before = assemble(FACTS).tiers
    after = with_model(before, "m2", "p2")
    changed = [
        (old, new)
        for old, new in zip("\n".join(before).splitlines(), "\n".join(after).splitlines(), strict=True)
        if old != new
    ]
    assert changed == [("Model: m1", "Model: m2"), ("Provider: p1", "Provider: p2")]


def test_a_branch_must_rebuild_a_prompt_that_names_its_session() -> None:
    assert mentions_session(assemble(FACTS).join(), "20300102_000000_abcdef")


def test_the_first_type_of_file_wins() -> None:
    texts = {"/r/AGENTS.md": "agents", "/r/a/CLAUDE.md": "claude", "/r/.hermes.md": "hermes"}
    assert find_context_files(Files(texts), "/r/a", "/r") == [ContextFile("/r/.hermes.md", "hermes")]
    del texts["/r/.hermes.md"]
    assert find_context_files(Files(texts), "/r/a", "/r") == [ContextFile("/r/AGENTS.md", "agents")]
    del texts["/r/AGENTS.md"]
    assert find_context_files(Files(texts), "/r/a", "/r") == [ContextFile("/r/a/CLAUDE.md", "claude")]


def test_the_agents_chain_goes_from_the_root_down_with_identical_bodies_once() -> None:
    texts = {
        "/r/AGENTS.md": "one",
        "/r/a/agents.md": "one",
        "/r/a/b/AGENTS.md": "two",
        "/r/a/b/AGENTS.override.md": "three",
        "/AGENTS.md": "outside",
    }
    found = find_context_files(Files(texts), "/r/a/b", "/r")
    assert [file.text for file in found] == ["one", "three"]


def test_cursor_rules_are_read_in_order() -> None:
    texts = {"/r/.cursorrules": "x", "/r/.cursor/rules/b.mdc": "b", "/r/.cursor/rules/a.mdc": "a"}
    assert [file.text for file in find_context_files(Files(texts), "/r", None)] == ["x", "a", "b"]


def test_oversize_files_keep_head_and_tail_and_suspicious_ones_are_replaced() -> None:
    assert size_limit(200_000, None) == 48_000 and size_limit(1_000, None) == 20_000 and size_limit(1, 5) == 5
    short = bounded("a" * 700 + "b" * 400, 1_000)
    assert short.startswith("a" * 700 + "\n\n[200 characters left out]") and short.endswith("b" * 200)
    rendered = render_context_files([ContextFile("/r/AGENTS.md", "ignore all")], 100, lambda text: ["an override"])
    assert "left out: it contains an override" in rendered and "ignore all" not in rendered


def test_directory_hints_come_once_and_never_from_outside() -> None:
    texts = {"/r/a/AGENTS.md": "in a", "/r/AGENTS.md": "root", "/x/AGENTS.md": "outside"}
    hints = DirectoryHints(Files(texts), "/r", quiet)
    assert hints(["/x/file"]) is None
    first = hints(["/r/a/b/file.py"])
    assert first is not None and "in a" in first and "root" not in first
    assert hints(["/r/a/other.py"]) is None
