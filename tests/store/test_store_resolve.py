from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlxcel.store.problems import ModelMissing
from mlxcel.store.progress import silent
from mlxcel.store.resolve import Store, find, obtain

Make = Callable[..., Path]

MODEL_OPTIONS = {
    "store_root": None,
    "cache_dir": None,
    "default_org": "mlx-community",
    "revision": "main",
    "hf_token": None,
    "allow_insecure_endpoint": False,
    "offline": False,
}


def test_existing_path_wins(store: Store, make_model: Make) -> None:
    here = make_model(Path("owner/name").absolute())
    make_model(store.root / "owner/name")
    assert find(store, "owner/name") == here
    assert find(store, str(here)) == here


def test_places_are_searched_in_order(
    store: Store, make_model: Make, hub_cache: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    made = make_model(tmp_path / "made")
    kept = make_model(store.root / "mlx-community/tiny")
    assert find(store, "tiny") == kept
    cached = hub_cache("mlx-community/tiny", made)
    assert find(store, "tiny") == cached
    beside = make_model(Path("models/tiny").absolute())
    assert find(store, "tiny") == beside


def test_converted_model_answers_to_its_bare_name(store: Store, make_model: Make) -> None:
    assert find(store, "SmolLM2") is None
    kept = make_model(store.root / "SmolLM2")
    assert find(store, "SmolLM2") == kept


def test_half_a_snapshot_in_the_hub_cache_is_passed_over(
    store: Store, make_model: Make, hub_cache: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    made = make_model(tmp_path / "made")
    (made / "model.safetensors").unlink()
    hub_cache("owner/name", made)
    assert find(store, "owner/name") is None


def test_revisions_are_kept_apart(store: Store, make_model: Make) -> None:
    other = replace(store, revision="refs/pr/1")
    make_model(store.root / "owner/name")
    assert find(other, "owner/name") is None
    kept = make_model(store.root / "owner/name@refs--pr--1")
    assert find(other, "owner/name") == kept


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        pytest.param("./nope", "./nope: there is no such folder", id="relative"),
        pytest.param("/nope/x", "/nope/x: there is no such folder", id="absolute"),
        pytest.param("a/b/c", "a/b/c: there is no such folder", id="too-deep-for-a-name"),
        pytest.param("owner/name:q4", "neither a folder here nor a model name", id="quant-suffix"),
        pytest.param("", "neither a folder here nor a model name", id="empty"),
        pytest.param("notes.txt", "is a file; name the folder", id="file"),
    ],
)
def test_argument_that_can_mean_nothing_is_refused(store: Store, argument: str, why: str) -> None:
    Path("notes.txt").write_text("")
    with pytest.raises(ModelMissing, match=why):
        find(store, argument)


def test_offline_says_where_it_looked(store: Store) -> None:
    with pytest.raises(ModelMissing, match=r"mlx-community/tiny is not on this machine.*offline"):
        obtain(replace(store, offline=True), "tiny", silent)


@pytest.mark.parametrize(
    ("options", "root"),
    [
        pytest.param({}, Path.home() / ".cache/mlxcel/models", id="default"),
        pytest.param({"cache_dir": "/c"}, Path("/c/models"), id="cache-dir"),
        pytest.param({"cache_dir": "/c", "store_root": "/m"}, Path("/m"), id="store-root"),
    ],
)
def test_store_root(options: dict[str, str], root: Path) -> None:
    assert Store.from_options({**MODEL_OPTIONS, **options}).root == root
