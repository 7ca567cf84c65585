"""Images that a model gives to its children, through the real process: what the child's model is sent, and what is
refused in words."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving

pytestmark = pytest.mark.e2e

LIMIT = 90
PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\0\0\0\x02\0\0\0\x03" + b"\0" * 8
GIF = b"GIF89a\x01\0\x01\0" + b"\0" * 8


def inline(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def environment(provider: FakeProvider, **more: str) -> dict[str, str]:
    values = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789"}
    return {**values, "HERMES_MODEL": "fake-model", **more}


def delegated(arguments: dict[str, Any]) -> Script:
    return Script.of(
        Reply.of({"text": "I saw"}, when={"last_user_contains": "look at this", "last_role": "user"}),
        Reply.of({"tool_call": {"name": "delegate_task", "arguments": arguments}}),
        Reply.of({"text": "read"}),
        strict=True,
    )


async def played(driver: GatewayDriver, provider: FakeProvider, arguments: dict[str, Any]) -> tuple[str, list[Any]]:
    """What the parent's model reads of the call, and what the child's model was sent as its prompt."""
    seen = len(provider.requests)
    provider.replace_script(delegated(arguments))
    await driver.start("please")
    end = await driver.terminal()
    assert (end["status"], end["text"]) == ("complete", "read"), end
    requests = [one.body["messages"] for one in list(provider.requests)[seen:]]
    [result] = [row["content"] for row in requests[-1][-1:]]
    prompts = [messages[-1]["content"] for messages in requests if messages[-1]["role"] == "user"]
    return result, [prompt for prompt in prompts if "look at this" in json.dumps(prompt)]


def urls(content: Any) -> list[str]:
    return [part["image_url"]["url"] for part in content if part["type"] == "image_url"]


async def test_a_child_sees_the_images_of_its_task_as_those_of_a_prompt(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "map.png").write_bytes(PNG)
    (home / "anim.gif").write_bytes(GIF)
    named = ["map.png", str(home / "anim.gif"), inline(GIF, "image/gif"), "https://pictures.invalid/a.png"]
    shown = [inline(PNG, "image/png"), inline(GIF, "image/gif"), inline(GIF, "image/gif"), named[3]]
    with trio.fail_after(LIMIT):
        async with FakeProvider() as provider, driving("gateway stdio", home, environment(provider)) as driver:
            assert isinstance(driver, GatewayDriver)
            task = {"goal": "look at this", "context": "a map", "images": named}
            result, [content] = await played(driver, provider, {"tasks": [task]})
            assert json.loads(result)["results"][0]["status"] == "completed", result
            assert content[0]["text"].startswith("look at this\n\nContext:\na map") and "map.png" not in str(content)
            assert urls(content) == shown
            # The older shape, one image alone.
            _, [content] = await played(driver, provider, {"goal": "look at this", "images": ["map.png"]})
            assert urls(content) == shown[:1]
            # Every child has its own.
            tasks = [{"goal": "look at this one", "images": ["map.png"]}, {"goal": "look at this other"}]
            _, contents = await played(driver, provider, {"tasks": tasks})
            assert sorted(str(urls(content) if isinstance(content, list) else []) for content in contents) == sorted(
                [str(shown[:1]), "[]"]
            )


async def test_a_model_without_eyes_is_told_that_an_image_was_left_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "map.png").write_bytes(PNG)
    with trio.fail_after(LIMIT):
        async with FakeProvider() as provider:
            model = f"{{provider: deepseek, default: deepseek-chat, api_key: k-0123, base_url: '{provider.base_url}'}}"
            (home / "config.yaml").write_text(f"model: {model}\n")
            async with driving("gateway stdio", home, {}) as driver:
                assert isinstance(driver, GatewayDriver)
                _, [content] = await played(driver, provider, {"goal": "look at this", "images": ["map.png"]})
                assert "an image was left out" in content
                await driver.call("image.attach", {"session_id": driver.session_id, "path": str(home / "map.png")})
                provider.replace_script(Script.of(Reply.of({"text": "no eyes"}), strict=True))
                await driver.start("look at this")
                await driver.terminal()
                assert provider.requests[-1].body["messages"][-1]["content"] == content


REFUSED: dict[str, tuple[list[Any], str]] = {
    "no such file": (["nowhere.png"], "does not exist"),
    "no image": (["plain"], "is no image that can be attached"),
    "a folder": (["folder"], "cannot be read: it is a directory"),
    "the server's own secrets": (["server.key"], "is denied"),
    "through a link": (["link.png"], "is denied"),
    "too large": (["large.png"], "cannot be read"),
    "no base64": (["data:image/png;base64,???"], "no valid base64"),
    "data that is no image": ([inline(b"hello", "image/png")], "is no image that can be attached"),
    "a number": ([7], ""),
    "a NUL": (["a\0b"], "NUL"),
    "too many": ([f"https://pictures.invalid/{n}.png" for n in range(21)], "at most 20 images"),
}


async def test_what_is_no_image_is_refused_in_words_and_no_child_begins(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "plain").write_text("words")
    (home / "folder").mkdir()
    (home / "server.key").write_text("k" * 43)
    (home / "link.png").symlink_to("server.key")
    with (home / "large.png").open("wb") as file:
        file.write(PNG)
        file.truncate(25 * 1024 * 1024 + 1)
    with trio.fail_after(LIMIT):
        async with FakeProvider() as provider, driving("gateway stdio", home, environment(provider)) as driver:
            assert isinstance(driver, GatewayDriver)
            for name, (images, said) in REFUSED.items():
                tasks = [{"goal": "look at this", "images": images}]
                result, children = await played(driver, provider, {"tasks": tasks})
                assert said in result and "error" in result, (name, result)
                assert "the tool failed" not in result and not children, (name, result)
