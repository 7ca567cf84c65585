"""What the model says to the clients of ``tests/clients``."""

from __future__ import annotations

from hermes.testing import Reply, Script

SAID = "Hello from the agent."
USED = "The tool said so."
TOOL = {"name": "terminal", "arguments": {"command": "echo seventeen"}}


def when_user(text: str) -> dict[str, str]:
    return {"last_user_contains": text, "last_role": "user"}


def client_script() -> Script:
    """By what the user says: a greeting, a tool, a failure, silence."""
    return Script(
        replies=[
            Reply.model_validate(
                {"when": when_user("use the tool"), "steps": [{"text": "Let me look. "}, {"tool_call": TOOL}]}
            ),
            Reply.model_validate(
                {"when": {"tool_result_contains": "seventeen", "last_role": "tool"}, "steps": [{"text": USED}]}
            ),
            Reply.model_validate({"when": when_user("fail"), "steps": [{"text": "x"}], "faults": {"status": 400}}),
            Reply.model_validate({"when": when_user("hang"), "steps": [{"text": "x"}], "faults": {"hang": True}}),
            Reply.model_validate({"when": {}, "steps": [{"reasoning": "They greet me."}, {"text": SAID}]}),
        ]
    )
