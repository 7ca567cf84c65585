"""Connections to providers: closing on cancel, drops, silence, reuse, proxies, TLS. Real sockets on loopback."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import DeltaKind, ModelFinished
from hermes.agent.providers.http_provider import HttpProvider
from hermes.agent.providers.http_stream import HttpClient, HttpRequest, ProxySettings, Timeouts
from hermes.errors import ProviderError
from tests.support.provider_parsing import delta, endpoint, events, request
from tests.support.raw_provider import LAST_CHUNK, STREAM_HEAD, Peer, RawProvider, chunk, raw_provider

ANSWER = events(delta(content="Hi"), delta("stop"))


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    shared = HttpClient()
    yield shared
    await shared.aclose()


def provider_at(server: RawProvider, client: HttpClient, **more: Any) -> HttpProvider:
    place: dict[str, Any] = {"base_url": server.base_url, **more}
    return HttpProvider(endpoint(**place), client)


async def ask(provider: HttpProvider, deltas: list[str] | None = None) -> ModelFinished:
    def on_delta(kind: DeltaKind, text: str) -> None:
        if deltas is not None:
            deltas.append(text)

    with trio.fail_after(10):
        return await provider.call(request(), on_delta)


async def failure(provider: HttpProvider, deltas: list[str] | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(provider, deltas)
    return caught.value


async def answer(peer: Peer, data: bytes = ANSWER) -> None:
    await peer.send(STREAM_HEAD + chunk(data) + LAST_CHUNK)


async def serve_for_ever(peer: Peer, number: int) -> None:
    while await peer.request() is not None:
        await answer(peer)


@pytest.mark.parametrize("sent", [b"", STREAM_HEAD, STREAM_HEAD + chunk(events(delta(content="Hi"), done=False))])
async def test_a_cancelled_call_closes_its_socket_at_once(sent: bytes, client: HttpClient) -> None:
    arrived, seen_gone = trio.Event(), trio.Event()
    closed_at: list[float] = []

    async def hang(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(sent)
        arrived.set()
        await peer.gone()
        closed_at.append(trio.current_time())
        seen_gone.set()

    async with raw_provider(hang) as server, trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        unwound = trio.Event()

        async def call() -> None:
            with scope:
                await ask(provider_at(server, client))
            unwound.set()

        nursery.start_soon(call)
        with trio.fail_after(10):
            await arrived.wait()
            await trio.testing.wait_all_tasks_blocked(0.01)
            cancelled_at = trio.current_time()
            scope.cancel()
            await unwound.wait()
            await seen_gone.wait()
        assert scope.cancelled_caught
        assert closed_at[0] - cancelled_at < 0.5
        assert client._idle == []


async def test_a_cancel_while_connecting_leaves_nothing(client: HttpClient) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1)
    port = listeners[0].socket.getsockname()[1]
    with trio.move_on_after(0) as scope:
        await client.open(HttpRequest("GET", f"http://127.0.0.1:{port}/"), Timeouts())
    assert scope.cancelled_caught
    await listeners[0].aclose()


async def test_answers_share_a_connection(client: HttpClient) -> None:
    async with raw_provider(serve_for_ever) as server:
        provider = provider_at(server, client)
        assert [(await ask(provider)).text for _ in range(3)] == ["Hi"] * 3
        assert server.connections == 1


async def test_calls_side_by_side_do_not_share_one(client: HttpClient) -> None:
    both = trio.Event()

    async def together(peer: Peer, number: int) -> None:
        while await peer.request() is not None:
            if number == 2:
                both.set()
            await both.wait()
            await answer(peer)

    async with raw_provider(together) as server:
        provider = provider_at(server, client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, provider)
            nursery.start_soon(ask, provider)
        assert server.connections == 2


async def test_a_connection_the_server_has_closed_is_not_used_again(client: HttpClient) -> None:
    async def once(peer: Peer, number: int) -> None:
        await peer.request()
        await answer(peer)

    async with raw_provider(once) as server:
        provider = provider_at(server, client)
        assert [(await ask(provider)).text for _ in range(2)] == ["Hi"] * 2
        assert server.connections == 2


async def test_a_pooled_connection_that_fails_before_a_byte_is_replaced_once(client: HttpClient) -> None:
    requests: list[int] = []

    async def second_request_fails(peer: Peer, number: int) -> None:
        while await peer.request() is not None:
            requests.append(number)
            if len(requests) == 2:
                return
            await answer(peer)

    async with raw_provider(second_request_fails) as server:
        provider = provider_at(server, client)
        assert [(await ask(provider)).text for _ in range(2)] == ["Hi"] * 2
        assert requests == [1, 1, 2]


async def test_a_fresh_connection_that_fails_is_not_tried_again(client: HttpClient) -> None:
    async def hang_up(peer: Peer, number: int) -> None:
        await peer.request()

    async with raw_provider(hang_up) as server:
        error = await failure(provider_at(server, client))
        assert (error.error_class, error.reached_provider, server.connections) == ("stream_dropped", True, 1)


async def test_a_drop_in_the_middle_keeps_what_was_said(client: HttpClient) -> None:
    async def drop(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(events(delta(content="half"), done=False)))

    deltas: list[str] = []
    async with raw_provider(drop) as server:
        error = await failure(provider_at(server, client), deltas)
    assert (error.error_class, deltas, error.provider) == ("stream_dropped", ["half"], "p")


async def test_a_drop_after_the_finish_reason_is_an_end(client: HttpClient) -> None:
    async def drop(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(events(delta("stop", content="all"), done=False)))

    async with raw_provider(drop) as server:
        assert (await ask(provider_at(server, client))).finish_reason == "stop"


async def test_a_server_that_leaves_the_stream_open_after_the_end_is_not_waited_for(client: HttpClient) -> None:
    async def linger(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(ANSWER))
        await peer.gone()

    async with raw_provider(linger) as server:
        assert (await ask(provider_at(server, client))).text == "Hi"
        assert client._idle == []


async def test_a_body_without_length_ends_with_the_connection(client: HttpClient) -> None:
    async def old(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + ANSWER)

    async with raw_provider(old) as server:
        assert (await ask(provider_at(server, client))).text == "Hi"


async def test_interim_heads_are_skipped(client: HttpClient) -> None:
    async def early(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        await answer(peer)

    async with raw_provider(early) as server:
        assert (await ask(provider_at(server, client))).text == "Hi"


async def test_silence_before_the_answer_is_a_timeout(client: HttpClient) -> None:
    async def silent(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.gone()

    async with raw_provider(silent) as server:
        error = await failure(provider_at(server, client, idle_timeout=0.05))
    assert (error.error_class, "0.05 s" in error.message) == ("timeout", True)


async def test_silence_in_the_middle_is_a_timeout(client: HttpClient) -> None:
    async def stall(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(events(delta(content="half"), done=False)))
        await peer.gone()

    deltas: list[str] = []
    async with raw_provider(stall) as server:
        error = await failure(provider_at(server, client, idle_timeout=0.2), deltas)
    assert (error.error_class, deltas) == ("timeout", ["half"])


async def test_keep_alives_count_as_life_but_not_against_the_whole_time(client: HttpClient) -> None:
    async def chatter(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD)
        while True:
            await peer.send(chunk(b": ping\n\n"))
            await trio.sleep(0.02)

    async with raw_provider(chatter) as server:
        error = await failure(provider_at(server, client, idle_timeout=0.4, total_timeout=1.0))
    assert (error.error_class, "too long" in error.message) == ("timeout", True)


async def test_a_refused_connection_never_reached_the_provider(client: HttpClient) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = RawProvider(listeners[0].socket.getsockname()[1])
    await listeners[0].aclose()
    error = await failure(provider_at(server, client))
    assert (error.error_class, error.reached_provider, error.message) == (
        "timeout",
        False,
        "127.0.0.1 refuses connections",
    )


async def test_a_host_that_does_not_exist_is_named(client: HttpClient) -> None:
    provider = HttpProvider(endpoint(base_url="http://nowhere.invalid/v1"), client)
    error = await failure(provider)
    assert (error.error_class, error.message) == ("timeout", "nowhere.invalid cannot be reached")


@pytest.mark.parametrize("reply", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nbad\r\n\r\n", STREAM_HEAD + b"zz\r\n"])
async def test_nonsense_is_a_dropped_stream(reply: bytes, client: HttpClient) -> None:
    async def nonsense(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(reply)
        await peer.gone()

    async with raw_provider(nonsense) as server:
        assert (await failure(provider_at(server, client))).error_class == "stream_dropped"


async def test_an_error_answer_is_read_with_its_hints(client: HttpClient) -> None:
    async def busy(peer: Peer, number: int) -> None:
        await peer.request()
        body = b'{"error": {"message": "slow down"}}'
        head = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 9\r\ncontent-length: %d\r\n\r\n" % len(body)
        await peer.send(head + body)
        await peer.gone()

    async with raw_provider(busy) as server:
        error = await failure(provider_at(server, client))
    assert (error.error_class, error.status, error.retry_after, error.message) == ("rate_limit", 429, 9.0, "slow down")


async def test_an_error_answer_that_breaks_off_keeps_its_status(client: HttpClient) -> None:
    async def broken(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 503 Busy\r\ncontent-length: 500\r\n\r\nsorry")

    async with raw_provider(broken) as server:
        error = await failure(provider_at(server, client))
    assert (error.error_class, error.status, error.message) == ("overloaded", 503, "sorry")


async def test_a_redirect_is_not_followed(client: HttpClient) -> None:
    async def redirect(peer: Peer, number: int) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 307 Elsewhere\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n")
        await peer.gone()

    async with raw_provider(redirect) as server:
        error = await failure(provider_at(server, client))
    assert (error.error_class, "base URL" in error.message) == ("format_error", True)


@pytest.mark.parametrize("url", ["ftp://x/v1", "not a url", "http://", "http://127.0.0.1:99999/v1"])
async def test_a_bad_address_is_an_error_of_the_request(url: str, client: HttpClient) -> None:
    error = await failure(HttpProvider(endpoint(base_url=url), client))
    assert (error.error_class, error.reached_provider) == ("format_error", False)


async def test_a_key_with_a_line_end_is_not_sent(client: HttpClient) -> None:
    error = await failure(HttpProvider(endpoint(base_url="http://127.0.0.1:9/v1", api_key="a\r\nX: y"), client))
    assert error.error_class == "format_error"


async def test_a_plain_request_goes_through_a_proxy_in_absolute_form() -> None:
    lines: list[bytes] = []

    async def proxy(peer: Peer, number: int) -> None:
        lines.append((await peer.request() or b"").split(b"\r\n")[0])
        await answer(peer)

    async with raw_provider(proxy) as server:
        client = HttpClient(proxies=ProxySettings(http=f"http://127.0.0.1:{server.port}"))
        await ask(HttpProvider(endpoint(base_url="http://far.example/v1"), client))
        await client.aclose()
    assert lines == [b"POST http://far.example/v1/chat/completions HTTP/1.1"]


async def test_a_tunnel_is_asked_for_with_credentials_and_its_refusal_is_told() -> None:
    asked: list[bytes] = []

    async def proxy(peer: Peer, number: int) -> None:
        asked.append(await peer.request() or b"")
        await peer.send(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n")
        await peer.gone()

    async with raw_provider(proxy) as server:
        client = HttpClient(proxies=ProxySettings(https=f"http://me:s%20x@127.0.0.1:{server.port}"))
        error = await failure(HttpProvider(endpoint(base_url="https://far.example/v1"), client))
    assert asked[0].startswith(b"CONNECT far.example:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6cyB4\r\n" in asked[0]
    assert "407" in error.message


@pytest.mark.parametrize(
    ("host", "expected"),
    [("a.example", None), ("sub.a.example", None), ("xa.example", "P"), ("b.example", "P"), ("10.0.0.1", None)],
)
def test_some_hosts_need_no_proxy(host: str, expected: str | None) -> None:
    assert ProxySettings(http="P", no_proxy=(".a.example", "10.0.0.1")).proxy_for("http", host) == expected
    assert ProxySettings(http="P", no_proxy=("*",)).proxy_for("http", host) is None


def test_the_usual_variables_name_the_proxies() -> None:
    named = {"HTTPS_PROXY": "http://s:1", "http_proxy": "http://p:1", "NO_PROXY": "a.example, .b.example"}
    assert ProxySettings.from_variables(named) == ProxySettings("http://p:1", "http://s:1", ("a.example", ".b.example"))
    assert ProxySettings.from_variables({"ALL_PROXY": "http://all:1"}) == ProxySettings("http://all:1", "http://all:1")
    assert ProxySettings.from_variables({"all_proxy": "socks5://x:1"}) == ProxySettings()


# --- TLS


def certificate(directory: Path) -> Path:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + built.public_bytes(serialization.Encoding.PEM)
    )
    return path


async def test_tls_is_spoken_reused_and_closed_on_cancel(tmp_path: Path) -> None:
    path = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    gone = trio.Event()

    async def serve(peer: Peer, number: int) -> None:
        for _ in range(2):
            await peer.request()
            await answer(peer)
        await peer.request()
        await peer.send(STREAM_HEAD)
        await peer.gone()
        gone.set()

    async with raw_provider(serve, tls=context) as server:
        client = HttpClient(ssl_context=ssl.create_default_context(cafile=str(path)))
        provider = HttpProvider(endpoint(base_url=f"https://127.0.0.1:{server.port}/v1"), client)
        assert [(await ask(provider)).text for _ in range(2)] == ["Hi"] * 2
        with trio.move_on_after(0.2):
            await ask(provider)
        with trio.fail_after(5):
            await gone.wait()
        assert server.connections == 1


async def test_an_untrusted_certificate_is_a_class_of_its_own(tmp_path: Path, client: HttpClient) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate(tmp_path))

    async def serve(peer: Peer, number: int) -> None:
        await peer.request()

    async with raw_provider(serve, tls=context) as server:
        provider = HttpProvider(endpoint(base_url=f"https://127.0.0.1:{server.port}/v1"), client)
        error = await failure(provider)
    assert (error.error_class, error.reached_provider) == ("ssl_cert_verification", False)
