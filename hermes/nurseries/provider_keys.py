"""Keys of model providers, saved to and taken out of the home's ``.env``; the configuration reads it again at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from hermes.agent.provider_rows import ProviderRow, find_row
from hermes.config_file import change_dotenv, read_dotenv
from hermes.errors import InvalidParams, NothingToUndo, Unavailable, Unsupported

if TYPE_CHECKING:
    from hermes.nurseries.services import Services


def row_for(slug: str) -> ProviderRow:
    """The provider that takes a key. Raises ``InvalidParams``, ``Unsupported``."""
    row = find_row(slug)
    if row is None:
        raise InvalidParams(f"there is no provider {slug!r}")
    if row.auth != "api_key" or not row.key_variables:
        raise Unsupported(f"{row.name} is not used with a key")
    return row


async def save_key(services: Services, slug: str, key: str) -> ProviderRow:
    """Keep a key for a provider. Raises ``InvalidParams``, ``Unsupported``, ``Unavailable``."""
    row = row_for(slug)
    key = key.strip()
    if not key or any(char.isspace() or not char.isprintable() for char in key):
        raise InvalidParams("api_key must be one word")
    await _write(services, {row.key_variables[0]: key})
    return row


async def forget_key(services: Services, slug: str) -> ProviderRow:
    """Take a provider's keys out of the file. Raises ``NothingToUndo`` when the file holds none."""
    row = row_for(slug)
    held = await trio.to_thread.run_sync(read_dotenv, services.home / ".env")
    names = [name for name in row.key_variables if name in held]
    if not names:
        raise NothingToUndo(f"no key of {row.name} is saved here")
    await _write(services, dict.fromkeys(names))
    return row


async def _write(services: Services, changes: dict[str, str] | dict[str, None] | dict[str, str | None]) -> None:
    if services.config is None:
        raise Unavailable("the configuration cannot be changed here")
    try:
        await trio.to_thread.run_sync(change_dotenv, services.home / ".env", dict(changes))
    except OSError as error:
        raise Unavailable(f"the key could not be saved: {error.strerror or error}") from None
    await services.config.reload()
