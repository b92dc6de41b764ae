"""What the prompt cache is asked and what it answers, free of any dialect and of any array."""

from enum import StrEnum

import msgspec

ANONYMOUS = "__mlxcel_anon__"
"""The session of everybody who names none."""
NO_DIGEST = bytes(32)


class Reject(StrEnum):
    """Why a prompt had to be read, or more of it than one might think."""

    DISABLED = "disabled"
    MODEL_OWNED_STATE = "model_owned_state"
    EMPTY_SET = "empty_set"
    MODE_MISMATCH = "mode_mismatch"
    KV_MODE_MISMATCH = "kv_mode_mismatch"
    ROPE_REGIME_MISMATCH = "rope_regime_mismatch"
    LAYOUT_CONSTRAINTS = "layout_constraints"
    BLOCK_BOUNDARY_FLOOR = "block_boundary_floor"
    PREFIX_TOO_SHORT = "prefix_too_short"
    SNAPSHOT_DIVERGED = "snapshot_diverged"
    OVERSIZED = "oversized"


class CacheStatus(StrEnum):
    HIT = "hit"
    MISS = "miss"
    OFF = "off"
    """The server has no prompt cache, or the request wants none."""


class Source(StrEnum):
    """Where reused KV came from."""

    MEMORY = "memory"
    DISK = "disk"
    SNAPSHOT = "snapshot"


class CacheUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants of the prompt cache."""

    is_on: bool = True
    """False: read cold; nothing is looked up and nothing kept."""
    session: str = ANONYMOUS
    """Only requests of one session share what was read."""
    conversation: str | None = None
    """An id whose KV is kept as a record of its own; it stands in place of the session."""
    is_reset: bool = False
    """The request leaves its conversation alone, and so is read cold: `is_on` is False as well."""


class CacheTag(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal before tokens are compared, as far as the front knows it, and the
    places in a prompt at which keeping its KV is worth most."""

    session: str = ANONYMOUS
    template: bytes = NO_DIGEST
    """Digest of the template, its variables and whether the answer is begun already."""
    tools: bytes = NO_DIGEST
    tool_choice: str = "__absent__"
    media: bytes = NO_DIGEST
    boundary: int = 0
    """Tokens of the history as it stands before the answer is asked for: the next turn begins
    with the same ones. 0: unknown."""
    system: int = 0
    """Tokens of the system messages at the beginning; 0: none, or not to be told apart."""
    is_conversation: bool = False
    """The session is a conversation with a record of its own."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a prompt parts from the nearest thing that was kept, within its own session."""

    at: int
    """The index of the first token that differs; where one ends in the other, the end."""
    start: int = 0
    """The index of the first token of both excerpts."""
    prompt_ids: tuple[int, ...] = ()
    entry_ids: tuple[int, ...] = ()
    prompt_text: str = ""
    """What the ids say; filled in by the front."""
    entry_text: str = ""
    differs: tuple[str, ...] = ()
    """Dimensions of the key that are not equal; empty: only the tokens differ."""


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one request's look-up."""

    status: CacheStatus
    reused: int = 0
    """Prompt tokens that were not read again."""
    source: Source | None = None
    reason: Reject | None = None
    """Of a miss; of a hit: why it was not longer, where something kept it short."""
    diverged: Divergence | None = None
    is_older: bool = False
    """Reused was not the newest entry of the session: the conversation went back."""
    is_system: bool = False
    """Reused are the server's own system messages, of no session, and nothing beyond them."""
