"""How much memory the prompt cache and the snapshots may take, by the model and the memory that
its weights leave (engine contract, cache 2). Pure."""

from dataclasses import dataclass

MIB = 1 << 20
LEAST_BYTES = 2 << 30
LEAST_SNAPSHOT_BYTES = 512 * MIB
TOKENS = 8192
"""Of the sequence that capacity is reckoned by, where the window is not shorter."""
WANTED = 6
"""Sequences to have room for."""
UNBOUNDED = -1
"""`cache.prompt.ram_mib`: no bound. 0: no cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What must be known of a model and its device."""

    token_bytes: int
    """KV of one token in all layers that attend to every token."""
    state_bytes: int
    """What a row keeps whatever its length."""
    context: int
    """Tokens of the window."""
    left_bytes: int | None
    """Memory beside the weights; None: unknown."""

    @property
    def entry_bytes(self) -> int:
        return min(self.context, TOKENS) * self.token_bytes

    @property
    def snapshot_bytes(self) -> int:
        return self.entry_bytes + self.state_bytes


def prompt_capacity(
    explicit_bytes: int | None, ram_mib: int | None, footprint: Footprint
) -> int | None:
    """Bytes for the prefix store; None: no bound; 0: there is none. An explicit number is final,
    and wins over `ram_mib`."""
    if explicit_bytes is not None:
        return explicit_bytes
    if ram_mib is not None:
        return None if ram_mib == UNBOUNDED else ram_mib * MIB
    return _room(LEAST_BYTES, footprint.entry_bytes, footprint.left_bytes)


def snapshot_capacity(explicit_bytes: int | None, footprint: Footprint) -> int:
    """Bytes for snapshots."""
    if explicit_bytes is not None:
        return explicit_bytes
    return _room(LEAST_SNAPSHOT_BYTES, footprint.snapshot_bytes, footprint.left_bytes)


def _room(least: int, one: int, left: int | None) -> int:
    """Six of them within a quarter of what is left; one where half of it holds one. Where nobody
    knows what is left, the least."""
    if left is None:
        return least
    room = max(least, min(WANTED * one, left // 4))
    return max(room, one) if one <= left // 2 else room
