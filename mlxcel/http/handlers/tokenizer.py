"""POST /tokenize and /detokenize. Both work while there is no worker."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sanic import HTTPResponse, Request

from mlxcel.core.ports import Generator
from mlxcel.http.body import json_object
from mlxcel.http.deps import Deps
from mlxcel.http.reading import done
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.llama.tokenizer import (
    detokenized_body,
    read_detokenize,
    read_tokenize,
    tokenized_body,
)

LARGE_BODY_BYTES = 16_384
"""Some 10 ms of work: what is larger is done on a thread, the answer's bytes included."""
_threads = ThreadPoolExecutor(2, thread_name_prefix="tokens")
"""Of these routes alone: a text of any length is a minute of work, and requests wait for none."""


async def tokenize(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]

    def answer() -> Mapping[str, Any]:
        return tokenized_body(read_tokenize(json_object(request)), generator.text)

    return await done(lambda: json_reply(answer()), is_large=_is_large(request), threads=_threads)


async def detokenize(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]

    def answer() -> Mapping[str, Any]:
        return detokenized_body(read_detokenize(json_object(request)), generator.text)

    return await done(lambda: json_reply(answer()), is_large=_is_large(request), threads=_threads)


def _is_large(request: Request) -> bool:
    return len(request.body) > LARGE_BODY_BYTES
