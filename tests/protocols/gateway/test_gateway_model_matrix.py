"""Every row of the `/model` matrix and of the offline guard, through the methods that clients use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.test_model_catalog import ACCEPTED, REFUSED
from tests.agent.test_model_switch import FAILS, NEW, ROWS, Expected
from tests.support.core import running_tree
from tests.support.gateway_host import GatewayHost, Refusal, connected
from tests.support.model_worlds import worldly


async def by_line(host: GatewayHost, session_id: str, line: str) -> Any:
    return await host.call("command.dispatch", command=f"/model {line}", session_id=session_id)


async def by_name(host: GatewayHost, session_id: str, line: str) -> Any:
    return await host.call("command.dispatch", name="model", arg=line, session_id=session_id)


async def by_text(host: GatewayHost, session_id: str, line: str) -> Any:
    return await host.call("slash.exec", command=f"/model {line}", session_id=session_id)


async def by_key(host: GatewayHost, session_id: str, line: str) -> Any:
    return await host.call("config.set", key="model", value=line, session_id=session_id, confirm_expensive_model=True)


@pytest.mark.parametrize("way", [by_line, by_name, by_text, by_key])
async def test_every_line_means_the_same_by_every_way(way: Any, autojump_clock: Any) -> None:
    services, models = worldly()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        session = tree.registry.get(session_id)
        for world, line, expected in ROWS:
            if not line and way is not by_key:
                continue
            models.now = world
            before = (session.info().model, session.info().provider)
            if expected[0] == FAILS:
                with pytest.raises(Refusal) as refused:
                    await way(host, session_id, line)
                assert expected[1] in refused.value.message, line
                assert (session.info().model, session.info().provider) == before, f"{line}: a failed switch changes"
            else:
                answer = await way(host, session_id, line)
                assert (session.info().provider, session.info().model) == expected[:2], line
                assert (session.stored.provider, session.stored.model) == expected[:2], line
                check_answer(answer, expected, line)


def check_answer(answer: dict[str, Any], expected: Expected, line: str) -> None:
    assert expected[1] in (answer.get("value") or answer.get("output") or ""), line
    warning = f"{answer.get('warning') or ''}{answer.get('output') or ''}"
    assert len(expected) == 2 or NEW in warning, f"{line}: {answer}"


@pytest.mark.parametrize("named", [True, False], ids=["provider given", "provider of the configuration"])
async def test_the_guard_decides_every_row_before_anything_is_created(named: bool, autojump_clock: Any) -> None:
    services, models = worldly()
    async with running_tree(services) as tree, connected(tree) as host:
        rows = [(model, provider, False) for model, provider, _ in ACCEPTED]
        rows += [(model, provider, True) for model, provider in REFUSED]
        assert len(rows) >= 40
        for model, provider, refused in rows:
            models.preferred = provider or "custom"
            given = {"model": model, "provider": provider if named else None}
            params = {name: value for name, value in given.items() if value is not None}
            live = len(tree.registry.live())
            if not refused:
                made = await host.call("session.create", **params)
                await host.call("session.close", session_id=made["session_id"])
                continue
            with pytest.raises(Refusal) as answer:
                await host.call("session.create", **params)
            assert answer.value.code == -32602
            data = answer.value.data
            assert set(data) == {"model", "provider", "suggestions"}
            assert data["model"] == model
            assert data["provider"] == provider or not named
            assert len(data["suggestions"]) <= 5
            assert all(name in answer.value.message for name in data["suggestions"])
            assert len(tree.registry.live()) == live
