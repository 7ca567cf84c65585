"""What people give to tools: variables in the home's ``.env``, and connections that use them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from hermes.agent.tools.services import ConnectionTarget
from hermes.config import reserved_variable
from hermes.config_file import change_dotenv, read_dotenv
from hermes.errors import HermesError, NotFound, Unavailable
from hermes.live_config import LiveConfig
from hermes.nurseries.mcp_servers import McpServers


class DotenvVariables:
    """Implements ``StoredVariables``. The file is read again when it is different."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self._seen: tuple[int, int] | None = None
        self._known: Mapping[str, str] = {}

    @property
    def _path(self) -> Path:
        return self._config.loaded.home / ".env"

    def known(self) -> Mapping[str, str]:
        try:
            status = os.stat(self._path)
        except OSError:
            return {}
        stamp = status.st_mtime_ns, status.st_size
        if stamp != self._seen:
            try:
                self._known, self._seen = read_dotenv(self._path), stamp
            except HermesError:
                return {}
        return self._known

    def reserved(self, name: str) -> bool:
        return reserved_variable(name, self._config.current())

    async def store(self, changes: Mapping[str, str]) -> None:
        try:
            await trio.to_thread.run_sync(change_dotenv, self._path, dict(changes))
        except OSError as error:
            raise Unavailable(f"the home's .env cannot be written: {error.strerror or error}") from None
        self._seen = None
        await self._config.reload()


class McpConnections:
    """Implements ``Connections``: the configured MCP servers. One needs each ``${NAME}`` in its description."""

    def __init__(self, servers: McpServers, config: LiveConfig) -> None:
        self._servers = servers
        self._config = config

    def targets(self) -> Sequence[ConnectionTarget]:
        described = self._config.current().mcp_servers
        found = []
        for row in self._servers.runtime_rows():
            if row["status"] == "disabled":
                continue
            text = json.dumps(described.get(row["name"], {}), default=str)
            missing = dict.fromkeys(re.findall(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", text))
            # A server may well run without what it needs to be of use.
            state = "incomplete" if missing and row["status"] == "connected" else row["status"]
            found.append(ConnectionTarget(row["name"], "mcp", state, tuple(missing)))
        return found

    async def connect(self, name: str, within: float) -> str | None:
        # With what was stored just now; the servers whose description is the same are left as they are.
        self._servers.configure_from(self._config.current().mcp_servers)
        try:
            tried = await self._servers.try_one(name, within)
        except NotFound as error:
            return error.message
        return None if tried["ok"] else str(tried["error"])
