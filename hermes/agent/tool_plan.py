"""Which calls of a batch run side by side: an ordered list of segments (agent-core §1.9).

A segment is one barrier call, or a group whose members cannot disturb each other. Paths are compared after a resolver
from outside has followed links and case, because this module asks no file system (TL-21).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hermes.agent.ports import ParallelClass, PlannedCall

PathResolver = Callable[[str], str]
IMAGES: Final = "vision"
MAX_IMAGES: Final = 4

Segments = tuple[tuple[PlannedCall, ...], ...]


def plan_segments(calls: Sequence[PlannedCall], resolve: PathResolver, *, limit: int = 8) -> Segments:
    """Segments in call order: their concatenation is ``calls``. No segment is longer than ``limit``, and none looks at
    more than ``MAX_IMAGES`` images, which are large in memory and on the wire."""
    segments: list[tuple[PlannedCall, ...]] = []
    group: list[PlannedCall] = []
    reads: set[str] = set()
    writes: set[str] = set()

    def close() -> None:
        if group:
            segments.append(tuple(group))
        group.clear()
        reads.clear()
        writes.clear()

    for planned in calls:
        kind = _class_of(planned)
        if kind is ParallelClass.BARRIER:
            close()
            segments.append((planned,))
            continue
        paths = _paths_of(planned, resolve)
        full = len(group) >= limit or (_is_image(planned) and sum(map(_is_image, group)) >= MAX_IMAGES)
        if full or _conflicts(kind, paths, reads, writes):
            close()
        group.append(planned)
        if kind is ParallelClass.PATH_WRITE:
            writes.update(paths)
        elif kind is ParallelClass.PATH_READ:
            reads.update(paths)
    close()
    return tuple(segments)


def _is_image(planned: PlannedCall) -> bool:
    return planned.tool is not None and planned.tool.flags.toolset == IMAGES


def _class_of(planned: PlannedCall) -> ParallelClass:
    if planned.tool is None or planned.error is not None:
        return ParallelClass.BARRIER
    kind = planned.tool.flags.parallel
    if kind is ParallelClass.PATH_WRITE and not planned.tool.paths(planned.arguments):
        # A write to an unknown place may touch anything.
        return ParallelClass.BARRIER
    return kind


def _paths_of(planned: PlannedCall, resolve: PathResolver) -> list[str]:
    if planned.tool is None or planned.tool.flags.parallel is ParallelClass.FREE:
        return []
    return [resolve(path) for path in planned.tool.paths(planned.arguments)]


def _conflicts(kind: ParallelClass, paths: Sequence[str], reads: set[str], writes: set[str]) -> bool:
    others = writes | reads if kind is ParallelClass.PATH_WRITE else writes
    if kind is ParallelClass.PATH_READ and not paths and writes:
        # It reads an unknown place; a write of the group may lie in it.
        return True
    return any(overlapping(path, other) for path in paths for other in others)


def overlapping(one: str, other: str) -> bool:
    """The same path, or one inside the other."""
    if one == other:
        return True
    short, long = sorted((one.rstrip("/"), other.rstrip("/")), key=len)
    return long == short or long.startswith(short + "/")
