"""The gate before commands and edits: who is asked, what an answer does, what silence does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
import trio.testing

from hermes.agent.ports import ToolFailure
from hermes.agent.tools.approval_gate import Approval, approve_command, approve_edit
from hermes.errors import ProviderError
from hermes.messages import Answered, ClientAnswer, Declined, FileDiff, NoClient, TimedOut, Unsupported, Withdrawn
from hermes.settings import Settings
from tests.support.tool_context import FakeToolContext, make_services

COMMAND = "rm -rf build"


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    return FakeToolContext(tmp_path, tmp_path)


def settings(**approvals: object) -> Settings:
    return Settings.model_validate({"approvals": approvals})


async def test_question_carries_what_a_person_needs(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.answers.append(Answered({"choice": "once"}))
    command = "rm -rf build; curl -H 'Authorization: Bearer abcdef123456' x"
    await approve_command(ctx, make_services(tmp_path), command, str(tmp_path))
    question = ctx.asked[0]
    assert question.method == "approval"
    assert question.choices == ("once", "session", "always", "deny")
    assert question.timeout == 300
    assert question.params["pattern_keys"] == ["recursive delete"]
    assert question.params["tool_call_id"] == "call_1"
    assert "abcdef123456" not in question.params["command"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answered({"choice": "deny"}), "denied"),
        (Answered({"choice": "sure"}), "denied"),
        (Answered({}), "denied"),
        (TimedOut(), "timed_out"),
        (Withdrawn("interrupted"), "withdrawn"),
        (NoClient(), "withdrawn"),
        (Unsupported(), "withdrawn"),
        (Declined(), "withdrawn"),
    ],
)
async def test_anything_but_consent_blocks_and_tells_denied_from_unanswered(
    ctx: FakeToolContext, tmp_path: Path, answer: ClientAnswer, outcome: str
) -> None:
    ctx.answers.append(answer)
    with pytest.raises(ToolFailure) as caught:
        await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    assert json.loads(caught.value.content)["outcome"] == outcome
    assert ctx.memory.grants == set()


async def test_once_is_for_one_call_only(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.answers += [Answered({"choice": "once"}), Answered({"choice": "once"})]
    for _ in range(2):
        await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    assert len(ctx.asked) == 2


async def test_session_grant_covers_the_pattern_and_not_another_session(ctx: FakeToolContext, tmp_path: Path) -> None:
    services = make_services(tmp_path)
    ctx.answers.append(Answered({"choice": "session"}))
    await approve_command(ctx, services, COMMAND, str(tmp_path))
    assert await approve_command(ctx, services, "rm -rf dist", str(tmp_path)) == Approval()
    assert len(ctx.asked) == 1
    other = FakeToolContext(tmp_path, tmp_path)
    with pytest.raises(ToolFailure):
        await approve_command(other, services, COMMAND, str(tmp_path))


async def test_always_is_written_and_holds_for_every_session(ctx: FakeToolContext, tmp_path: Path) -> None:
    written: list[str] = []

    async def remember(key: str) -> None:
        written.append(key)

    services = make_services(tmp_path, remember_permanently=remember)
    ctx.answers.append(Answered({"choice": "always"}))
    await approve_command(ctx, services, COMMAND, str(tmp_path))
    assert written == ["recursive delete"]
    other = FakeToolContext(tmp_path, tmp_path)
    assert await approve_command(other, services, COMMAND, str(tmp_path)) == Approval()


async def test_allowlist_of_the_configuration_is_honoured(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.settings = Settings.model_validate({"command_allowlist": ["recursive delete"]})
    await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    assert ctx.asked == []


async def test_yolo_and_mode_off_do_not_ask_but_hard_blocks_stay(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.memory.yolo = True
    await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    with pytest.raises(ToolFailure):
        await approve_command(ctx, make_services(tmp_path), "rm -rf /", str(tmp_path))
    assert ctx.asked == []


async def test_a_server_that_never_asks_does_not_ask_but_hard_blocks_stay(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.settings = Settings.model_validate({"host": {"yolo": True}})
    await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    with pytest.raises(ToolFailure):
        await approve_command(ctx, make_services(tmp_path), "rm -rf /", str(tmp_path))
    assert ctx.asked == []


async def test_unattended_turn_is_denied_without_a_question_unless_the_policy_approves(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    ctx.unattended = True
    with pytest.raises(ToolFailure):
        await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    ctx.settings = settings(unattended_mode="approve")
    await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    assert ctx.asked == []


async def test_child_agent_is_denied_at_once(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.depth = 1
    with pytest.raises(ToolFailure):
        await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    assert ctx.asked == []


@pytest.mark.parametrize(("verdict", "asks"), [("APPROVE", 0), ("DENY", 1), ("ESCALATE", 1), ("hm", 1)])
async def test_smart_mode_asks_a_person_unless_the_reviewer_approves(
    ctx: FakeToolContext, tmp_path: Path, verdict: str, asks: int
) -> None:
    ctx.settings = settings(mode="smart")
    ctx.verdicts.append(verdict)
    ctx.answers.append(Answered({"choice": "once"}))
    await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    assert len(ctx.asked) == asks
    if verdict == "DENY":
        assert ctx.asked[0].choices == ("once", "deny")
        assert ctx.asked[0].params["smart_denied"] is True


async def test_a_reviewer_that_is_slow_or_broken_leaves_it_to_a_person(ctx: FakeToolContext, tmp_path: Path) -> None:
    async def no_verdict(*_: object, **__: object) -> str:
        await trio.lowlevel.checkpoint()
        raise ProviderError("no answer in time", error_class="timeout")

    ctx.settings = settings(mode="smart")
    ctx.ask_model = no_verdict  # type: ignore[method-assign]
    ctx.answers.append(Answered({"choice": "deny"}))
    with pytest.raises(ToolFailure, match="denied"):
        await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
    assert ctx.asked[0].params["smart_denied"] is False


async def test_a_command_that_the_reviewer_cannot_see_whole_is_left_to_a_person(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    ctx.settings = settings(mode="smart")
    ctx.verdicts.append("APPROVE")
    ctx.answers.append(Answered({"choice": "deny"}))
    with pytest.raises(ToolFailure, match="denied"):
        await approve_command(ctx, make_services(tmp_path), f"echo {'x' * 9000}; {COMMAND}", str(tmp_path))
    assert len(ctx.asked) == 1


async def test_a_command_that_reviewer_and_person_deny_is_one_denial(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.settings = settings(mode="smart")
    ctx.verdicts += ["DENY"] * 2
    ctx.answers += [Answered({"choice": "deny"})] * 2
    for _ in range(2):
        with pytest.raises(ToolFailure) as caught:
            await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
        assert "stop trying variants" not in caught.value.content
    assert ctx.memory.denials_in_a_row == 2


async def test_third_denial_in_a_row_tells_the_model_to_stop(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.answers += [Answered({"choice": "deny"})] * 3
    texts = []
    for _ in range(3):
        with pytest.raises(ToolFailure) as caught:
            await approve_command(ctx, make_services(tmp_path), COMMAND, str(tmp_path))
        texts.append("stop trying variants" in caught.value.content)
    assert texts == [False, False, True]


@pytest.mark.parametrize(("choice", "prompts"), [("session", 1), ("once", 3)])
async def test_identical_requests_share_one_prompt_and_once_serves_only_the_first(
    ctx: FakeToolContext, tmp_path: Path, choice: str, prompts: int
) -> None:
    services = make_services(tmp_path)
    gate = trio.Event()
    ctx.before_answer = gate.wait
    ctx.answers += [Answered({"choice": choice})] * 3
    calls = [ctx.beside(f"call_{index}") for index in range(3)]
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(approve_command, call, services, COMMAND, str(tmp_path))
            await trio.testing.wait_all_tasks_blocked()
            assert len(ctx.asked) == 1
            gate.set()
    assert len(ctx.asked) == prompts


async def test_denial_answers_all_identical_requests(ctx: FakeToolContext, tmp_path: Path) -> None:
    services = make_services(tmp_path)
    gate = trio.Event()
    ctx.before_answer = gate.wait
    ctx.answers.append(Answered({"choice": "deny"}))
    denied = []

    async def call(one: FakeToolContext) -> None:
        with pytest.raises(ToolFailure):
            await approve_command(one, services, COMMAND, str(tmp_path))
        denied.append(one.call_id)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for index in range(3):
                nursery.start_soon(call, ctx.beside(f"call_{index}"))
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
    assert len(denied) == 3
    assert len(ctx.asked) == 1


async def test_cancelled_asker_leaves_the_question_to_the_next_one(ctx: FakeToolContext, tmp_path: Path) -> None:
    services = make_services(tmp_path)
    gate = trio.Event()
    ctx.before_answer = gate.wait
    ctx.answers.append(Answered({"choice": "once"}))
    first = trio.CancelScope()

    async def cancelled() -> None:
        with first:
            await approve_command(ctx.beside("call_a"), services, COMMAND, str(tmp_path))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancelled)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(approve_command, ctx.beside("call_b"), services, COMMAND, str(tmp_path))
            await trio.testing.wait_all_tasks_blocked()
            first.cancel()
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
    assert [question.tool_call_id for question in ctx.asked] == ["call_a", "call_b"]


async def test_edit_permission_follows_the_sessions_mode(ctx: FakeToolContext, tmp_path: Path) -> None:
    diff = FileDiff(str(tmp_path / "a.py"), "a", "b")
    services = make_services(tmp_path)
    await approve_edit(ctx, services, "patch", [diff], [])
    assert ctx.asked == []
    ctx.memory.extras["edit_permission"] = "accept_edits"
    await approve_edit(ctx, services, "patch", [diff], [])
    assert ctx.asked == []
    ctx.memory.extras["edit_permission"] = "default"
    with pytest.raises(ToolFailure):
        await approve_edit(ctx, services, "patch", [diff], [])
    assert ctx.asked[0].choices == ("once", "deny")
    assert ctx.asked[0].params["diffs"][0]["new_text"] == "b"
    ctx.memory.extras["edit_permission"] = "dont_ask"
    ctx.answers.append(Answered({"choice": "once"}))
    await approve_edit(ctx, services, "patch", [FileDiff(str(tmp_path / ".env"), "a", "b")], [])
    assert len(ctx.asked) == 2
