"""A tool server whose list of tools is a file, sent as it is; each call answers with the name that was called.

Run it with the file's path: the text of a JSON list, which may hold what no library would write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# One line for one message.
LISTING = '{"tools": ' + Path(sys.argv[1]).read_text().replace("\n", " ") + "}"


def answer(request_id: Any, result: str) -> None:
    sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {json.dumps(request_id)}, "result": {result}}}\n')
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                version = message["params"]["protocolVersion"]
                info = {"name": "listing", "version": "1"}
                about = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
                answer(message["id"], json.dumps(about))
            case "tools/list":
                answer(message["id"], LISTING)
            case "tools/call":
                content = [{"type": "text", "text": json.dumps({"called": message["params"]["name"]})}]
                answer(message["id"], json.dumps({"content": content}))
            case "ping":
                answer(message["id"], "{}")


main()
