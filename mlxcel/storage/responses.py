"""Responses that are kept for whoever comes back: to read them, or to go on from them.

Knows items as JSON alone. A response belongs to one owner; for all others it does not exist.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from mlxcel.core.errors import BadField
from mlxcel.storage.shelf import Bounds, Clock, Key, Shelf

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    id: str
    owner: str
    previous_id: str | None
    """The response it goes on from."""
    body: Mapping[str, Any]
    """The response object, as its client was told."""
    input_items: Sequence[Item]
    """Of its own call: those before are kept with the responses before."""

    @property
    def items(self) -> list[Item]:
        """What its turn adds to a conversation."""
        return [*self.input_items, *self.body["output"]]


class ResponseStore(Protocol):
    @property
    def is_on(self) -> bool: ...

    def put(self, response: StoredResponse) -> None:
        """In place of one of the same id. Whoever asks from now on finds it."""
        ...

    async def get(self, owner: str, id: str) -> StoredResponse | None: ...

    async def delete(self, owner: str, id: str) -> bool:
        """Whether it was there."""
        ...

    async def chain(self, owner: str, id: str) -> list[StoredResponse]:
        """It and all before it, oldest first; all of them are used by that. Raises BrokenChain."""
        ...

    async def find_items(self, owner: str, ids: Sequence[str]) -> dict[str, Item]:
        """Those that are there, of any response."""
        ...

    def close(self) -> None: ...


class BrokenChain(BadField):
    """A response that is to be gone on from is not there, or one before it is not."""

    code = "previous_response_not_found"

    def __init__(self, asked: str, missing: str) -> None:
        what = f"the response {asked!r}" if asked == missing else f"{missing!r}, before {asked!r},"
        super().__init__(
            "previous_response_id",
            f"{what} is not kept here: unknown, deleted, not stored, or dropped "
            "(limits.responses_store says how much is kept, and how long); send the whole input",
        )


class MemoryStore:
    """All is gone when the server ends. Owned by the event loop."""

    def __init__(self, bounds: Bounds, *, clock: Clock = time.monotonic) -> None:
        self._bounds = bounds
        self._shelf = Shelf(bounds, clock=clock, on_drop=self._forget)
        self._item_ids: dict[Key, tuple[str, ...]] = {}
        self._homes: dict[Key, str] = {}
        """The newest response that has an item, by owner and id of the item."""

    @property
    def is_on(self) -> bool:
        return self._bounds.is_on

    def put(self, response: StoredResponse) -> None:
        if not self.is_on:
            return
        key = (response.owner, response.id)
        self._shelf.pop(key)
        ids = item_ids(response)
        self._item_ids[key] = ids
        self._homes |= {(response.owner, name): response.id for name in ids}
        self._shelf.put(key, packed(response))

    async def get(self, owner: str, id: str) -> StoredResponse | None:
        return self._read(owner, id)

    async def delete(self, owner: str, id: str) -> bool:
        return self._shelf.pop((owner, id)) is not None

    async def chain(self, owner: str, id: str) -> list[StoredResponse]:
        found: list[StoredResponse] = []
        at: str | None = id
        while at is not None:
            response = self._read(owner, at)
            if response is None:
                raise BrokenChain(id, at)
            found.append(response)
            at = response.previous_id
        found.reverse()
        for response in found:
            self._shelf.touch((owner, response.id))
        return found

    async def find_items(self, owner: str, ids: Sequence[str]) -> dict[str, Item]:
        homes = {self._homes.get((owner, name)) for name in ids} - {None}
        responses = [self._read(owner, home) for home in homes if home is not None]
        return among(responses, ids)

    def close(self) -> None:
        """Nothing outlives the process."""

    def _read(self, owner: str, id: str) -> StoredResponse | None:
        data = self._shelf.get((owner, id))
        return None if data is None else unpacked(owner, id, data)

    def _forget(self, key: Key) -> None:
        owner, id = key
        for name in self._item_ids.pop(key, ()):
            if self._homes.get((owner, name)) == id:
                del self._homes[owner, name]


def item_ids(response: StoredResponse) -> tuple[str, ...]:
    return tuple(item["id"] for item in response.items)


def among(responses: Iterable[StoredResponse | None], ids: Sequence[str]) -> dict[str, Item]:
    """The items of these ids."""
    wanted = frozenset(ids)
    items = (item for response in responses if response is not None for item in response.items)
    return {item["id"]: item for item in items if item["id"] in wanted}


def packed(response: StoredResponse) -> bytes:
    return orjson.dumps([response.previous_id, response.body, list(response.input_items)])


def unpacked(owner: str, id: str, data: bytes) -> StoredResponse:
    previous_id, body, input_items = orjson.loads(data)
    return StoredResponse(
        id=id, owner=owner, previous_id=previous_id, body=body, input_items=input_items
    )
