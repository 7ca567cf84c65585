"""Files that a browser hands over or fetches: small, short-lived, taken once, and never on disk (api-server §7.9)."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from dataclasses import dataclass

import trio

ARTIFACT_SECONDS = 300.0
MAX_BYTES = 10 * 1024 * 1024
MAX_HELD = 32
PER_MINUTE = 30


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file. ``owner`` is who may take it: principal and side of the network."""

    artifact_id: str
    owner: tuple[str, str]
    filename: str
    content_type: str
    data: bytes
    sha256: str
    created_at: float
    expires_at: float


class Artifacts:
    """All held files. At most ``MAX_HELD``: the oldest makes room."""

    def __init__(self) -> None:
        self._held: dict[str, Artifact] = {}
        self._uploads: dict[str, deque[float]] = {}

    def may_upload(self, principal: str) -> bool:
        """Counts an upload; false at ``PER_MINUTE``."""
        now = trio.current_time()
        times = self._uploads.setdefault(principal, deque())
        while times and times[0] <= now - 60:
            times.popleft()
        if len(times) >= PER_MINUTE:
            return False
        times.append(now)
        return True

    def put(self, owner: tuple[str, str], filename: str, content_type: str, data: bytes) -> Artifact:
        now = trio.current_time()
        for name in [name for name, held in self._held.items() if held.expires_at + ARTIFACT_SECONDS <= now]:
            del self._held[name]
        while len(self._held) >= MAX_HELD:
            del self._held[next(iter(self._held))]
        digest = hashlib.sha256(data).hexdigest()
        artifact = Artifact(
            secrets.token_hex(16), owner, filename, content_type, data, digest, now, now + ARTIFACT_SECONDS
        )
        self._held[artifact.artifact_id] = artifact
        return artifact

    def look(self, artifact_id: str) -> Artifact | None:
        return self._held.get(artifact_id)

    def take(self, artifact_id: str) -> Artifact | None:
        """The file, once."""
        return self._held.pop(artifact_id, None)

    @staticmethod
    def is_expired(artifact: Artifact) -> bool:
        return artifact.expires_at <= trio.current_time()
