"""A wall clock that can be moved under running servers, where there is a C compiler to build it with."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path


class WallClock:
    """``environ`` is for the servers; ``set`` moves the time of all of them at once."""

    def __init__(self, library: Path, shared: Path) -> None:
        self._shared = shared
        self.environ = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(shared)}
        shared.write_bytes(struct.pack("=q", 0))

    @classmethod
    def built(cls, folder: Path) -> WallClock | None:
        """None where it cannot be built: then no clock jumps."""
        compiler = shutil.which("cc")
        library = folder / "wall_clock.so"
        source = Path(__file__).with_suffix(".c")
        if compiler is None:
            return None
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        return cls(library, folder / "clock")

    def set(self, seconds: int) -> None:
        with self._shared.open("r+b") as file:
            file.write(struct.pack("=q", seconds))
