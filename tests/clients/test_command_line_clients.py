"""Two command-line clients from the package index hold a conversation with the real server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from ruamel.yaml import YAML

from hermes.testing import Reply, Script
from tests.support.http_clients import Served, program, run_client, served

pytestmark = pytest.mark.e2e

CONVERSATION = Script.of(
    Reply.of({"text": "A name: Ada."}, when={"last_user_contains": "suggest a name"}),
    Reply.of({"text": "It has three letters."}, when={"last_user_contains": "how many letters"}),
)


def command(name: str) -> str:
    found = program(name)
    if found is None:
        pytest.skip(f"the command {name} is not installed (pip install '.[clients]')")
    return found


async def test_llm_holds_a_conversation(tmp_path: Path) -> None:
    llm = command("llm")
    async with served(tmp_path / "home", CONVERSATION) as run:
        settings = tmp_path / "client" / "llm"
        settings.mkdir(parents=True)
        model = {"model_id": "hermes", "model_name": "hermes-agent", "api_base": run.base_url, "api_key_name": "hermes"}
        with (settings / "extra-openai-models.yaml").open("w") as file:
            YAML().dump([model], file)
        # No plugins: the packaged local model comes as one of them, without the library that it would load.
        environ = {"LLM_USER_PATH": str(settings), "LLM_LOAD_PLUGINS": ""}
        key = ["--key", run.server.key]

        first = await run_client([llm, "-m", "hermes", *key, "suggest a name"], home=tmp_path / "client", **environ)
        assert (first.out.strip(), first.code) == ("A name: Ada.", 0), first.err
        second = await run_client([llm, "-c", *key, "how many letters?"], home=tmp_path / "client", **environ)
        assert (second.out.strip(), second.code) == ("It has three letters.", 0), second.err
        await _second_turn_knew_the_first(run)
        blocking = await run_client(
            [llm, "-m", "hermes", "--no-stream", *key, "suggest a name"], home=tmp_path / "client", **environ
        )
        assert blocking.out.strip() == "A name: Ada."
        refused = await run_client([llm, "-m", "hermes", "--key", "wrong", "hi"], home=tmp_path / "client", **environ)
        assert refused.code == 1 and "401" in refused.err


def installed_apart(package: str, name: str, folder: Path) -> str:
    """A client that needs other versions of libraries than we do gets an environment of its own."""
    if (found := shutil.which(name)) is not None:
        return found
    make = [
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "pip"), "install", "-q", *package.split()],
    ]
    for line in make:
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=200, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{package} could not be installed in time")
        if done.returncode:
            pytest.skip(f"{package} cannot be installed: {done.stderr.strip()[-300:]}")
    return str(folder / "bin" / name)


async def test_shell_gpt_holds_a_conversation(tmp_path: Path) -> None:
    sgpt = await trio.to_thread.run_sync(installed_apart, "shell-gpt click", "sgpt", tmp_path / "venv")
    async with served(tmp_path / "home", CONVERSATION) as run:
        environ = {
            "OPENAI_API_KEY": run.server.key,
            "API_BASE_URL": run.base_url,
            "DEFAULT_MODEL": "hermes-agent",
            "OPENAI_USE_FUNCTIONS": "false",
            "CHAT_CACHE_PATH": str(tmp_path / "chats"),
            "PRETTIFY_MARKDOWN": "false",
        }
        talk = [sgpt, "--no-md", "--no-cache", "--chat", "names"]
        first = await run_client([*talk, "suggest a name"], home=tmp_path / "client", **environ)
        assert first.out.strip() == "A name: Ada.", first.err
        second = await run_client([*talk, "how many letters?"], home=tmp_path / "client", **environ)
        assert second.out.strip() == "It has three letters.", second.err
        await _second_turn_knew_the_first(run)


async def _second_turn_knew_the_first(run: Served) -> None:
    record = next(one for one in run.provider.requests if "how many letters" in str(one.body["messages"][-1]))
    told = [one for one in record.body["messages"] if one["role"] in ("user", "assistant")]
    assert [one["role"] for one in told] == ["user", "assistant", "user"]
    assert "A name: Ada." in str(told[1]["content"])
