"""An allow list of hosts, and a proxy that keeps to it whatever it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from providers.sandboxes.egress import Attempt, Attempts, EgressBounds
from providers.sandboxes.egress.addresses import why_not
from schemas.network import Host, parse_host, parse_hosts
from tests.support.egress_place import egress_place, names

HERE = {"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]}


# -- names ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("example.com", Host("example.com")),
        ("Example.COM.", Host("example.com")),
        ("example.com:80", Host("example.com", 80)),
        ("*.example.com", Host("example.com", is_suffix=True)),
        ("*.example.com:8443", Host("example.com", 8443, is_suffix=True)),
        ("localhost:1", Host("localhost", 1)),
        ("xn--bcher-kva.example", Host("xn--bcher-kva.example")),
        ("_dmarc.a-b.example", Host("_dmarc.a-b.example")),
    ],
)
def test_what_can_be_said(text: str, host: Host) -> None:
    assert parse_host(text) == host
    assert parse_host(str(host)) == host


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no host"),
        ("*", "beginning"),
        ("*.", "no letters"),
        ("a.*.com", "beginning"),
        ("*a.com", "beginning"),
        ("https://a.com", "name:port"),
        ("10.0.0.0/8", "no range"),
        ("1.2.3.4", "never numbered"),
        ("1.2.3.4:443", "never numbered"),
        ("127.1", "never numbered"),
        ("2130706433", "never numbered"),
        ("a.0x7f", "never numbered"),
        ("::1", "never numbered"),
        ("[::1]:443", "never numbered"),
        ("a.com:0", "port"),
        ("a.com:65536", "port"),
        ("a.com:", "port"),
        ("a.com:http", "port"),
        ("a b.com", "letters"),
        ("-a.com", "letters"),
        ("bücher.example", "xn--"),
        ("a..com", "letters"),
        ("a" * 64 + ".com", "letters"),
        ("a@b.com", "letters"),
        ("\u0661.com", "xn--"),
    ],
)
def test_what_cannot_be_said_is_told_why(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_host(text)
    assert words in str(caught.value)


def test_what_a_name_covers() -> None:
    [one, other, below] = parse_hosts(["a.com", "a.com:80", "*.b.com"])
    assert one.covers("a.com", 443)
    assert not one.covers("a.com", 80)
    assert other.covers("a.com", 80)
    assert not one.covers("x.a.com", 443)
    assert not one.covers("xa.com", 443)
    assert below.covers("x.b.com", 443)
    assert below.covers("x.y.b.com", 443)
    assert not below.covers("b.com", 443)
    assert not below.covers("xb.com", 443)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "169.254.170.2",
        "100.64.0.1", "100.100.100.200", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "192.0.2.1",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fc00::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "64:ff9b::7f00:1",
        "::127.0.0.1", "::ffff:168.63.129.16",
    ],
)  # fmt: skip
def test_addresses_that_are_nobodys_public_ones(address: str) -> None:
    assert why_not(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_public_addresses(address: str) -> None:
    assert why_not(address) is None


# -- the proxy -----------------------------------------------------------------------------------------------------------------


async def test_a_tunnel_carries_both_ways_and_is_written_down(tmp_path: Path) -> None:
    async with egress_place(tmp_path, "a.test:PORT") as place:
        with names(HERE):
            reader, writer = await place.tunnel(f"A.test:{place.upstream.port}")
            for size in (1, 300_000):
                writer.write(b"x" * size)
                assert await reader.readexactly(size) == b"x" * size
            writer.write_eof()
            assert await reader.read() == b""
            one = await place.last()
            writer.close()
    assert (one.host, one.port, one.address, one.is_allowed) == ("a.test", place.upstream.port, "127.0.0.1", True)
    assert (one.sent_bytes, one.received_bytes, one.phase, one.reason) == (300_001, 300_001, "agent", "")
    assert one.duration_s > 0


async def test_what_comes_right_after_the_head_is_carried_too(tmp_path: Path) -> None:
    async with egress_place(tmp_path, "a.test:PORT") as place:
        with names(HERE):
            reader, writer = await place.open()
            writer.write(f"CONNECT a.test:{place.upstream.port} HTTP/1.1\r\nHost: x\r\n\r\nearly".encode())
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(5) == b"early"
            writer.close()


async def test_a_plain_request_is_asked_in_the_hosts_own_name(tmp_path: Path) -> None:
    """Whatever the box says in Host, and nothing that was meant for the proxy goes on."""
    async with egress_place(tmp_path, "a.test:PORT") as place:
        with names(HERE):
            where = f"a.test:{place.upstream.port}"
            asked = f"GET http://{where}/x?y=1 HTTP/1.1\nHost: elsewhere\nProxy-Auth: z\nX-Hop: 1\nConnection: X-Hop\nAccept: a"
            answer = await place.ask(asked)
            assert answer.endswith(b"the upstream's answer")
            heard = place.upstream.heard[-1].lower()
            assert heard.startswith(b"get /x?y=1 http/1.1\r\n")
            assert f"host: {where}\r\n".encode() in heard
            assert b"accept: a" in heard
            for kept_back in (b"elsewhere", b"proxy-", b"x-hop"):
                assert kept_back not in heard
            answer = await place.ask(f"POST http://{where}/ HTTP/1.1\nHost: h\nContent-Length: 4", b"body")
            assert place.upstream.heard[-1].endswith(b"\r\n\r\nbody")
            chunked = f"PUT http://{where}/ HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\nExpect: 100-continue"
            answer = await place.ask(chunked, b"4\r\nbody\r\n0\r\n\r\n")
            assert b"the upstream's answer" in answer
            first, second, third = [await place.last() for _ in range(3)]
    assert first.sent_bytes == len(heard)
    assert all(one.is_allowed and not one.reason for one in (first, second, third))


@pytest.mark.parametrize(
    ("head", "status", "words"),
    [
        ("CONNECT b.test:443 HTTP/1.1\nHost: a.test", 403, "b.test:443 is refused: it is not on the list"),
        ("CONNECT a.test:443 HTTP/1.1\nHost: x", 403, "a.test:443 is refused"),
        ("GET http://a.test/ HTTP/1.1\nHost: x", 403, "a.test:80 is refused"),
        ("CONNECT 127.0.0.1:PORT HTTP/1.1\nHost: x", 403, "never numbered"),
        ("CONNECT [::1]:PORT HTTP/1.1\nHost: x", 403, "never numbered"),
        ("CONNECT 2130706433:PORT HTTP/1.1\nHost: x", 403, "never numbered"),
        ("GET http://169.254.169.254/latest/meta-data HTTP/1.1\nHost: x", 403, "never numbered"),
        ("CONNECT a.test HTTP/1.1\nHost: x", 400, "name:port"),
        ("CONNECT a.test:99999 HTTP/1.1\nHost: x", 400, "ort"),
        ("CONNECT u@a.test:PORT HTTP/1.1\nHost: x", 400, "user"),
        ("CONNECT a.test:PORT/x HTTP/1.1\nHost: x", 400, "name:port"),
        ("GET /x HTTP/1.1\nHost: a.test", 400, "http://"),
        ("GET ftp://a.test/ HTTP/1.1\nHost: x", 400, "http://"),
        ("GET http://a.test:PORT@b.test/ HTTP/1.1\nHost: x", 400, "user"),
        ("OPTIONS * HTTP/1.1\nHost: a.test", 400, "http://"),
        ("nonsense", 400, "no request"),
        ("GET http://a.test:PORT/ HTTP/1.1\nHost: x\nX: " + "y" * 70_000, 431, "no request"),
    ],
)
async def test_everything_else_is_refused_with_its_reason(tmp_path: Path, head: str, status: int, words: str) -> None:
    """And no name that is not allowed is looked up, so that names carry nothing out."""
    async with egress_place(tmp_path, "a.test:PORT") as place:
        with names(HERE) as looked_up:
            answer = await place.ask(head.replace("PORT", str(place.upstream.port)))
            one = await place.last()
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert words in answer.decode()
    assert words in one.reason
    assert not one.is_allowed
    assert looked_up == []
    assert place.upstream.heard == []


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "10.0.0.1", "::ffff:127.0.0.1", "0.0.0.0"])
async def test_an_allowed_name_does_not_lead_inside(tmp_path: Path, address: str) -> None:
    """A name that stands for an address of ours is refused, unless the configuration says that it is private."""
    async with egress_place(tmp_path, "a.test:PORT", private=()) as place:
        with names({"a.test": [address]}):
            answer = await place.ask(f"CONNECT a.test:{place.upstream.port} HTTP/1.1\nHost: x")
            one = await place.last()
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert address in one.reason
    assert not one.is_allowed
    assert place.upstream.heard == []


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(tmp_path: Path) -> None:
    """A name is looked up once: one that answers differently the second time gains nothing."""
    async with egress_place(tmp_path, "a.test:PORT") as place:
        with names(HERE) as looked_up:
            _, writer = await place.tunnel(f"a.test:{place.upstream.port}")
            writer.close()
        assert looked_up == ["a.test"]
    async with egress_place(tmp_path, "a.test:PORT", private=()) as place:
        with names({"a.test": ["127.0.0.1", "10.0.0.1"]}) as looked_up:
            await place.ask(f"CONNECT a.test:{place.upstream.port} HTTP/1.1\nHost: x")
        assert looked_up == ["a.test"]


async def test_this_machine_under_a_public_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that looks public and is this machine's own leads to what listens here."""
    monkeypatch.setattr("providers.sandboxes.egress.proxy.why_not", lambda _: None)
    async with egress_place(tmp_path, "a.test:PORT", private=()) as place:
        with names(HERE):
            answer = await place.ask(f"CONNECT a.test:{place.upstream.port} HTTP/1.1\nHost: x")
    assert b"this machine itself" in answer
    await asyncio.sleep(0.05)
    assert [data for data in place.upstream.heard if data] == []


async def test_a_change_of_the_list_holds_at_once(tmp_path: Path) -> None:
    """Connections that are no longer allowed are cut, the others go on; what is new is allowed from then on."""
    async with egress_place(tmp_path, "a.test:PORT", "b.test:PORT") as place:
        with names(HERE):
            port = place.upstream.port
            cut, cut_writer = await place.tunnel(f"a.test:{port}")
            kept, kept_writer = await place.tunnel(f"b.test:{port}")
            place.proxy.allow(parse_hosts([f"b.test:{port}"]), "verify")
            assert await asyncio.wait_for(cut.read(), 5) == b""
            one = await place.last()
            assert (one.host, one.is_allowed, one.reason, one.phase) == ("a.test", True, "no longer allowed", "agent")
            kept_writer.write(b"still")
            assert await kept.readexactly(5) == b"still"
            again = await place.ask(f"CONNECT a.test:{port} HTTP/1.1\nHost: x")
            assert again.startswith(b"HTTP/1.1 403 ")
            assert (await place.last()).phase == "verify"
            place.proxy.allow((), "")
            assert await asyncio.wait_for(kept.read(), 5) == b""
            for writer in (cut_writer, kept_writer):
                writer.close()


async def test_a_list_that_changes_during_a_look_up_holds(tmp_path: Path) -> None:
    async with egress_place(tmp_path, "a.test:PORT") as place:
        with names(HERE):
            usual = asyncio.get_running_loop().getaddrinfo

            async def slowly(*arguments: object, **more: object) -> object:
                place.proxy.allow((), "verify")
                return await usual(*arguments, **more)  # type: ignore[arg-type]

            asyncio.get_running_loop().getaddrinfo = slowly  # type: ignore[method-assign,assignment]
            answer = await place.ask(f"CONNECT a.test:{place.upstream.port} HTTP/1.1\nHost: x")
    assert b"no longer allowed" in answer


async def test_bounds_hold(tmp_path: Path) -> None:
    """A head that does not come, silence, too long a time, too many at once: each ends, with its reason."""
    bounds = EgressBounds(connections=2, head_s=0.2, idle_s=0.3, total_s=1.0, resolve_s=0.2, attempts=100)
    async with egress_place(tmp_path, "a.test:PORT", bounds=bounds) as place:
        with names(HERE):
            where = f"a.test:{place.upstream.port}"
            slow, slow_writer = await place.open()
            slow_writer.write(b"CONNECT a.te")
            assert b"408" in await asyncio.wait_for(slow.read(), 5)
            assert "0.2 s" in (await place.last()).reason
            silent, silent_writer = await place.tunnel(where)
            assert await asyncio.wait_for(silent.read(), 5) == b""
            assert (await place.last()).reason == "silent for 0.3 s"
            chatty, chatty_writer = await place.tunnel(where)

            async def chat() -> None:
                while await chatty.read(10):
                    await asyncio.sleep(0.05)
                    chatty_writer.write(b"on")

            chatty_writer.write(b"on")
            other, other_writer = await place.open()
            third = await place.ask(f"CONNECT {where} HTTP/1.1\nHost: x")
            assert third.startswith(b"HTTP/1.1 503 ")
            await asyncio.wait_for(chat(), 5)
            reasons = {(await place.last()).reason for _ in range(3)}
            assert "longer than 1 s" in reasons
            assert "more than 2 connections at once" in reasons
            for writer in (slow_writer, silent_writer, chatty_writer, other_writer):
                writer.close()
            del other


async def test_names_and_hosts_that_do_not_answer(tmp_path: Path) -> None:
    async with egress_place(tmp_path, "a.test:PORT", "b.test:1", private=("*.test:PORT", "b.test:1")) as place:
        with names({"b.test": ["127.0.0.1"]}):
            unknown = await place.ask(f"CONNECT a.test:{place.upstream.port} HTTP/1.1\nHost: x")
            closed = await place.ask("CONNECT b.test:1 HTTP/1.1\nHost: x")
    assert unknown.startswith(b"HTTP/1.1 502 ")
    assert b"looked up" in unknown
    assert closed.startswith(b"HTTP/1.1 502 ")
    assert b"could not be reached" in closed


async def test_closing_ends_everything(tmp_path: Path) -> None:
    async with egress_place(tmp_path, "a.test:PORT") as place:
        with names(HERE):
            reader, writer = await place.tunnel(f"a.test:{place.upstream.port}")
            await place.proxy.close()
            assert await asyncio.wait_for(reader.read(), 5) == b""
            with pytest.raises(OSError, match=r"refused|No such file"):
                await place.open()
            assert (await place.last()).is_allowed
            writer.close()


def test_the_account_is_bounded_and_says_what_it_left_out() -> None:
    handed: list[Attempt] = []
    attempts = Attempts(2, handed.append)
    for port in range(5):
        attempts.add(
            Attempt(
                "a", port, None, is_allowed=False, reason="r", sent_bytes=0, received_bytes=0, duration_s=0.0, phase=""
            )
        )
    kept, dropped = attempts.take()
    assert ([one.port for one in kept], dropped, len(handed)) == ([0, 1], 3, 5)
    assert attempts.take() == ([], 0)
