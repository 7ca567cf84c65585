"""Configuration, models, reloads, and slash commands with their effects."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.config import load_settings
from hermes.live_config import LiveConfig
from hermes.nurseries import host_processes
from hermes.nurseries.mcp_config import McpServerConfig
from hermes.nurseries.mcp_servers import McpServers
from hermes.nurseries.mcp_transport import TransportHost
from hermes.nurseries.services import Services
from tests.support.core import ScriptedModel, hang, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, Refusal, connected, gateway_server

PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
    + (640).to_bytes(4, "big")
    + (480).to_bytes(4, "big")
    + b"\x08\x02\x00\x00\x00"
).decode()


def configured(home: Path, *replies: Any) -> tuple[Services, ScriptedModel]:
    """Services whose configuration can be changed, below a home of their own."""
    services, model = make_services(*replies, home=home)
    config = LiveConfig(load_settings(environ={}, home=home))
    return replace(services, config=config, settings=config.current), model


async def _talked(host: GatewayHost, *texts: str, **create: Any) -> str:
    session_id: str = (await host.call("session.create", **create))["session_id"]
    for text in texts:
        await host.call("prompt.submit", session_id=session_id, text=text)
        await host.event("message.complete")
    return session_id


# --- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("skin", "default"),
        ("theme", "auto"),
        ("indicator", "kaomoji"),
        ("personality", "none"),
        ("statusbar", "top"),
        ("density", "off"),
        ("compact", "off"),
        ("mouse", "all"),
        ("fast", "normal"),
        ("reasoning", "medium"),
        ("busy", "interrupt"),
        ("approval_mode", "manual"),
        ("details_mode", "collapsed"),
        ("thinking_mode", "collapsed"),
        ("focus", "off"),
    ],
)
async def test_keys_have_their_defaults(autojump_clock: Any, tmp_path: Path, key: str, value: str) -> None:
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        assert (await host.call("config.get", key=key))["value"] == value


async def test_other_readable_keys(autojump_clock: Any, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model:\n  api_key: very-secret\n")
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        whole = await host.call("config.get", key="full")
        assert whole["config"]["display"]["busy_input_mode"] == "interrupt"
        assert "very-secret" not in json.dumps(whole)
        stamp = await host.call("config.get", key="mtime")
        assert stamp["mtime"] > 0 and stamp["mcp_rev"]
        assert (await host.call("config.get", key="provider"))["provider"] == "custom"
        assert (await host.call("config.get", key="profile"))["home"] == str(tmp_path)
        assert (await host.call("config.get", key="project", cwd=str(tmp_path)))["cwd"] == str(tmp_path)
        assert (await host.call("config.get", key="prompt"))["prompt"] == ""
        shown = await host.call("config.show")
        assert [section["title"] for section in shown["sections"]] == ["Model", "Agent", "Environment"]
        with pytest.raises(Refusal) as unknown:
            await host.call("config.get", key="nonsense")
        assert unknown.value.code == 4002


async def test_setting_keys_changes_the_file_and_refuses_nonsense(tmp_path: Path) -> None:
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        assert (await host.call("config.set", key="busy", value="queue"))["value"] == "queue"
        assert (await host.call("config.set", key="busy"))["value"] == "queue"
        assert "busy_input_mode: queue" in (tmp_path / "config.yaml").read_text()
        for key, value in (("busy", "loudly"), ("nonsense", "x"), ("fast", "warp"), ("cwd", "/no/such/place")):
            with pytest.raises(Refusal) as refused:
                await host.call("config.set", key=key, value=value)
            assert refused.value.code == 4002, key
        assert (await host.call("config.set", key="verbose"))["value"] == "verbose"
        focused = await host.call("config.set", key="focus", value="on")
        assert (focused["value"], focused["tool_progress"]) == ("on", "off")
        assert (await host.call("config.set", key="details_mode.tools", value="expanded"))["value"] == "expanded"
        with pytest.raises(Refusal) as sessionless:
            await host.call("config.set", key="model", value="x")
        assert sessionless.value.code == 4001
        for key in ("model", "fast", "yolo", "reasoning"):
            with pytest.raises(Refusal) as stale:
                await host.call("config.set", key=key, value="on", session_id="00000000")
            assert stale.value.code == 4001


async def test_choices_of_a_session_are_announced_and_survive_a_resume(tmp_path: Path) -> None:
    services, _ = configured(tmp_path, say("a"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, "first")
        key = tree.registry.get(session_id).key
        mark = len(host.frames)
        yolo = await host.call("config.set", key="yolo", session_id=session_id)
        assert (yolo["value"], yolo["scope"]) == ("1", "session")
        await host.call("config.set", key="reasoning", value="high", session_id=session_id)
        infos = [f["params"]["payload"] for f in host.frames[mark:] if _type(f) == "session.info"]
        assert infos[0]["yolo"] is True and infos[-1]["reasoning_effort"] == "high"
        await host.call("session.close", session_id=session_id)
        back = await host.call("session.resume", session_id=key)
        assert (back["info"]["yolo"], back["info"]["reasoning_effort"]) == (True, "high")


async def test_set_up_models_and_reloads_answer(autojump_clock: Any, tmp_path: Path) -> None:
    services, _ = make_services(home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        assert (await host.call("setup.status"))["provider_configured"] is True
        check = await host.call("setup.runtime_check")
        assert (check["ok"], check["model"]) == (True, "scripted-1")
        options = await host.call("model.options")
        assert options["providers"][0]["is_current"] is True
        asked = await host.call("reload.mcp")
        assert asked["status"] == "confirm_required" and asked["message"]
        assert (await host.call("reload.mcp", confirm=True))["status"] == "reloaded"
        assert await host.call("reload.env") == {"updated": 0}


async def test_a_provider_key_is_saved_for_the_owner_alone_and_can_be_taken_back(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# mine\nOTHER=1\n")
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        saved = await host.call("model.save_key", slug="anthropic", api_key="sk-secret-value")
        assert saved["provider"]["slug"] == "anthropic" and "sk-secret-value" not in json.dumps(saved)
        text = (tmp_path / ".env").read_text()
        assert text.startswith("# mine\nOTHER=1\n") and "=sk-secret-value" in text
        assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
        gone = await host.call("model.disconnect", slug="anthropic")
        assert gone["disconnected"] is True
        assert (tmp_path / ".env").read_text() == "# mine\nOTHER=1\n"
        for params, code in (({"slug": "anthropic"}, 4005), ({"slug": "nonsense"}, 4001), ({}, 4001)):
            with pytest.raises(Refusal) as refused:
                await host.call("model.disconnect", **params)
            assert refused.value.code == code


# --- commands --------------------------------------------------------------------------------------------------------


async def test_both_shapes_of_dispatch_switch_the_model(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host)
        await host.event("session.info")
        done = await host.call("command.dispatch", command="/model other-1")
        assert done["type"] == "exec" and done["output"].startswith("model: other-1 (custom)")
        assert (await host.event("session.info"))["payload"]["model"] == "other-1"
        named = await host.call("command.dispatch", name="/model", arg="third-1", session_id=session_id)
        assert named["output"].startswith("model: third-1")
        set_it = await host.call("config.set", key="model", value="fourth-1", session_id=session_id)
        assert (set_it["value"], set_it["scope"], set_it["confirm_required"]) == ("fourth-1", "session", False)
        with pytest.raises(Refusal) as bad:
            await host.call("config.set", key="model", value="--once --global x", session_id=session_id)
        assert bad.value.code == 4002
        with pytest.raises(Refusal) as empty:
            await host.call("command.dispatch", command="/")
        assert empty.value.code == 4004


async def test_the_catalogue_names_resolve_and_run(tmp_path: Path) -> None:
    services, _ = configured(tmp_path, *[say("x") for _ in range(60)])
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, "first", "second", "third")
        catalogue = await host.call("commands.catalog")
        assert {"/model", "/help", "/undo"} <= {name for name, _ in catalogue["pairs"]}
        assert catalogue["canon"]["/reset"] == "/new"
        resolved = await host.call("command.resolve", name="/RESET")
        assert resolved["canonical"] == "new"
        with pytest.raises(Refusal) as unknown:
            await host.call("command.resolve", name="nonsense")
        assert unknown.value.code == 4011
        needs = {"steer": "x", "queue": "list", "bg": "x", "btw": "x", "image": None}
        for name, _ in catalogue["pairs"]:
            arg = needs.get(name[1:], "")
            if arg is not None:
                result = await host.call("command.dispatch", name=name, arg=arg, session_id=session_id)
                assert result["type"] in ("exec", "send", "prefill"), name


async def test_slash_exec_prints_text_or_gives_a_prompt() -> None:
    services, _ = make_services(say("a"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, "first")
        run = {"session_id": session_id}
        assert "Session ID" in (await host.call("slash.exec", command="/status", **run))["output"]
        assert await host.call("slash.exec", command="queue abc", **run) == {"type": "send", "message": "abc"}
        undone = await host.call("slash.exec", command="/undo", **run)
        assert (undone["type"], undone["message"]) == ("prefill", "first")
        unknown = await host.call("slash.exec", command="/nonsense", **run)
        assert "unknown command" in unknown["output"]
        with pytest.raises(Refusal) as refused:
            await host.call("command.dispatch", command="/nonsense", **run)
        assert refused.value.code == 4018


async def test_skills_and_quick_commands_are_commands_too(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "tidy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: Tidy Up\ndescription: Cleans.\n---\nSweep everything.\n")
    (tmp_path / "config.yaml").write_text(
        "quick_commands:\n  hi:\n    prompt: Say hello to\n  go:\n    alias: /status\n"
        "  where:\n    type: exec\n    command: pwd\n  broken:\n    command: echo sorry; exit 3\n"
    )
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host)
        run = {"session_id": session_id}
        await host.call("session.cwd.set", cwd=str(tmp_path), **run)
        called = await host.call("command.dispatch", command="/tidy-up the desk", **run)
        assert (called["type"], called["name"], called["display"]) == ("skill", "Tidy Up", "/tidy-up the desk")
        assert "Sweep everything." in called["message"] and "the desk" in called["message"]
        quick = await host.call("command.dispatch", command="/hi Bob", **run)
        assert quick == {"type": "send", "message": "Say hello to Bob"}
        assert (await host.call("command.dispatch", command="/go", **run))["target"] == "/status"
        where = await host.call("command.dispatch", command="/where", **run)
        assert where == {"type": "exec", "output": str(tmp_path)}
        with pytest.raises(Refusal) as failed:
            await host.call("command.dispatch", command="/broken", **run)
        assert failed.value.code == 4018 and "code 3: sorry" in failed.value.message
        with pytest.raises(Refusal) as skill_refused:
            await host.call("slash.exec", command="/tidy-up", **run)
        assert skill_refused.value.code == 4018
        catalogue = await host.call("commands.catalog", **run)
        assert catalogue["skill_count"] == 1 and ["/tidy-up", "Cleans."] in catalogue["pairs"]
        assert (await host.call("skills.manage"))["skills"] == {"general": ["Tidy Up"]}
        inspected = await host.call("skills.manage", action="inspect", query="tidy-up")
        assert inspected["info"]["skill_md_preview"] == "Sweep everything."
        items = (await host.call("complete.slash", text="/tid", **run))["items"]
        assert [item["text"] for item in items] == ["tidy-up"]
        assert (await host.call("skills.reload"))["result"]["total"] == 1


async def test_completion_of_commands_and_paths(tmp_path: Path) -> None:
    (tmp_path / "alpha").mkdir()
    (tmp_path / "alpine.txt").write_text("x")
    services, _ = make_services(home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        slash = await host.call("complete.slash", text="/bus")
        assert slash["items"][0]["text"] == "busy" and slash["replace_from"] == 1
        options = await host.call("complete.slash", text="/busy st")
        assert [item["text"] for item in options["items"]] == ["steer", "status"] and options["replace_from"] == 6
        assert (await host.call("complete.slash", text="hello"))["items"] == []
        paths = await host.call("complete.path", word="./al", cwd=str(tmp_path))
        assert [item["text"] for item in paths["items"]] == ["./alpha/", "./alpine.txt"]
        folders = await host.call("complete.path", word="@folder:al", cwd=str(tmp_path))
        assert [item["text"] for item in folders["items"]] == ["@folder:alpha/"]
        refs = await host.call("complete.path", word="@")
        assert "@file:" in [item["text"] for item in refs["items"]]


async def test_the_command_line_and_the_shell_run_and_are_guarded(tmp_path: Path) -> None:
    services, _ = make_services(home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        for argv in ([], ["setup"], ["gateway"], ["config", "edit"]):
            assert (await host.call("cli.exec", argv=argv))["blocked"] is True
        version = await host.call("cli.exec", argv=["version"])
        assert (version["blocked"], version["code"]) == (False, 0) and version["output"].strip()
        for wrong in ("version", [1], None):
            with pytest.raises(Refusal) as refused:
                await host.call("cli.exec", argv=wrong)
            assert refused.value.code == 4003
        assert (await host.call("shell.exec", command="echo hi; exit 3")) == {"stdout": "hi\n", "stderr": "", "code": 3}
        apart = await host.call("shell.exec", command="echo out; echo err >&2; cat")
        assert apart == {"stdout": "out\n", "stderr": "err\n", "code": 0}
        long = await host.call("shell.exec", command="seq 100000; seq 50000 >&2; kill -9 $$")
        assert (len(long["stdout"]), len(long["stderr"]), long["code"]) == (4000, 2000, 137)
        assert long["stdout"].endswith("\n100000\n") and long["stderr"].endswith("\n50000\n")
        for command, code in (("rm -rf /", 4005), ("  ", 4004)):
            with pytest.raises(Refusal) as guarded:
                await host.call("shell.exec", command=command)
            assert guarded.value.code == code


async def test_a_difference_is_shown_where_there_is_a_repository_and_said_to_be_none_elsewhere(tmp_path: Path) -> None:
    services, _ = make_services(home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create", cwd=str(tmp_path)))["session_id"]
        for command in ("/diff", "/diff --stat"):
            told = await host.call("slash.exec", session_id=session_id, command=command)
            assert told["output"] == "this directory is not in a git repository"


async def test_a_shell_command_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_processes, "SHELL_SECONDS", 0.3)
    services, _ = make_services(home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        with pytest.raises(Refusal) as refused:
            await host.call("shell.exec", command="sleep 300")
        assert refused.value.code == 5002
        assert services.supervisor.live() == []


def _type(frame: dict[str, Any]) -> str | None:
    return frame["params"]["type"] if frame.get("method") == "event" else None


async def test_a_configured_mcp_server_can_be_tried(tmp_path: Path) -> None:
    services, _ = make_services(home=tmp_path)
    servers = McpServers(TransportHost(services.supervisor, dict, str(tmp_path)))
    servers.configure([McpServerConfig(name="broken", command="/no/such/program")])
    async with running_tree(services) as tree, trio.open_nursery() as nursery, connected(tree) as host:
        tree.mcp = servers
        await nursery.start(servers.run, tree.scope)
        assert [row["name"] for row in (await host.call("mcp.servers.list"))["servers"]] == ["broken"]
        tried = await host.call("mcp.servers.test", name="broken")
        assert (tried["ok"], tried["tools"]) == (False, []) and tried["error"]
        assert (await host.call("mcp.servers.status"))["servers"][0]["connected"] is False
        with pytest.raises(Refusal) as unknown:
            await host.call("mcp.servers.test", name="nonsense")
        assert unknown.value.code == 4064
        nursery.cancel_scope.cancel()


async def test_the_conversation_is_saved_as_people_read_it(tmp_path: Path) -> None:
    services, _ = make_services(say("a <b> & sk-ant-api03-" + "x" * 40), home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, "first", cwd=str(tmp_path))

        async def saved(arg: str) -> Path:
            done = await host.call("slash.exec", session_id=session_id, command=f"/save {arg}")
            return Path(done["output"].removeprefix("saved to "))

        assert json.loads((await saved("")).read_text())["messages"][0] == {"role": "user", "text": "first"}
        assert "## User\n\nfirst\n" in (await saved("md notes.md")).read_text()
        page = await saved("talk.html redact")
        assert page == tmp_path / "talk.html"
        assert "a &lt;b&gt; &amp;" in page.read_text() and "xxxxxxxxxxxxxxxxxxxx" not in page.read_text()
        with pytest.raises(Refusal):
            await saved("pdf")


async def test_the_queue_can_be_read_changed_and_cleared(autojump_clock: Any) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host)

        async def queue(arg: str) -> str:
            done = await host.call("slash.exec", session_id=session_id, command=f"/queue {arg}")
            return str(done["output"])

        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.start")
        for text in ("one", "two", "three"):
            assert await queue(text) == "queued for the next turn"
        await queue("move 3 1")
        await queue("edit 2 uno")
        assert [line.split(" ", 1)[1] for line in (await queue("list")).splitlines()] == ["three", "uno", "two"]
        snapshot = await host.call("session.activate", session_id=session_id)
        assert snapshot["queued"] == {"user": "three"}
        await queue("rm 1")
        assert "2 prompts dropped" in await queue("clear")
        assert await queue("list") == "the queue is empty"
        with pytest.raises(Refusal):
            await queue("edit 1 text")


async def test_toolsets_are_switched_by_command(tmp_path: Path) -> None:
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        run = {"session_id": await _talked(host)}
        await host.event("session.info")
        names = [row["name"] for row in (await host.call("toolsets.list", **run))["toolsets"]]
        done = await host.call("slash.exec", command=f"/tools disable {names[0]}", **run)
        assert done["output"].startswith(f"disabled: {names[0]}")
        assert list(services.settings().agent.disabled_toolsets) == [names[0]]
        await host.call("slash.exec", command=f"/tools enable {names[0]}", **run)
        assert list(services.settings().agent.disabled_toolsets) == []


@pytest.mark.parametrize(
    ("key", "good", "kept"),
    [
        ("details_mode", "Expanded", "expanded"),
        ("details_mode.tools", "hidden", "hidden"),
        ("thinking_mode", "full", "full"),
        ("density", True, "on"),
        ("compact", False, "off"),
        ("theme", "dark", "dark"),
        ("statusbar", "bottom", "bottom"),
        ("mouse", "off", "off"),
        ("indicator", "ascii", "ascii"),
    ],
)
async def test_an_enumerated_key_takes_its_words_only_and_no_value_asks(
    key: str, good: Any, kept: str, tmp_path: Path
) -> None:
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        assert (await host.call("config.set", key=key, value=good))["value"] == kept
        for bad in ("nonsense", 7):
            with pytest.raises(Refusal, match="4002"):
                await host.call("config.set", key=key, value=bad)
        assert (await host.call("config.set", key=key))["value"] == kept
        assert (await host.call("config.get", key=key))["value"] == kept


async def test_no_value_asks_for_the_prompt_and_the_personality(tmp_path: Path) -> None:
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        for key, value in (("prompt", "Be brief."), ("personality", "pirate")):
            await host.call("config.set", key=key, value=value)
            assert (await host.call("config.set", key=key))["value"] == value
        assert (await host.call("config.set", key="prompt", value="clear"))["value"] == ""


async def test_one_check_of_a_provider_at_a_time(autojump_clock: Any) -> None:
    services, _ = make_services()
    asked, go_on = trio.Event(), trio.Event()
    resolve = services.models.resolve

    async def slow(model: str | None, provider: str | None) -> Any:
        asked.set()
        await go_on.wait()
        return await resolve(model, provider)

    services.models.resolve = slow  # type: ignore[method-assign]
    async with running_tree(services) as tree:
        server = gateway_server(tree)
        async with connected(tree, server=server) as first, connected(tree, name="other", server=server) as second:
            check = first.start("setup.runtime_check")
            await asked.wait()
            with pytest.raises(Refusal, match="5097"):
                await second.call("setup.runtime_check")
            go_on.set()
            assert (await first.answer(check))["ok"] is True
            assert (await second.call("setup.runtime_check"))["ok"] is True


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("/queue", 4004),
        ("/queue rm 9", 4004),
        ("/save nonsense", 4004),
        ("/image", 4004),
        ("/image /no/such.png", 4016),
        ("/bg", 4004),
        ("/retry", 4018),
        ("/busy loud", 4002),
    ],
)
async def test_a_command_that_cannot_be_done_is_refused_alike_by_both_methods(
    command: str, code: int, tmp_path: Path
) -> None:
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        for method in ("slash.exec", "command.dispatch"):
            with pytest.raises(Refusal) as refused:
                await host.call(method, session_id=session_id, command=command)
            assert refused.value.code == code, method


async def test_rules_of_approval_that_hold_for_all_are_shown_by_all(tmp_path: Path) -> None:
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        one, other = [await _talked(host) for _ in range(2)]

        def shown(mark: int, what: str) -> set[tuple[str, Any]]:
            infos = [frame["params"] for frame in host.frames[mark:] if _type(frame) == "session.info"]
            return {(info["session_id"], info["payload"][what]) for info in infos}

        mark = len(host.frames)
        await host.call("config.set", key="approvals.mode", value="smart", session_id=one)
        assert shown(mark, "approval_mode") >= {(one, "smart"), (other, "smart")}
        mark = len(host.frames)
        await host.call("config.set", key="yolo", value="on", scope="global")
        assert shown(mark, "yolo") == {(one, True), (other, True)}
        mark = len(host.frames)
        await host.call("command.dispatch", command="/approvals manual", session_id=other)
        assert shown(mark, "approval_mode") >= {(one, "manual"), (other, "manual")}
