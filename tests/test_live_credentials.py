"""Keys that are edited on disk while the server runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import DeltaSink, ModelFinished, ModelRequest
from hermes.config import load_settings
from hermes.errors import ProviderError
from hermes.live_config import LiveConfig
from hermes.messages import Prompt
from tests.support.core import make_services, running_tree, say


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENROUTER_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def live(home: Path, text: str = "") -> tuple[LiveConfig, list[Any]]:
    (home / ".env").write_text(text)
    config = LiveConfig(load_settings(home=home))
    heard: list[Any] = []
    config.listen(lambda loaded, keys: heard.append(dict(loaded.credentials).get("OPENROUTER_API_KEY")))
    return config, heard


async def test_a_key_that_was_written_is_taken_up_once(tmp_path: Path) -> None:
    config, heard = live(tmp_path)
    assert not await config.pick_up_credentials()
    (tmp_path / ".env").write_text("OPENROUTER_API_KEY=sk-new\nHERMES_LOG_LEVEL=DEBUG\n")
    before = config.current()
    assert await config.pick_up_credentials()
    assert not await config.pick_up_credentials()
    assert heard == ["sk-new"]
    assert config.current() is before, "only keys are taken from a file under a running server"
    (tmp_path / ".env").unlink()
    assert await config.pick_up_credentials()
    assert heard == ["sk-new", None]


async def test_a_reload_tells_how_many_variables_are_different(tmp_path: Path) -> None:
    config, _ = live(tmp_path, "A=1\nB=2\nC=3\n")
    assert await config.reload_variables() == 0
    (tmp_path / ".env").write_text("A=1\nB=3\nD=4\n")
    assert await config.reload_variables() == 3
    assert await config.reload_variables() == 0


async def test_a_turn_begins_with_the_keys_that_are_there_now(tmp_path: Path) -> None:
    config, heard = live(tmp_path, "OPENROUTER_API_KEY=sk-old\n")
    services, _ = make_services(say("one"), say("two"))
    async with running_tree(replace(services, config=config)) as tree:
        session = tree.registry.create(source="test", cwd="/")
        for key in ("sk-old", "sk-newer"):
            (tmp_path / ".env").write_text(f"OPENROUTER_API_KEY={key}\n")
            turn = await session.submit_nowait(Prompt("hello")).wait_turn()
            assert turn is not None
            assert (await turn.wait_ended()).completed
    assert heard == ["sk-newer"]


async def test_a_refused_key_is_read_again_before_the_second_try(tmp_path: Path) -> None:
    config, heard = live(tmp_path, "OPENROUTER_API_KEY=sk-old\n")

    async def refuse(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        (tmp_path / ".env").write_text("OPENROUTER_API_KEY=sk-rotated\n")
        await trio.lowlevel.checkpoint()
        raise ProviderError("no", error_class="auth", status=401)

    services, model = make_services(refuse, say("with the new one"))
    async with running_tree(replace(services, config=config)) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("hello")).wait_turn()
        assert turn is not None
        assert (await turn.wait_ended()).text == "with the new one"
    assert heard == ["sk-rotated"]
    assert len(model.requests) == 2
