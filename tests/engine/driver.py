"""Drives a ChatWorker tick by tick, as the worker loop does."""

import array
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from mlxcel.core.events import FinishReason
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.status import WorkerStats
from mlxcel.engine.chat import ChatWorker
from mlxcel.engine.draft.heads import DraftHead
from mlxcel.engine.draft.load import load_drafter
from mlxcel.link.messages import (
    Frame,
    RowEnded,
    RowEvent,
    RowFailed,
    RowFinished,
    RowTokens,
    Submit,
    ToWorker,
)
from mlxcel.weights.load import LoadedModel, load_model

SCHEDULER = {
    "parallel": 4,
    "max_batch_size": None,
    "prefill_chunk_size": 2048,
    "prefill_grant_interval": 16,
    "max_batch_prefill": 4,
    "max_batch_prefill_tokens": None,
    "mixed_step": False,
    "no_batch": False,
    "lookahead": True,
    "clear_interval": None,
}
CONF = Path(__file__).resolve().parents[2] / "conf"
CACHE = yaml.safe_load((CONF / "cache" / "default.yaml").read_text()) | {"kv_budget": "none"}
NO_EOS = (-1,)


class Driver:
    """One worker and everything it said."""

    def __init__(
        self,
        checkpoint: Path,
        *,
        ctx_size: int = 0,
        max_queue_depth: int = 32,
        preemption: str | None = None,
        cache: Mapping[str, Any] | None = None,
        memory_budget: int | None = None,
        lora: Mapping[str, Any] | None = None,
        fuse: str = "off",
        draft: Mapping[str, Any] | None = None,
        drafter: Path | None = None,
        head: Callable[[LoadedModel], DraftHead] | None = None,
        cache_dir: Path | None = None,
        **scheduler: Any,
    ) -> None:
        policy = preemption or "longest-first"
        preempt = {"enabled": preemption is not None, "policy": policy}
        options: Mapping[str, Any] = {
            "max_queue_depth": max_queue_depth,
            "scheduler": SCHEDULER | scheduler | {"preemption": preempt},
            "cache": merged(CACHE, cache or {}),
            "ctx_size": ctx_size,
            "model_name": "tiny",
            "cache_dir": None if cache_dir is None else str(cache_dir),
            "warmup": False,
            "request_memory_budget": memory_budget,
            "lang_bias_counters": True,
            "draft": draft or {"kind": "none"},
        }
        self.worker = ChatWorker(options)
        part = {
            "path": str(checkpoint),
            "precision": "float32",
            "batch": 4,
            "device": "auto",
            "train_window": 512,
            "fuse_projections": fuse,
            "weight_materialization": "eager",
            "lora": lora or {"adapters": [], "init_without_apply": False, "fuse": False},
        }
        self.model = load_model(part, _quiet)
        parts: dict[str, Any] = {"model": self.model}
        if drafter is not None:
            own = {"path": str(drafter), "precision": "float32", "batch": 4, "device": "auto"}
            own["weight_materialization"] = "eager"
            parts["drafter"] = load_drafter(own, _quiet, model=self.model)
        if head is not None:
            parts["drafter"] = head(self.model)
        self.info = self.worker.setup(parts, _quiet)
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
            time.sleep(sleep)
        raise AssertionError(f"the worker was not idle after {limit} ticks")

    def close(self) -> None:
        self.worker.close()

    @property
    def stats(self) -> WorkerStats:
        return self.frames[-1].stats

    def events(self, name: str) -> list[RowEvent]:
        return [e for f in self.frames for e in f.events if e.id == name]

    def tokens(self, name: str, choice: int = 0) -> list[int]:
        said = [e for e in self.events(name) if isinstance(e, RowTokens) and e.choice == choice]
        return [token for event in said for token in event.ids]

    def reason(self, name: str, choice: int = 0) -> FinishReason:
        ends = [e for e in self.events(name) if isinstance(e, RowEnded) and e.choice == choice]
        (event,) = ends
        return event.reason

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


FIELDS = set(Submit.__struct_fields__)


def submit(
    name: str,
    prompt: list[int],
    max_tokens: int = 16,
    *,
    eos: tuple[int, ...] = NO_EOS,
    **options: Any,
) -> Submit:
    """`options` are fields of the message, or of its sampling; greedy by default."""
    fields = {key: value for key, value in options.items() if key in FIELDS}
    sampling = {key: value for key, value in options.items() if key not in FIELDS}
    return Submit(
        id=name,
        tokens=array.array("i", prompt).tobytes(),
        sampling=SamplingParams(**{"temperature": 0.0, **sampling}),
        max_tokens=max_tokens,
        eos_ids=eos,
        **fields,
    )


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on `base`, sections key by key."""
    made = dict(base)
    for key, value in over.items():
        is_section = isinstance(value, Mapping) and isinstance(made.get(key), Mapping)
        made[key] = merged(made[key], value) if is_section else value
    return made


def _quiet(step: str, fraction: float | None) -> None:
    """Progress of loading is of no interest here."""
