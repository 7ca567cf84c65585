"""skills_list and skill_view: instructions for special tasks, read when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from hermes.agent.injection_scan import scan
from hermes.agent.ports import ParallelClass, ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.tools.base import BuiltinTool, failure, parameters, result, text
from hermes.agent.tools.skill_library import (
    Skill,
    discover,
    linked_files,
    read_skill_file,
    skill_roots,
    slug_of,
    split_front_matter,
)
from hermes.agent.tools.stored_secrets import grant, stored_for

_MAX_BODY = 60_000
_FLAGS = ToolFlags(ParallelClass.FREE, read_only=True, toolset="skills", kind="read")


async def find_skills(ctx: ToolContext) -> tuple[Skill, ...]:
    """The skills of this session, as they are on disk now."""
    settings = ctx.settings.skills
    roots = skill_roots(
        ctx.home,
        ctx.memory.cwd,
        trusted=tuple(settings.trusted_project_dirs),
        create_dir=str(settings.create_dir),
        external=tuple(settings.external_dirs),
    )
    return await trio.to_thread.run_sync(discover, roots)


class SkillsList(BuiltinTool):
    spec = ToolSpec(
        "skills_list",
        "List the skills: instructions for special tasks. Read one with skill_view before such a task.",
        parameters({"category": text("Only this category.")}),
    )
    flags = _FLAGS

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        wanted = arguments.get("category")
        skills = [skill for skill in await find_skills(ctx) if not wanted or skill.category == wanted]
        shown = [{"name": one.name, "description": one.description, "category": one.category or None} for one in skills]
        return result({"skills": shown, "count": len(shown)}, summary=f"{len(shown)} skills")


class SkillView(BuiltinTool):
    spec = ToolSpec(
        "skill_view",
        "Read a skill, or one of its files.",
        parameters({"name": text("The skill."), "file_path": text("A file of the skill, relative.")}, "name"),
    )
    flags = _FLAGS

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        skill = _choose(await find_skills(ctx), str(arguments["name"]))
        file_path = arguments.get("file_path")
        if file_path:
            content = await trio.to_thread.run_sync(read_skill_file, skill.directory, str(file_path))
            if content is None:
                files = await trio.to_thread.run_sync(linked_files, skill.directory)
                raise failure(f"{skill.name} has no readable text file {file_path!r}", linked_files=list(files))
            return result({"name": skill.name, "file_path": file_path, "content": content[:_MAX_BODY]})
        content = await trio.to_thread.run_sync(read_skill_file, skill.directory, "SKILL.md")
        files = await trio.to_thread.run_sync(linked_files, skill.directory)
        grant(self.services, ctx.memory, skill.required_variables)
        known = {**self.services.environment, **stored_for(self.services, ctx.memory, ())}
        missing = [name for name in skill.required_variables if not known.get(name)]
        body: dict[str, Any] = {
            "name": skill.name,
            "description": skill.description,
            "content": split_front_matter(content or "")[1][:_MAX_BODY],
            "directory": str(skill.directory),
            "linked_files": list(files),
            "required_variables": list(skill.required_variables),
            "setup": "ready" if not missing else "needs_setup",
        }
        if missing:
            body["missing_variables"] = missing
            body["hint"] = "The user can store them: request_secret, where it is offered."
        if findings := scan(content or ""):
            body["warning"] = f"this skill holds suspicious text: {', '.join(findings)}"
        return result(body, summary=skill.name)


def _choose(skills: tuple[Skill, ...], wanted: str) -> Skill:
    slug = slug_of(wanted.rsplit("/", 1)[-1])
    exact = [skill for skill in skills if skill.qualified == wanted or skill.name == wanted]
    found = (
        exact if len(exact) == 1 else [skill for skill in skills if skill.slug == slug and _in_category(skill, wanted)]
    )
    if not found:
        raise failure(f"no skill {wanted!r}", available=[skill.qualified for skill in skills][:100])
    if len(found) > 1:
        raise failure(f"{wanted!r} is ambiguous", qualified_names=[skill.qualified for skill in found])
    return found[0]


def _in_category(skill: Skill, wanted: str) -> bool:
    category, slash, _ = wanted.rpartition("/")
    return not slash or skill.category == category
