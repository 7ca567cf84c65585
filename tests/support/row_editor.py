"""A host that shows a conversation and edits it by row ids, against a server process."""

from __future__ import annotations

from typing import Any

from hermes.testing import FakeProvider
from tests.support.server_process import ServerProcess

CONFIRMED = {"confirm_truncate": True, "confirm_empty_truncate": True}


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}


class Editor:
    """A host that shows the conversation and lets a person edit what they said."""

    def __init__(self, server: ServerProcess, session_id: str) -> None:
        self.server = server
        self.session_id = session_id
        self.ids: list[int] = []
        self.dropped: set[int] = set()

    async def submit(self, text: str, **target: Any) -> dict[str, Any]:
        """The response frame; after an acceptance, once the turn has ended."""
        at = len(self.server.frames)
        params = {"session_id": self.session_id, "text": text, **target}
        response = await self.server.request("prompt.submit", params)
        if "result" in response:
            await self.server.event("message.complete", after=at)
        return response

    async def say(self, text: str) -> None:
        self.ids.append((await self.submit(text))["result"]["user_row_id"])

    async def edit(self, row_id: int, text: str) -> None:
        index = self.ids.index(row_id)
        response = await self.submit(text, truncate_before_row_id=row_id, **CONFIRMED)
        assert "result" in response, response
        assert response["result"]["survivor_user_row_ids"] == self.ids[:index]
        self.dropped |= set(self.ids[index:])
        self.ids[index:] = [response["result"]["user_row_id"]]

    async def take_back(self) -> None:
        result = await self.server.call("session.undo_rewind", {"session_id": self.session_id})
        back = result["survivor_user_row_ids"]
        self.dropped = (self.dropped | set(self.ids)) - set(back)
        self.ids = back

    async def history(self) -> list[tuple[int | None, str]]:
        result = await self.server.call("session.history", {"session_id": self.session_id})
        return [(message.get("row_id"), message["text"]) for message in result["messages"]]

    async def refused(self, code: int, **target: Any) -> None:
        """Refused with this code, and nothing has changed."""
        before = await self.history()
        response = await self.submit("must not be said", **target)
        assert response.get("error", {}).get("code") == code, (target, response)
        assert await self.history() == before
