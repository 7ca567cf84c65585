"""What a server holds: descriptors, threads, tasks, memory, processes."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2
import trio

from tests.support.server_process import HttpServer, children_of, open_descriptors

SPARE = {"descriptors": 4, "threads": 4, "nodes": 0, "connections": 1, "processes": 0, "children": 0}
"""How much more than at half time is no leak: idle workers of the thread pool, a kept connection to the provider."""
MEMORY = 0.10
NAMES = {"nodes": "hermes_tree_nodes", "connections": "hermes_connections", "processes": "hermes_processes"}


@dataclass(frozen=True)
class Holding:
    descriptors: int
    threads: int
    nodes: int
    connections: int
    processes: int
    children: int
    resident: int

    def __str__(self) -> str:
        counts = {name: value for name, value in asdict(self).items() if name != "resident"}
        told = ", ".join(f"{value} {name}" for name, value in counts.items())
        return f"{told}, {self.resident / 2**20:.1f} MiB"

    def beyond(self, first: Holding, *, memory: bool = True) -> list[str]:
        """What is more than it was."""
        now, then = asdict(self), asdict(first)
        found = [
            f"{now[name]} {name}, {then[name]} at half time"
            for name, more in SPARE.items()
            if now[name] > then[name] + more
        ]
        if memory and self.resident > first.resident * (1 + MEMORY):
            found.append(f"{self.resident / 2**20:.1f} MiB, {first.resident / 2**20:.1f} at half time")
        return found


async def look(server: HttpServer) -> Holding:
    async with httpx2.AsyncClient(base_url=server.origin, headers={"Authorization": f"Bearer {server.key}"}) as client:
        text = (await client.get("/metrics")).text
    values = {name: int(float(re.findall(rf"^{metric} (\S+)$", text, re.M)[0])) for name, metric in NAMES.items()}
    proc = Path(f"/proc/{server.pid}")
    resident = re.search(r"VmRSS:\s+(\d+) kB", (proc / "status").read_text())
    assert resident is not None
    return Holding(
        descriptors=open_descriptors(server.pid),
        threads=len(list((proc / "task").iterdir())),
        children=len(children_of(server)),
        resident=int(resident[1]) * 1024,
        **values,
    )


async def settled(server: HttpServer, first: Holding, *, memory: bool, within: float = 90) -> Holding:
    """What it holds when it has come back to ``first``, or when it does not. Freed memory goes back once a minute."""
    now = await look(server)
    with trio.move_on_after(within):
        while now.beyond(first, memory=memory):
            await trio.sleep(0.5)
            now = await look(server)
    return now
