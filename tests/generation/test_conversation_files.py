"""Saved conversations as files: names, modes, limits, budget, and what is listed."""

import json
import os
import stat
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.conversations import SavedConversation
from mlxcel.generation.conversation_files import (
    ConversationFolder,
    ConversationNotSaved,
    safe_id,
    safe_model,
)

Usage = namedtuple("Usage", "total used free")
EMPTY = Usage(total=10**12, used=0, free=10**12)


def folder(path: Path, **changed: Any) -> ConversationFolder:
    rules: dict[str, Any] = {
        "model": "owner/tiny-chat",
        "most_bytes": 10_000,
        "budget_bytes": 10**9,
        "disk_usage": lambda _: EMPTY,
        "clock": lambda: 1_790_000_000.5,
    }
    return ConversationFolder(path, **(rules | changed))


def save(
    kept: ConversationFolder, conversation: str = "trip-1", size: int = 100, **changed: Any
) -> SavedConversation:
    facts: dict[str, Any] = {
        "title": "Lisbon notes",
        "tokens": [1, 15, 7, 42],
        "offsets": [2, 4],
        "hashes": ["e04b2f4bb0641c78", "0123456789abcdef"],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
        ],
    }
    draft = kept.begin()
    try:
        draft.path.write_bytes(bytes(size))
        return kept.finish(draft, conversation, **(facts | changed))
    finally:
        kept.drop(draft)


def test_two_files_for_their_owner_alone(tmp_path: Path) -> None:
    place = tmp_path / "saved"
    saved = save(folder(place))
    kv, meta = place / "tiny-chat__trip-1.safetensors", place / "tiny-chat__trip-1.meta.json"
    assert sorted(place.iterdir()) == sorted([kv, meta])
    assert {stat.S_IMODE(path.stat().st_mode) for path in (kv, meta)} == {0o600}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert saved == SavedConversation(
        id="trip-1",
        path="tiny-chat__trip-1.safetensors",
        bytes=100,
        meta_bytes=meta.stat().st_size,
        tokens=4,
    )


def test_a_folder_open_to_others_is_closed(tmp_path: Path) -> None:
    place = tmp_path / "saved"
    place.mkdir(mode=0o755)
    save(folder(place))
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_the_description_has_the_keys_of_the_seed(tmp_path: Path) -> None:
    save(folder(tmp_path))
    assert json.loads((tmp_path / "tiny-chat__trip-1.meta.json").read_text()) == {
        "v": 2,
        "model": "tiny-chat",
        "conversation_id": "trip-1",
        "ts": 1_790_000_000,
        "title": "Lisbon notes",
        "tokens": [1, 15, 7, 42],
        "boundary_offsets": [2, 4],
        "message_hashes": ["e04b2f4bb0641c78", "0123456789abcdef"],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
        ],
        "prefix": "hi",
        "path": "tiny-chat__trip-1.safetensors",
    }


def test_the_beginning_is_500_characters(tmp_path: Path) -> None:
    kept = folder(tmp_path)
    save(kept, messages=[{"role": "system", "content": "x" * 501}])
    assert kept.items()[0].prefix == "x" * 500


def test_one_above_the_limit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    kept = folder(tmp_path, most_bytes=99)
    with pytest.raises(ConversationNotSaved, match=r"100 bytes.*99.*disk_max_bytes") as refused:
        save(kept)
    assert refused.value.status == 413
    assert list(tmp_path.iterdir()) == []


def test_override_lifts_the_limit(tmp_path: Path) -> None:
    assert save(folder(tmp_path, most_bytes=99), is_unlimited=True).bytes == 100


@pytest.mark.parametrize("override", [False, True], ids=["plain", "override"])
@pytest.mark.parametrize(
    ("used", "is_saved"),
    [
        pytest.param(91_000, False, id="91-percent"),
        pytest.param(89_901, False, id="above-90-with-the-file"),
        pytest.param(89_900, True, id="90-with-the-file"),
    ],
)
def test_nine_tenths_of_the_disk(tmp_path: Path, used: int, is_saved: bool, override: bool) -> None:
    usage = Usage(total=100_000, used=used, free=100_000 - used)
    kept = folder(tmp_path, disk_usage=lambda _: usage)
    if is_saved:
        save(kept, is_unlimited=override)
    else:
        with pytest.raises(ConversationNotSaved, match="90%"):
            save(kept, is_unlimited=override)
    assert bool(list(tmp_path.iterdir())) is is_saved


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConversationNotSaved):
        folder(tmp_path, disk_usage=lambda _: Usage(100, 91, 9)).begin()


def test_the_oldest_make_room_and_the_new_one_stays(tmp_path: Path) -> None:
    kept = folder(tmp_path)
    for age, name in ((30, "b"), (20, "a"), (10, "c")):
        path = tmp_path / save(kept, name, size=1000).path
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    size = kept.items()[0].size_bytes
    save(kept, "d", size=1000, budget_bytes=2 * size)
    assert {item.id for item in kept.items()} == {"c", "d"}
    save(kept, "e", size=9000, budget_bytes=5000)
    assert [item.id for item in kept.items()] == ["e"]


def test_without_a_budget_of_its_own_a_save_has_the_servers(tmp_path: Path) -> None:
    kept = folder(tmp_path, budget_bytes=0)
    save(kept, "a")
    save(kept, "b")
    assert [item.id for item in kept.items()] == ["b"]


def test_models_in_one_folder_do_not_see_each_other(tmp_path: Path) -> None:
    ours, longer = folder(tmp_path, budget_bytes=0), folder(tmp_path, model="tiny-chat__x")
    save(longer, "a")
    save(ours, "x__a")
    assert [item.id for item in ours.items()] == ["x__a"]
    assert [item.id for item in longer.items()] == ["a"]
    assert not ours.delete("a")


def test_saving_again_replaces(tmp_path: Path) -> None:
    kept = folder(tmp_path)
    save(kept, size=100)
    save(kept, size=200, title="again")
    (item,) = kept.items()
    assert (item.title, (tmp_path / item.path).stat().st_size) == ("again", 200)


def test_delete(tmp_path: Path) -> None:
    kept = folder(tmp_path)
    save(kept)
    assert kept.delete("trip-1")
    assert not kept.delete("trip-1")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    kept = folder(tmp_path / "none")
    assert kept.items() == []
    assert kept.find("trip-1") is None
    assert not kept.delete("trip-1")


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda meta: meta.unlink(), id="missing"),
        pytest.param(lambda meta: meta.write_text("{"), id="no-json"),
        pytest.param(lambda meta: meta.write_text('{"v": 2}'), id="no-meta"),
    ],
)
def test_kv_without_a_sound_description_is_loaded_but_not_listed(
    tmp_path: Path, spoil: Any
) -> None:
    kept = folder(tmp_path)
    save(kept)
    spoil(tmp_path / "tiny-chat__trip-1.meta.json")
    assert kept.items() == []
    assert kept.find("trip-1") == (tmp_path / "tiny-chat__trip-1.safetensors", None)


def test_a_folder_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConversationNotSaved, match="no folder of this server's user"):
        save(folder(tmp_path / "link"))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConversationNotSaved, match="cannot be used"):
        save(folder(tmp_path / "file" / "saved"))


def test_an_id_too_long_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConversationNotSaved, match="too long"):
        save(folder(tmp_path), "x" * 250)
    assert folder(tmp_path).find("x" * 250) is None
    assert not folder(tmp_path).delete("x" * 250)
    assert save(folder(tmp_path), "x" * 232).tokens == 4


def test_a_file_of_another_id_is_left_alone(tmp_path: Path) -> None:
    """As on a disk that takes capitals for small letters."""
    kept = folder(tmp_path)
    save(kept, "Trip")
    for end in (".safetensors", ".meta.json"):
        (tmp_path / f"tiny-chat__Trip{end}").rename(tmp_path / f"tiny-chat__trip{end}")
    assert kept.find("trip") is None
    assert not kept.delete("trip")
    with pytest.raises(ConversationNotSaved, match="conversation 'Trip'"):
        save(kept, "trip")


def test_drafts_of_killed_writers_go(tmp_path: Path) -> None:
    kept = folder(tmp_path, clock=lambda: 4000.0)
    for name, born in ((".draft-old.safetensors", 100), (".draft-new.safetensors", 3900)):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (born, born))
    kept.begin()
    assert [path.name for path in tmp_path.iterdir()] == [".draft-new.safetensors"]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        pytest.param("mlx-community/Qwen2-VL-2B", "Qwen2-VL-2B", id="base-name"),
        pytest.param("a b:c~d", "a_b_c_d", id="characters"),
    ],
)
def test_names_of_models(name: str, safe: str) -> None:
    assert safe_model(name) == safe


@pytest.mark.parametrize(
    ("conversation", "safe"),
    [
        pytest.param("trip-1", "trip-1", id="plain"),
        pytest.param("client:10.0.0.1", "client%3A10.0.0.1", id="colon"),
        pytest.param("../etc", "..%2Fetc", id="path"),
        pytest.param("_default", "%5Fdefault", id="leading-underscore"),
        pytest.param("a__b_c", "a_%5Fb_c", id="two-underscores"),
        pytest.param("a~%\u00e9", "a%7E%25%C3%A9", id="others"),
    ],
)
def test_ids_in_names(conversation: str, safe: str) -> None:
    assert safe_id(conversation) == safe


WORDS = st.text(alphabet="ab_%/:.~é", min_size=1, max_size=6)


@given(WORDS, WORDS, WORDS, WORDS)
def test_no_two_ids_of_two_models_share_a_file(a: str, b: str, one: str, other: str) -> None:
    names = [f"{safe_model(m)}__{safe_id(c)}" for m, c in ((a, one), (b, other))]
    is_same = (safe_model(a), one) == (safe_model(b), other)
    assert (names[0] == names[1]) is is_same
    assert all("/" not in name for name in names)
