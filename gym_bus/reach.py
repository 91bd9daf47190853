"""How a sandbox on another engine reaches this host: an address that means the same from outside, and a probe to run inside."""

from __future__ import annotations

import ipaddress
import shlex
import socket
from typing import Final

from gym_bus.errors import Permanent

ANSWER: Final = '"status":"ok"'
PROBE_S: Final = 10
REACHED: Final = "gateway reached"


def reachable(host: str) -> str:
    """Return `host` if something outside of this machine may reach it by that name or address.

    Raises `Permanent` for a loopback address, for one that stands for all of them, and for a name that nobody knows.
    """
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        msg = f"default_host {host!r} is no address and no name that can be looked up: {error}"
        raise Permanent(msg) from error
    for text in sorted(found):
        address = ipaddress.ip_address(text.partition("%")[0])
        if address.is_loopback or address.is_unspecified:
            kind = "this machine to itself" if address.is_loopback else "every address at once"
            msg = (
                f"default_host {host!r} ({text}) means {kind}; a sandbox elsewhere needs one of this machine's own addresses: "
                "`hostname -I` lists them"
            )
            raise Permanent(msg)
    return host


def listen_at(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens at a reachable `host`; raises `Permanent` if it is not this machine's."""
    name = reachable(host)
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family, backlog=backlog)
    except OSError as error:
        said = f"{error.strerror or error} (GYM_BUS_GATEWAY_PORT names another port)"
        msg = f"the gateway cannot listen at default_host {host!r}, port {port}: {said}"
        raise Permanent(msg) from error


def url_of(listening: socket.socket) -> str:
    """Return the address of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def probe(url: str) -> str:
    """Return a command for `sh` that says `gateway reached` and ends with 0 if the gateway at `url` answers.

    It waits ten seconds, and uses what is there: curl, Python, Node, bash, wget, and where there is a wget that cannot do it or none,
    nc; with none of them it ends with 127. Some builds of busybox have a wget that crashes.
    """
    where = shlex.quote(f"{url.rstrip('/')}/healthz")
    host, _, port = url.rstrip("/").partition("://")[2].rpartition(":")
    bare, python = (
        shlex.quote(host.strip("[]")),
        "import sys,urllib.request as u;print(u.urlopen(sys.argv[1],timeout=10).read().decode())",
    )
    node = "fetch(process.argv[1]).then(r=>r.text()).then(t=>console.log(t))"
    bash = 'exec 3<>"/dev/tcp/$0/$1"; printf "GET /healthz HTTP/1.0\\r\\n\\r\\n" >&3; cat <&3'
    nc = f"(printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n'; sleep 1) | nc -w {PROBE_S} {bare} {shlex.quote(port)}"
    return f"""
has() {{ command -v "$1" >/dev/null 2>&1; }}
got() {{ wget -q -T {PROBE_S} -O - "$@" {where}; }}
ask() {{
    if has curl; then curl -sS --noproxy '*' -m {PROBE_S} {where}
    elif has python3; then env -u http_proxy -u HTTP_PROXY python3 -c {shlex.quote(python)} {where}
    elif has node; then timeout {PROBE_S} node -e {shlex.quote(node)} {where}
    elif has bash; then timeout {PROBE_S} bash -c {shlex.quote(bash)} {bare} {shlex.quote(port)}
    elif has wget && {{ got -Y off || got --no-proxy; }} 2>/dev/null; then :
    elif has nc; then {nc}
    elif has wget; then got -Y off || got --no-proxy
    else echo 'no curl, python3, node, bash, wget or nc here to probe with' >&2; exit 127
    fi
}}
answer=$(ask) || exit $?
case $answer in
    *{shlex.quote(ANSWER)}*) echo {shlex.quote(REACHED)} ;;
    *) printf 'somebody else answers at %s: %.200s\\n' {where} "$answer" >&2; exit 1 ;;
esac
"""
