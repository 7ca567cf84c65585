"""Sessions that stream at once in one process, each with a client of its own: 1, 10, 100 and 1,000 of them.

``python bench/bench_many.py [--sessions 1,10,100] [--seconds 4] [--stops 20] [--rates 5]``. Each stream has five deltas
a second. Told are the processor time of a delta, how late deltas are, what an idle and a streaming session weigh, how
soon a stop has its terminal event while all others stream on, and the highest rate that holds: 99 of 100 deltas within
100 ms, and none missing. A prompt that is refused after a stop, or a stream that was lost, ends the program with
status 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

from clients import cpu_seconds, now, resident_bytes
from load import FeedProcess, Load
from report import TOKEN, Figures, Program, programs

RATE = 5
PROMPT = "feed 3600"
LATE_MS, STOP_MS = 100.0, 100.0
CONFIG = "limits:\n  max_connections: 8192\n"
WARM = 2.0
"""Seconds until what the start of so many turns has piled up is worked off."""
BEGUN_WITHIN = 120.0
BETWEEN_STOPS = 0.02
STOPS_WITHIN = 75.0
"""Seconds; how many there were in that time is told."""

FEW_STOPS = 100
"""Of fewer sessions than this, and of the floor; of more each session has its own."""

RATE_SECONDS = 4.0


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Trial:
    """One program with so many sessions."""

    def __init__(self, program: Program, feed: FeedProcess, figures: Figures, count: int) -> None:
        self.program, self.feed, self.figures, self.count = program, feed, figures, count
        self.broken: list[str] = []

    def run(self, seconds: float, stops: int, rates: Sequence[float]) -> None:
        self.feed.pace(RATE)
        with self.program.served() as (pid, port):
            before = resident_bytes(pid)
            load = Load(port, TOKEN, self.count)
            idle = resident_bytes(pid)
            began = now()
            self._add("all prompts accepted", load.start(PROMPT) * 1e3)
            load.pump(BEGUN_WITHIN, lambda: self._open() == self.count)
            self._add("all of them stream", (now() - began) * 1e3)
            load.pump(WARM)
            self._stream(pid, load, seconds)
            if self.count >= 100:
                streaming = resident_bytes(pid)
                self._add("memory of an idle one", (idle - before) / self.count / 1024, "KiB")
                self._add("memory more while it streams", (streaming - idle) / self.count / 1024, "KiB")
            if stops:
                most = max(self.count, FEW_STOPS) if self.program.name == "hermes" else FEW_STOPS
                self._stop(load, min(stops, most))
            if self.count >= 1000 and rates:
                self._add("highest rate that holds", self._highest(load, rates), "1/s", f">= {RATE}")
            load.close()

    def _add(self, what: str, value: float, unit: str = "ms", goal: str = "") -> None:
        self.figures.add(self._title(what), self.program, value, unit, goal)

    def _title(self, what: str) -> str:
        return f"{self.count} {'session' if self.count == 1 else 'sessions'}: {what}"

    def _stream(self, pid: int, load: Load, seconds: float) -> None:
        self._check_open()
        load.lateness.clear()
        before, began = cpu_seconds(pid), now()
        load.pump(seconds)
        spent, took, late = cpu_seconds(pid) - before, now() - began, list(load.lateness)
        self._check_open()
        self._add("CPU per delta", spent / len(late) * 1e6, "us")
        self._add("CPU of one core", spent / took * 100, "%")
        self._add("lateness of a delta", percentile(late, 0.5) / 1e6)
        p99, worst = percentile(late, 0.99) / 1e6, max(late) / 1e6
        self.figures.note(self._title("lateness of a delta"), self.program, p99=round(p99, 2), worst=round(worst, 2))

    def _open(self) -> int:
        return self.feed.pace(RATE)[0]

    def _check_open(self) -> None:
        if lost := self.count - self._open():
            self.broken.append(f"{self.program.name}, {self.count} sessions: {lost} streams were lost")

    def _stop(self, load: Load, stops: int) -> None:
        """One session after the other, each of its own, while all others stream on."""
        terminal, accepted, until = [], [], now() + STOPS_WITHIN
        for number in range(stops):
            if now() > until:
                break
            ended, again, at_once = load.stop_one(load.peers[number % self.count], PROMPT)
            terminal.append(ended * 1e3)
            accepted.append(again * 1e3)
            if not at_once:
                self.broken.append(f"{self.count} sessions: a prompt was refused after a stop")
            load.pump(BETWEEN_STOPS)
        for what, values in (("stop to terminal event", terminal), ("stop to next accepted", accepted)):
            goal = f"worst < {STOP_MS:g}" if values is terminal else ""
            self._add(what, statistics.median(values), goal=goal)
            notes = {"p99": round(percentile(values, 0.99), 2), "worst": round(max(values), 2), "n": len(values)}
            self.figures.note(self._title(what), self.program, **notes)

    def _highest(self, load: Load, rates: Sequence[float]) -> float:
        highest = 0.0
        for rate in rates:
            self.feed.pace(rate)
            load.pump(WARM)
            _, before, _ = self.feed.pace(rate)
            load.lateness.clear()
            load.pump(RATE_SECONDS)
            _, after, own = self.feed.pace(rate)
            late = percentile(load.lateness, 0.99) / 1e6 if load.lateness else float("inf")
            whole = len(load.lateness) >= (after - before) * 0.95
            print(f"{self.program.name}: {rate:g}/s: 99 % within {late:.1f} ms, the provider's own worst {own:.1f} ms")
            if late > LATE_MS or not whole:
                break
            highest = rate
        return highest


def main(counts: Sequence[int], seconds: float, stops: int, rates: Sequence[float]) -> int:
    figures, broken = Figures(), []
    with FeedProcess() as feed, programs(feed, CONFIG) as both:
        for count in counts:
            for program in both:
                trial = Trial(program, feed, figures, count)
                trial.run(seconds, stops, rates)
                broken += trial.broken if program.name == "hermes" else []
    figures.tell()
    print("\n".join(broken) or "no stream was lost, no prompt was refused after a stop")
    return bool(broken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", default="1,10,100")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--rates", default="5")
    options = parser.parse_args()
    sizes = [int(word) for word in options.sessions.split(",")]
    sys.exit(main(sizes, options.seconds, options.stops, [float(word) for word in options.rates.split(",")]))
