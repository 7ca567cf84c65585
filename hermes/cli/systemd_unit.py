"""A unit file that runs ``hermes serve`` under systemd, as the user who prints it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hermes.cli.gateway_link import own_command
from hermes.config import home_from_environment

STOP_WITHIN: Final = 15
UNIT: Final = """# Save as ~/.config/systemd/user/hermes.service, then:
#   systemctl --user daemon-reload && systemctl --user enable --now hermes
[Unit]
Description=Hermes agent server

[Service]
Type=exec
ExecStart={command}
Environment={home}
WorkingDirectory={cwd}
Restart=on-failure
# The server ends its own processes; what does not end by itself is killed with the group.
KillMode=mixed
TimeoutStopSec={stop}
UMask=0077

[Install]
WantedBy=default.target
"""


def unit(arguments: Sequence[str]) -> str:
    """``arguments``: the command line that asked for it; the unit runs the same without ``--systemd``."""
    given = [argument for argument in arguments if argument != "--systemd"]
    if not given or given[0] != "serve":
        given = ["serve", *given]
    command = [str(Path(own_command()[0]).absolute()), *own_command()[1:], *given]
    return UNIT.format(
        command=_escaped(shlex.join(command)),
        home=_escaped(shlex.quote(f"HERMES_HOME={home_from_environment()}")),
        cwd=_escaped(str(Path.home())),
        stop=STOP_WITHIN,
    )


def _escaped(text: str) -> str:
    """A percent sign begins a specifier in a unit file, a dollar sign a variable."""
    return text.replace("%", "%%").replace("$", "$$")
