"""Requests made from our own description of the API: whatever comes, no answer is a crash or breaks the description."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes.testing import Reply, Script
from tests.support.http_clients import program, run_client, served

pytestmark = pytest.mark.e2e
PROOF = os.environ.get("PROOF") == "1"
SEEDS = range(1, 11) if PROOF else (7,)
EXAMPLES = 25 if PROOF else 5
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SETTINGS = """
# A stream of snapshots has no end that could be waited for.
[[operations]]
include-path = "/v1/tree"
parameters = { "query.stream" = false }
"""
CONFIG = {
    "browser": {"extension_control": {"enabled": True}},
    "gateway": {"api_server": {"max_concurrent_runs": 0}},
}


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_request_that_the_description_allows_or_forbids_makes_a_crash(seed: int, tmp_path: Path) -> None:
    tool = program("schemathesis")
    if tool is None:
        pytest.skip("schemathesis is not installed (pip install '.[test]')")
    script = Script(replies=[Reply.of({"text": "hello"})], when_used_up="repeat")
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(SETTINGS)
    async with served(tmp_path / "home", script, config=CONFIG, limit=600) as run:
        command = [
            tool,
            "--config-file",
            str(settings),
            "run",
            f"{run.server.origin}/openapi.json",
            "-H",
            f"Authorization: Bearer {run.server.key}",
        ]
        command += ["-c", CHECKS, "--seed", str(seed), "--max-examples", str(EXAMPLES), "--no-color"]
        command += ["--phases", "coverage,fuzzing", "--request-timeout", "20", "--continue-on-failure"]
        done = await run_client(command, home=tmp_path / "client")
        assert done.code == 0, done.out[-8000:] + done.err[-2000:]
        assert "Traceback" not in run.server.stderr
