"""The child that runs the packaged model: ``python -m hermes.nurseries.local_model_child FILE``.

It reads one line, the key it shall ask for, loads the model into an OpenAI-compatible server on a free port of the
loopback interface, and writes one line, its address, once that server answers. It ends when its input does: with the
server that has started it, however that ended.
"""

from __future__ import annotations

import http.client
import os
import sys
from typing import Final
from urllib.parse import urlsplit

import xllamacpp  # type: ignore[import-not-found, import-untyped, unused-ignore]

from hermes.agent.providers.local_model import LOCAL_MODEL, WINDOW

MOST_THREADS: Final = 4
PROBE_WITHIN: Final = 20.0


def main() -> None:
    """Serve until nobody holds our input any more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # The library writes to both streams; the address must stand alone.
    os.dup2(2, 1)
    key = sys.stdin.readline().strip()
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {LOCAL_MODEL}
    params.api_keys = [key]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = WINDOW
    params.n_parallel = 1
    params.use_jinja = True
    params.ui = False
    params.verbosity = 0
    threads = max(1, min(MOST_THREADS, os.cpu_count() or 1))
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    probe(server.listening_address)
    answers.write(f"{server.listening_address}\n")
    answers.flush()
    sys.stdin.read()
    # Its threads may be in the middle of an answer that nobody waits for.
    os._exit(0)


def probe(address: str) -> None:
    """Raises what ``http.client`` does if it does not answer."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=PROBE_WITHIN)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    if answer.status >= 300:
        raise http.client.HTTPException(f"/health answers {answer.status}")


if __name__ == "__main__":
    main()
