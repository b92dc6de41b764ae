"""In whose name a request comes: what one key has made is not there for another."""

import hashlib

from sanic import Request

from mlxcel.http.auth import sent_key
from mlxcel.http.deps import Deps

EVERYBODY = ""


def owner_of(request: Request, deps: Deps) -> str:
    """The same for all requests with one key. Without keys all share one owner."""
    if not deps.keys:
        return EVERYBODY
    # Kept beside what belongs to it; a digest gives nothing away.
    return hashlib.sha256(sent_key(request.headers).encode("utf-8", "surrogateescape")).hexdigest()
