"""What is published: the wheel, installed alone into an environment that has only the dependencies."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import trio

from tests.support.server_process import clean_environment, http_server, http_status, server_process

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PAGES = ("/", "/console.js", "/docs", "/docs/swagger-ui-bundle.js", "/openapi.json")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both archives."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="session")
def command(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``hermes`` as the wheel has installed it."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    install = ["-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet", str(wheel)]
    done = subprocess.run([sys.executable, *install], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    site = next(place.glob("lib/python*/site-packages"))
    # The dependencies are those of this environment. A folder named here does not bring its editable installs along.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = subprocess.run(
        [str(python), "-c", "import hermes; print(hermes.__file__)"], capture_output=True, text=True, cwd=place
    )
    assert where.stdout.startswith(str(site)), where
    return place / "bin" / "hermes"


def without_the_sources(home: Path) -> dict[str, str]:
    return {**clean_environment(home), "PYTHONPATH": "", "VIRTUAL_ENV": ""}


def test_the_installed_command_says_its_version(command: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(command), "--version"], capture_output=True, text=True, env=without_the_sources(tmp_path), cwd=tmp_path
    )
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "hermes", "")


async def test_the_installed_server_serves_its_pages(command: Path, tmp_path: Path) -> None:
    with trio.fail_after(120):
        async with http_server(tmp_path / "home", environ={"PYTHONPATH": ""}, command=command) as server:
            for path in PAGES:
                assert (path, await http_status(server.port, path)) == (path, 200)
            assert await server.stop() == 0


async def test_the_installed_gateway_answers_a_prompt(command: Path, tmp_path: Path) -> None:
    with trio.fail_after(120):
        async with server_process(tmp_path / "home", "gateway", environ={"PYTHONPATH": ""}, command=command) as server:
            session = await server.call("session.create", {})
            await server.call("prompt.submit", {"session_id": session["session_id"], "text": "Hello"})
            complete = await server.event("message.complete")
            assert "You wrote: Hello" in complete["params"]["payload"]["text"]


def test_the_editors_name_of_the_command_is_installed_too(command: Path) -> None:
    assert (command.parent / "hermes-acp").is_file()


def test_the_archives_hold_types_licence_and_pages_and_no_sources_of_the_console(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("hermes/py.typed", "hermes/__init__.pyi", "hermes/console/static/index.html"):
        assert wanted in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert [name for name in names if name.startswith(("hermes/console/src", "tests/"))] == []
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
    assert {"README.md", "LICENSE", "Makefile", "docs/index.md", ".ci/packaging/build_binary.py"} <= inside
