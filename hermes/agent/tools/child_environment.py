"""A child process's environment: the server's own without its secrets, with what the session has exported. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hermes.patterns import lazy_pattern

# The agent's own secrets and the keys of model providers; a command has no use for them.
_SECRET = lazy_pattern(
    r".*_API_KEY|.*_API_TOKEN|HERMES_.*(KEY|TOKEN|SECRET|PASSWORD).*|API_SERVER_KEY|SUDO_PASSWORD"
    r"|(OPENAI|ANTHROPIC|CLAUDE_CODE|GEMINI|GROQ|MISTRAL|OPENROUTER|XAI|DEEPSEEK|TOGETHER|NOUS|HF|HUGGINGFACE)_.*(TOKEN|KEY|SECRET)"
    r"|AWS_BEARER_TOKEN_BEDROCK|COPILOT_GITHUB_TOKEN|CODEX_.*TOKEN"
)
# Set by the shell or the supervisor anew for each command.
_NOT_KEPT = lazy_pattern(
    r"_|SHLVL|PWD|OLDPWD|HERMES_PROCESS_.*|BASH_FUNC_.*|PS[0-9]|BASHOPTS|SHELLOPTS|TERM|COLUMNS|LINES"
)

_FIXED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONUNBUFFERED": "1",
}


def clean_environment(
    environment: Mapping[str, str], *, secret_names: Collection[str] = (), passthrough: Collection[str] = ()
) -> dict[str, str]:
    """``environment`` without secrets; names in ``passthrough`` stay whatever they hold."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in passthrough
        or not (name in secret_names or _SECRET.fullmatch(name) or name.startswith("HERMES_PROCESS_"))
    }
    return {**kept, **{name: value for name, value in _FIXED.items() if name == "TERM" or name not in kept}}


def apply_changes(base: Mapping[str, str], changed: Mapping[str, str], removed: Collection[str]) -> dict[str, str]:
    """The environment with what earlier commands of the session exported and unset."""
    return {**{name: value for name, value in base.items() if name not in removed}, **changed}


def changes(base: Mapping[str, str], now: Mapping[str, str]) -> tuple[dict[str, str], set[str]]:
    """(what differs from ``base``, what is gone) in a snapshot of the environment."""
    changed = {name: value for name, value in now.items() if base.get(name) != value and not _NOT_KEPT.fullmatch(name)}
    removed = {name for name in base if name not in now and not _NOT_KEPT.fullmatch(name)}
    return changed, removed
