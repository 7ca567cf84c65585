"""Real servers of one home, one after the other, that are killed without warning; their leftovers stay for the next."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.support.server_process import COMMAND, ServerProcess, clean_environment, kill_leftovers


class Deaths:
    """Starts servers. What is left of all of them is killed at the end of ``mortal_servers`` only."""

    def __init__(self, home: Path, environ: Mapping[str, str], nursery: trio.Nursery) -> None:
        self.home = home
        self._environ = clean_environment(home) | dict(environ)
        self._nursery = nursery
        self._processes: list[trio.Process] = []

    async def start(self, *arguments: str) -> ServerProcess:
        process = await trio.lowlevel.open_process(
            [str(COMMAND), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.home,
            env=self._environ,
            start_new_session=True,
        )
        self._processes.append(process)
        server = ServerProcess(process, self.home)
        self._nursery.start_soon(server.read_output)
        self._nursery.start_soon(server.read_errors)
        return server

    async def kill(self, server: ServerProcess) -> None:
        """SIGKILL to the server alone; returns when it is gone. What it had started lives on."""
        server.process.kill()
        await server.process.wait()

    async def end(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        kill_leftovers(self.home)
        for process in self._processes:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    await trio.aclose_forcefully(stream)


@asynccontextmanager
async def mortal_servers(home: Path, environ: Mapping[str, str]) -> AsyncIterator[Deaths]:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with trio.open_nursery() as nursery:
        deaths = Deaths(home, environ, nursery)
        try:
            yield deaths
        finally:
            with trio.CancelScope(shield=True):
                await deaths.end()
            nursery.cancel_scope.cancel()
