"""The skills that a session can use, for people: lists, inspection, and skills as slash commands (agent-core §8.3).

The model reads skills with its own tools; this is the same library, read for hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from hermes.agent.tools.skill_library import Skill, discover, read_skill_file, skill_roots, split_front_matter

if TYPE_CHECKING:
    from hermes.nurseries.services import Services

PREVIEW_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class SkillCommand:
    """A skill as a command: ``message`` is what the model gets, ``display`` what a person typed."""

    name: str
    message: str
    display: str


async def list_skills(services: Services, cwd: str) -> tuple[Skill, ...]:
    """All skills as they are on disk now."""
    return await trio.to_thread.run_sync(_discover, services, cwd)


def _discover(services: Services, cwd: str) -> tuple[Skill, ...]:
    settings = services.settings().skills
    return discover(
        skill_roots(
            services.home,
            cwd,
            trusted=tuple(settings.trusted_project_dirs),
            create_dir=str(settings.create_dir),
            external=tuple(settings.external_dirs),
        )
    )


def by_category(skills: tuple[Skill, ...]) -> dict[str, list[str]]:
    """Names by folder; those at the top are ``general``."""
    grouped: dict[str, list[str]] = {}
    for skill in skills:
        grouped.setdefault(skill.category or "general", []).append(skill.name)
    return grouped


def as_pairs(skills: tuple[Skill, ...]) -> list[tuple[str, str]]:
    """Slug and description of each, for catalogues and completion."""
    return [(skill.slug, skill.description) for skill in skills]


def find(skills: tuple[Skill, ...], name: str) -> Skill | None:
    wanted = name.strip().removeprefix("/").lower().replace("_", "-")
    return next((skill for skill in skills if wanted in (skill.slug, skill.qualified, skill.name.lower())), None)


async def skill_text(skill: Skill) -> str:
    """The body of a skill, without its front matter."""
    content = await trio.to_thread.run_sync(read_skill_file, skill.directory, "SKILL.md")
    return split_front_matter(content or "")[1].strip()


async def as_command(skill: Skill, arg: str) -> SkillCommand:
    """What is submitted when a person calls the skill by name."""
    body = await skill_text(skill)
    display = f"/{skill.slug} {arg}".strip()
    request = f"\n\nThe user's request: {arg}" if arg else ""
    message = f"Use the skill {skill.name!r} for this. Its instructions:\n\n{body}{request}"
    return SkillCommand(skill.name, message, display)
