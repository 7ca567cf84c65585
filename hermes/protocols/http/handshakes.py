"""WebSocket handshakes on paths that serve none: answered as the same request without the handshake would be.

The application behind knows HTTP requests only. Without this a handshake would pass by the key and end as a crash in
the log, for anybody who can connect.
"""

from __future__ import annotations

from hermes.protocols.http.body_guard import AsgiApp, Message, Receive, Scope, Send


async def answer_as_request(app: AsgiApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Let ``app`` answer a ``websocket`` scope as a GET without a body."""
    begun = False

    async def receive_as_request() -> Message:
        nonlocal begun
        if not begun:
            begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return {"type": "http.disconnect"}

    async def send_as_refusal(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    plain = {**scope, "type": "http", "method": "GET", "scheme": "https" if scope.get("scheme") == "wss" else "http"}
    await app(plain, receive_as_request, send_as_refusal)
