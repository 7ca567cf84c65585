"""delegate_task: hand self-contained tasks to child agents. The work itself is the tree's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hermes.agent.ports import ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.tools.base import BuiltinTool, choice, failure, flag, parameters, result, text
from hermes.agent.tools.task_images import TaskImages
from hermes.errors import HermesError

_MAX_TASKS = 50
_IMAGES = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Images that it is to see: paths, http(s) URLs or data URLs.",
}
_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "output_schema": ("a JSON schema, an object", lambda value: isinstance(value, Mapping)),
    "toolsets": (
        "a list of names",
        lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    ),
    "role": ("leaf or orchestrator", lambda value: value in ("leaf", "orchestrator")),
    "group": ("a text", lambda value: isinstance(value, str)),
}
_FIELDS = ("context", "toolsets", "output_schema", "images", "group", "role", "model")


class DelegateTask(BuiltinTool):
    spec = ToolSpec(
        "delegate_task",
        "Give tasks to child agents that work side by side, each in its own conversation. A child sees nothing of this "
        "conversation: goal and context must say everything it needs. Results come back as summaries.",
        parameters(
            {
                "action": choice("What to do.", "spawn", "list", "steer", "stop", default="spawn"),
                "tasks": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "properties": {
                            "goal": text("What the child must achieve, complete in itself."),
                            "context": text("Facts, paths and decisions that it needs."),
                            "toolsets": {
                                "type": "array",
                                "items": {"type": "string"},
                                "description": "Toolsets it may use.",
                            },
                            "images": _IMAGES,
                            "group": text("A label for tasks that belong together."),
                            "output_schema": {
                                "type": "object",
                                "description": "JSON schema that the child's last message must fit.",
                            },
                            "role": choice(
                                "orchestrator: it may delegate itself, if the depth allows.", "leaf", "orchestrator"
                            ),
                        },
                        "required": ["goal"],
                    },
                },
                "background": flag("Return at once; the results start a turn of their own."),
                "goal": text("For a single task: its goal."),
                "context": text("For a single task: its context."),
                "toolsets": {"type": "array", "items": {"type": "string"}},
                "output_schema": {"type": "object", "description": "For a single task: its output_schema."},
                "images": {**_IMAGES, "description": "For a single task: its images."},
                "role": choice("For a single task: its role.", "leaf", "orchestrator"),
                "subagent_id": text("For steer and stop: the child."),
                "message": text("For steer: the text."),
            }
        ),
    )
    flags = ToolFlags(toolset="delegation", kind="execute")

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        action = str(arguments.get("action") or "spawn")
        if action != "spawn":
            return await self._control(ctx, action, arguments)
        if ctx.depth >= int(ctx.settings.delegation.max_spawn_depth):
            raise failure("child agents cannot delegate here")
        tasks = _tasks(arguments)
        images = TaskImages(ctx, self.services.path_policy("", protect_instructions=False))
        for index, task in enumerate(tasks):
            if "images" in task:
                task["images"] = await images.read(task["images"], f"task {index}")
        try:
            done = await ctx.delegate(tasks, background=bool(arguments.get("background")))
        except HermesError as error:
            raise failure(error.message) from None
        results = done.get("results")
        finished = sum(item.get("status") == "completed" for item in results) if isinstance(results, list) else 0
        return result(done, summary=f"{finished} of {len(tasks)} completed" if results else "dispatched")

    async def _control(self, ctx: ToolContext, action: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """``list``, ``steer`` and ``stop`` go to the tree as one task that names the action."""
        if action not in ("list", "steer", "stop"):
            raise failure(f"unknown action {action!r}")
        if action != "list" and not arguments.get("subagent_id"):
            raise failure(f"{action} needs subagent_id")
        request = {name: arguments[name] for name in ("subagent_id", "message") if arguments.get(name)}
        try:
            return result(await ctx.delegate([{"action": action, **request}], background=False))
        except HermesError as error:
            raise failure(error.message) from None


def _tasks(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    raw = arguments.get("tasks")
    items = raw if isinstance(raw, list) and raw else [arguments]
    if len(items) > _MAX_TASKS:
        raise failure(f"at most {_MAX_TASKS} tasks at once")
    tasks = []
    for index, item in enumerate(items):
        goal = item.get("goal") if isinstance(item, Mapping) else item
        if not isinstance(goal, str) or not goal.strip():
            raise failure(f"task {index} has no goal")
        task: dict[str, Any] = {"goal": goal.strip()}
        if isinstance(item, Mapping):
            _check(index, item)
            task |= {name: item[name] for name in _FIELDS if item.get(name)}
        tasks.append(task)
    return tasks


def _check(index: int, item: Mapping[str, Any]) -> None:
    """What would change nothing, or other than meant, is refused: a child costs more than a second call."""
    for name, (wanted, fits) in _KINDS.items():
        if item.get(name) is not None and not fits(item[name]):
            raise failure(f"task {index}: {name} must be {wanted}")
