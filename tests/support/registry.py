"""A registry of images on this machine: what an engine asks of one to pull, with one image, made of one that the engine has."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import secrets
import subprocess
import tarfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
NAME: Final = "tests/pulled"


def _blob(content: bytes) -> tuple[str, bytes]:
    return f"sha256:{hashlib.sha256(content).hexdigest()}", content


def blobs_of(image: str) -> tuple[bytes, dict[str, bytes]]:
    """Return the manifest of an image like that of the engine's, with one more layer, and its blobs by digest."""
    saved = subprocess.run(["docker", "save", image], capture_output=True, check=True, timeout=60).stdout
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:

        def read(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None
            return file.read()

        (told,) = json.loads(read("manifest.json"))
        config = json.loads(read(told["Config"]))
        layers = [read(name) for name in told["Layers"]]
    layers.append(_layer("pulled", secrets.token_bytes(1000)))  # so that there is something to fetch
    config["rootfs"]["diff_ids"].append(_blob(layers[-1])[0])
    config["history"].append({"created_by": "a test"})
    return _manifest(_blob(json.dumps(config).encode()), [_blob(gzip.compress(layer, mtime=0)) for layer in layers])


def _layer(name: str, content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def _manifest(config: tuple[str, bytes], layers: list[tuple[str, bytes]]) -> tuple[bytes, dict[str, bytes]]:
    gzipped = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    manifest: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(config[1]),
            "digest": config[0],
        },
        "layers": [{"mediaType": gzipped, "size": len(content), "digest": digest} for digest, content in layers],
    }
    return json.dumps(manifest).encode(), dict([config, *layers])


@contextmanager
def registry(image: str) -> Generator[tuple[str, list[str]]]:
    """Give the name by which `image` can be pulled, and what was asked."""
    manifest, blobs = blobs_of(image)
    digest, asked = _blob(manifest)[0], list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer what the engine asks."""
            asked.append(self.path)
            what = self.path.rpartition("/")[2]
            if self.path == "/v2/":
                self._say(200, b"{}", "application/json")
            elif self.path in {f"/v2/{NAME}/manifests/1", f"/v2/{NAME}/manifests/{digest}"}:
                self._say(200, manifest, MANIFEST)
            elif self.path.startswith(f"/v2/{NAME}/blobs/") and what in blobs:
                self._say(200, blobs[what], "application/octet-stream")
            else:
                self._say(
                    404,
                    b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}',
                    "application/json",
                )

        do_HEAD = do_GET  # noqa: N815  the names are those of HTTP

        def _say(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if kind == MANIFEST:
                self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name is given
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}/{NAME}", asked
    finally:
        server.shutdown()
        server.server_close()
        serving.join(10)
