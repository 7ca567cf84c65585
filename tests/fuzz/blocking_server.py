"""A stdio server for plain functions: Hypothesis drives it without a loop of its own."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.server_process import COMMAND, clean_environment, kill_leftovers

Frame = dict[str, Any]
PATIENCE = 60.0


class BlockingServer:
    """Answers by id. Frames of the server's own are counted, its questions refused."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.answered: Counter[str] = Counter()
        self.stray: list[bytes] = []
        self._answers: queue.Queue[Frame | None] = queue.Queue()
        self._last = 0
        self._writing = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                frame = json.loads(line)
            except ValueError:
                self.stray.append(line)
                continue
            if "method" not in frame:
                self._answers.put(frame)
            elif "id" in frame:
                self.write({"jsonrpc": "2.0", "id": frame["id"], "error": {"code": -32601, "message": "no"}})
        self._answers.put(None)

    def write(self, frame: Frame) -> None:
        self.write_bytes(json.dumps(frame).encode() + b"\n")

    def write_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with self._writing:
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def next_answer(self) -> Frame:
        answer = self._answers.get(timeout=PATIENCE)
        assert answer is not None, "the server has ended"
        self.answered[json.dumps(answer.get("id"))] += 1
        return answer

    def ask(self, method: Any, params: Any) -> Frame:
        """The one answer, in the form that JSON-RPC wants."""
        self._last += 1
        number = f"f{self._last}"
        self.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while (answer := self.next_answer()).get("id") != number:
            assert answer.get("id") is None, f"an answer to nothing: {answer}"
        assert self.answered[json.dumps(number)] == 1
        check_form(answer)
        return answer


def check_form(answer: Mapping[str, Any]) -> None:
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) != ("error" in answer), answer
    if "error" in answer:
        error = answer["error"]
        assert isinstance(error["code"], int) and isinstance(error["message"], str), answer
        assert "log_id" not in (error.get("data") or {}), f"a crash: {answer}"


@contextmanager
def echo_model(home: Path) -> Iterator[dict[str, str]]:
    """The environment of a server whose model repeats what it hears."""
    home.mkdir(parents=True, exist_ok=True)
    command = [str(COMMAND), "fake-provider"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment(home)) as model:
        try:
            assert model.stdout is not None
            base_url = next(word for word in model.stdout.readline().decode().split() if word.startswith("http"))
            yield {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}
        finally:
            model.kill()


@contextmanager
def running(home: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose standard error ends in a file beside the home; no crash may be in it, and it does not end."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = home.parent / f"{home.name}.log"
    with echo_model(home.parent / "model") as environ, log.open("wb") as errors:
        process = subprocess.Popen(
            [str(COMMAND), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=home,
            env=clean_environment(home) | environ,
            start_new_session=True,
        )
        with process:
            try:
                yield process
                assert process.poll() is None, f"the server has ended with {process.returncode}"
            finally:
                process.kill()
                kill_leftovers(home)
    assert "Traceback" not in log.read_text(errors="replace")


@contextmanager
def blocking_server(home: Path, *arguments: str) -> Iterator[BlockingServer]:
    """One on standard input and output."""
    with running(home, *arguments) as process:
        server = BlockingServer(process)
        yield server
        assert server.stray == []
