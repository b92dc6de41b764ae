"""The LoRA adapters of the served model as clients see them: where they come from, and the scales
of requests that bring none of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

from mlxcel.core.errors import NotSupported
from mlxcel.core.ports import Adapter
from mlxcel.link.messages import SetLora


class Scaled(Protocol):
    """The client of the chat worker."""

    def set_lora(self, message: SetLora, /) -> None:
        """For this incarnation of the worker and all that follow."""
        ...


class Adapters:
    """Implements `core.ports.Adapters`. Owned by the event loop."""

    def __init__(self, items: Sequence[Adapter], *, is_fused: bool, chat: Scaled) -> None:
        self._items = tuple(items)
        self._is_fused = is_fused
        self._chat = chat

    @classmethod
    def of(cls, section: Mapping[str, Any], *, chat: Scaled) -> Self:
        """From `model.lora`."""
        starts_off = section["init_without_apply"]
        items = [
            Adapter(id=place, path=row["path"], scale=0.0 if starts_off else float(row["scale"]))
            for place, row in enumerate(section["adapters"])
        ]
        return cls(items, is_fused=section["fuse"], chat=chat)

    @property
    def is_fused(self) -> bool:
        return self._is_fused

    def items(self) -> Sequence[Adapter]:
        return self._items

    def set(self, scales: Mapping[int, float]) -> None:
        wanted = tuple(replace(one, scale=scales.get(one.id, 0.0)) for one in self._items)
        if wanted == self._items:
            return
        if self._is_fused:
            in_force = [{"id": one.id, "scale": one.scale} for one in self._items]
            raise NotSupported(
                "the adapters are merged into the weights (model.lora.fuse): their scales cannot "
                f"be changed; in force are {in_force}"
            )
        self._items = wanted
        self._chat.set_lora(SetLora(tuple((one.id, one.scale) for one in wanted)))
