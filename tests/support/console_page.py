"""The console in a headless Chromium, and a server behind it: what a person does, in words of a page.

``Page`` is synchronous (the browser's driver is); tests that also steer processes run its steps in a thread.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.server_process import ServerProcess, http_status, server_process

PATIENCE = 60.0
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
COMPOSER = "#composer"
LATE = (NoSuchElementException, StaleElementReferenceException)


class Page:
    """One tab. Everything that looks for something waits until it is there."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    # --- looking

    def find(self, css: str, text: str | None = None) -> WebElement:
        """The first visible element that matches and holds the text."""
        return self._wait(lambda: self._found(css, text), f"{css} {text or ''}")

    def gone(self, css: str, text: str | None = None) -> None:
        self._wait(lambda: self._found(css, text) is None, f"no {css} {text or ''}")

    def has(self, css: str, text: str | None = None) -> bool:
        return self._found(css, text) is not None

    def texts(self, css: str) -> list[str]:
        return [element.text for element in self.driver.find_elements(By.CSS_SELECTOR, css)]

    def shows(self, css: str, texts: list[str]) -> None:
        """Just these, in this order, sooner or later."""
        self._wait(lambda: self.texts(css) == texts, f"{css} {texts}")

    def idle(self) -> None:
        """No turn runs: the send button is back."""
        self.find("button[aria-label='Send']")

    def _found(self, css: str, text: str | None) -> WebElement | None:
        for element in self.driver.find_elements(By.CSS_SELECTOR, css):
            if element.is_displayed() and (
                text is None or text in (element.text or element.get_attribute("value") or "")
            ):
                return element
        return None

    def _wait(self, look: Any, what: str) -> Any:
        try:
            return WebDriverWait(self.driver, PATIENCE, 0.05, ignored_exceptions=LATE).until(lambda _: look())
        except TimeoutException:
            page = self.driver.find_element(By.TAG_NAME, "body").text
            raise AssertionError(f"{what} did not come; the page says:\n{page}") from None

    # --- doing

    def open(self, origin: str, key: str | None = None) -> None:
        self.driver.get(origin + "/")
        if key is not None:
            self.find("#key").send_keys(key + Keys.ENTER)
            self.find(COMPOSER)
            self.gone(".connection")
            self.gone(".column", "Loading…")

    def click(self, css: str, text: str | None = None) -> None:
        self._wait(lambda: self._clicked(css, text), f"{css} {text or ''}")

    def _clicked(self, css: str, text: str | None) -> bool:
        element = self._found(css, text)
        if element is None or not element.is_enabled():
            return False
        element.click()
        return True

    def write(self, text: str) -> None:
        self.find(COMPOSER).send_keys(text)

    def say(self, text: str) -> None:
        self.write(text + Keys.ENTER)

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def focused(self) -> str:
        return str(self.driver.execute_script("return document.activeElement.id || document.activeElement.textContent"))

    # --- judging

    def complaints(self) -> list[str]:
        """What the browser's console holds: errors, refused loads, broken policies."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def axe(self, script: str) -> list[str]:
        """Serious findings of the accessibility checker in the page as it is now."""
        self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": script})
        outcome = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']})"
            ".then((result) => done(JSON.stringify(result.violations)),"
            " (error) => done(JSON.stringify([{id: String(error)}])));"
        )
        return [
            f"{found['id']}: {[node['html'] for node in found.get('nodes', ())][:3]}"
            for found in json.loads(outcome)
            if found.get("impact", "serious") in ("serious", "critical")
        ]

    def screen(self, width: int, height: int, colours: str) -> None:
        """As on a screen of this size; a narrow one is a phone."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": width < 500},
        )
        hover = "none" if width < 500 else "hover"
        features = [{"name": "prefers-color-scheme", "value": colours}, {"name": "hover", "value": hover}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))


@contextmanager
def browser(downloads: Path) -> Iterator[Page]:
    """A browser of its own, with its profile below ``downloads``."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_argument("--window-size=1280,860")
    options.add_argument(f"--user-data-dir={downloads / 'profile'}")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield Page(driver)
    finally:
        driver.quit()


@asynccontextmanager
async def serving(home: Path, provider: ServerProcess, port: int) -> AsyncIterator[ServerProcess]:
    """``hermes serve`` on this very port, with the scripted model."""
    address = re.search(r"http://\S+/v1", provider.stray[0])
    assert address is not None
    arguments = ("--port", str(port), "--model", "fake-model", "--base-url", address[0])
    async with server_process(home, "serve", *arguments) as server:
        with trio.fail_after(PATIENCE):
            while await http_status(port, "/health") != 200:
                assert server.process.poll() is None, server.stderr
                await trio.sleep(0.05)
        yield server


def key_of(home: Path) -> str:
    return (home / "server.key").read_text().strip()
