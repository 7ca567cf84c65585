"""``hermes serve``: HTTP, SSE and WebSocket on one port, and the lines that tell a person how to use them."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from hermes import __version__
from hermes.config import LoadedSettings, read_server_key
from hermes.errors import InvalidValue, StoreUnavailable
from hermes.launch import ServeOptions
from hermes.protocols.channels.http_listener import ListenerLimits, listening_port, open_listeners
from hermes.protocols.gateway.admission import AdmissionConfig, is_loopback
from hermes.protocols.gateway.websocket import websocket_handler
from hermes.protocols.http.call import HttpOptions
from hermes.protocols.http.surface import HttpSurface
from hermes.server_key import ServerKey
from hermes.start import cannot_start, settle_memory, start_tree

try:
    import resource
except ImportError:  # not on this system
    resource = None  # type: ignore[assignment]


async def serve(loaded: LoadedSettings, options: ServeOptions) -> int:
    """Run the server until it is stopped; returns the exit code."""
    api = loaded.settings.gateway.api_server
    if not is_loopback(api.host) and not options.allow_remote:
        return cannot_start(
            f"{api.host} can be reached from other machines. Add --allow-remote if that is what you want; "
            "use a proxy that adds TLS.",
            loaded,
        )
    raise_descriptor_limit()
    limits = listener_limits(loaded)
    try:
        key = read_server_key(loaded.home, configured=api.key)
        listeners = await open_listeners(api.host, api.port, limits)
    except InvalidValue as error:
        return cannot_start(error.message, loaded)
    except OSError as error:
        return cannot_start(cannot_listen(api.host, api.port, error), loaded)
    try:
        tree = await start_tree(loaded)
    except StoreUnavailable as error:
        return cannot_start(error.message, loaded)
    port = listening_port(listeners)
    gateway = websocket_handler(tree, AdmissionConfig(key.value, api.host))
    surface = HttpSurface(
        tree,
        HttpOptions(key=key.value, host=api.host, port=port, cwd=os.getcwd(), version=__version__),
        websockets={"/api/ws": gateway.handle},
        mint_ticket=gateway.tickets.mint,
    )
    settle_memory()
    for line in welcome(api.host, port, key, loaded):
        options.report(line)

    async def listen() -> None:
        await surface.serve(listeners, limits=limits)

    return await tree.run([("http", listen)])


def cannot_listen(host: str, port: int, error: OSError) -> str:
    """In words, with what to change."""
    is_address = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
    taken = " (is a Hermes running already? `hermes doctor` says)" if error.errno == errno.EADDRINUSE else ""
    other = "--host" if is_address else "--port"
    return f"cannot listen on {host}:{port}: {error.strerror or error}{taken}. Choose another {other}."


def listener_limits(loaded: LoadedSettings) -> ListenerLimits:
    limits = loaded.settings.limits
    return ListenerLimits(
        max_connections=limits.max_connections,
        head_deadline=limits.head_deadline,
        write_deadline=limits.write_deadline,
        drain_grace=limits.drain_grace,
        websocket_message_bytes=limits.max_frame_bytes,
    )


def raise_descriptor_limit() -> None:
    """Each client and each model call is a descriptor: take as many as the system lets us have."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or hard == resource.RLIM_INFINITY:
        wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 65_536)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return


def welcome(host: str, port: int, key: ServerKey, loaded: LoadedSettings) -> Iterator[str]:
    """What is printed at start: the address, where the key is, and one line for each protocol that works as it is."""
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}"
    read_key = f"$(cat {key.path})" if key.path is not None else "$API_SERVER_KEY"
    yield f"Hermes {__version__} listens on {address}"
    yield f"The key is in {key.path}" if key.path is not None else f"The key comes from {key.source}"
    yield f"Home: {loaded.home}"
    yield ""
    yield f"Console: open {address}/ in a browser and give it the key"
    yield "HTTP (OpenAI-compatible):"
    yield (
        f'  curl -N {address}/v1/chat/completions -H "Authorization: Bearer {read_key}" '
        "-H 'Content-Type: application/json' "
        '-d \'{"model": "hermes-agent", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}\''
    )
    yield "Gateway JSON-RPC (WebSocket):"
    yield f'  {hermes_command()} rpc --url "ws://{shown}:{port}/api/ws?token={read_key}" --say Hello'
    yield "ACP (editors start this command; here it says who it is and opens a session):"
    initialize = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
    new = '{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}'
    home = f"HERMES_HOME={loaded.home} " if loaded.home != Path.home() / ".hermes" else ""
    yield f"  (printf '%s\\n' '{initialize}' '{new}'; sleep 2) | {home}{hermes_command()} acp"


def hermes_command() -> str:
    """How this very command can be started again."""
    return sys.argv[0] if os.path.basename(sys.argv[0]).startswith("hermes") else f"{sys.executable} -m hermes"
