"""What the README tells a newcomer to type is what the server and the Makefile say."""

from __future__ import annotations

import re
from pathlib import Path

import trio

from tests.support.server_process import http_server

README = Path("README.md").read_text(encoding="utf-8")


def test_the_first_lines_are_the_two_commands_and_make_knows_them() -> None:
    makefile = Path("Makefile").read_text(encoding="utf-8")
    first, second = README.splitlines()[:2]
    assert first.split()[:2] == ["make", "serve"]
    assert second.split()[:2] == ["make", "test"]
    for target in [*re.findall(r"`make (\w+)`", README), "serve", "test"]:
        assert re.search(rf"^{target}:", makefile, re.M), target


async def test_the_request_of_the_readme_is_the_one_that_the_server_prints(tmp_path: Path) -> None:
    bodies = set(re.findall(r"-d '(\{.*\})'", README))
    with trio.fail_after(60):
        async with http_server(tmp_path / "home") as server:
            await server.wait_until(lambda: any("curl" in line for line in server.stray), "the request to try")
            printed = " ".join(server.stray)
    assert len(bodies) == 1
    assert bodies.pop() in printed
    assert "/v1/chat/completions" in printed
    assert "server.key" in printed
