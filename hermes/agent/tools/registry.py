"""All tools, and which of them a session has: toolsets, availability, pinned order, names that models get wrong."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hermes.agent.ports import Tool, ToolSpec
from hermes.agent.tools.base import BuiltinTool, ends_only_the_plugin
from hermes.agent.tools.clarify import Clarify
from hermes.agent.tools.client_bridges import BRIDGES, ClientBridge
from hermes.agent.tools.connections import ManageConnections
from hermes.agent.tools.delegate import DelegateTask
from hermes.agent.tools.files import ReadFile, WriteFile
from hermes.agent.tools.memory import Memory
from hermes.agent.tools.patch import Patch, PatchWithV4A
from hermes.agent.tools.process import ProcessManage
from hermes.agent.tools.search import SearchFiles
from hermes.agent.tools.services import ToolServices
from hermes.agent.tools.session_search import SessionSearch
from hermes.agent.tools.shell import Terminal
from hermes.agent.tools.skills import SkillsList, SkillView
from hermes.agent.tools.stored_secrets import RequestSecret
from hermes.agent.tools.todo import TodoList
from hermes.patterns import lazy_pattern

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

_OPENAI_FAMILY = lazy_pattern(r"(?:ft:)?(?:gpt-|chatgpt|codex|o\d)")

BUILT_IN: tuple[type[BuiltinTool], ...] = (
    Terminal,
    ProcessManage,
    ReadFile,
    WriteFile,
    Patch,
    SearchFiles,
    TodoList,
    Clarify,
    DelegateTask,
    Memory,
    SessionSearch,
    SkillsList,
    SkillView,
)

# Offered while an attached client shows their kind of question.
ASKING: tuple[type[BuiltinTool], ...] = (RequestSecret, ManageConnections)

# Older names, in models and in stored histories.
ALIASES: tuple[tuple[str, str], ...] = (
    ("todo", "todo_list"),
    ("process", "process_manage"),
    ("bash", "terminal"),
    ("shell", "terminal"),
    ("run_command", "terminal"),
    ("execute_command", "terminal"),
    ("edit_file", "patch"),
    ("apply_patch", "patch"),
    ("grep", "search_files"),
    ("list_skills", "skills_list"),
    ("view_skill", "skill_view"),
    ("delegate", "delegate_task"),
)

# Toolsets may include others; "core" and the names on the right of a built-in tool's flags are their leaves.
TOOLSETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("coding", ("shell", "files", "planning", "clarify", "delegation", "memory", "skills", "client")),
    ("hermes-cli", ("coding",)),
    ("hermes-acp", ("shell", "files", "planning", "delegation", "memory", "skills")),
    ("hermes-api-server", ("shell", "files", "planning", "clarify", "delegation", "memory", "skills")),
    ("terminal", ("shell",)),
    ("file", ("files",)),
    ("todo", ("planning",)),
    ("safe", ("planning", "memory", "skills")),
)

BLOCKED_IN_CHILDREN = frozenset({"clarify", "memory"})
ENTRY_POINTS = "hermes.tools"


class Tools:
    """The tools of one session. Implements ``ports.ToolSet``; fixed once it is made."""

    def __init__(
        self, tools: Iterable[Tool], pinned: Sequence[str] | None = None, *, passing: Collection[str] = ()
    ) -> None:
        """``pinned``: only these, in this order, and behind them what is ``passing``: there while a client is."""
        found: dict[str, Tool] = {}
        for tool in tools:
            # A later tool of the same name (an MCP server's, a plugin's) loses.
            found.setdefault(tool.spec.name, tool)
        if pinned is not None:
            known = [name if name in found else canonical(name, found) for name in pinned]
            order = [name for name in dict.fromkeys(known) if name is not None]
            order += [name for name in found if name in passing and name not in order]
            found = {name: found[name] for name in order}
        self._tools = found

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def names(self) -> Sequence[str]:
        return tuple(self._tools)

    def find(self, name: str) -> Tool | None:
        """The tool of a name: as it is, by an older name, or written differently (case, separators, prefix)."""
        known = canonical(name, self._tools)
        return None if known is None else self._tools[known]

    def near(self, name: str) -> tuple[str, ...]:
        """Names to suggest for one that does not exist."""
        return tuple(difflib.get_close_matches(_plain(name), self._tools, n=3, cutoff=0.5))


def canonical(name: str, known: Iterable[str]) -> str | None:
    """The known name that this one stands for, or None. Never a guess by resemblance between different words."""
    names = known if isinstance(known, Collection) else tuple(known)
    if name in names:
        return name
    aliases = dict(ALIASES)
    wanted = _plain(name)
    wanted = aliases.get(wanted, wanted)
    if wanted in names:
        return wanted
    squeezed = wanted.replace("_", "")
    found = [one for one in names if _plain(one).replace("_", "") == squeezed]
    return found[0] if len(found) == 1 else None


def _plain(name: str) -> str:
    """``functions.ReadFile`` → ``read_file``."""
    bare = re.sub(r"^(functions?|tools?|default_api)[.:/]+", "", name.strip())
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare)
    return re.sub(r"[\s.\-:/]+", "_", snake).lower().removesuffix("_tool").strip("_")


def expand_toolsets(names: Iterable[str]) -> frozenset[str]:
    """The leaf toolsets of these names; unknown names stay (a plugin's or an MCP server's)."""
    return _expanded(tuple(names))


@lru_cache(maxsize=64)
def _expanded(names: tuple[str, ...]) -> frozenset[str]:
    table = dict(TOOLSETS)
    leaves: set[str] = set()
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        inner = table.get(name)
        if inner is None or name in inner:
            leaves.add(name)
        else:
            waiting.extend(inner)
    return frozenset(leaves)


def knows_v4a(model: str) -> bool:
    """Whether a model is of the family that was taught that patch format, under whichever provider's name."""
    return _OPENAI_FAMILY.match(model.lower().rpartition("/")[2]) is not None


def build_tools(
    services: ToolServices,
    *,
    enabled: Sequence[str] | None = None,
    disabled: Sequence[str] = (),
    allow_clarify: bool = True,
    may_delegate: bool = True,
    child: bool = False,
    v4a: bool = False,
    memory: bool = True,
    answers: Callable[[str], bool] = lambda _method: False,
    pinned: Sequence[str] | None = None,
    extra: Sequence[Tool] = (),
    plugins: Sequence[Tool] = (),
    attached: Sequence[Tool] = (),
) -> Tools:
    """The tools of one session.

    ``enabled`` None means all; ``enabled`` and ``disabled`` name toolsets or single tools. ``answers(method)`` says
    whether an attached client shows that kind of question now. ``v4a`` advertises that patch format.
    ``pinned`` keeps the stored names in their order: what is not in it is not offered, what is gone is left out. Tools
    that come and go with a client (``attached``, the bridges) are offered all the same, behind the others.
    """
    chosen: list[Tool] = []
    for kind in BUILT_IN:
        chosen.append(PatchWithV4A(services) if kind is Patch and v4a else kind(services))
    bridges: list[BuiltinTool] = [ClientBridge(services, bridge) for bridge in BRIDGES if answers(bridge.method)]
    bridges += [kind(services) for kind in ASKING if answers(str(kind.answered_by))]
    chosen += bridges
    blocked = set(BLOCKED_IN_CHILDREN) if child else set()
    blocked |= set() if allow_clarify else {"clarify"}
    blocked |= set() if may_delegate else {"delegate_task"}
    blocked |= set() if memory else {"memory"}
    wanted = None if enabled is None else expand_toolsets(enabled) | frozenset(enabled)
    unwanted = expand_toolsets(disabled) | frozenset(disabled)

    def offered(tool: Tool) -> bool:
        marks = {tool.spec.name, tool.flags.toolset}
        return tool.spec.name not in blocked and not marks & unwanted and (wanted is None or bool(marks & wanted))

    def installed(tool: Tool) -> bool:
        # Whoever installs a package of tools wants them; they are switched off by name or toolset like all others.
        return tool.spec.name not in blocked and not {tool.spec.name, tool.flags.toolset} & unwanted

    own = [*(tool for tool in chosen if offered(tool)), *(tool for tool in plugins if installed(tool))]
    others = [tool for tool in (*attached, *extra) if not {tool.spec.name, tool.flags.toolset} & unwanted]
    return Tools((*own, *others), pinned, passing={tool.spec.name for tool in (*bridges, *attached)})


def load_plugins(services: ToolServices, found: Iterable[EntryPoint] | None = None) -> tuple[Tool, ...]:
    """Tools of installed packages: each entry point of the group is a callable ``(services) -> Tool | list of tools``.

    A package that cannot be loaded is reported and left out."""
    tools: list[Tool] = []
    if found is None:
        from importlib.metadata import entry_points

        found = entry_points(group=ENTRY_POINTS)
    for point in found:
        try:
            made = _made(point, services)
        except _NotLoaded as error:
            log.warning("the tools of %s could not be loaded: %s", point.name, error)
            continue
        tools += made if isinstance(made, list | tuple) else [made]
    return tuple(tools)


class _NotLoaded(Exception):
    """Loading it raised something; the text says what."""


def _made(point: EntryPoint, services: ToolServices) -> Any:
    try:
        return point.load()(services)
    except BaseException as error:
        # Code of third parties raises what it likes, at its import too; `sys.exit` is an example.
        if not ends_only_the_plugin(error):
            raise
        told = str(error) if isinstance(error, Exception) else f"{type(error).__name__}: {error}"
        raise _NotLoaded(told) from error  # noqa: ASYNC104 (a cancel was raised again above)
