"""The requests that the gateway sends to its clients, and their answers (gateway §7.2, §10.2)."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from hermes.protocols.gateway.schemas_shapes import OpenShape
from hermes.protocols.rpc.method_table import Result
from hermes.records import dataclass

Json = Any
Choice = Literal["once", "session", "always", "deny"]


class Asked(Result):
    """What every request carries."""

    model_config = ConfigDict(extra="forbid")

    session_id: str
    tool_call_id: str | None = None


class ApprovalAsked(OpenShape):
    session_id: str
    request_id: str
    command: str | None = None
    description: str | None = None
    choices: list[Choice] | None = None
    allow_permanent: bool | None = None
    allow_session: bool | None = None
    smart_denied: bool | None = None
    tool_name: str | None = None
    pattern_key: str | None = None
    pattern_keys: list[str] | None = None


class ApprovalAnswer(Result):
    choice: Choice
    all: bool | None = None


class ClarifyQuestion(Result):
    model_config = ConfigDict(extra="forbid")

    qid: str
    question: str
    choices: list[str] | None = None
    multi_select: bool | None = None


class ClarifyAsked(Asked):
    questions: list[ClarifyQuestion]
    answers: dict[str, str | None] | None = None


class ClarifyAnswer(Result):
    """Without ``answers`` the whole batch is cancelled; null skips one question."""

    answers: dict[str, str | list[str] | None] | None = None


class ValueAnswer(Result):
    """Empty: the user skipped."""

    value: str


class SudoAsked(Asked):
    command: str | None = None


class SecretAsked(Asked):
    env_var: str
    prompt: str
    metadata: dict[str, Json] | None = None


class LinesAsked(Asked):
    start: int | None = None
    count: int | None = None


class PreviewActAsked(Asked):
    action: str
    ref: str | None = None
    selector: str | None = None
    text: str | None = None
    key: str | None = None
    submit: bool | None = None
    to: str | None = None
    amount: int | None = None
    full: bool | None = None
    max: int | None = None
    allow_shortcut: bool | None = None


class TourAsked(Asked):
    action: str
    surface: str | None = None
    selector: str | None = None
    title: str | None = None
    text: str | None = None
    side: str | None = None
    steps: list[dict[str, Json]] | None = None
    step_index: int | None = None
    preset: str | None = None


class VaultCodeAsked(Asked):
    site: str | None = None
    hint: str | None = None


class VaultUnlockAsked(Asked):
    backend: str
    display_name: str | None = None


class VaultSaveLoginAsked(Asked):
    origin: str
    site: str


class ConnectionTargetAsked(Result):
    model_config = ConfigDict(extra="forbid")

    name: str
    kind: str
    action: str
    state: str
    connect_url: str | None = None
    required_env: list[str] | None = None


class ConnectionAsked(Asked):
    op_id: str
    timeout_seconds: float
    targets: list[ConnectionTargetAsked]
    reason: str | None = None


class ConnectionTargetAnswer(Result):
    """``env`` holds the values of ``required_env``; others are ignored."""

    name: str
    status: Literal["approved", "skipped"]
    detail: str | None = None
    env: dict[str, str] | None = None


class ConnectionAnswer(Result):
    settled_by: Literal["all_resolved", "continue", "deadline", "interrupt"]
    targets: list[ConnectionTargetAnswer] | None = None


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request of the server."""

    name: str
    params: type[BaseModel]
    result: type[BaseModel]
    text: str


SERVER_REQUEST_TABLE: Final[tuple[RequestSpec, ...]] = (
    RequestSpec("approval", ApprovalAsked, ApprovalAnswer, "May this command run?"),
    RequestSpec("clarify", ClarifyAsked, ClarifyAnswer, "Questions whose answer is the user's."),
    RequestSpec("connection", ConnectionAsked, ConnectionAnswer, "What a task needs to be connected to."),
    RequestSpec("preview.act", PreviewActAsked, ValueAnswer, "Act on the page in the preview; the value is JSON text."),
    RequestSpec("preview.read", LinesAsked, ValueAnswer, "Read the page in the preview; the value is JSON text."),
    RequestSpec("secret", SecretAsked, ValueAnswer, "A secret to be stored under a variable name."),
    RequestSpec("sudo", SudoAsked, ValueAnswer, "The password for a command."),
    RequestSpec("terminal.read", LinesAsked, ValueAnswer, "Read the user's terminal; the value is JSON text."),
    RequestSpec("tour", TourAsked, ValueAnswer, "Show the user around; the value is JSON text."),
    RequestSpec("vault.code", VaultCodeAsked, ValueAnswer, "A one-time code."),
    RequestSpec("vault.save_login", VaultSaveLoginAsked, ValueAnswer, "Save a login in a password store."),
    RequestSpec("vault.unlock_prompt", VaultUnlockAsked, ValueAnswer, "Unlock a password store."),
    RequestSpec("window.read", Asked, ValueAnswer, "Read what the window shows; the value is JSON text."),
)
