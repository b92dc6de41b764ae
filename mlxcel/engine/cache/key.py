"""What must be equal before the tokens of two prompts are compared (engine contract, cache 3).

The model and the KV mode are the same for all that one worker keeps; files say theirs.
"""

import hashlib
import struct
from dataclasses import astuple, dataclass, fields

from mlxcel.core.cache import CacheTag


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """Sampling, lane and length of the answer are no part of it."""

    session: str
    lora: tuple[float, ...]
    """The scale of each adapter."""
    template: bytes
    tool_choice: str
    tools: bytes
    media: bytes
    rope: str = ""
    """Which factors a long-RoPE model used; "" for every other."""

    def differs(self, other: "CacheKey") -> tuple[str, ...]:
        """The names of the dimensions that are not equal."""
        return tuple(name for name in NAMES if getattr(self, name) != getattr(other, name))

    def differs_by_rope_alone(self, other: "CacheKey") -> bool:
        return self.rope != other.rope and self.differs(other) == ("rope",)

    def digest(self) -> bytes:
        """32 bytes; each part with its length, so that no two keys are written alike."""
        made = hashlib.sha256(b"mlxcel:cache:key:v1")
        for part in astuple(self):
            data = _bytes(part)
            made.update(struct.pack("<I", len(data)) + data)
        return made.digest()


NAMES = tuple(field.name for field in fields(CacheKey))


def key_of(tag: CacheTag, lora: tuple[float, ...], rope: str = "") -> CacheKey:
    return CacheKey(
        session=tag.session,
        lora=lora,
        template=tag.template,
        tool_choice=tag.tool_choice,
        tools=tag.tools,
        media=tag.media,
        rope=rope,
    )


def _bytes(part: str | bytes | tuple[float, ...]) -> bytes:
    if isinstance(part, bytes):
        return part
    if isinstance(part, str):
        return part.encode()
    return struct.pack(f"<{len(part)}d", *part)
