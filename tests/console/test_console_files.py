"""The console's built files: fresh, complete, and served without a key, with a policy and a validator."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path

import pytest

from hermes.console import console_files
from hermes.protocols.http.console_pages import CONTENT_SECURITY_POLICY
from tests.support.http_surface import http_surface

CONSOLE = Path(str(files("hermes.console")))


def fingerprint(sources: Path) -> str:
    """The same as ``fingerprint`` in ``hermes/console/src/tools/sources.ts``."""
    digest = hashlib.sha256()
    paths = [path for path in sources.rglob("*") if path.is_file() and "node_modules" not in path.parts]
    for name, path in sorted((path.relative_to(sources).as_posix(), path) for path in paths):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@pytest.mark.skipif(not (CONSOLE / "src").is_dir(), reason="an installation has no sources to compare with")
def test_the_built_files_are_as_fresh_as_their_sources() -> None:
    built = json.loads((CONSOLE / "static" / "build.json").read_text())
    assert built["sources"] == fingerprint(CONSOLE / "src"), "run `make console`"


@pytest.mark.skipif(not (CONSOLE / "src").is_dir(), reason="an installation has no sources")
def test_the_lock_file_names_no_place_to_load_from() -> None:
    locked = json.loads((CONSOLE / "src" / "package-lock.json").read_text())
    packages = [package for name, package in locked["packages"].items() if name]
    assert packages != []
    assert all("resolved" not in package and package["integrity"] for package in packages)


def test_the_page_loads_nothing_but_its_own_files() -> None:
    served = {file.path: file for file in console_files()}
    page = served["/"].body.decode()
    assert {"/console.js", "/console.css", "/icon.svg", "/licences.txt"} <= set(served)
    assert "://" not in page
    assert "<script>" not in page and "style=" not in page
    assert "innerHTML=e" not in served["/console.js"].body.decode().replace("dangerouslySetInnerHTML", "")


@pytest.mark.skipif(not (CONSOLE / "src").is_dir(), reason="an installation has no sources")
def test_what_a_model_writes_is_never_parsed_as_html() -> None:
    """Nothing in the sources makes a page of a text, and the one address that is made of a text has few schemes."""
    sources = {path: path.read_text(encoding="utf-8") for path in (CONSOLE / "src" / "app").rglob("*.ts*")}
    sinks = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc")
    assert [(path.name, sink) for path, text in sources.items() for sink in sinks if sink in text] == []
    linking = {path.name: text for path, text in sources.items() if "href={" in text}
    assert set(linking) == {"markdown.tsx"}
    (markdown,) = linking.values()
    assert "const SCHEMES = /^(https?:|mailto:)/i;" in markdown
    assert markdown.count("href={") == 1
    assert markdown.index("if (!SCHEMES.test(href))") < markdown.index("href={href}")


async def test_every_file_is_served_without_the_key_and_may_load_from_here_alone() -> None:
    async with http_surface() as surface:
        for file in console_files():
            answer = await surface.client.get(file.path, headers={"Authorization": ""})
            assert (answer.status_code, answer.content) == (200, file.body)
            assert answer.headers["content-type"] == file.content_type
            assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert answer.headers["cache-control"] == "no-cache"
            assert (await surface.client.head(file.path, headers={"Authorization": ""})).status_code == 200


async def test_a_known_file_is_not_sent_again() -> None:
    async with http_surface() as surface:
        first = await surface.client.get("/console.js", headers={"Authorization": ""})
        known = {"Authorization": "", "If-None-Match": f'"other", W/{first.headers["etag"]}'}
        again = await surface.client.get("/console.js", headers=known)
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        changed = await surface.client.get("/console.js", headers={"Authorization": "", "If-None-Match": '"other"'})
        assert changed.status_code == 200
