"""``hermes acp`` and a client that is wrong, hostile or unlucky: each frame costs itself, never the rest."""

from __future__ import annotations

import base64
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.acp_process import Editor, Frame, editor, model_environment, said, tool
from tests.support.server_process import COMMAND, assert_no_children, clean_environment, processes_of

pytestmark = pytest.mark.e2e
LIMIT = 60
SILENT = Reply.of({"text": "never"}, faults={"hang": True})
FILES_AND_TERMINALS = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


def selected(option: Any) -> Frame:
    return {"outcome": {"outcome": "selected", "optionId": option}}


FAR = base64.urlsafe_b64encode(b"after:" + b"9" * 30).decode().rstrip("=")

# (what is written, the code of the error that answers it under a null id or its own, None: no answer at all)
LINES: list[tuple[str, int | None]] = [
    ("{nope", -32700),
    ("[]", -32600),
    ('[{"jsonrpc":"2.0","id":1,"method":"session/list"}]', -32600),
    ("3", -32600),
    ("null", -32600),
    ('{"jsonrpc":"2.0","id":"x","method":4}', -32600),
    ('{"jsonrpc":"2.0","id":"x","method":"ping"}', -32601),
    ('{"jsonrpc":"2.0","id":"x","method":"_vendor/word","params":{}}', -32601),
    ('{"jsonrpc":"2.0","id":"x","method":"logout","params":{}}', -32601),
    ('{"jsonrpc":"2.0","id":"x","method":"session/list","params":[]}', -32602),
    ('{"jsonrpc":"2.0","id":"x","method":"initialize","params":{"protocolVersion":"1"}}', -32602),
    ('{"jsonrpc":"2.0","id":"x","method":"initialize","params":{}}', -32602),
    ('{"jsonrpc":"2.0","id":"x","method":"session/new","params":{"cwd":"relative","mcpServers":[]}}', -32602),
    ('{"jsonrpc":"2.0","id":"x","method":"session/new","params":{"cwd":7,"mcpServers":[]}}', -32602),
    (f'{{"jsonrpc":"2.0","id":"x","method":"session/new","params":{{"cwd":"/{"x" * 256}","mcpServers":[]}}}}', -32602),
    (f'{{"jsonrpc":"2.0","id":"x","method":"session/new","params":{{"cwd":"{"/x" * 2048}","mcpServers":[]}}}}', -32602),
    ('{"jsonrpc":"2.0","id":"x","method":"session/list","params":{"cursor":"none of yours"}}', -32602),
    (f'{{"jsonrpc":"2.0","id":"x","method":"session/list","params":{{"cursor":"{FAR}"}}}}', -32602),
    (
        '{"jsonrpc":"2.0","id":"x","method":"session/load","params":{"sessionId":"n","cwd":"/tmp","mcpServers":[]}}',
        -32002,
    ),
    ('{"jsonrpc":"2.0","id":"x","method":"session/prompt","params":{"sessionId":"n","prompt":[]}}', -32002),
    ('{"jsonrpc":"2.0","method":"_vendor/word"}', None),
    ('{"jsonrpc":"2.0","method":"session/cancel"}', None),
    ('{"jsonrpc":"2.0","method":"session/cancel","params":[1]}', None),
    ('{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"unknown"}}', None),
    ('{"jsonrpc":"2.0","method":"$/cancel_request"}', None),
    ('{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"unknown"}}', None),
    ('{"jsonrpc":"2.0","method":"session/prompt","params":{"sessionId":"n","prompt":[]}}', None),
    ('{"jsonrpc":"2.0","id":"late","result":{}}', None),
    ('{"jsonrpc":"2.0","id":"late","error":{"code":1}}', None),
    ("\r", None),
]


async def test_a_line_that_is_wrong_costs_itself_and_gets_the_code_of_its_fault(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(said("fine"))) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                for line, code in LINES:
                    before = len(client.server.frames)
                    await client.server.send_bytes(line.encode() + b"\n")
                    await client.call("session/list")
                    codes = [f["error"]["code"] for f in client.server.frames[before:] if "error" in f]
                    assert codes == ([] if code is None else [code]), line
                session = await client.new_session(tmp_path)
                assert (await client.answer(await client.start_prompt(session, "hi")))["stopReason"] == "end_turn"


async def test_an_id_that_is_in_use_is_refused_and_the_open_request_gets_its_one_answer(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(SILENT)) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                session = await client.new_session(tmp_path)
                number = await client.start_prompt(session, "first")
                await provider.wait_for_request(1)
                params = {"sessionId": session, "prompt": [{"type": "text", "text": "second"}]}
                await client.server.send(
                    {"jsonrpc": "2.0", "id": number, "method": "session/prompt", "params": params},
                    {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}},
                )
                assert (await client.answer(number))["stopReason"] == "cancelled"
                await client.call("session/list")
                assert len([f for f in client.server.frames if f.get("id") == number and "method" not in f]) == 1
                assert [f["error"]["code"] for f in client.server.frames if "error" in f] == [-32600]
                assert len(provider.requests) == 1


async def test_links_and_blobs_that_make_no_sense_do_not_cost_the_turn(tmp_path: Path) -> None:
    blocks = [
        {"type": "text", "text": "look"},
        {"type": "resource_link", "uri": "file://[bad", "name": "brackets"},
        {"type": "resource_link", "uri": "file:///dev/zero", "name": "endless"},
        {"type": "resource_link", "uri": "file:///proc/self/mem", "name": "memory"},
        {"type": "resource_link", "uri": "file:///a%00b", "name": "nul"},
        {"type": "image", "data": "@@", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x", "blob": "@@", "mimeType": "image/png"}},
    ]
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(said("seen"))) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                session = await client.new_session(tmp_path)
                answer = await client.call("session/prompt", sessionId=session, prompt=blocks)
                assert answer["stopReason"] == "end_turn"
                assert client.text("agent_message_chunk") == "seen"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/new", {"mcpServers": []}),
        ("session/load", {"sessionId": "?", "mcpServers": []}),
        ("session/resume", {"sessionId": "?"}),
        ("session/fork", {"sessionId": "?"}),
        ("session/list", {}),
        ("session/set_mode", {"sessionId": "?", "modeId": "dont_ask"}),
        ("session/set_config_option", {"sessionId": "?", "configId": "mode", "value": "dont_ask"}),
        ("session/set_model", {"sessionId": "?", "modelId": "custom:other"}),
        ("session/close", {"sessionId": "?"}),
        ("session/delete", {"sessionId": "none"}),
    ],
)
async def test_a_request_of_any_kind_can_be_cancelled_and_is_answered_once(
    method: str, params: dict[str, Any], tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(said("one"), said("two"))) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                session = await client.new_session(tmp_path)
                await client.answer(await client.start_prompt(session, "hi"))
                params = {key: session if value == "?" else value for key, value in params.items()}
                if method in ("session/new", "session/load", "session/resume", "session/fork"):
                    params["cwd"] = str(tmp_path)
                await client.server.send(
                    {"jsonrpc": "2.0", "id": "mine", "method": method, "params": params},
                    {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "mine"}},
                )
                await client.server.frame(lambda f: f.get("id") == "mine")
                resumed = await client.call("session/resume", sessionId=session, cwd=str(tmp_path))
                assert resumed["modes"]["currentModeId"] == "default"
                assert resumed["models"]["currentModelId"] == "custom:fake-model"
                assert (await client.answer(await client.start_prompt(session, "more")))["stopReason"] == "end_turn"
                answers = [f for f in client.server.frames if f.get("id") == "mine"]
                assert [f["error"]["code"] for f in answers] == [-32800]


NO_CONSENT: list[Frame] = [
    {"result": selected("something else")},
    {"result": selected(["allow_once"])},
    {"result": selected("deny_always")},
    {"result": {"outcome": {"outcome": "cancelled"}}},
    {"result": {"outcome": "allow_once"}},
    {"result": "allow_once"},
    {"result": None},
    {"error": {"code": -32603, "message": "no"}},
    {"error": "allow_once"},
    {"result": selected("allow_once"), "error": {"code": 1, "message": "both"}},
]


async def test_whatever_is_no_consent_runs_nothing_even_if_consent_follows(tmp_path: Path) -> None:
    replies = [reply for _ in NO_CONSENT for reply in (tool("terminal", command="rm -rf victim"), said("ok"))]
    (tmp_path / "victim").mkdir()
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies)) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                session = await client.new_session(tmp_path)
                for answer in NO_CONSENT:
                    before = len(client.server.frames)
                    number = await client.start_prompt(session, "go")
                    question = await client.question(after=before)
                    await client.server.send(
                        {"jsonrpc": "2.0", "id": question["id"], **answer},
                        {"jsonrpc": "2.0", "id": question["id"], "result": selected("allow_once")},
                    )
                    assert (await client.answer(number))["stopReason"] == "end_turn"
                    assert (tmp_path / "victim").is_dir(), answer
                    assert client.updates("tool_call_update", after=before)[-1]["status"] == "failed"


async def test_questions_of_two_sessions_are_answered_in_any_order_and_consent_stays_in_its_session(
    tmp_path: Path,
) -> None:
    def asks(word: str) -> Reply:
        call = {"name": "terminal", "arguments": {"command": f"rm -rf {word}"}}
        return Reply.of({"tool_call": call}, when={"last_role": "user", "last_user_contains": word})

    script = Script.of(asks("first"), asks("second"), Reply.of({"text": "done"}, when={"last_role": "tool"}))
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                sessions, prompts = {}, {}
                for word in ("first", "second"):
                    (tmp_path / word).mkdir()
                    sessions[word] = await client.new_session(tmp_path)
                    prompts[word] = await client.start_prompt(sessions[word], word)

                async def question(word: str) -> Frame:
                    return await client.server.frame(
                        lambda f: (
                            f.get("method") == "session/request_permission"
                            and f["params"]["sessionId"] == sessions[word]
                        )
                    )

                asked = {word: await question(word) for word in sessions}
                await client.reply(asked["second"], "allow_session")
                assert (await client.answer(prompts["second"]))["stopReason"] == "end_turn"
                assert ((tmp_path / "first").exists(), (tmp_path / "second").exists()) == (True, False)
                # A stop of the one leaves the question of the other open.
                await client.notify("session/cancel", sessionId=sessions["second"])
                await client.call("session/close", sessionId=sessions["second"])
                await client.reply(asked["first"], "allow_once")
                assert (await client.answer(prompts["first"]))["stopReason"] == "end_turn"
                assert not (tmp_path / "first").exists()


async def test_a_session_can_be_forked_set_and_deleted_while_its_turn_runs(tmp_path: Path) -> None:
    slow = {"tool_call": {"name": "terminal", "arguments": {"command": "sleep 1000"}}}
    script = Script.of(
        Reply.of({"text": "part "}, slow, when={"last_user_contains": "slow"}),
        *[Reply.of({"text": "quick"}, when={"last_user_contains": word}) for word in ("first", "fork")],
    )
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                session = await client.new_session(tmp_path)
                await client.answer(await client.start_prompt(session, "first"))
                running = await client.start_prompt(session, "slow")
                await client.update("tool_call")
                fork = (await client.call("session/fork", sessionId=session, cwd=str(tmp_path)))["sessionId"]
                assert (await client.answer(await client.start_prompt(fork, "on the fork")))["stopReason"] == "end_turn"
                # The fork has what was settled: the turn that still runs is not told as one that broke off.
                told = [m for m in provider.requests[-1].body["messages"] if m["role"] != "system"]
                assert [m["content"] for m in told] == ["first", "quick", "on the fork"]
                await client.call("session/set_mode", sessionId=session, modeId="dont_ask")
                assert await client.refused("session/set_model", sessionId=session, modelId="custom:other") == -32600
                deleted = await client.start("session/delete", sessionId=session)
                assert await client.answer(deleted) == {}
                assert (await client.answer(running))["stopReason"] == "cancelled"
                order = [f["id"] for f in client.server.frames if f.get("id") in (running, deleted) and "result" in f]
                assert order == [running, deleted]
                await assert_no_children(client.server)
                assert await client.refused("session/resume", sessionId=session, cwd=str(tmp_path)) == -32002


async def answer_all(client: Editor, answer: Frame, asked: list[str]) -> None:
    """Answer every request of the agent in the same way."""
    while True:
        frame = await client.server.next_frame()
        if "id" in frame and "method" in frame:
            asked.append(frame["method"])
            await client.server.send({"jsonrpc": "2.0", "id": frame["id"], **answer})


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32601, "message": "no"}},
        {"error": {"code": -32603, "message": "no"}},
        {"error": "no"},
        {"result": "x"},
        {"result": [1]},
        {"result": 5},
        {"result": True},
    ],
    ids=str,
)
async def test_a_client_whose_files_and_terminals_answer_nonsense_has_the_work_done_on_the_disk(
    answer: Frame, tmp_path: Path
) -> None:
    script = Script.of(
        tool("read_file", path="a.txt"),
        tool("write_file", path="b.txt", content="new\n"),
        tool("terminal", command="echo ran > c.txt"),
        said("done"),
    )
    (tmp_path / "a.txt").write_text("on the disk\n")
    asked: list[str] = []
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider, trio.open_nursery() as nursery:
            environ = model_environment(provider)
            async with editor(tmp_path / "home", environ, capabilities=FILES_AND_TERMINALS) as client:
                nursery.start_soon(answer_all, client, answer, asked)
                session = await client.new_session(tmp_path)
                await client.call("session/set_mode", sessionId=session, modeId="dont_ask")
                assert (await client.answer(await client.start_prompt(session, "go")))["stopReason"] == "end_turn"
                assert "on the disk" in str(provider.requests[1].body["messages"][-1])
                nursery.cancel_scope.cancel()
    assert (tmp_path / "b.txt").read_text() == "new\n"
    assert (tmp_path / "c.txt").read_text() == "ran\n"
    assert {"fs/read_text_file", "fs/write_text_file", "terminal/create"} <= set(asked)


async def test_a_terminal_is_asked_for_behind_its_announced_call_and_a_stop_does_not_wait_for_the_client(
    tmp_path: Path,
) -> None:
    script = Script.of(tool("terminal", command="sleep 1000"), said("again"))
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            environ = model_environment(provider)
            async with editor(tmp_path / "home", environ, capabilities={"terminal": True}) as client:
                session = await client.new_session(tmp_path)
                number = await client.start_prompt(session, "go")
                create = await client.asked("terminal/create")
                assert client.updates("tool_call_update")[-1]["status"] == "in_progress"
                await client.server.send({"jsonrpc": "2.0", "id": create["id"], "result": {"terminalId": "t"}})
                await client.asked("terminal/wait_for_exit")
                await client.notify("session/cancel", sessionId=session)
                # Nothing of the clean-up is answered.
                with trio.fail_after(10):
                    assert (await client.answer(number))["stopReason"] == "cancelled"
                told = [f["method"] for f in client.server.frames if str(f.get("method")).startswith("terminal/")]
                assert told[-1] == "terminal/release"
                assert "terminal/kill" in told
                assert (await client.answer(await client.start_prompt(session, "more")))["stopReason"] == "end_turn"


async def test_tool_servers_that_hang_hold_up_neither_the_session_nor_the_end(tmp_path: Path) -> None:
    servers = [
        {"name": "silent", "command": "sleep", "args": ["1000"], "env": []},
        {"name": "echo", "command": "cat", "args": [], "env": []},
        {"name": "noisy", "command": "yes", "args": [], "env": []},
        {"name": "absent", "command": "/nowhere/at/all", "args": [], "env": []},
        {"type": "http", "name": "closed", "url": "http://127.0.0.1:9/", "headers": []},
        {"type": "sse", "name": "closed-too", "url": "http://127.0.0.1:9/", "headers": []},
        {"type": "http", "name": "address", "url": "not an address", "headers": {"a": 1}},
        {"name": "mistyped", "command": "true", "args": "no", "env": [3]},
        {"name": 3},
        "nonsense",
    ]
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(said("one"), said("two"))) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                with trio.fail_after(4):
                    made = await client.call("session/new", cwd=str(tmp_path), mcpServers=servers)
                session = made["sessionId"]
                assert (await client.answer(await client.start_prompt(session, "hi")))["stopReason"] == "end_turn"
                await client.call("session/close", sessionId=session)
                await assert_no_children(client.server)
                await client.call("session/new", cwd=str(tmp_path), mcpServers=servers)
                await client.server.close_input()
                with trio.fail_after(10):
                    assert await client.server.exit_code() == 0


@pytest.mark.parametrize("end", ["input", "half a frame", "SIGTERM", "SIGINT", "output"])
async def test_an_end_with_an_open_question_runs_nothing_and_leaves_nothing(end: str, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(tool("terminal", command="rm -rf victim"))) as provider:
            async with editor(home, model_environment(provider)) as client:
                session = await client.new_session(tmp_path)
                number = await client.start_prompt(session, "go")
                question = await client.question()
                await end_it(client, end, question)
                with trio.fail_after(10):
                    assert await client.server.exit_code() == 0
                await client.server.wait_for_output(lambda: False)
                if end != "output":
                    assert (await client.answer(number))["stopReason"] == "cancelled"
                    assert client.updates("tool_call_update")[-1]["status"] == "failed"
                assert (tmp_path / "victim").is_dir()
                assert processes_of(home) == {}


async def end_it(client: Editor, end: str, question: Frame) -> None:
    if end.startswith("SIG"):
        client.server.process.send_signal(signal.Signals[end])
    elif end == "output":
        assert client.server.process.stdout is not None
        await trio.aclose_forcefully(client.server.process.stdout)
        await client.start("session/list")
    else:
        if end == "half a frame":
            await client.server.send_bytes(f'{{"jsonrpc":"2.0","id":"{question["id"]}","result":{{"outc'.encode())
        await client.server.close_input()


def test_what_was_asked_right_before_the_end_of_the_input_is_answered(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(COMMAND), "acp"],
        input=b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}\n',
        capture_output=True,
        env=clean_environment(tmp_path),
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout) == (0, b'{"jsonrpc":"2.0","id":1,"result":{"sessions":[]}}\n')


@pytest.mark.parametrize("closed", ["<&-", ">&- </dev/null", "2>&- </dev/null", "<&- >&- 2>&-"])
def test_a_start_with_closed_descriptors_ends_like_one_with_no_input(closed: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "{COMMAND}" acp {closed}'],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=clean_environment(tmp_path),
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout) == (0, b"")
