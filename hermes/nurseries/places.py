"""Whether a path that somebody typed leads to a file or a folder. What can be no path, leads nowhere.

``Path.is_file`` raises where a name is too long or a folder is closed to us.
"""

from __future__ import annotations

import os

import trio


async def is_file(path: str | os.PathLike[str]) -> bool:
    return await trio.to_thread.run_sync(os.path.isfile, path)


async def is_folder(path: str | os.PathLike[str]) -> bool:
    return await trio.to_thread.run_sync(os.path.isdir, path)
