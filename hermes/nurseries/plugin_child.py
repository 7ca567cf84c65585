"""The child's side of a plugin function in a process of its own: ``python -m hermes.nurseries.plugin_child``.

It reads one line of JSON, ``{"function": "module:name", "arguments": {…}}``, calls ``name(arguments, progress)`` and
writes lines of JSON: ``{"progress": …}`` any number of times, ``{"result": …}`` once. Whatever the function prints
goes to stderr. An exception ends the process; its traceback is on stderr, and its last line is what the model reads.
"""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
import sys
from typing import IO, Any

from hermes.nurseries.asyncio_island import run_alone


def main() -> None:
    """Serve one call."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # From here on nothing but our lines reaches the server, whatever the function and its children print.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    request: dict[str, Any] = json.loads(sys.stdin.readline())
    function = pkgutil.resolve_name(request["function"])

    def progress(text: str) -> None:
        _say(answers, progress=str(text))

    if inspect.iscoroutinefunction(function):
        result = run_alone(function, request["arguments"], progress)
    else:
        result = function(request["arguments"], progress)
    _say(answers, result=result)


def _say(answers: IO[str], **message: Any) -> None:
    # One write per line: threads of the function may report progress, too.
    answers.write(json.dumps(message, default=str) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
