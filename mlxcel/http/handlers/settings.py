"""The live settings: show, patch, history, revert."""

import logging
from typing import Any

from sanic import HTTPResponse, Request

from mlxcel.core.errors import MlxcelError, PatchRefused
from mlxcel.http.body import json_value
from mlxcel.http.deps import Deps, Patched
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.mlxcel.settings import (
    UPDATE_FAILED,
    PatchShape,
    read_patch,
    read_revert,
    shape_error_body,
)
from mlxcel.protocols.openai.errors import error_body

_log = logging.getLogger(__name__)


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    body = deps.settings.describe()
    return json_reply(body, headers=_etag(body["fingerprint"]))


async def patch(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    try:
        asked = read_patch(json_value(request))
    except PatchShape as error:
        return json_reply(shape_error_body(error), error.status)
    try:
        done = deps.settings.patch(
            asked.values, op=asked.op, atomic=asked.atomic, if_match=_if_match(request)
        )
    except PatchRefused as error:
        return json_reply(error_body(error.info()) | {"rejected": error.rejected}, error.status)
    except MlxcelError:
        raise
    except Exception:  # a border: the client is told, in the words of the contract
        _log.exception("a settings update failed; nothing was changed")
        return json_reply(UPDATE_FAILED, 500)
    return _patched(done)


async def history(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    fingerprint = deps.settings.current.fingerprint
    return json_reply({"history": deps.settings.history(), "fingerprint": fingerprint})


async def revert(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """A body is optional: without one the last change is undone."""
    version = read_revert(json_value(request)) if request.body else None
    return _patched(deps.settings.revert(version, if_match=_if_match(request)))


def _patched(done: Patched) -> HTTPResponse:
    body: dict[str, Any] = {
        "applied": done.applied,
        "rejected": done.rejected,
        "current": done.current,
        "fingerprint": done.fingerprint,
    }
    return json_reply(body, headers=_etag(done.fingerprint))


def _etag(fingerprint: str) -> dict[str, str]:
    return {"ETag": f'"{fingerprint}"'}


def _if_match(request: Request) -> str | None:
    return request.headers.get("if-match")
