"""The reference page of the gateway names every method with what it takes and gives, as the table has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hermes.protocols.gateway.contract import result_of
from hermes.protocols.gateway.schemas_events import EVENTS
from hermes.protocols.gateway.surface import STDIO_TABLE, WEBSOCKET_TABLE

PAGE = Path("docs/reference/gateway-methods.md")
HEAD = """# Gateway methods

One JSON-RPC object per line (`hermes gateway`, standard input and output) or per WebSocket message (`/api/ws` of
`hermes serve`). Undeclared parameters are refused with code 4000; every method also takes `profile`, of which only
`default` exists. A trailing `?` marks what may be left out.

Methods that change something take a `request_key` (or `idempotency_key`; `prompt.submit` also `client_message_id`): for
five minutes a repeat under the same key, on any connection of the server, gets the first answer and is not done again;
with other parameters it is refused with code 4009. A refused call is judged anew.

Unknown methods (-32601) are, of those that other servers of this protocol have: `browser.manage`, `connection.respond`,
`cron.manage`, `handoff.*`, `i18n.*`, `image.generate`, `learning.*`, `mcp.catalog`, `mcp.servers.add` and its relatives
that change the configuration (it is a file: `mcp_servers` in `config.yaml`, then `reload.mcp`), `message.react`,
`pdf.attach`, `plugins.manage`, `preview.restart`, `profiles.*` except the list, `projects.*`, `session.control*`,
`session.foreign.*`, `session.workspace.move`, `vault.*`, `verification.status`, `voice.*`, and everything that belongs
to an account with a vendor. So are the slash commands `/goal`, `/subgoal`, `/loop`, `/heartbeat`, `/cron`, `/moa`,
`/worktree`, `/snapshot`, `/handoff`, `/browser`, `/voice`, `/update`, `/import`: turns that go on by themselves and
schedules are not offered.
"""


def expected_page() -> str:
    sections = [HEAD]
    for name in WEBSOCKET_TABLE.names():
        method = WEBSOCKET_TABLE.find(name)
        assert method is not None
        only = "" if STDIO_TABLE.find(name) is not None else "\n\nOnly on WebSockets."
        text = (method.handler.__doc__ or "").strip().split("\n\n")[0]
        text = " ".join(text.split())
        said = f"\n\n{text}" if text else ""
        sections.append(
            f"## `{name}`{said}{only}\n\n- takes: {fields(method.params)}\n- gives: {fields(result_of(method))}\n"
        )
    return "\n".join(sections)


def fields(model: type[BaseModel] | Any) -> str:
    names = [
        f"`{field.alias or name}{'' if field.is_required() else '?'}`"
        for name, field in model.model_fields.items()
        if name != "profile"
    ]
    if model.model_config.get("extra") == "allow":
        names.append("and more")
    return ", ".join(names) or "nothing"


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == expected_page(), f"write {PAGE} anew: python -m {__name__}"


def test_every_event_that_is_sent_has_a_row() -> None:
    page = Path("docs/reference/gateway-events.md").read_text(encoding="utf-8")
    sources = "".join(path.read_text() for path in Path("hermes/protocols/gateway").glob("*.py"))
    sent = set(re.findall(r'WireEvent\(\s*"([a-z_.]+)"', sources))
    assert len(sent) > 25
    missing = [name for name in sorted(sent) if f"`{name}`" not in page]
    assert missing == []
    assert sent <= {event.name for event in EVENTS}, "an event without a model"
    for event in EVENTS:
        name = "subagent.*" if event.name.startswith("subagent.") else event.name
        assert f"`{name}`" in page, event.name


if __name__ == "__main__":
    PAGE.write_text(expected_page(), encoding="utf-8")
