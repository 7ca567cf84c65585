"""Requests over HTTP, one at a time and ten at once, whole and streamed: what one costs, and when it says a word.

The floor knows no sessions and keeps nothing: what is measured is the price of an agent and its store.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from clients import cpu_seconds, now, post_lines
from report import TOKEN, Figures, Program, compare

PATH = "/v1/chat/completions"
REQUESTS = 60
CLIENTS = (1, 10)


def measure(program: Program, figures: Figures) -> None:
    with program.served() as (pid, port):
        for number in range(5):
            ask(port, f"warm {number}", streams=True)
        for streams in (False, True):
            kind = "streamed" if streams else "whole"
            for clients in CLIENTS:
                before, began = cpu_seconds(pid), now()
                words = at_once(clients, functools.partial(ask, port, streams=streams))
                spent = now() - began
                name = f"HTTP {kind}, {clients} at once"
                figures.add(f"{name}: wall per request", program, spent / REQUESTS * 1e3)
                figures.add(f"{name}: CPU per request", program, (cpu_seconds(pid) - before) / REQUESTS * 1e3)
                if clients == 1:
                    figures.add(f"{name}: first word", program, sorted(words)[len(words) // 2] * 1e3)


def ask(port: int, text: str, *, streams: bool) -> float:
    """One request of a session of its own; the seconds until the first words of the answer."""
    body = {"model": "bench", "stream": streams, "messages": [{"role": "user", "content": f"hello {text}"}]}
    began, first = now(), 0.0
    for line in post_lines(port, PATH, body, TOKEN):
        if not first and b'"content"' in line:
            first = now() - began
    return first


def at_once(clients: int, one: Callable[[str], float]) -> list[float]:
    """``REQUESTS`` requests by so many clients; each text is another session."""
    words: list[float] = []

    def client(number: int) -> None:
        words.extend(one(f"{number} {turn} {now()}") for turn in range(REQUESTS // clients))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return words


if __name__ == "__main__":
    compare(measure, repetitions=3)
