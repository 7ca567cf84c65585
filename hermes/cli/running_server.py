"""The home's running server: its address, its key, and one HTTP request to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import quote

import click

from hermes.config import LoadedSettings, read_server_key
from hermes.errors import InvalidValue

ANSWER_WITHIN: Final = 10.0
LAST_SUCCESS: Final = 299
OTHER_KEY: Final = ". Is it the server of another home? --home names the home whose key is sent"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Where the server of a home listens. Nothing is known about whether it does."""

    host: str
    port: int
    key: str

    @property
    def origin(self) -> str:
        return f"http://{self._shown}:{self.port}"

    @property
    def websocket(self) -> str:
        return f"ws://{self._shown}:{self.port}/api/ws?token={quote(self.key)}"

    @property
    def _shown(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, key: bool = True) -> Any:
        """The answer's JSON. Raises ``click.ClickException`` with the server's own words, or why there is none."""
        try:
            status, answer = self.ask(method, path, body, key=key)
        except (OSError, HTTPException) as error:
            raise click.ClickException(f"no answer from {self.origin}: {error}. Is `hermes serve` running?") from error
        if status > LAST_SUCCESS:
            refusal = answer.get("error") if isinstance(answer, dict) else None
            words = refusal.get("message") if isinstance(refusal, dict) else None
            hint = OTHER_KEY if status == HTTPStatus.UNAUTHORIZED else ""
            raise click.ClickException(f"{words or 'the server refused'} ({status}){hint}")
        return answer

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: bool = True,
        within: float = ANSWER_WITHIN,
    ) -> tuple[int, Any]:
        """Status and JSON (None where there is none). Raises ``OSError`` and ``HTTPException``."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if key else {})
        connection = HTTPConnection(self.host, self.port, timeout=within)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        try:
            return response.status, json.loads(raw)
        except ValueError:
            return response.status, None


def server_of(loaded: LoadedSettings) -> RunningServer:
    """The server that this home's settings name."""
    api = loaded.settings.gateway.api_server
    try:
        key = read_server_key(loaded.home, configured=api.key)
    except InvalidValue as error:
        raise click.ClickException(error.message) from error
    return RunningServer(api.host, api.port, key.value)


def gateway_url(loaded: LoadedSettings, given: str | None) -> str:
    """The address of the home's own server, unless one was given."""
    return given or server_of(loaded).websocket
