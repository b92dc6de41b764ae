"""What a worker has to say: the events of this tick, and counters over its life."""

from bisect import bisect_left
from dataclasses import dataclass, field

from mlxcel.core.status import BATCH_EDGES, MtpPolicyReport, WorkerStats
from mlxcel.link.messages import Frame, Reply, RowEvent


@dataclass(slots=True)
class Report:
    """Mutable, owned by the tick. The counters start at 0 with each incarnation."""

    started: int = 0
    completed: int = 0
    prompt_tokens: int = 0
    decode_tokens: int = 0
    decode_steps: int = 0
    prefill_chunks: int = 0
    lookahead_steps: int = 0
    mixed_steps: int = 0
    prefill_grants: int = 0
    preemptions: int = 0
    draft_rounds: int = 0
    draft_proposed: int = 0
    draft_accepted: int = 0
    decode_rows: int = 0
    longest: int = 0
    language_steps: int = 0
    language_suppressed: int = 0
    language_fragments: int = 0
    mtp_policy: MtpPolicyReport | None = None
    events: list[RowEvent] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=lambda: [0] * (len(BATCH_EDGES) + 1))
    _told: WorkerStats | None = None

    def say(self, *events: RowEvent) -> None:
        self.events.extend(events)

    def answer(self, reply: Reply) -> None:
        self.replies.append(reply)

    def tell_mtp(self, policy: MtpPolicyReport) -> None:
        """How its policy stands from now on."""
        self.mtp_policy = policy

    def stepped(self, rows: int) -> None:
        """A decode step of so many rows."""
        self.decode_steps += 1
        self.decode_rows += rows
        self._sizes[bisect_left(BATCH_EDGES, rows)] += 1

    def saw(self, length: int) -> None:
        """A row with so many tokens, prompt and answer."""
        if length > self.longest:
            self.longest = length

    def frame(self, **gauges: int) -> Frame | None:
        """None when nothing has happened since the last one, gauges and counters included."""
        counters: dict[str, int] = {name: getattr(self, name) for name in COUNTERS}
        stats = WorkerStats(
            **gauges, **counters, batch_sizes=tuple(self._sizes), mtp_policy=self.mtp_policy
        )
        if not self.events and not self.replies and stats == self._told:
            return None
        events, self.events, self._told = self.events, [], stats
        replies, self.replies = self.replies, []
        return Frame(events, stats, replies)


GAUGES = {"active", "waiting", "slots", "kv_bytes", "kv_blocks", "kv_block_budget"}
OTHERS = {"batch_sizes", "mtp_policy"}
COUNTERS = tuple(name for name in WorkerStats.__struct_fields__ if name not in GAUGES | OTHERS)
