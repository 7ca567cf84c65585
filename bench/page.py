"""The page that tells one run of all benchmarks: ``docs/reference/benchmarks.md``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

Row = dict[str, Any]

HEAD = """# Benchmarks

`make bench BENCH_ARGS=--full` measures all of this in one run and writes this page; without `--full` the counts are
small and nothing is written. Every run is kept in `bench/history.jsonl`. Absolute figures are of the machine; what can
be compared is the ratio.

The **floor** (`bench/floor.py`) is the least that a program on the same event loop can do to answer the same clients:
no agent, no store, no checks. It is the baseline where no other is named: an empty home for restarts, plain SQLite for
the store and for sessions that are resumed, a plain reader of the same stream for the loop. Server, provider and
clients are processes of their own. A figure is the best of its samples, for stops and restarts the median; `p99`,
`worst` and `n` are of Hermes. The floor kills a tree at once; Hermes asks it to end, and kills what is left after the
grace.

What a profile of a thousand streams led to, in processor time of one delta: passed on where it is logged, without
waking a task, to up to eight clients (34 to 21 µs); waited for before it is read, instead of tried first (20 to 16 µs);
in the log, beyond the number of sessions whose events are kept, without walking a WeakSet (3.2 to 1.4 µs).
"""


def page(
    rows: Sequence[Row], run: Row, *, full: bool, failed: Sequence[str], left_out: Sequence[str], seconds: float
) -> str:
    broken = "; ".join(failed) if failed else "none"
    facts = [
        f"{run['at'][:10]}, {'all counts' if full else 'small counts'}, {seconds / 60:.0f} minutes.",
        f"{run['cores']} cores ({run['architecture']}, {run['system']}), {run['memory']} GiB of memory,",
        f"Python {run['python']}; load {run['load']} when it began.",
        "Promises that are absolute: no prompt is refused after a stop, no process is left, no stream is lost.",
        f"Broken: {broken}.",
    ]
    facts += [f"Left out for want of time: {', '.join(left_out)}."] if left_out else []
    text = [HEAD, "\n".join(facts), ""]
    for title, figures in groupby(rows, key=lambda row: str(row["part"])):
        text += [f"## {title}", "", *table(list(figures)), ""]
    return "\n".join(text).rstrip() + "\n"


def table(rows: Sequence[Row]) -> list[str]:
    """Only the columns that have something to say."""
    optional = [name for name in ("p99", "worst", "n", "goal") if any(row.get(name) for row in rows)]
    heads = ["figure", "unit", "Hermes", "baseline", "ratio", *optional]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = [row["figure"], row["unit"], shown(row["hermes"]), shown(row["floor"]), shown(row["ratio"])]
        cells += [shown(row.get(name)) for name in optional]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
