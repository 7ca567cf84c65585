"""The console with what nobody should send it: long conversations, endless output, and text that means harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio_websocket

pytest.importorskip("selenium", reason="the browser tests need selenium: pip install '.[browser]'")

from selenium.webdriver.common.by import By

from tests.support import console_page
from tests.support.console_page import Page, key_of
from tests.support.console_stage import Stage, console

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        console_page.BROWSER is None or console_page.DRIVER is None,
        reason="the browser tests need chromium and chromedriver on the PATH",
    ),
]

LONG = 10_000
DRAWN = "return document.querySelectorAll('.column > article').length"
TOP = "document.querySelector('.scroller').scrollTop = 0"


async def seeded(ready: Stage, messages: list[dict[str, str]]) -> None:
    url = f"{ready.origin.replace('http', 'ws')}/api/ws?token={key_of(ready.home)}"
    request = {"id": 1, "method": "session.create", "params": {"messages": messages, "title": "Seeded"}}
    async with trio_websocket.open_websocket_url(url, max_message_size=1 << 28) as socket:
        await socket.send_message(json.dumps({"jsonrpc": "2.0", **request}))
        while json.loads(await socket.get_message()).get("id") != 1:
            pass


async def test_of_ten_thousand_messages_the_last_are_drawn_and_the_rest_when_somebody_goes_there(
    tmp_path: Path,
) -> None:
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": f"**message** {number}"} for number in range(LONG)]

    def scene(page: Page) -> None:
        page.click(".session", "Seeded")
        page.find(".column > article:last-of-type", f"message {LONG - 1}")
        assert page.driver.execute_script(DRAWN) == 200
        page.driver.execute_script(TOP)
        page.find(".column > button", f"{LONG - 400} earlier entries")
        assert page.driver.execute_script(DRAWN) == 400
        # What stood at the top stands there still, in the middle of what is drawn now.
        assert page.driver.execute_script("return document.querySelector('.scroller').scrollTop") > 1000
        for left in range(LONG - 600, LONG - 1200, -200):
            page.driver.execute_script("document.querySelector('.column > button').click()")
            page.find(".column > button", f"{left} earlier entries")
        page.find("button", "Newest").click()
        page.say("hello")
        page.find(".column > article:last-of-type", "Good day")
        page.idle()
        # At the end again nobody looks at the old ones.
        assert page.driver.execute_script(DRAWN) < 400
        assert page.driver.title == "Seeded · Hermes"

    async with console(tmp_path) as ready:
        await seeded(ready, messages)
        await ready.act(lambda page: page.driver.refresh())
        await ready.act(scene)


HOSTILE = """<script>window.owned=1</script><img src=x onerror="window.owned=1">
<iframe srcdoc="<script>parent.window.owned=1</script>"></iframe><svg onload="window.owned=1">
[a](javascript:window.owned=1) [b](JaVaScRiPt:alert(1)) [c](data:text/html;base64,PHNjcmlwdD4=) [d](vbscript:x)
[e](&#106;avascript:alert(1)) [f](\tjavascript:alert(1)) <javascript:alert(1)> ![g](javascript:alert(1))
[h]: javascript:alert(1)

[h] `<b>code</b>` | <b>bold</b> \u202e\u2066 \x1b]0;owned\x07"""


async def test_text_that_means_harm_is_text_wherever_it_comes_from(tmp_path: Path) -> None:
    name = "<img src=x onerror=window.owned=1>.txt"
    calls = [
        {"name": "write_file", "arguments": {"path": name, "content": HOSTILE}},
        {"name": "terminal", "arguments": {"command": f"cat < {json.dumps(name)}; ls"}},
        {"name": "<u>no</u>.such", "arguments": {"<b>key</b>": HOSTILE}},
    ]
    question = {
        "name": "clarify",
        "arguments": {"questions": [{"question": HOSTILE, "choices": [HOSTILE, "<b>no</b>"]}]},
    }
    script = json.dumps(
        {
            "when_used_up": "echo",
            "replies": [
                {"steps": [{"reasoning": HOSTILE}, {"text": HOSTILE}, *({"tool_call": call} for call in calls)]},
                {"steps": [{"tool_call": question}]},
                {"steps": [{"text": HOSTILE}]},
            ],
        }
    )

    def scene(page: Page) -> None:
        page.say(HOSTILE.replace("\n", " "))
        page.find("[role=dialog] legend", "<script>")
        page.find("[role=dialog] label", "<b>no</b>")
        page.click("[role=dialog] label", "<b>no</b>")
        page.click("[role=dialog] button[type=submit]")
        page.idle()
        for toggle in page.driver.find_elements(By.CSS_SELECTOR, ".tool-toggle[aria-expanded=false]"):
            toggle.click()
        page.click("[aria-label='Live tree']")
        page.click(".side button", "Timeline")
        for _ in range(2):
            assert page.driver.execute_script("return window.owned === undefined && parent.owned === undefined")
            made = "script:not([src]), iframe, svg[onload], .column img, .column b, .column u, .side b[onerror]"
            assert page.driver.find_elements(By.CSS_SELECTOR, made) == []
            links = [
                link.get_attribute("href") or "" for link in page.driver.find_elements(By.CSS_SELECTOR, ".column a")
            ]
            assert [link for link in links if not link.startswith(("http:", "https:", "mailto:"))] == []
            page.driver.refresh()
            page.find(".answer", "<script>")

    async with console(tmp_path, script=script) as ready:
        await ready.act(scene)


LONG_COMMAND = json.dumps("rm -rf ./" + "build-" * 60 + "\n" + "true\n" * 30 + "rm -rf ./the-end")
LONG_APPROVAL = f"""
when_used_up: echo
replies:
- when: {{last_user_contains: tidy, last_role: user}}
  steps:
  - tool_call: {{name: terminal, arguments: {{command: {LONG_COMMAND}}}}}
"""


async def test_a_command_longer_than_its_box_says_so_and_the_answers_stay_on_a_small_phone(tmp_path: Path) -> None:
    def scene(page: Page) -> None:
        page.screen(320, 568, "light")
        page.say("tidy")
        page.find("[role=alertdialog] .notice", "32 lines")
        page.driver.execute_script("document.querySelector('.command').scrollTop = 1e6")
        page.find(".command", "the-end")
        assert page.driver.execute_script("return document.documentElement.scrollWidth") == 320
        bottom = "return document.querySelector('.dialog .danger').getBoundingClientRect().bottom"
        assert page.driver.execute_script(bottom) <= 568
        page.click(".dialog button", "Deny")
        page.idle()

    async with console(tmp_path, script=LONG_APPROVAL) as ready:
        await ready.act(scene)


async def test_a_line_without_end_and_output_without_end_leave_the_page_as_it_is(tmp_path: Path) -> None:
    flood = "yes abcdefghij | head -c 100000000; head -c 300000 /dev/zero | tr '\\0' x"
    script = json.dumps(
        {
            "replies": [
                {
                    "steps": [
                        {"text": "y" * 20_000},
                        {"tool_call": {"name": "terminal", "arguments": {"command": flood}}},
                    ]
                },
                {"steps": [{"text": "Done with `" + "z" * 5_000 + "`"}]},
            ]
        }
    )

    def scene(page: Page) -> None:
        page.screen(380, 760, "light")
        page.say("w" * 3_000)
        page.find(".answer", "Done with")
        page.idle()
        page.click(".tool-toggle")
        result = page.find(".tool .output").text
        assert 1_000 < len(result) < 200_000
        wide = "return [document.documentElement.scrollWidth, document.querySelector('.scroller').scrollWidth]"
        assert all(width <= 380 for width in page.driver.execute_script(wide))

    async with console(tmp_path, script=script) as ready:
        await ready.act(scene)
