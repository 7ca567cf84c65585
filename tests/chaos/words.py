"""The model of a chaos run: a word in the prompt says what the provider does, and how it fails."""

from __future__ import annotations

from typing import Any

from hermes.testing import Reply, Script

MARK = "7431"
"""Every nap of a tool has this in its seconds, so that what is left of it can be found."""
PIECES = [f"piece {number} says {number * 7919 % 997}; " for number in range(24)]


def streamed(pause: float) -> list[dict[str, Any]]:
    return [step for piece in PIECES for step in ({"text": [piece]}, {"delay": pause})]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"name": name, "arguments": arguments}}


def shell(command: str, **more: Any) -> dict[str, Any]:
    return call("terminal", command=command, **more)


TREE = f"bash -c 'sleep {MARK}1 & (setsid sleep {MARK}2 &); sleep {MARK}3'"
WORK: dict[str, list[dict[str, Any]]] = {
    "say": [{"text": "A short answer."}],
    "stream": streamed(0.01),
    "slow-stream": streamed(0.08),
    "think": [{"reasoning": ["Let me ", "think."]}, {"text": "So it is."}],
    "tool": [shell("echo done")],
    "nap": [shell(f"sleep 0.2; echo {MARK}")],
    "tree": [shell(TREE)],
    "stubborn": [shell(f"trap '' TERM; sleep {MARK}4 & wait; sleep {MARK}5")],
    "noise": [shell("yes line | head -n 20000")],
    "parallel": [shell("sleep 0.1; echo a"), shell(f"sleep {MARK}6"), call("read_file", path="/etc/hostname")],
    "ask": [shell("rm -rf chaos-no-such-folder")],
    "ask-twice": [shell("rm -rf chaos-no-such-1"), shell("rm -rf chaos-no-such-2")],
    "choose": [call("clarify", question="Which one?", choices=["a", "b"])],
    "delegate": [call("delegate_task", tasks=[{"goal": "<slow-stream> child"}, {"goal": "<nap> child"}])],
    "behind": [call("delegate_task", tasks=[{"goal": "<slow-stream> child"}], background=True)],
    "daemon": [shell(f"sleep {MARK}7", background=True)],
    "write": [call("write_file", path="chaos-note.txt", content="written")],
    "plan": [call("todo", todos=[{"id": "1", "content": "one", "status": "pending"}])],
    "nonsense": [call("no_such_tool", x=1)],
}
FAULTS: dict[str, dict[str, Any]] = {
    "hang": {"hang": True},
    "mute": {"hang_after": 3},
    "drop": {"drop": True},
    "cut": {"drop_after": 4},
    "bad-json": {"garbage": "json", "garbage_after": 2},
    "bad-sse": {"garbage": "sse", "garbage_after": 2},
    "bad-bytes": {"garbage": "bytes", "garbage_after": 2},
    "broken": {"mid_stream_error": {"after": 3}},
    "slow": {"slow": 0.05},
    "limited": {"status": 429, "retry_after": 0.2},
    "failing": {"status": 500},
    "denied": {"status": 403},
    "error-200": {"error_at_200": True},
    "empty": {"empty": True},
    "no-end": {"no_done": True, "no_finish_reason": True},
    "shredded": {"split_bytes": 1, "crlf": True, "keepalive": 1},
}
BAD_CALLS: dict[str, dict[str, Any]] = {
    "half-call": {"truncated_arguments": True},
    "wrong-call": {"broken_arguments": True},
    "no-id": {"missing_tool_ids": True},
    "same-index": {"same_tool_index": True},
}
EVERY_WORD = (*WORK, *FAULTS, *BAD_CALLS)


def script() -> Script:
    """A word counts only in the newest prompt of a person; behind a tool's result the model comes to its end."""
    replies = [Reply.of({"text": "It is done."}, when={"last_role": "tool"})]
    for word, steps in WORK.items():
        replies.append(Reply.of(*steps, when=_asked(word)))
    for word, faults in FAULTS.items():
        replies.append(Reply.of(*streamed(0), when=_asked(word), faults=faults))
    for word, faults in BAD_CALLS.items():
        replies.append(Reply.of(shell("echo a"), shell("echo b"), when=_asked(word), faults=faults))
    replies.append(Reply.of({"text": "I see."}, when={"last_role": "user"}))
    return Script(replies=replies, when_used_up="echo", strict=True)


def _asked(word: str) -> dict[str, Any]:
    return {"last_user_contains": f"<{word}>", "last_role": "user"}
