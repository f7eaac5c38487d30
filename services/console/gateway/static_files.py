"""The page's files, read once, each with an ETag and a gzip-compressed copy."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

from matrixcommon.model.errors import NotFound

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX = "index.html"


@dataclass(frozen=True)
class File:
    kind: str
    etag: str
    plain: bytes
    gzipped: bytes


@cache
def load_files() -> dict[str, File]:
    """The files by path, such as `views/overview.js`."""
    found: dict[str, File] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for each in folder.iterdir():
            if each.is_dir():
                walk(each, f"{prefix}{each.name}/")
            elif (extension := each.name.rpartition(".")[2]) in TYPES:
                text = each.read_bytes()
                etag = f'"{hashlib.sha256(text).hexdigest()[:20]}"'
                found[prefix + each.name] = File(TYPES[extension], etag, text, gzip.compress(text, 9, mtime=0))

    walk(files("services.console").joinpath("web"), "")
    return found


def serve_file(request: Request) -> Response:
    """A file of the page; for any other path without a dot, the page itself, which routes by path. Raises NotFound."""
    path = request.path_params.get("path", "")
    file = load_files().get(path)
    if file is None and "." not in path.rpartition("/")[2]:
        file = load_files()[INDEX]
    if file is None:
        raise NotFound(f"the console has no file {path[:100]!r}")
    headers = {"ETag": file.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.gzipped, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.kind)
    return Response(file.plain, headers=headers, media_type=file.kind)
