"""A tool server by hand, quick to start, that behaves as its first argument says. It needs nothing but Python.

Its tools: ``echo`` answers, ``mute`` never does, ``die`` ends the process, ``rename`` changes the list of tools.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

BEHAVIOUR = sys.argv[1]
NOTES = sys.argv[2] if len(sys.argv) > 2 else os.devnull
tools = ["echo", "mute", "die", "rename"]


def note(text: str) -> None:
    with open(NOTES, "a") as file:
        file.write(text + "\n")


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def flood() -> None:
    """Notifications, lines that are no messages, and requests, without end."""
    while True:
        say(method="notifications/message", params={"level": "info", "data": "x" * 200})
        say(method="notifications/nonsense", params={})
        say(method="ping", id="again")


def result(message: dict[str, Any], value: dict[str, Any]) -> None:
    say(id=message["id"], result=value)


def call(message: dict[str, Any]) -> None:
    name, arguments = message["params"]["name"], message["params"].get("arguments", {})
    note(f"call {name}")
    if name == "die":
        print("something broke", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "echo":
        if BEHAVIOUR == "long-line":
            sys.stdout.write("y" * (17 * 1024 * 1024))
            sys.stdout.flush()
        if BEHAVIOUR == "wrong-ids":
            for wrong in (message["id"] + 1000, str(message["id"]) + "x", None, -1, [message["id"]]):
                say(id=wrong, result={"content": [{"type": "text", "text": "wrong"}]})
                say(id=wrong, error={"code": -32000, "message": "wrong"})
            say(id=message["id"], result={"content": [{"type": "text", "text": json.dumps(arguments)}]})
            say(id=message["id"], result={"content": [{"type": "text", "text": "twice"}]})
            return
        if BEHAVIOUR == "wrong-result":
            result(message, {"content": "not a list"})
            return
        result(message, {"content": [{"type": "text", "text": json.dumps(arguments)}]})
    if name == "mute" and BEHAVIOUR == "stuck":
        note("stuck")
        time.sleep(3600)
    if name == "rename":
        tools.append("renamed")
        say(method="notifications/tools/list_changed")
        result(message, {"content": []})


def main() -> None:
    note(f"started {os.getpid()}")
    if BEHAVIOUR == "hang":
        time.sleep(3600)
    if BEHAVIOUR == "exit":
        print("no licence", file=sys.stderr, flush=True)
        sys.exit(7)
    if BEHAVIOUR == "garbage-only":
        while True:
            print("this is not the protocol", flush=True)
    if BEHAVIOUR == "flood-at-once":
        flood()
    for line in sys.stdin:
        message = json.loads(line)
        note(f"got {message.get('method')}")
        match message.get("method"):
            case "initialize":
                version = "1789-07-14" if BEHAVIOUR == "old" else message["params"]["protocolVersion"]
                info = {"name": "hostile", "version": "1"}
                result(message, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list":
                schema = {"type": "object", "properties": {}}
                result(message, {"tools": [{"name": name, "inputSchema": schema} for name in tools]})
                if BEHAVIOUR == "garbage":
                    print("a friendly greeting\n{half\n[1, 2]\n\n", flush=True)
                if BEHAVIOUR == "flood":
                    flood()
            case "tools/call":
                call(message)
            case "ping":
                result(message, {})
            case "notifications/cancelled" if BEHAVIOUR == "breaks":
                os._exit(3)
    note("end of input")
    if BEHAVIOUR == "lingers":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)


main()
