"""The packaged local model for real: chosen, streamed, stopped, and gone with the server."""

from __future__ import annotations

from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.providers.local_model import DISTRIBUTION, HOW_TO_INSTALL, LICENCE, LOCAL_MODEL, find_local_model
from tests.support.server_process import processes_of, server_process

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_local_model() is None, reason=f"the local model is not installed: {HOW_TO_INSTALL}"),
]

SHORT = "agent.system_prompt=You are helpful."


def node_of(tree: dict[str, Any], kind: str) -> dict[str, Any] | None:
    if tree["kind"] == kind:
        return tree
    return next((found for child in tree["children"] if (found := node_of(child, kind)) is not None), None)


def test_the_licence_that_the_picker_names_is_the_package_s() -> None:
    assert metadata(DISTRIBUTION)["License"] == LICENCE


async def test_it_answers_is_stopped_in_mid_stream_and_ends_with_its_node_and_with_the_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(240):
        async with server_process(home, "gateway", "--set", SHORT, "--set", "model.max_tokens=32") as server:
            session = (await server.call("session.create"))["session_id"]
            options = await server.call("model.options", {"session_id": session})
            (row,) = [row for row in options["providers"] if row["slug"] == "local"]
            assert row["models"] == [LOCAL_MODEL]
            assert all(word in row["warning"] for word in ("135 million", LICENCE, "slow", "often wrong"))
            assert options["provider"] == "demo", "it is never chosen by itself"
            assert not [line for line in processes_of(home).values() if "local_model_child" in line]

            value = f"{LOCAL_MODEL} --provider local"
            await server.call("config.set", {"key": "model", "value": value, "session_id": session})
            await server.call("prompt.submit", {"session_id": session, "text": "Count from 1 to 300, in words."})
            await server.event("message.delta")
            tree = (await server.call("tree.get"))["tree"]
            node = node_of(tree, "local_model")
            assert node is not None and node["pids"]
            stopped = await server.call("session.interrupt", {"session_id": session})
            assert stopped["settled"] is True
            end = await server.event("message.complete")
            assert end["params"]["payload"]["status"] == "interrupted"

            so_far = len(server.frames)
            await server.call("prompt.submit", {"session_id": session, "text": "Say hello."})
            end = await server.event("message.complete", after=so_far)
            assert end["params"]["payload"]["status"] == "complete", end
            assert end["params"]["payload"]["text"].strip()

            await server.call("scope.cancel", {"node_id": node["node_id"], "reason": "no longer needed"})
            while [line for line in processes_of(home).values() if "local_model_child" in line]:
                await trio.sleep(0.05)
            so_far = len(server.frames)
            await server.call("prompt.submit", {"session_id": session, "text": "And again."})
            end = await server.event("message.complete", after=so_far)
            assert end["params"]["payload"]["status"] == "complete", end
        while processes_of(home):
            await trio.sleep(0.05)
