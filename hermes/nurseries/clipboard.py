"""The image on the clipboard of the machine that this server runs on, through the tool that its desktop has for it.

``wl-paste`` under Wayland, ``xclip`` under X11, ``pngpaste`` or ``osascript`` on macOS. A host whose person sits
elsewhere sends the image as bytes instead.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hermes.config import child_environment
from hermes.errors import Unavailable
from hermes.nurseries.process_spec import ProcessSpec
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.services import Services

READ_WITHIN: Final = 5.0
MAX_BYTES: Final = 25 * 1024 * 1024
INSTALL: Final[Mapping[str, str]] = {
    "wayland": "install wl-clipboard (wl-paste)",
    "x11": "install xclip",
    "none": "this server has no desktop; send the image with image.attach_bytes",
}
# What osascript prints is «data PNGf89504E47…»; only the digits are wanted.
_OSASCRIPT: Final = "osascript -e 'get the clipboard as «class PNGf»' | sed -e 's/.*PNGf//' -e 's/».*//' | xxd -r -p"


@dataclass(frozen=True, slots=True)
class ClipboardTool:
    """``command`` is a shell line that writes the image to its output, and nothing when there is none."""

    program: str
    command: str


def clipboard_tool(environment: Mapping[str, str], platform: str = sys.platform) -> ClipboardTool:
    """The tool to ask. Raises ``Unavailable``, which says what is missing."""
    path = environment.get("PATH")

    def is_here(program: str) -> bool:
        return shutil.which(program, path=path) is not None

    if platform == "darwin":
        if is_here("pngpaste"):
            return ClipboardTool("pngpaste", "pngpaste -")
        if is_here("osascript"):
            return ClipboardTool("osascript", _OSASCRIPT)
        raise Unavailable("the clipboard cannot be read: pngpaste and osascript are missing")
    if environment.get("WAYLAND_DISPLAY") and is_here("wl-paste"):
        return ClipboardTool("wl-paste", "wl-paste --no-newline --type image/png")
    if environment.get("DISPLAY") and is_here("xclip"):
        return ClipboardTool("xclip", "xclip -selection clipboard -target image/png -out")
    desktop = "wayland" if environment.get("WAYLAND_DISPLAY") else "x11" if environment.get("DISPLAY") else "none"
    raise Unavailable(f"the clipboard cannot be read: {INSTALL[desktop]}")


async def clipboard_image(services: Services) -> bytes:
    """The image as PNG; empty when there is none on the clipboard. Raises ``Unavailable``."""
    environment = child_environment(services.settings())
    tool = clipboard_tool(environment)
    image = bytearray()

    def take(chunk: bytes) -> None:
        if len(image) <= MAX_BYTES:
            image.extend(chunk)

    spec = ProcessSpec(
        argv=("/bin/sh", "-c", f"{tool.command} 2>/dev/null"),
        env=environment,
        cwd=str(services.home),
        timeout=READ_WITHIN,
        name=tool.program,
    )
    try:
        end = await services.supervisor.run(spec, take)
    except OSError as error:
        raise Unavailable(f"the clipboard cannot be read: {error}") from None
    if end.timed_out:
        raise Unavailable(f"the clipboard cannot be read: {tool.program} did not answer")
    if len(image) > MAX_BYTES:
        raise Unavailable("the image on the clipboard is larger than 25 MB")
    return bytes(image) if end.exit_code == 0 else b""
