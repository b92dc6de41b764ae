"""How a worker and the server are doing, as plain data: for /health, logs and tests."""

from enum import StrEnum

import msgspec


class State(StrEnum):
    """The life of a worker as its clients see it."""

    LOADING = "loading"
    OK = "ok"
    RESTARTING = "restarting"
    FAILED = "failed"
    """It will not be started again."""
    STOPPED = "stopped"


BATCH_EDGES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds of the classes in `WorkerStats.batch_sizes`."""


class MtpState(StrEnum):
    """How far the policy of MTP is."""

    SETTLED = "settled"
    PROFILING = "profiling"
    FORCED = "forced"
    UNAVAILABLE = "unavailable"
    EXACTNESS_DECLINED = "exactness_declined"


class MtpReason(StrEnum):
    """Why it is unavailable."""

    NO_MTP_DISPATCH = "no_mtp_dispatch"
    ADAPTIVE_DISABLED = "adaptive_disabled"
    """Nothing is measured: what is the default for the hardware holds."""
    WORKER_NOT_READY = "worker_not_ready"


class MtpVerdict(StrEnum):
    ENABLE = "enable"
    DECLINE = "decline"


class MtpPolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of its policy of MTP; by the names of /v1/internal/mtp-policy."""

    state: MtpState
    reason: MtpReason | None = None
    decline_detail: str | None = None
    """How wide steps were found to differ from plain ones."""
    verdict: MtpVerdict | None = None
    mtp_enabled: bool | None = None
    target: str | None = None
    drafter: str | None = None
    hardware: str | None = None
    block_size: int | None = None
    acceptance_rate: float | None = None
    """Of all proposals so far, two decimals."""
    samples: int = 0
    samples_required: int = 0
    samples_remaining: int | None = None


class WorkerStats(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges and counters a worker reports with its frames. Counters start at 0 per incarnation."""

    active: int = 0
    """Rows that hold a slot (prefilling or decoding)."""
    waiting: int = 0
    slots: int = 1
    started: int = 0
    completed: int = 0
    prompt_tokens: int = 0
    decode_tokens: int = 0
    decode_steps: int = 0
    prefill_chunks: int = 0
    lookahead_steps: int = 0
    """Decode steps that were started before the one before was read."""
    mixed_steps: int = 0
    prefill_grants: int = 0
    """Prompt chunks that went before rows that decode."""
    preemptions: int = 0
    draft_rounds: int = 0
    """Steps of a row in which proposals were verified."""
    draft_proposed: int = 0
    draft_accepted: int = 0
    language_steps: int = 0
    """Decode steps with a language bias."""
    language_suppressed: int = 0
    """Tokens that would have been the likeliest, had their language not been banned."""
    language_fragments: int = 0
    """Those of them that are a part of a character."""
    decode_rows: int = 0
    """Rows over all decode steps."""
    batch_sizes: tuple[int, ...] = ()
    """Decode steps by their rows: at most BATCH_EDGES[i], and more than all of these."""
    longest: int = 0
    """Tokens of the longest row so far, prompt and answer."""
    kv_bytes: int = 0
    kv_blocks: int = 0
    """Blocks of the KV budget in use."""
    kv_block_budget: int = 0
    """0: unbounded."""
    mtp_policy: MtpPolicyReport | None = None
    """None: it drafts otherwise, or not at all."""


class DraftInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who proposes tokens to a model."""

    kind: str
    model: str | None
    """The folder of a drafter that is a model."""
    max_draft: int
    """Tokens proposed at once, at most."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of the model it has loaded, once it is ready."""

    family: str
    vocab_size: int
    context_window: int
    """Tokens per slot as configured; 0: the model's own window."""
    train_window: int
    hidden_size: int
    parameters: int
    weights_bytes: int
    precision: str
    """What the weights are held in, with the reason: `float32 (cpu: ...)`."""
    device: str
    blas: str | None = None
    prefill_chunk: int = 0
    """Tokens of a prompt that are read in one step; 0: all of them."""
    keeps_snapshots: bool = False
    """What it has read is kept as whole states at exact places: to be of use, a prompt has to begin
    with all of what was read."""
    draft: DraftInfo | None = None
    """None: each step of a row yields one token."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as the front sees it now."""

    name: str
    state: State
    detail: str = ""
    """A loading step, or why it failed or restarts."""
    pid: int | None = None
    restarts: int = 0
    stats: WorkerStats = WorkerStats()
    model: ModelInfo | None = None
