"""The KV budget in blocks of 32 tokens a layer: who holds how many, and whether there is room.

Pure bookkeeping. KV is stored dense, so a block is an account, not a place (scheduler
contract 10).
"""

import logging
from collections.abc import Iterable

from mlxcel.engine.memory.estimate import ACTIVATION_BYTES, forward_bytes, token_bytes
from mlxcel.weights.card import MemoryCard

log = logging.getLogger(__name__)

BLOCK = 32
"""Tokens of one layer in a block."""
WHOLE_PROMPT = 2048
"""Tokens of a forward to reserve for where prompts are not chunked."""
RESERVED_KEYS = 8192
"""Tokens that the chunk of the reserve is taken to look back at."""


class KVPool:
    """Owned by the tick. `budget_blocks` None: unbounded, and only counted.

    `watermark` is the share of the budget that prompts leave free while rows decode, so that
    these can grow. `cap` is the tokens a row holds at most (`max_kv_size`); 0: all.
    """

    def __init__(
        self, budget_blocks: int | None, layers: int, watermark: float, *, cap: int = 0
    ) -> None:
        self.budget = budget_blocks
        self.live = 0
        """Blocks that are held now."""
        self._layers = layers
        self._watermark = watermark
        self._cap = cap
        self._held: dict[str, int] = {}

    def need(self, tokens: int) -> int:
        """Blocks of one row: at least one a layer."""
        held = min(tokens, self._cap) if self._cap else tokens
        return max(1, -(-held // BLOCK)) * self._layers

    def fits_at_all(self, tokens: int) -> bool:
        """Whether a row of so many tokens would fit into an empty pool."""
        return self.budget is None or self.need(tokens) <= self.budget

    def has_room(self, tokens: int, *, is_decoding: bool) -> bool:
        """Whether a row of so many tokens may start now."""
        return self.could_fit(tokens, (), is_decoding=is_decoding)

    def could_fit(self, tokens: int, keys: Iterable[str], *, is_decoding: bool = False) -> bool:
        """Whether a row of so many tokens might start once the rows `keys` had gone.
        `is_decoding`: others still decode then."""
        if self.budget is None:
            return True
        freed = sum(self._held.get(key, 0) for key in keys)
        kept = self._watermark * self.budget if is_decoding else 0.0
        return self.budget - self.live + freed - self.need(tokens) >= kept

    @property
    def left(self) -> int | None:
        """Blocks that no row holds; None: unbounded."""
        return None if self.budget is None else self.budget - self.live

    def holds(self, key: str) -> bool:
        return key in self._held

    def take(self, key: str, tokens: int) -> None:
        """A row starts. Its caller has asked `has_room`."""
        need = self.need(tokens)
        assert key not in self._held, f"{key} holds blocks already"
        assert self.budget is None or self.live + need <= self.budget, "taken without asking"
        self._held[key] = need
        self.live += need

    def grow(self, key: str, tokens: int) -> bool:
        """A row is about to hold so many tokens in all. False, and nothing taken, without room
        for them."""
        more = self.need(tokens) - self._held[key]
        if more <= 0:
            return True
        if self.budget is not None and self.live + more > self.budget:
            return False
        self._held[key] += more
        self.live += more
        return True

    def free(self, key: str) -> None:
        """A row has ended. Unknown ones are ignored."""
        self.live -= self._held.pop(key, 0)

    def check(self) -> None:
        """Our own invariants, for tests."""
        assert self.live == sum(self._held.values())
        assert self.budget is None or self.live <= self.budget


def blocks_of(
    setting: str | int | None,
    card: MemoryCard,
    working_set: int | None,
    chunk: int,
    *,
    slots: int = 1,
) -> int | None:
    """The KV budget in blocks; None: unbounded.

    A number is bytes; None, 0 and `none` set no bound. `auto` is what the device has beside
    weights and activations:

        (working_set - weights - activation reserve) / bytes per block

    The reserve is one forward of a chunk, and for each slot its state and one row of logits.
    It sets no bound where the working set is unknown, where no layer has KV that grows, and
    where nothing is left: then the device lends from elsewhere, and an estimate must not refuse
    every request.
    """
    block = BLOCK * token_bytes(card) // max(1, card.attention_layers)
    if setting in (None, 0, "0", "none") or not block:
        return None
    if setting != "auto":
        return int(setting) // block
    if working_set is None:
        return None
    row = card.state_bytes + card.vocab * ACTIVATION_BYTES
    reserve = forward_bytes(card, chunk or WHOLE_PROMPT, RESERVED_KEYS) + slots * row
    left = working_set - card.weights_bytes - reserve
    if left < block * card.attention_layers:
        log.warning(
            "weights of %.1f GB leave nothing of %.1f GB for KV: no KV budget is set",
            card.weights_bytes / 1e9,
            working_set / 1e9,
        )
        return None
    return left // block
