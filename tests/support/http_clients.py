"""A real server with a scripted model, for clients that others wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
from ruamel.yaml import YAML

from hermes.testing import FakeProvider, Script
from tests.support.server_process import HttpServer, http_server

LIMIT = 120.0


@dataclass
class Served:
    """The server and the model behind it."""

    server: HttpServer
    provider: FakeProvider

    @property
    def base_url(self) -> str:
        return f"{self.server.origin}/v1"


@dataclass(frozen=True)
class Finished:
    """A client program that has ended."""

    code: int
    out: str
    err: str


@asynccontextmanager
async def served(
    home: Path,
    script: Script,
    *,
    config: Mapping[str, object] | None = None,
    limit: float = LIMIT,
    **environ: str,
) -> AsyncIterator[Served]:
    """``hermes serve`` over this script. ``config`` is its config.yaml, ``limit`` the seconds the block may take."""
    with trio.fail_after(limit):
        async with FakeProvider(script) as provider:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            if config is not None:
                with (home / "config.yaml").open("w", encoding="utf-8") as file:
                    YAML().dump(dict(config), file)
            model = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "model-key-0123456789"}
            async with http_server(home, environ={**model, "HERMES_MODEL": "fake-model", **environ}) as server:
                yield Served(server, provider)


async def run_client(command: Sequence[str], *, home: Path, stdin: str = "", **environ: str) -> Finished:
    """Run a program to its end, with its settings in a home of its own."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    done = await trio.run_process(
        list(command),
        stdin=stdin.encode(),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=home,
        env={**kept, "HOME": str(home), **environ},
    )
    return Finished(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def program(name: str) -> str | None:
    """A client's command, installed beside ours."""
    path = Path(sysconfig.get_path("scripts")) / name
    return str(path) if path.exists() else shutil.which(name)


def node_problem(folder: Path) -> str | None:
    """Why the Node clients cannot run here, or None. Installs them once, as the lock file says."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return "node and npm are not installed"
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    if int(version.removeprefix("v").split(".")[0] or 0) < 20:
        return f"node {version} is older than 20"
    if (folder / "node_modules" / "openai" / "package.json").exists():
        return None
    try:
        made = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True, timeout=240, check=False
        )
    except subprocess.TimeoutExpired:
        return "npm ci took too long"
    return None if made.returncode == 0 else f"npm ci failed: {made.stderr.strip()[-300:]}"
