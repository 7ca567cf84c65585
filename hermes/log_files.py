"""Log files that rotate. Apart from ``logs`` because most processes log to standard error."""

from __future__ import annotations

import os
from logging.handlers import RotatingFileHandler
from pathlib import Path


def private_file(path: Path, *, max_bytes: int, backups: int) -> RotatingFileHandler:
    """A handler that writes to this file, which only its owner can read. Raises ``OSError``."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    return PrivateRotatingFileHandler(path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")


class PrivateRotatingFileHandler(RotatingFileHandler):
    """Rotated files, too, are for their owner alone."""

    def doRollover(self) -> None:
        super().doRollover()
        os.chmod(self.baseFilename, 0o600)
