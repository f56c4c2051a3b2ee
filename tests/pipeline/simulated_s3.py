"""As much of S3 as tables and archives need, on loopback and in memory: objects, conditional puts, lists in pages.

Whoever wants another one, such as moto or MinIO, names its address (MILLPOND_S3=127.0.0.1:9000); it has the bucket.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

BUCKET = "tables"
PAGE = 100
"""Few, so that lists have several."""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something", "AWS_REGION": "us-east-1"}


@contextmanager
def simulated_s3() -> Iterator[str]:
    """Where it listens."""
    if "MILLPOND_S3" in os.environ:
        yield os.environ["MILLPOND_S3"]
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Objects:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[bytes, datetime]] = {}

    def put(self, name: str, data: bytes, *, only_new: bool) -> bool:
        with self._lock:
            if only_new and name in self._kept:
                return False
            self._kept[name] = data, datetime.now(UTC)
            return True

    def get(self, name: str) -> tuple[bytes, datetime] | None:
        with self._lock:
            return self._kept.get(name)

    def delete(self, name: str) -> None:
        with self._lock:
            self._kept.pop(name, None)

    def listed(self, prefix: str, after: str) -> list[tuple[str, bytes, datetime]]:
        with self._lock:
            return sorted(
                (name, *kept) for name, kept in self._kept.items() if name.startswith(prefix) and name > after
            )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects = _Objects()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Nothing."""

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _name(self) -> str | None:
        """Of an object; empty where the bucket is meant, None where it is another bucket."""
        bucket, _, name = unquote(urlsplit(self.path).path).removeprefix("/").partition("/")
        return name if bucket == BUCKET else None

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        name = self._name()
        if name is None:
            self._refuse(404, "NoSuchBucket")
        elif not self.objects.put(name, data, only_new=self.headers.get("If-None-Match") == "*"):
            self._refuse(412, "PreconditionFailed")
        else:
            self._answer(200, ETag=_tag(data))

    def do_GET(self) -> None:
        name = self._name()
        if name is None:
            self._refuse(404, "NoSuchBucket")
        elif name == "":
            self._list()
        elif (found := self.objects.get(name)) is None:
            self._refuse(404, "NoSuchKey")
        else:
            data, moment = found
            self._answer(200, data, ETag=_tag(data), Last_Modified=format_datetime(moment, usegmt=True))

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """Several are deleted at once."""
        document = ET.fromstring(self.rfile.read(int(self.headers["Content-Length"])))
        names = [each.text or "" for each in document.iter() if each.tag.endswith("Key")]
        for name in names:
            self.objects.delete(name)
        said = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
        self._answer(200, f"<DeleteResult>{said}</DeleteResult>".encode(), Content_Type="application/xml")

    def _list(self) -> None:
        asked = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
        found = self.objects.listed(
            asked.get("prefix", ""), asked.get("continuation-token", asked.get("start-after", ""))
        )
        page, is_cut = found[:PAGE], len(found) > PAGE
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{moment:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            f"<ETag>{_tag(data)}</ETag><Size>{len(data)}</Size></Contents>"
            for name, data, moment in page
        )
        more = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if is_cut else ""
        said = f"<IsTruncated>{str(is_cut).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>{more}{contents}"
        self._answer(200, f"<ListBucketResult>{said}</ListBucketResult>".encode(), Content_Type="application/xml")


def _tag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'
