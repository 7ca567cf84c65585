"""``hermes rpc``: one gateway call, or one prompt, to a running server over its WebSocket."""

from __future__ import annotations

import json
from typing import Any

import click

from hermes.cli.options import load, shared_options


@click.command("rpc")
@click.argument("method", required=False)
@click.argument("params", required=False)
@click.option("--url", help="Address of the gateway; default: the server of this home.")
@click.option("--say", metavar="TEXT", help="Make a session, submit this prompt and show every frame until its end.")
@shared_options
def command(method: str | None, params: str | None, url: str | None, say: str | None, **shared: Any) -> None:
    """Call METHOD with PARAMS (a JSON object) and print the result; or --say something and watch the frames."""
    import trio

    from hermes.cli.gateway_client import connected
    from hermes.cli.running_server import gateway_url

    if (method is None) == (say is None):
        raise click.UsageError("give a METHOD or --say TEXT")
    try:
        arguments = json.loads(params) if params else {}
    except ValueError as error:
        raise click.UsageError(f"PARAMS is no JSON: {error}") from error
    address = gateway_url(load(**shared), url)

    def show(frame: Any) -> None:
        click.echo(json.dumps(frame, ensure_ascii=False))

    async def run() -> None:
        async with connected(address) as gateway:
            if method is not None:
                show(await gateway.call(method, arguments))
                return
            created = await gateway.call("session.create", {"source": "cli"}, on_frame=show)
            session_id = created["session_id"]
            show(created)
            await gateway.call("prompt.submit", {"session_id": session_id, "text": say}, on_frame=show)
            while (frame := await gateway.receive()) is not None:
                show(frame)
                event = frame.get("params", {})
                if event.get("type") in ("message.complete", "error") and event.get("session_id") == session_id:
                    return

    trio.run(run)
