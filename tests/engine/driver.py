"""Drives a ChatWorker tick by tick, as the worker loop does."""

import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlxcel.core.request import SamplingParams
from mlxcel.engine.chat import ChatWorker
from mlxcel.link.messages import (
    Frame,
    RowAccepted,
    RowFailed,
    RowFinished,
    RowTokens,
    Submit,
    ToWorker,
)
from mlxcel.weights.load import load_model

SCHEDULER = {
    "parallel": 4,
    "prefill_chunk_size": 2048,
    "prefill_grant_interval": 16,
    "clear_interval": None,
}
NO_EOS = (-1,)


class Driver:
    """One worker and everything it said."""

    def __init__(self, checkpoint: Path, *, ctx_size: int = 0, **scheduler: int | None) -> None:
        options: Mapping[str, Any] = {
            "max_queue_depth": scheduler.pop("max_queue_depth", 32),
            "scheduler": SCHEDULER | scheduler,
            "ctx_size": ctx_size,
            "warmup": False,
        }
        self.worker = ChatWorker(options)
        part = {
            "path": str(checkpoint),
            "precision": "float32",
            "batch": 4,
            "device": "auto",
            "train_window": 512,
        }
        self.model = load_model(part, _quiet)
        self.info = self.worker.setup({"model": self.model}, _quiet)
        self.frames: list[Frame] = []

    def tick(self, *messages: ToWorker) -> Frame | None:
        frame, _ = self.worker.tick(list(messages))
        if frame is not None:
            self.frames.append(frame)
        self.worker.check()
        return frame

    def run(self, *messages: ToWorker, limit: int = 5000) -> None:
        """Tick until there is nothing left to do."""
        inbox = list(messages)
        for _ in range(limit):
            frame, sleep = self.worker.tick(inbox)
            inbox = []
            if frame is not None:
                self.frames.append(frame)
            self.worker.check()
            if sleep is None:
                return
        raise AssertionError(f"the worker was not idle after {limit} ticks")

    def events(self, name: str) -> list[RowAccepted | RowTokens | RowFinished | RowFailed]:
        return [e for f in self.frames for e in f.events if e.id == name]

    def tokens(self, name: str) -> list[int]:
        return [t for e in self.events(name) if isinstance(e, RowTokens) for t in e.ids]

    def finish(self, name: str) -> RowFinished:
        (event,) = [e for e in self.events(name) if isinstance(e, RowFinished)]
        return event

    def failure(self, name: str) -> RowFailed:
        (event,) = [e for e in self.events(name) if isinstance(e, RowFailed)]
        return event

    def alone(self, submit: Submit) -> list[int]:
        """What the request gives when nothing else runs."""
        self.run(submit)
        return self.tokens(submit.id)


def submit(
    name: str,
    prompt: list[int],
    max_tokens: int = 16,
    *,
    eos: tuple[int, ...] = NO_EOS,
    **sampling: Any,
) -> Submit:
    params = {"temperature": 0.0, **sampling}
    return Submit(
        id=name,
        tokens=array.array("i", prompt).tobytes(),
        sampling=SamplingParams(**params),
        max_tokens=max_tokens,
        eos_ids=eos,
    )


def _quiet(step: str, fraction: float | None) -> None:
    """Progress of loading is of no interest here."""
