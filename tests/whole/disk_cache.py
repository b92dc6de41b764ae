"""Servers that keep their prompt cache in files, and what they tell of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxcel.engine.cache.disk import files as disk_files
from mlxcel.engine.cache.disk.arrays import outgoing, sheets_of
from mlxcel.engine.cache.disk.files import TEMPORARY, Draft, glance
from mlxcel.engine.cache.disk.head import head_of
from mlxcel.engine.cache.disk.run import SUFFIX, Run, file_name
from tests.whole.program import Program, chat_body, serve_checkpoint

LETTERS = {str(byte): 100.0 for byte in b"abcdefghijklmnopqrstuvwxyz"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Of one answer."""

    text: str
    reused: int
    source: str | None
    reason: str | None


def on_disk(model: Path, folder: Path, *words: str) -> Sequence[str]:
    """Words that serve a checkpoint with its cache in a folder, down to the last free byte."""
    return serve_checkpoint(
        model, "cache=disk", f"cache.disk.path={folder}", "cache.disk.min_free_bytes=0", *words
    )


def prompt(name: str, words: int = 60) -> str:
    """Prompts of two names have nothing in common."""
    return f"{name} " * words


def ask(program: Program, text: str, **fields: Any) -> Told:
    body = chat_body(text, max_tokens=8, logit_bias=LETTERS, **fields)
    status, answer = program.post("/v1/chat/completions", body)
    assert status == 200, answer
    cache = answer["timings"]["cache"]
    return Told(
        text=answer["choices"][0]["message"]["content"],
        reused=cache["reused_tokens"],
        source=cache["source"],
        reason=cache["reason"],
    )


def cold(program: Program, text: str) -> str:
    return ask(program, text, cache_prompt=False).text


def disk(program: Program) -> dict[str, Any]:
    status, stats = program.get("/v1/cache/stats")
    assert status == 200, stats
    found = stats["disk"]
    assert isinstance(found, dict)
    return found


def settled(program: Program, timeout_s: float = 30.0) -> dict[str, Any]:
    """Once nothing waits to be written."""
    end = time.monotonic() + timeout_s
    while (now := disk(program))["queue_bytes"]:
        assert time.monotonic() < end, now
        time.sleep(0.02)
    return now


def runs(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def halves(folder: Path) -> list[Path]:
    """Files that are being written, or were."""
    return list(folder.glob(f".*{TEMPORARY}"))


def nbytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in runs(folder))


def add_runs(folder: Path, count: int, tokens: int = 40) -> None:
    """More files of the server that wrote the first one there: whole small prompts."""
    head, _ = glance(runs(folder)[0])
    mark = head.identity.mark("sha256")
    layers = tuple(
        tuple(mx.zeros((*shape[:2], tokens, *shape[3:])) for _, shape in sheets)
        for sheets in head.sheets
    )
    arrays, sheets, now_ns = outgoing(layers), sheets_of(layers), time.time_ns()
    for first in range(1000, 1000 + count * tokens, tokens):
        run = Run(key=head.key, prefix=(), tokens=tuple(range(first, first + tokens)))
        name, made = file_name(run, mark, "sha256"), head_of(head.identity, run, sheets)
        draft = Draft(name=name, run=run, head=made, layers=arrays, used_ns=now_ns)
        disk_files.write(folder, draft, disk_files.never)
