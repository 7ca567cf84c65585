"""Deleting a stored session for good: its rows, what is recorded about it, and its folders below the home."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from hermes.agent.ports import TranscriptStore
from hermes.agent.spawn_archive import folder_of
from hermes.nurseries.attachments import attachments_folder

if TYPE_CHECKING:
    from hermes.nurseries.services import Services

log = logging.getLogger(__name__)


async def delete_stored(services: Services, key: str) -> None:
    """Delete a session that is not live here, and tell the hosts that the list is different.

    Raises ``StoredSessionNotFound``, ``SessionOwnedElsewhere`` while a turn of another process runs, and the store's
    errors; then nothing is gone.
    """
    await delete_with_files(services.store, services.home, key)
    services.stored_changes.note()


async def delete_with_files(store: TranscriptStore, home: Path, key: str) -> None:
    """The same beside a server: the database first, because only it can refuse."""
    await store.delete_session(key)
    await trio.to_thread.run_sync(_remove, (attachments_folder(home, key), folder_of(home, key)))


def _remove(folders: Sequence[Path]) -> None:
    for folder in folders:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("%s of a deleted session could not be removed: %s", folder, error)
