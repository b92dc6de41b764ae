"""What the chat worker counts while it runs: slots, batches, language bias."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import HistogramMetricFamily, Metric

from mlxcel.core.status import BATCH_EDGES, State, WorkerStats, WorkerStatus
from mlxcel.metrics.families import counter, gauge, labelled
from mlxcel.metrics.histogram import buckets_of
from mlxcel.metrics.steady import Steady

SIZES = tuple(f"batch_sizes.{index}" for index in range(len(BATCH_EDGES) + 1))
BATCH: Mapping[str, tuple[str, str]] = {
    "sequences_started": ("started", "Rows that began."),
    "sequences_completed": ("completed", "Rows that ended well."),
    "prefill_tokens_total": ("prompt_tokens", "Prompt tokens read."),
    "decode_tokens_total": ("decode_tokens", "Tokens said."),
    "decode_steps_total": ("decode_steps", "Decode steps."),
    "decode_lookahead_steps_total": (
        "lookahead_steps",
        "Decode steps started before the one before was read.",
    ),
    "prefill_chunks_total": ("prefill_chunks", "Parts that prompts were read in."),
    "mixed_steps_total": ("mixed_steps", "Steps that read a part of a prompt and decoded."),
    "prefill_grants_total": ("prefill_grants", "Prompt parts that went before rows that decode."),
    "preemptions_total": ("preemptions", "Rows that gave up their slot for a time."),
}
LANGUAGE: Mapping[str, tuple[str, str]] = {
    "applied_total": ("language_steps", "Decode steps with a language bias."),
    "tokens_suppressed_total": ("language_suppressed", "Tokens a banned language lost."),
    "byte_fragment_suppressions_total": (
        "language_fragments",
        "Those of them that are a part of a character.",
    ),
}
NEVER: Mapping[str, str] = {
    "decode_storage_fallbacks_total": "Decode steps that fell back to another storage; there is "
    "none here.",
    "cascade_shared_tokens_total": "Tokens attended to once for several rows; not done here.",
    "cascade_member_sequences_total": "Rows that shared such a pass; not done here.",
    "cascade_failures_total": "Such passes that failed; not done here.",
}
"""Paths that the interface names and this engine does not have: always 0."""
LAUNCHES = ("fused_v2", "gather", "cascade")
COUNTED = (
    *("decode_rows", "draft_rounds", "draft_proposed", "draft_accepted"),
    *(field for field, _ in BATCH.values()),
    *(field for field, _ in LANGUAGE.values()),
)


def counters_of(stats: WorkerStats) -> dict[str, int]:
    """What grows over the life of a worker; by the names that `Steady` is asked for."""
    sizes = [*stats.batch_sizes, *[0] * (len(SIZES) - len(stats.batch_sizes))]
    fields = {name: getattr(stats, name) for name in COUNTED}
    return fields | dict(zip(SIZES, sizes, strict=True))


def slot_families(status: WorkerStatus) -> Iterator[Metric]:
    """Of a worker that is not there no slot is free, and before it was there once there is none."""
    stats = status.stats
    slots = 0 if status.model is None else stats.slots
    free = max(0, slots - stats.active) if status.state is State.OK else 0
    yield gauge("mlxcel_slots_total", "Slots.", slots)
    yield gauge("mlxcel_slots_available", "Slots that are free.", free)
    yield gauge("mlxcel_queue_depth", "Requests that wait for a slot.", stats.waiting)


def batch_families(stats: WorkerStats, steady: Steady) -> Iterator[Metric]:
    for name, (field, about) in BATCH.items():
        yield counter(f"mlxcel_batch_{name}", about, steady[field])
    yield gauge("mlxcel_batch_current_size", "Rows that hold a slot.", stats.active)
    yield HistogramMetricFamily(
        "mlxcel_batch_size",
        "Rows of a decode step.",
        list(buckets_of(BATCH_EDGES, [steady[name] for name in SIZES])),
        steady["decode_rows"],
    )


def decode_families() -> Iterator[Metric]:
    for name, about in NEVER.items():
        yield counter(f"mlxcel_{name}", about, 0)
    yield labelled(
        "mlxcel_paged_decode_launches_total",
        "Launches of kernels over paged KV; there are none here.",
        "path",
        dict.fromkeys(LAUNCHES, 0),
    )


def language_families(steady: Steady) -> Iterator[Metric]:
    for name, (field, about) in LANGUAGE.items():
        yield counter(f"mlxcel_lang_bias_{name}", about, steady[field])


def life_families(statuses: Mapping[str, WorkerStatus]) -> Iterator[Metric]:
    """Of every worker by its name."""
    yield labelled(
        "mlxcel_worker_up",
        "1: the worker is ready.",
        "worker",
        {name: status.state is State.OK for name, status in statuses.items()},
    )
    yield labelled(
        "mlxcel_worker_restarts_total",
        "Starts of a worker after its first.",
        "worker",
        {name: status.restarts for name, status in statuses.items()},
    )
