"""The console end to end: a real browser, the real server, a scripted model."""

from __future__ import annotations

import base64
import json
import os
from importlib.resources import files
from pathlib import Path

import pytest
import trio

pytest.importorskip("selenium", reason="the browser tests need selenium: pip install '.[browser]'")

from selenium.webdriver.common.keys import Keys

from tests.support import console_page
from tests.support.console_page import Page, key_of, serving
from tests.support.console_stage import another_page, console, stage
from tests.support.server_process import processes_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        console_page.BROWSER is None or console_page.DRIVER is None,
        reason="the browser tests need chromium and chromedriver on the PATH",
    ),
]

IMAGES = os.environ.get("CONSOLE_IMAGES")
"""Where the pictures go (``CONSOLE_IMAGES=docs/images``); without it they are taken and thrown away."""


async def test_nothing_is_shown_without_the_key(tmp_path: Path) -> None:
    def scene(page: Page) -> None:
        page.open(ready.origin)
        assert not page.has(".workspace")
        page.find("#key").send_keys("a-wrong-key-of-some-length" + Keys.ENTER)
        page.find("[role=alert]", "does not accept this key")
        assert not page.has(".workspace")
        assert page.driver.execute_script("return sessionStorage.length") == 0
        page.find("#key").clear()
        page.find("#key").send_keys(key_of(ready.home) + Keys.ENTER)
        page.find("#composer")
        page.driver.refresh()
        page.find("#composer")
        page.click("[aria-label='Forget the key and leave']")
        page.find("#key")
        assert page.driver.execute_script("return sessionStorage.length") == 0

    async with stage(tmp_path) as ready, serving(ready.home, ready.provider, ready.port):
        await ready.act(scene)


async def test_a_risky_command_is_approved_and_what_the_model_writes_is_never_html(tmp_path: Path) -> None:
    def scene(page: Page) -> None:
        page.say("Please clean up")
        page.find("[role=alertdialog] pre", "rm -rf ./old-build")
        assert page.focused() == "Deny"
        page.click(".dialog button", "Allow once")
        page.gone("[role=alertdialog]")
        page.find(".diff .added", "+- cleaned")
        page.find(".answer", "All clean. <img src=x")
        page.idle()
        assert [link.get_attribute("href") for link in page.driver.find_elements("css selector", ".prose a")] == [
            "https://example.org/"
        ]
        assert page.driver.title == "Please clean up · Hermes"

    async with console(tmp_path) as ready:
        await ready.act(scene)


async def test_one_of_two_tools_is_stopped_from_the_tree_and_the_turn_goes_on(tmp_path: Path) -> None:
    def begin(page: Page) -> None:
        page.say("Do two things")
        page.find(".tool.running .output", "test 2 passed")
        page.find("summary", "Thoughts")
        page.click("[aria-label='Live tree']")
        page.find(".node[data-kind=session]")
        page.find(".node[data-kind=turn]", "running")
        page.find("[aria-label='Reason for what you stop here']").send_keys("seen enough")
        page.click(".node[data-kind=tool_call] .stop-one")
        page.find(".answer", "The build is done")
        page.idle()
        assert page.has(".tool.failed", "Stopped in the tree: seen enough")
        assert page.has(".tool.done", "echo built")
        page.gone(".node[data-kind=tool_call]")

    def timeline(page: Page) -> None:
        page.click(".side button", "Timeline")
        page.find(".span-note", "Stopped in the tree")
        page.find(".span-note q", "seen enough")
        page.find(".span-note", "cleaned up in")
        page.click("button", "Save as JSON")

    async with console(tmp_path) as ready:
        await ready.act(begin)
        await ready.act(timeline)
        with trio.fail_after(20):
            while not (saved := list(tmp_path.glob("timeline-*.json"))):
                await trio.sleep(0.05)
        data = json.loads(await trio.Path(saved[0]).read_text())
        (stopped,) = [span for span in data["spans"] if span["cause"] == "node_cancel"]
        assert (stopped["kind"], stopped["reason"]) == ("tool_call", "seen enough")
        assert 0 <= stopped["clean_up_ms"] < 5000
        assert data["status"] == "complete"
        assert all(span["ended_at"] for span in data["spans"])


async def test_what_one_page_says_to_the_running_turn_appears_on_the_other_and_after_a_reload(tmp_path: Path) -> None:
    def scene(page: Page) -> None:
        page.say("Do two things")
        page.find(".tool.running .output", "test 1 passed")
        other.open(ready.origin, key_of(ready.home))
        other.click(".session", "Do two things")
        other.find(".tool.running")
        page.say("Only the second, please")
        for each in (page, other):
            each.find(".prompt.noted", "Only the second, please")
        other.driver.refresh()
        other.find(".prompt.noted", "Only the second, please")
        page.click(".tool.running .stop-one")
        for each in (page, other):
            each.find(".answer", "Only the second, please")
            each.idle()
            assert each.texts(".bubble") == ["Do two things", "Only the second, please"]
        other.driver.refresh()
        other.find(".answer", "Only the second, please")
        assert other.texts(".bubble") == ["Do two things", "Only the second, please"]

    async with console(tmp_path) as ready, another_page(tmp_path) as other:
        await ready.act(scene)


async def test_a_steer_reaches_the_model_and_escape_stops_the_turn(tmp_path: Path) -> None:
    def steer(page: Page) -> None:
        page.say("Do two things")
        page.find(".tool.running .output", "test 1 passed")
        page.say("Only the second, please")
        page.find(".prompt", "Steered")
        page.click(".tool.running .stop-one")
        page.find(".answer", "Only the second, please")
        page.idle()

    def stop(page: Page) -> None:
        page.say("Do two things")
        page.find(".tool.running .output", "test 1 passed")
        page.write("say hello")
        page.press(Keys.ALT, Keys.ENTER)
        page.find(".queued", "say hello")
        page.press(Keys.ESCAPE)
        page.find(".notice.warning", "You stopped it")
        page.idle()
        page.gone(".queued")
        assert page.find("#composer").get_attribute("value") == "say hello"
        page.press(Keys.ENTER)
        page.find(".answer", "Good day to you.")

    async with console(tmp_path) as ready:
        await ready.act(steer)
        await ready.act(stop)
        assert not [line for line in processes_of(ready.home).values() if "seq 600" in line]


async def test_the_turn_is_stopped_with_a_reason(tmp_path: Path) -> None:
    def scene(page: Page) -> None:
        page.say("Speak slowly")
        page.find(".answer.streaming", "Word after word")
        page.click("[aria-label='Stop and say why']")
        page.find("#stop-reason").send_keys("heard enough" + Keys.ENTER)
        page.find(".notice.warning", "You stopped it: heard enough")
        page.idle()

    async with console(tmp_path) as ready:
        await ready.act(scene)


async def test_an_earlier_message_is_asked_again_while_the_agent_works_and_taken_back(tmp_path: Path) -> None:
    def scene(page: Page) -> None:
        page.say("hello first")
        page.find(".answer", "Good day")
        page.idle()
        page.say("Speak slowly")
        page.find(".answer.streaming", "Word after word")
        edit = page.driver.find_elements("css selector", "[aria-label='Edit and ask again from here']")[0]
        page.driver.execute_script("arguments[0].focus()", edit)
        page.press(Keys.ENTER)
        page.find(".prompt-editor textarea").clear()
        page.find(".prompt-editor textarea").send_keys("Answer quickly" + Keys.CONTROL + Keys.ENTER)
        page.find(".answer", "Quick it is.")
        page.idle()
        assert page.texts(".bubble") == ["Answer quickly"]
        page.click(".notice button", "Undo")
        page.find(".bubble", "Speak slowly")
        assert page.texts(".bubble") == ["hello first", "Speak slowly"]

    async with console(tmp_path) as ready:
        await ready.act(scene)


async def test_questions_are_answered_and_a_stop_takes_an_open_one_away(tmp_path: Path) -> None:
    def questions(page: Page) -> None:
        page.say("Ask me two questions")
        page.find("[role=dialog] legend", "Which database?")
        page.click("[role=dialog] label", "Postgres")
        page.click("[role=dialog] label", "cli")
        page.click("[role=dialog] label", "docs")
        page.find("[aria-label='Answer to: What is its name?']").send_keys("demo")
        page.click("[role=dialog] fieldset:last-of-type button", "Keep")
        page.find("[role=dialog] button", "Kept")
        page.click("[role=dialog] button[type=submit]")
        page.find(".answer", "Noted.")
        page.click(".tool-toggle")
        result = page.find(".tool .output").text
        assert all(word in result for word in ("Postgres", "cli", "docs", "demo", "submitted"))

    def secret(page: Page) -> None:
        page.say("I have a secret")
        page.find("[role=dialog] label", "DEPLOY_TOKEN")
        assert page.find("#secret").get_attribute("type") == "password"
        for _ in range(8):
            page.press(Keys.TAB)
        assert page.driver.execute_script("return document.querySelector('.dialog').contains(document.activeElement)")
        page.click(".dialog button", "Stop the turn instead")
        page.gone("[role=dialog]")
        page.idle()
        page.find(".notice.warning", "You stopped it")

    async with console(tmp_path) as ready:
        await ready.act(questions)
        await ready.act(secret)


async def test_commands_are_completed_and_the_model_is_chosen(tmp_path: Path) -> None:
    def scene(page: Page) -> None:
        page.write("/stat")
        page.find("[role=option]", "/status")
        page.press(Keys.TAB)
        assert page.find("#composer").get_attribute("value") == "/status "
        page.press(Keys.ENTER)
        page.find(".notice.preformatted", "Session")
        page.click(".model")
        page.click(".picker-list button", "fake-model")
        page.gone("[role=dialog]")
        page.say("hello")
        page.find(".answer", "Good day")
        page.find(".model", "fake-model")
        page.click("button", "New session")
        page.find(".welcome")
        page.click(".session", "hello")
        page.find(".answer", "Good day")

    async with console(tmp_path) as ready:
        await ready.act(scene)


async def test_the_page_comes_back_when_the_server_was_killed_and_started_again(tmp_path: Path) -> None:
    def before(page: Page) -> None:
        page.say("hello there")
        page.find(".answer", "Good day")
        page.idle()
        page.say("Do two things")
        page.find(".tool.running .output", "test 1 passed")

    def away(page: Page) -> None:
        page.find(".connection", "Connection lost")
        assert page.texts(".bubble") == ["hello there", "Do two things"]

    def back(page: Page) -> None:
        page.gone(".connection")
        page.idle()
        page.find(".bubble", "hello there")
        page.say("hello again")
        page.find(".bubble", "hello again")
        page.idle()
        page.find(".answer ~ .prompt ~ .answer", "Good day to you.")
        assert page.texts(".bubble") == ["hello there", "Do two things", "hello again"]
        assert page.texts(".answer .prose") == [
            "Good day to you.",
            "I run the tests first, then the build.",
            "Good day to you.",
        ]

    async with stage(tmp_path) as ready:
        async with serving(ready.home, ready.provider, ready.port) as server:
            await ready.logged_in()
            await ready.act(before)
            server.process.kill()
            await server.process.wait()
            await ready.act(away)
        async with serving(ready.home, ready.provider, ready.port):
            await ready.act(back)


async def test_a_short_absence_loses_and_repeats_nothing(tmp_path: Path) -> None:
    def scene(page: Page) -> None:
        page.say("Speak slowly")
        page.find(".answer.streaming", "Word after")
        page.driver.execute_script(
            "const send = WebSocket.prototype.send; WebSocket.prototype.send = function () {"
            " WebSocket.prototype.send = send; window.severed = true; this.close(); };"
        )
        page.say("a steer that breaks the line")
        page.find("[role=alert]", "Not connected")
        assert page.driver.execute_script("return window.severed")
        assert page.has(".answer.streaming")
        page.idle()
        (answer,) = page.texts(".answer .prose")
        assert answer.startswith("Word after word goes over the wire, so that there is time to watch it, to stop it,")
        assert answer.endswith("but that still goes on for a while.")

    async with console(tmp_path) as ready:
        await ready.act(scene)


async def test_two_pages_show_the_same_session(tmp_path: Path) -> None:
    def scene(page: Page) -> None:
        page.say("Speak slowly")
        page.find(".answer.streaming", "Word after")
        page.write("hello from the queue")
        page.press(Keys.ALT, Keys.ENTER)
        page.find(".queued", "hello from the queue")
        other.open(ready.origin, key_of(ready.home))
        other.click(".session", "Speak slowly")
        other.find(".queued", "hello from the queue")
        for each in (page, other):
            each.find(".answer", "Good day to you.")
            each.idle()
            assert each.texts(".bubble") == ["Speak slowly", "hello from the queue"]
            assert len(each.texts(".answer .prose")) == 2
        other.say("Please clean up")
        page.find(".bubble", "Please clean up")
        page.find("[role=alertdialog]")
        other.click(".dialog button", "Deny")
        page.gone("[role=alertdialog]")
        page.find(".tool.failed")

    async with console(tmp_path) as ready, another_page(tmp_path) as other:
        await ready.act(scene)


PASTE = """
const bytes = Uint8Array.from(atob(arguments[1]), (c) => c.charCodeAt(0));
const file = new File([bytes], arguments[0], {type: arguments[2]});
const data = new DataTransfer();
data.items.add(file);
const box = document.getElementById("composer");
const target = arguments[3] === "paste" ? box : document.querySelector(".chat");
const given = {bubbles: true, cancelable: true};
target.dispatchEvent(
  arguments[3] === "paste" ? new ClipboardEvent("paste", {...given, clipboardData: data})
                           : new DragEvent("drop", {...given, dataTransfer: data}));
"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_pictures_and_files_are_picked_pasted_and_dropped_and_go_with_the_message(tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(base64.b64decode(PIXEL))

    def scene(page: Page) -> None:
        page.find("[aria-label='Attach pictures or files']")
        page.driver.find_element("css selector", "#files").send_keys(str(picture))
        page.find(".attachments", "dot.png")
        notes = base64.b64encode(b"remember the milk").decode()
        page.driver.execute_script(PASTE, "pasted.png", PIXEL, "image/png", "paste")
        page.find(".attachments", "pasted.png")
        page.driver.execute_script(PASTE, "notes.txt", notes, "text/plain", "drop")
        page.find(".attachments", "notes.txt")
        page.click("[aria-label='Take pasted.png away']")
        page.gone(".attachments", "pasted.png")
        page.say("hello, look at this")
        page.find(".answer", "Good day")
        page.idle()
        page.gone(".attachments")
        for _ in range(2):
            assert page.find(".bubble").text.startswith("hello, look at this\n\n@file:")
            (image,) = page.driver.find_elements("css selector", ".prompt .attached")
            assert str(image.get_attribute("src")).startswith("data:image/png;base64,")
            # The second time from the store.
            page.driver.refresh()
            page.find(".answer", "Good day")
        page.driver.find_element("css selector", "#files").send_keys(str(picture))
        page.find(".attachments", "dot.png")
        page.click("button[aria-label='Send']")
        # A picture alone is a message, too.
        page.find(".prompt:not(:first-child) .attached")
        page.find(".notice", "the model gave no answer")
        page.idle()

    async with console(tmp_path) as ready:
        await ready.act(scene)
        (kept,) = ready.home.rglob("notes.txt")
        assert kept.read_bytes() == b"remember the milk"


async def test_a_picture_during_a_turn_waits_for_a_turn_of_its_own_and_a_refused_one_comes_back(tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(base64.b64decode(PIXEL))
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"this is no picture")

    def scene(page: Page) -> None:
        page.say("Do two things")
        page.find(".tool.running .output", "test 1 passed")
        page.driver.find_element("css selector", "#files").send_keys(str(picture))
        page.find(".attachments", "dot.png")
        page.find(".hint", "a turn of their own")
        page.say("hello with a picture")
        page.find(".queued", "hello with a picture")
        page.click(".tool.running .stop-one")
        page.find(".prompt .attached")
        page.find(".answer", "Good day")
        page.idle()
        page.driver.find_element("css selector", "#files").send_keys(str(broken))
        page.find(".attachments", "broken.png")
        page.say("hello again")
        page.find("[role=alert]")
        page.find(".attachments", "broken.png")
        assert page.find("#composer").get_attribute("value") == "hello again"
        page.click("[aria-label='Take broken.png away']")
        page.press(Keys.ENTER)
        page.find(".bubble", "hello again")
        page.idle()

    async with console(tmp_path) as ready:
        await ready.act(scene)


async def test_a_picture_is_on_a_page_that_comes_to_its_running_turn(tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(base64.b64decode(PIXEL))

    def scene(page: Page) -> None:
        page.driver.find_element("css selector", "#files").send_keys(str(picture))
        page.find(".attachments", "dot.png")
        page.say("Speak slowly")
        page.find(".answer.streaming", "Word after")
        page.driver.refresh()
        page.find(".answer.streaming", "Word after")
        assert len(page.driver.find_elements("css selector", ".prompt .attached")) == 1
        assert page.texts(".bubble") == ["Speak slowly"]

    async with console(tmp_path) as ready:
        await ready.act(scene)


async def test_quick_turns_of_another_page_are_all_shown_in_their_order(tmp_path: Path) -> None:
    words = [f"hello number {number}" for number in range(1, 6)]

    def scene(page: Page) -> None:
        page.say("hello to begin with")
        page.find(".answer", "Good day")
        page.idle()
        other.open(ready.origin, key_of(ready.home))
        other.click(".session", "hello to begin with")
        other.find(".answer", "Good day")
        for number, text in enumerate(words, 2):
            other.say(text)
            other.shows(".answer .prose", ["Good day to you."] * number)
            other.idle()
        for each in (page, other):
            each.shows(".bubble", ["hello to begin with", *words])
            assert each.texts(".answer .prose") == ["Good day to you."] * (len(words) + 1)

    async with console(tmp_path) as ready, another_page(tmp_path) as other:
        await ready.act(scene)


async def test_it_is_accessible_in_light_and_dark_and_on_a_phone(tmp_path: Path) -> None:
    axe = (files("axe_core_python") / "axe.min.js").read_text("utf-8") if _has_axe() else ""
    if not axe:
        pytest.skip("the accessibility check needs axe-core-python: pip install '.[browser]'")
    images = Path(IMAGES).absolute() if IMAGES else tmp_path / "images"

    def scene(page: Page) -> None:
        page.screen(1280, 800, "light")
        page.say("Do two things")
        page.click("[aria-label='Live tree']")
        page.find(".tool.running .output", "test 3 passed")
        assert page.axe(axe) == []
        page.picture(images / "console-light.png")
        page.click(".node[data-kind=tool_call] .stop-one")
        page.find(".answer", "The build is done")
        page.idle()
        # The list of sessions follows the conversation; a picture of both must not contradict itself.
        page.gone(".session", "working")
        page.click(".side button", "Timeline")
        page.screen(1280, 800, "dark")
        assert page.axe(axe) == []
        page.picture(images / "console-dark.png")
        page.click("[aria-label='Close the panel']")
        page.screen(380, 760, "light")
        page.say("Please clean up")
        page.find("[role=alertdialog]")
        assert page.driver.execute_script("return document.documentElement.scrollWidth") == 380
        assert page.axe(axe) == []
        page.picture(images / "console-phone.png")
        page.click(".dialog button", "Deny")
        page.click("[aria-label='Sessions'].icon-button")
        page.find(".sidebar.open")
        assert page.axe(axe) == []

    async with console(tmp_path) as ready:
        await ready.act(scene)


def _has_axe() -> bool:
    try:
        files("axe_core_python")
    except ModuleNotFoundError:
        return False
    return True
