"""What stands around a conversation: history changes, side agents, archives, attachments, tools."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes.config import load_settings
from hermes.live_config import LiveConfig
from hermes.nurseries.services import Services
from tests.support.core import ScriptedModel, hang, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, Refusal, connected

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


# --- history ---------------------------------------------------------------------------------------------------------


async def test_undo_gives_the_text_back_and_can_itself_be_undone(autojump_clock: Any) -> None:
    services, _ = make_services(say("a"), say("b"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, "first", "second")
        undone = await host.call("session.undo", session_id=session_id)
        assert undone == {"removed": 2, "text": "second", "survivor_user_row_ids": [1]}
        back = await host.call("session.undo_rewind", session_id=session_id)
        assert [message["text"] for message in back["messages"]] == ["first", "a", "second", "b"]
        await host.call("session.undo", session_id=session_id, count=2)
        with pytest.raises(Refusal) as nothing:
            await host.call("session.undo", session_id=session_id)
        assert nothing.value.code == 4018


async def test_what_needs_an_idle_session_is_refused_while_a_turn_runs(autojump_clock: Any, tmp_path: Path) -> None:
    services, _ = make_services(say("a"), hang())
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, "first")
        await host.call("prompt.submit", session_id=session_id, text="hang")
        await host.event("message.start")
        for method, params in (
            ("session.undo", {}),
            ("session.compress", {}),
            ("session.cwd.set", {"cwd": str(tmp_path)}),
            ("slash.exec", {"command": "/undo"}),
        ):
            with pytest.raises(Refusal) as busy:
                await host.call(method, session_id=session_id, **params)
            assert busy.value.code == 4009, method
            assert "session busy" in busy.value.message


async def test_a_branch_is_live_has_new_rows_and_leaves_its_parent_alone(autojump_clock: Any) -> None:
    services, _ = make_services(say("a"), say("b"), say("c"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, "first", "second")
        parent = tree.registry.get(session_id)
        branch = await host.call("session.branch", session_id=session_id, count=2, idempotency_key="k")
        assert branch["parent"] == parent.key and branch["session_id"] != session_id
        assert [message["text"] for message in branch["messages"]] == ["first", "a"]
        assert not {message["row_id"] for message in branch["messages"]} & {row.row_id for row in parent.rows}
        again = await host.call("session.branch", session_id=session_id, count=2, idempotency_key="k")
        assert again["session_id"] == branch["session_id"]
        whole = await host.call("session.branch_whole", session_id=session_id, name="copy")
        assert (whole["title"], whole["message_count"], whole["messages_omitted"]) == ("copy", 4, True)
        await host.call("prompt.submit", session_id=branch["session_id"], text="third")
        await host.event("message.complete")
        assert len(parent.rows) == 4
        empty = await host.call("session.create")
        with pytest.raises(Refusal) as nothing:
            await host.call("session.branch", session_id=empty["session_id"])
        assert nothing.value.code == 4008


async def test_compress_reports_what_it_did(autojump_clock: Any) -> None:
    services, _ = make_services(*[say("a long answer " * 40) for _ in range(6)], say("SUMMARY"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, *[f"question {n} " * 40 for n in range(6)])
        preview = await host.call("session.compress", session_id=session_id, focus_topic="--preview")
        assert preview["before_messages"] == 12
        done = await host.call("session.compress", session_id=session_id, focus_topic="here 1")
        assert done["status"] == "compressed" and done["removed"] > 0
        assert done["after_tokens"] < done["before_tokens"]
        kinds = [f["params"]["payload"]["kind"] for f in host.frames if _type(f) == "status.update"]
        assert kinds == ["compressing", "status"]


async def test_stored_sessions_are_hidden_archived_deleted_and_saved(tmp_path: Path) -> None:
    services, _ = make_services(say("a"), home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, "first")
        key = tree.registry.get(session_id).key
        saved = await host.call("session.save", session_id=session_id)
        assert json.loads(Path(saved["file"]).read_text())["session_id"] == key
        hidden = await host.call("session.set_hidden", session_id=session_id, hidden=True)
        assert hidden == {"hidden": True, "session_key": key}
        assert (await host.call("session.list"))["sessions"] == []
        assert len((await host.call("session.list", include_hidden=True))["sessions"]) == 1
        await host.call("session.set_hidden", session_id=session_id, hidden=False)
        assert (await host.call("session.archive", session_key=key))["archived"] is True
        assert (await host.call("session.list"))["sessions"] == []
        with pytest.raises(Refusal) as live:
            await host.call("session.delete", session_id=key)
        assert live.value.code == 4023
        await host.call("session.close", session_id=session_id)
        assert await host.call("session.delete", session_id=key) == {"deleted": key}
        with pytest.raises(Refusal) as gone:
            await host.call("session.delete", session_id=key)
        assert gone.value.code == 4007


async def test_the_directory_of_a_session_can_be_changed(tmp_path: Path) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host)
        moved = await host.call("session.cwd.set", session_id=session_id, cwd=str(tmp_path))
        assert moved["cwd"] == str(tmp_path)
        for cwd, code in (("  ", 4016), (str(tmp_path / "none"), 4017)):
            with pytest.raises(Refusal) as refused:
                await host.call("session.cwd.set", session_id=session_id, cwd=cwd)
            assert refused.value.code == code
        parts = await host.call("session.context_breakdown", session_id=session_id)
        assert parts["context_estimated"] is True and parts["categories"]


# --- side agents and the tree ----------------------------------------------------------------------------------------


async def test_side_agents_answer_beside_a_running_turn(autojump_clock: Any) -> None:
    services, _ = make_services(hang(), say("in the background"), say("by the way"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host)
        await host.call("prompt.submit", session_id=session_id, text="hang")
        await host.event("message.start")
        started = await host.call("prompt.background", session_id=session_id, text="work")
        done = await host.event("background.complete")
        assert done["payload"] == {"task_id": started["task_id"], "text": "in the background"}
        asked = await host.call("prompt.btw", session_id=session_id, text="why?")
        answer = await host.event("btw.complete")
        assert answer["payload"] == {"task_id": asked["task_id"], "question": "why?", "text": "by the way"}
        for method in ("prompt.background", "prompt.btw"):
            with pytest.raises(Refusal) as empty:
                await host.call(method, session_id=session_id, text=" ")
            assert empty.value.code == 4012


async def test_any_node_of_the_live_tree_can_be_cancelled_alone(autojump_clock: Any) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree, connected(tree) as host:
        subscribed = await host.call("tree.subscribe")
        assert subscribed["subscribed"] is True
        session_id = await _talked(host)
        await host.call("prompt.submit", session_id=session_id, text="hang")
        await host.event("message.start")
        changed = await host.event("tree.changed")
        assert changed["payload"]["tree"]["kind"] == "server"
        node = next(node for node in tree.registry.get(session_id).scope.walk() if node.kind == "turn")
        shown = await host.call("tree.get", node_id=node.node_id)
        assert shown["tree"]["kind"] == "turn"
        assert (await host.call("scope.cancel", node_id=node.node_id, reason="this one"))["cancelled"] is True
        complete = await host.event("message.complete")
        assert (complete["payload"]["cause"], complete["payload"]["reason"]) == ("node_cancel", "this one")
        with pytest.raises(Refusal) as gone:
            await host.call("scope.cancel", node_id="n0")
        assert gone.value.code == 4044
        assert (await host.call("tree.subscribe", subscribed=False))["subscribed"] is False


async def test_delegation_can_be_paused_and_strangers_manage_no_subagents(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host, connected(tree, name="other") as other:
        assert (await host.call("delegation.status"))["paused"] is False
        assert await host.call("delegation.pause", paused=True) == {"paused": True}
        assert services.delegation.paused is True
        session_id = await _talked(host)
        assert await host.call("subagent.list", session_id=session_id) == {"subagents": [], "delegations": []}
        assert (await host.call("subagent.interrupt", subagent_id="sa-1"))["found"] is False
        with pytest.raises(Refusal) as stranger:
            await other.call("subagent.list", session_id=session_id)
        assert stranger.value.code == 4001
        with pytest.raises(Refusal) as unnamed:
            await host.call("subagent.interrupt", session_id=session_id)
        assert unnamed.value.code == 4000
        assert (await host.call("process.list", session_id=session_id))["processes"] == []
        assert await host.call("process.stop") == {"killed": 0}
        with pytest.raises(Refusal) as unknown:
            await host.call("process.kill", session_id=session_id, process_id="proc_1")
        assert unknown.value.code == 4044


async def test_spawn_trees_come_back_unchanged_and_only_from_the_archive(tmp_path: Path) -> None:
    services, _ = make_services(home=tmp_path)
    tree_of_agents = [{"id": "sa-1", "anything": {"goes": True}}]
    async with running_tree(services) as tree, connected(tree) as host:
        saved = await host.call("spawn_tree.save", subagents=tree_of_agents, session_id="a/b", label="x", finished_at=5)
        await host.call("spawn_tree.save", subagents=tree_of_agents, finished_at=9)
        loaded = await host.call("spawn_tree.load", path=saved["path"])
        assert (loaded["subagents"], loaded["label"]) == (tree_of_agents, "x")
        listed = await host.call("spawn_tree.list", cross_session=True)
        assert [entry["finished_at"] for entry in listed["entries"]] == [9, 5]
        one = await host.call("spawn_tree.list", session_id="a/b")
        assert [entry["path"] for entry in one["entries"]] == [saved["path"]]
        outside = tmp_path / "outside.json"
        outside.write_text("{}")
        (tmp_path / "spawn-trees" / "link.json").symlink_to(outside)
        for path, code in (("", 4000), ("../outside.json", 4030), ("link.json", 4030), (str(outside), 4030)):
            with pytest.raises(Refusal) as refused:
                await host.call("spawn_tree.load", path=path)
            assert refused.value.code == code
        with pytest.raises(Refusal) as empty:
            await host.call("spawn_tree.save", subagents=[])
        assert empty.value.code == 4000


# --- attachments -----------------------------------------------------------------------------------------------------


async def test_images_wait_for_the_next_prompt(tmp_path: Path) -> None:
    services, model = make_services(say("nice"), home=tmp_path)
    picture = tmp_path / "my picture.png"
    picture.write_bytes(base64.b64decode(PNG))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, cwd=str(tmp_path))
        run = {"session_id": session_id}
        uploaded = await host.call("image.attach_bytes", content_base64=PNG, filename="a.png", **run)
        assert (uploaded["width"], uploaded["height"], uploaded["count"]) == (640, 480, 1)
        assert Path(uploaded["path"]).parent == tmp_path / "images"
        named = await host.call("image.attach", path=f"'{picture}' look", **run)
        assert (named["count"], named["remainder"]) == (2, "look")
        dropped = await host.call("input.detect_drop", text=f"{str(picture).replace(' ', chr(92) + ' ')} what?", **run)
        assert (dropped["matched"], dropped["is_image"], dropped["text"]) == (True, True, "what?")
        assert await host.call("image.detach", path=str(picture), **run) == {"detached": True, "count": 1}
        await host.call("prompt.submit", text="see", **run)
        await host.event("message.complete")
        content = model.requests[0].messages[-1].content
        assert isinstance(content, tuple) and len(content) == 2
        for params, code in (
            ({"content_base64": "%%%"}, 4017),
            ({"content_base64": base64.b64encode(b"text").decode()}, 4017),
            ({}, 4015),
        ):
            with pytest.raises(Refusal) as refused:
                await host.call("image.attach_bytes", **params, **run)
            assert refused.value.code == code
        with pytest.raises(Refusal) as missing:
            await host.call("image.attach", path="/no/such.png", **run)
        assert missing.value.code == 4016


async def test_who_joins_a_running_turn_sees_the_pictures_of_its_prompt(tmp_path: Path) -> None:
    services, _ = make_services(hang(), home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host, connected(tree, name="second") as second:
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("image.attach_bytes", content_base64=PNG, filename="a.png", session_id=session_id)
        await host.call("prompt.submit", text="see", session_id=session_id)
        await host.event("message.start")
        joined = await second.call("session.activate", session_id=session_id, omit_messages=True)
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
        assert joined["inflight"]["content"] == [{"type": "text", "text": "see"}, picture]
        key = joined["session_key"]
        bare = await second.call("session.resume", session_id=key, inline_images=False)
        assert bare["inflight"]["content"] == [{"type": "text", "text": "see"}, {"type": "text", "text": "[image]"}]
        await host.call("session.interrupt", session_id=session_id)
        settled = await second.call("session.activate", session_id=session_id)
        assert (settled["inflight"], settled["messages"][0]["content"]) == (None, joined["inflight"]["content"])


async def test_files_are_named_by_reference(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    services, _ = make_services(home=home)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host, cwd=str(work))
        run = {"session_id": session_id}
        inside = await host.call("file.attach", path="a.txt", **run)
        assert (inside["ref_text"], inside["uploaded"]) == ("@file:a.txt", False)
        outside = await host.call("file.attach", path=str(tmp_path / "b.txt"), **run)
        assert Path(outside["path"]).read_text() == "b" and outside["path"].startswith(str(home))
        url = "data:text/plain;base64," + base64.b64encode(b"c").decode()
        first = await host.call("file.attach", data_url=url, name="c.txt", **run)
        second = await host.call("file.attach", data_url=url, name="c.txt", **run)
        assert first["uploaded"] and (first["name"], second["name"]) == ("c.txt", "c_2.txt")
        drop = await host.call("input.detect_drop", text=f"{work}/a.txt explain", **run)
        assert (drop["is_image"], drop["text"]) == (False, "@file:a.txt explain")
        (work / "two words.txt").write_text("d")
        spaced = await host.call("input.detect_drop", text=f" {work}/two words.txt\n", **run)
        assert (spaced["path"], spaced["text"]) == (f"{work}/two words.txt", "@file:two words.txt")
        (work / "two words.png").write_bytes(base64.b64decode(PNG))
        image = await host.call("input.detect_drop", text=f"{work}/two words.png", **run)
        assert (image["is_image"], image["name"], image["text"]) == (True, "two words.png", "")
        assert await host.call("input.detect_drop", text="just words", **run) == {"matched": False}
        paste = await host.call("paste.collapse", text="1\n2\n3")
        assert paste["lines"] == 3 and paste["placeholder"].startswith("[Pasted text #1: 3 lines → ")
        facts = await host.call("project.facts", cwd=str(work))
        assert facts["facts"]["root"] == str(work)
        for nowhere in ("/" + "x" * 70_000, "/a\0b", str(work / "a.txt" / "below")):
            assert await host.call("project.facts", cwd=nowhere) == {"facts": None}


async def test_tools_can_be_listed_and_switched_off(tmp_path: Path) -> None:
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _talked(host)
        listed = await host.call("tools.list", session_id=session_id)
        assert listed["toolsets"][0]["tool_count"] == len(listed["toolsets"][0]["tools"])
        shown = await host.call("tools.show", session_id=session_id)
        assert shown["total"] == sum(row["tool_count"] for row in listed["toolsets"])
        changed = await host.call("tools.configure", action="disable", names=["memory", "nonsense"])
        assert (changed["changed"], changed["unknown"]) == (["memory"], ["nonsense"])
        assert services.settings().agent.disabled_toolsets == ("memory",)
        back = await host.call("tools.configure", action="enable", names=["memory"], session_id=session_id)
        assert back["changed"] == ["memory"] and "info" in back
        assert (await host.call("mcp.servers.list"))["servers"] == []
        assert (await host.call("rollback.list", session_id=session_id))["enabled"] is False
        with pytest.raises(Refusal) as refused:
            await host.call("rollback.restore", session_id=session_id)
        assert refused.value.code == 4014


def _type(frame: dict[str, Any]) -> str | None:
    return frame["params"]["type"] if frame.get("method") == "event" else None
