"""What hosts ask beside the conversations: the machine, what was used, one question to a model."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.errors import ProviderError
from tests.support.core import make_services, running_tree, say
from tests.support.gateway_host import Refusal, connected


async def test_a_question_outside_of_every_conversation_leaves_nothing_behind(autojump_clock: Any) -> None:
    services, model = make_services(say("a title"))
    async with running_tree(services) as tree, connected(tree) as host:
        asked = {"instructions": "Give a title.", "input": "We talked about tabs.", "max_tokens": 20, "temperature": 0}
        assert await host.call("llm.oneshot", **asked) == {"text": "a title"}
        (request,) = model.requests
        assert (request.system, request.messages[0].content) == (("Give a title.",), "We talked about tabs.")
        assert (request.max_output_tokens, request.temperature, request.tools) == (20, 0, ())
        assert await services.store.list_sessions(limit=10, include_hidden=True) == []
        assert (await host.call("session.active_list"))["sessions"] == []


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, 4030),
        ({"input": "  "}, 4030),
        ({"input": "x", "template": "title"}, 4030),
        ({"input": "x", "variables": {"a": 1}}, 4030),
        ({"input": "x", "session_id": "ffffffff"}, 4001),
        ({"input": "x", "max_tokens": 0}, -32602),
    ],
)
async def test_a_question_that_is_none_is_refused(params: dict[str, Any], code: int, autojump_clock: Any) -> None:
    services, model = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        with pytest.raises(Refusal) as refused:
            await host.call("llm.oneshot", **params)
        assert refused.value.code == code and model.requests == []


async def test_a_model_that_fails_is_told(autojump_clock: Any) -> None:
    async def broken(_request: Any, _on_delta: Any) -> Any:
        raise ProviderError("out of order", error_class="server_error")

    services, _ = make_services(broken)
    async with running_tree(services) as tree, connected(tree) as host:
        with pytest.raises(Refusal) as refused:
            await host.call("llm.oneshot", input="x")
        assert refused.value.code == 5030 and "out of order" in refused.value.message


async def test_what_was_used_lately_is_counted(autojump_clock: Any) -> None:
    services, _ = make_services(say("one"), say("two"))
    async with running_tree(services) as tree, connected(tree) as host:
        assert await host.call("insights.get") == {"days": 30, "sessions": 0, "messages": 0}
        for text in ("first", "second"):
            session_id = (await host.call("session.create"))["session_id"]
            await host.call("prompt.submit", session_id=session_id, text=text)
            await host.event("message.complete")
        assert await host.call("insights.get", days=1) == {"days": 1, "sessions": 2, "messages": 4}


async def test_there_is_one_profile_and_the_machine_is_this_one() -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        (profile,) = (await host.call("profiles.list"))["profiles"]
        assert (profile["name"], profile["path"], profile["is_default"]) == ("default", str(services.home), True)
        facts = await host.call("machine.facts")
        assert facts["machine"]["os_family"] and facts["machine"]["native_arch"]
        assert (await host.call("system.battery"))["available"] in (True, False)
