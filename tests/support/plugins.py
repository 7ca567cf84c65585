"""A plugin as somebody would install it: a distribution with an entry point, found through PYTHONPATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def install_plugin(where: Path, name: str, source: str) -> dict[str, str]:
    """Install a module whose ``tool(services)`` gives the tool; what the server's environment needs for it."""
    about = where / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[hermes.tools]\n{name} = {name}_plugin:tool\n")
    (where / f"{name}_plugin.py").write_text(source)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(where), os.environ.get("PYTHONPATH"))))}


def changed_command(where: Path, change: str) -> Path:
    """A ``hermes`` that does something else first: these lines of Python, in its own process."""
    path = where / "hermes-changed"
    path.write_text(f"#!{sys.executable}\n{change}\nfrom hermes.cli import main\nraise SystemExit(main())\n")
    path.chmod(0o755)
    return path
