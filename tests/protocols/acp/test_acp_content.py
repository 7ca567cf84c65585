"""Prompt content: links, embedded resources, images, and what is refused."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from hermes.errors import InvalidParams
from hermes.messages import Content, ImagePart, TextPart, content_text
from hermes.protocols.acp.content import MAX_LINKED_TEXT, local_path, read_prompt
from hermes.protocols.acp.schemas import windows_to_mount
from tests.support.acp import acp_client
from tests.support.core import make_services

HOME = Path("/nowhere/home")
PNG = base64.b64encode(b"\x89PNG not really").decode()


def link(path: Path | str, name: str = "a file") -> dict[str, Any]:
    return {"type": "resource_link", "uri": str(path) if "://" in str(path) else f"file://{path}", "name": name}


async def loaded(*blocks: dict[str, Any]) -> Content:
    return await read_prompt(blocks).load(HOME)


async def test_text_is_what_is_shown_and_what_the_model_reads() -> None:
    prompt = read_prompt([{"type": "text", "text": "a"}, {"type": "text", "text": "b", "annotations": {}}])
    assert (prompt.shown, prompt.differs, prompt.command_text) == ("a\nb", False, "a\nb")


async def test_a_linked_text_file_is_read_for_the_model_and_shown_as_a_link(tmp_path: Path) -> None:
    file = tmp_path / "my notes.txt"
    file.write_text("fünf")
    uri = f"file://localhost{str(file).replace(' ', '%20')}"
    prompt = read_prompt([{"type": "text", "text": "see"}, link(uri, "notes")])
    assert prompt.shown == f"see\n[@notes]({uri})"
    assert prompt.command_text is None
    assert await prompt.load(HOME) == f"see\n[File notes ({uri})]\nfünf"


async def test_a_long_file_is_cut_at_a_character_with_a_note(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("x" + "é" * MAX_LINKED_TEXT)
    text = content_text(await loaded(link(file)))
    assert len(text.encode()) < MAX_LINKED_TEXT + 300
    assert text.endswith(f"[cut after {MAX_LINKED_TEXT} of {file.stat().st_size} bytes]")
    assert "\ufffd" not in text


async def test_what_cannot_be_read_becomes_one_line(tmp_path: Path) -> None:
    binary = tmp_path / "x.bin"
    binary.write_bytes(b"\0\1\2")
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"f\xfcnf")
    for block in (link(binary), link(latin), link(tmp_path / "none"), link(tmp_path), link("https://x.example/y")):
        text = content_text(await loaded(block))
        assert text.startswith("[")
        assert text.count("\n") == 0


async def test_what_the_file_tools_may_not_read_is_not_read_by_a_link_either(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=the-secret")
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh" / "id_rsa").write_text("the-secret")
    (tmp_path / "shortcut.txt").symlink_to(tmp_path / ".env")
    os.mkfifo(tmp_path / "pipe")
    for name in (".env", "x/../.env", "shortcut.txt", "ssh/id_rsa", "pipe"):
        text = content_text(await read_prompt([link(tmp_path / name, name)]).load(tmp_path))
        assert (text[0], "the-secret" in text, "not read" in text) == ("[", False, True), name
    text = content_text(await loaded(link("/proc/self/environ")))
    assert text.endswith("was not read: it shows the memory or environment of a process]")
    # A project's own settings are no secrets of the agent.
    assert "the-secret" in content_text(await loaded(link(tmp_path / ".env")))


async def test_images_travel_as_images(tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    file.write_bytes(base64.b64decode(PNG))
    image = ImagePart("image/png", PNG)
    assert await loaded(link(file)) == (image,)
    assert await loaded({"type": "image", "data": PNG, "mimeType": "image/png"}) == (image,)
    assert await loaded({"type": "image", "data": f"data:image/png;base64,{PNG}", "mimeType": ""}) == (image,)
    remote = {"type": "image", "data": "", "mimeType": "image/png", "uri": "https://x.example/y.png"}
    assert await loaded(remote) == (ImagePart("image/png", url="https://x.example/y.png"),)
    blob = {"type": "resource", "resource": {"uri": "file:///x.png", "blob": PNG, "mimeType": "image/png"}}
    assert await loaded(blob) == (image,)


async def test_an_image_that_a_provider_would_refuse_is_not_put_into_the_history(tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    file.write_bytes(base64.b64decode(PNG))
    image = ImagePart("image/png", PNG)
    wrapped = "\r\n".join(PNG[at : at + 20] for at in range(0, len(PNG), 20))
    assert await loaded({"type": "image", "data": wrapped, "mimeType": "image/png"}) == (image,)
    local = {"type": "image", "mimeType": "image/png", "uri": file.as_uri()}
    assert read_prompt([local]).shown == f"[@x.png]({file.as_uri()})"
    assert await loaded(local) == (image,)
    secret = {"type": "image", "mimeType": "image/png", "uri": "file:///proc/self/environ"}
    assert "was not read" in content_text(await loaded(secret))
    for block in (
        {"type": "image", "mimeType": "image/png", "uri": "editor://selection/1"},
        {"type": "image", "data": PNG, "mimeType": 'application/x"\n'},
    ):
        assert isinstance(await loaded(block), str)


async def test_embedded_resources_are_inlined_for_the_model() -> None:
    text = {"type": "resource", "resource": {"uri": "file:///a/b.py", "text": "print()"}}
    assert read_prompt([text]).shown == "[@b.py](file:///a/b.py)"
    assert await loaded(text) == "[File b.py (file:///a/b.py)]\nprint()"
    blob = {"type": "resource", "resource": {"uri": "file:///a/b.bin", "blob": "%%%", "mimeType": "image/png"}}
    assert "binary data" in content_text(await loaded(blob))


@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "video"},
        {},
        {"type": "text"},
        {"type": "image"},
        {"type": "resource", "resource": {"uri": "x"}},
        {"type": "resource"},
    ],
)
def test_blocks_that_are_not_served_are_refused(block: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        read_prompt([block])


def test_local_paths_of_uris() -> None:
    assert local_path("file:///a%20b") == "/a b"
    assert local_path("file://elsewhere/a") is None
    assert local_path("https://a/b") is None
    assert windows_to_mount("C:\\work\\a") == "/mnt/c/work/a"
    assert windows_to_mount("/work") == "/work"


async def test_the_stored_prompt_keeps_the_link_and_the_model_gets_the_file(tmp_path: Path) -> None:
    file = tmp_path / "f.txt"
    file.write_text("content of the file")
    services, model = make_services()
    async with acp_client(services) as client:
        session = await client.new_session()
        blocks = [{"type": "text", "text": "explain"}, link(file, "f")]
        await client.call("session/prompt", sessionId=session, prompt=blocks)
        live = client.tree.registry.by_key(session)
        assert live is not None
        assert live.rows[0].content == f"explain\n[@f](file://{file})"
        assert "content of the file" in str(model.requests[0].messages)


async def test_an_image_with_a_command_word_goes_to_the_model() -> None:
    services, model = make_services()
    async with acp_client(services) as client:
        session = await client.new_session()
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        await client.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "/help"}, image])
        assert model.requests[0].messages[-1].content == (TextPart("/help"), ImagePart("image/png", PNG))
