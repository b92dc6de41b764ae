"""The live settings over time: history, going back, and many threads."""

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from mlxcel.config.live_rules import live_rules
from mlxcel.config.setting_history import HISTORY
from mlxcel.config.setting_rows import load_rows
from mlxcel.config.settings import SettingsStore
from mlxcel.core.errors import NothingToRevert, UnknownVersion
from tests.config.live_store import new_store, tree


@pytest.fixture
def store() -> SettingsStore:
    return new_store()


def test_history_tells_each_change() -> None:
    times: Iterator[float] = iter([10.0, 20.0])
    rows = load_rows()
    store = SettingsStore(tree(), rows, live_rules(rows, tree()), clock=lambda: next(times))
    first = store.patch({"default_top_k": 3, "nonsense": 1}).fingerprint
    second = store.patch({"default_seed": 5, "default_top_k": 4}).fingerprint
    assert store.history() == [
        {
            "version": 1,
            "time": 10.0,
            "changes": {"default_top_k": {"old": 40, "new": 3}},
            "fingerprint": first,
        },
        {
            "version": 2,
            "time": 20.0,
            "changes": {
                "default_top_k": {"old": 3, "new": 4},
                "default_seed": {"old": None, "new": 5},
            },
            "fingerprint": second,
        },
    ]


def test_history_tells_the_beginning_of_a_long_value_and_revert_has_all_of_it(
    store: SettingsStore,
) -> None:
    long = {"a": "x" * 5000}
    store.patch({"chat_template_kwargs": long})
    store.patch({"chat_template_kwargs": {"b": 1}})
    [first, second] = (change["changes"]["chat_template_kwargs"] for change in store.history())
    assert first["new"] == second["old"]
    assert first["new"].startswith('{"a": "xxx')
    assert len(first["new"]) < 1100
    assert second["new"] == {"b": 1}
    assert store.revert().current["chat_template_kwargs"] == long


def test_each_changed_name_is_one_log_line(
    store: SettingsStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        store.patch({"default_top_k": 3, "default_seed": None})
    assert [record.getMessage() for record in caplog.records] == ["setting default_top_k: 40 -> 3"]


def test_patch_then_revert_is_the_same_fingerprint(store: SettingsStore) -> None:
    start = store.current.fingerprint
    store.patch({"default_top_k": 3, "chat_template_kwargs": {"a": 1}})
    outcome = store.revert()
    assert outcome.fingerprint == store.current.fingerprint == start
    assert outcome.applied == {"default_top_k": 40, "chat_template_kwargs": {}}
    assert store.current.version == 2


def test_reverting_again_undoes_the_change_before(store: SettingsStore) -> None:
    for top_k in (1, 2, 3):
        store.patch({"default_top_k": top_k})
    seen = [store.revert().current["default_top_k"] for _ in range(3)]
    assert seen == [2, 1, 40]
    with pytest.raises(NothingToRevert) as caught:
        store.revert()
    assert caught.value.status == 409


def test_a_change_after_a_revert_is_undone_first(store: SettingsStore) -> None:
    for top_k in (1, 2):
        store.patch({"default_top_k": top_k})
    store.revert()
    store.patch({"default_top_k": 9})
    assert [store.revert().current["default_top_k"] for _ in range(2)] == [1, 40]


def test_revert_goes_back_to_before_a_version(store: SettingsStore) -> None:
    for top_k in (1, 2, 3):
        store.patch({"default_top_k": top_k})
    assert store.revert(2).current["default_top_k"] == 1
    assert store.revert().current["default_top_k"] == 40
    assert store.revert(4).current["default_top_k"] == 3


@pytest.mark.parametrize("version", [0, -1, 2, 99])
def test_an_unknown_version_is_refused(store: SettingsStore, version: int) -> None:
    store.patch({"default_top_k": 1})
    with pytest.raises(UnknownVersion) as caught:
        store.revert(version)
    assert caught.value.status == 404
    assert "1 to 1 are kept" in caught.value.message


@pytest.mark.slow
def test_history_is_bounded(store: SettingsStore) -> None:
    for number in range(HISTORY + 5):
        store.patch({"default_seed": number})
    kept = [change["version"] for change in store.history()]
    assert (len(kept), kept[0]) == (HISTORY, 6)
    with pytest.raises(UnknownVersion):
        store.revert(5)
    assert store.revert(6).current["default_seed"] == 4


@pytest.mark.slow
def test_no_reader_sees_half_a_patch(store: SettingsStore) -> None:
    """Writers set two names to one number; whoever reads must find them equal."""
    store.patch({"default_top_k": 0, "default_seed": 0})
    torn: list[object] = []
    stop = threading.Event()

    def write(offset: int) -> None:
        for step in range(40):
            number = offset * 1000 + step
            outcome = store.patch({"default_top_k": number, "default_seed": number})
            if outcome.current["default_top_k"] != outcome.current["default_seed"]:
                torn.append(outcome.current)

    def read() -> None:
        while not stop.is_set():
            sampling = store.current.sampling
            if sampling.top_k != sampling.seed:
                torn.append(sampling)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(n,)) for n in range(1, 9)]
    _run(readers, writers, stop.set)
    assert torn == []
    assert store.current.version == 8 * 40 + 1
    versions = [change["version"] for change in store.history()]
    assert versions == list(range(1, 8 * 40 + 2))


def _run(
    readers: list[threading.Thread], writers: list[threading.Thread], stop: Callable[[], None]
) -> None:
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join(60)
    stop()
    for thread in readers:
        thread.join(60)
    assert not any(thread.is_alive() for thread in (*readers, *writers))
