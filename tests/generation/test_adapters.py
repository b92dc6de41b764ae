"""Scales of adapters as the front keeps them."""

import pytest

from mlxcel.core.errors import NotSupported
from mlxcel.core.ports import Adapter
from mlxcel.generation.adapters import Adapters
from mlxcel.link.messages import SetLora

ROWS = [{"path": "/a", "scale": 1}, {"path": "/b", "scale": 0.5}]


class Chat:
    def __init__(self) -> None:
        self.told: list[SetLora] = []

    def set_lora(self, message: SetLora, /) -> None:
        self.told.append(message)


def adapters(chat: Chat, *, fuse: bool = False, off: bool = False) -> Adapters:
    section = {"adapters": ROWS, "fuse": fuse, "init_without_apply": off}
    return Adapters.of(section, chat=chat)


def test_they_begin_as_configured() -> None:
    assert adapters(Chat()).items() == (
        Adapter(id=0, path="/a", scale=1.0),
        Adapter(id=1, path="/b", scale=0.5),
    )
    assert [one.scale for one in adapters(Chat(), off=True).items()] == [0.0, 0.0]


def test_who_is_not_named_is_off_and_unknown_ids_mean_nothing() -> None:
    chat = Chat()
    known = adapters(chat)
    known.set({1: -2.0, 7: 3.0, -1: 3.0})
    assert [one.scale for one in known.items()] == [0.0, -2.0]
    assert chat.told == [SetLora(((0, 0.0), (1, -2.0)))]


def test_the_worker_hears_of_changes_alone() -> None:
    chat = Chat()
    adapters(chat).set({0: 1.0, 1: 0.5})
    assert chat.told == []


def test_merged_ones_stay_as_they_are() -> None:
    chat = Chat()
    fused = adapters(chat, fuse=True)
    fused.set({0: 1.0, 1: 0.5, 2: 9.0})
    with pytest.raises(NotSupported, match=r"merged .*'scale': 0\.5"):
        fused.set({0: 1.0})
    assert fused.is_fused
    assert [one.scale for one in fused.items()] == [1.0, 0.5]
    assert chat.told == []
