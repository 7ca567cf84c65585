"""clipboard.paste asks the tool of the desktop, and says what is missing where there is none."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from hermes.errors import Unavailable
from hermes.nurseries.clipboard import clipboard_tool
from tests.support.core import make_services, running_tree
from tests.support.gateway_host import Refusal, connected


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("platform", "variables", "programs", "chosen"),
    [
        ("linux", {"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, ["wl-paste", "xclip"], "wl-paste"),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, ["xclip"], "xclip"),
        ("linux", {"DISPLAY": ":0"}, ["wl-paste", "xclip"], "xclip"),
        ("linux", {"DISPLAY": ":0"}, [], "install xclip"),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, [], "install wl-clipboard"),
        ("linux", {}, ["xclip"], "no desktop"),
        ("darwin", {}, ["pngpaste", "osascript"], "pngpaste"),
        ("darwin", {}, ["osascript"], "osascript"),
        ("darwin", {}, [], "missing"),
    ],
)
def test_the_tool_is_the_desktops_own(
    tmp_path: Path, platform: str, variables: dict[str, str], programs: list[str], chosen: str
) -> None:
    for name in programs:
        program(tmp_path / "bin", name, "true")
    environment = {**variables, "PATH": str(tmp_path / "bin")}
    try:
        assert clipboard_tool(environment, platform).program == chosen
    except Unavailable as error:
        assert chosen in error.message


async def test_an_image_on_the_clipboard_waits_for_the_next_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "image.b64").write_text(base64.b64encode(png(3, 2)).decode())
    program(tmp_path / "bin", "xclip", f"echo noise >&2; exec base64 -d {tmp_path / 'image.b64'}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    services, model = make_services(home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        pasted = await host.call("clipboard.paste", session_id=session_id)
        assert (pasted["attached"], pasted["width"], pasted["height"], pasted["count"]) == (True, 3, 2, 1)
        assert Path(pasted["path"]).read_bytes() == png(3, 2)
        program(tmp_path / "bin", "xclip", "echo no such target >&2; exit 1")
        nothing = await host.call("clipboard.paste", session_id=session_id)
        assert nothing == {"attached": False, "message": "there is no image on the clipboard"}
        await host.call("prompt.submit", session_id=session_id, text="look")
        await host.event("message.complete")
        assert "image" in repr(model.requests[0].messages).lower()


async def test_without_a_tool_the_refusal_says_what_to_do(
    autojump_clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    services, _ = make_services(home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        with pytest.raises(Refusal) as refused:
            await host.call("clipboard.paste", session_id=session_id)
        assert refused.value.code == 5027 and "image.attach_bytes" in refused.value.message
