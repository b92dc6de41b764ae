"""Whether there is room for one more row: slots and KV blocks. Asks, and changes nothing but the
account of a row that grows."""

from mlxcel.core.request import Lane
from mlxcel.engine.decode import Decoder
from mlxcel.engine.memory.pool import KVPool
from mlxcel.engine.prompt import Prompt
from mlxcel.engine.schedule.rules import SchedulerRules
from mlxcel.engine.schedule.victim import victim_of
from mlxcel.engine.sequence import Sequence


class Room:
    def __init__(self, rules: SchedulerRules, decoder: Decoder, pool: KVPool) -> None:
        self._rules = rules
        self._decoder = decoder
        self._pool = pool

    @property
    def free(self) -> int:
        """Slots."""
        return self._rules.slots - len(self._decoder.rows)

    def may_enter(self, prompt: Prompt) -> bool:
        """There is room in the KV budget, or it can be made: enough of it, else rows would be
        driven out for nothing, and no step would run while we try again."""
        if self.has_blocks(prompt):
            return True
        rows = self._decoder.rows
        lower = [row.key for row in rows if row.lane > prompt.lane]
        return self._rules.policy is not None and self._pool.could_fit(
            len(prompt.tokens), lower, is_decoding=len(lower) < len(rows)
        )

    def has_blocks(self, prompt: Prompt) -> bool:
        return self._pool.has_room(len(prompt.tokens), is_decoding=self._decoder.has_work)

    def victim(self, lane: Lane) -> Sequence | None:
        """Whom a prompt of this lane may drive out."""
        policy = self._rules.policy
        return None if policy is None else victim_of(self._decoder.rows, policy, lane)

    def has_grown(self, row: Sequence) -> bool:
        """It holds a position more now, or needs none."""
        is_last = row.started >= row.request.limit
        return is_last or self._pool.grow(row.key, row.kv_length + 1)
