import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlxcel.store.probe import probe, train_window
from mlxcel.store.problems import ModelUnusable, UnsupportedModel

Make = Callable[..., Path]


def test_card_holds_the_facts_of_the_folder(tmp_path: Path, make_model: Make) -> None:
    folder = make_model(tmp_path / "tiny", quantization={"group_size": 32, "bits": 4})
    card = probe(folder, {})
    assert (card.name, card.family) == ("tiny", "llama")
    assert (card.train_window, card.quantization_bits) == (2048, 4)
    assert card.can_batch


def test_window_of_a_vision_model_is_that_of_its_text_part(
    tmp_path: Path, make_model: Make
) -> None:
    text = {"max_position_embeddings": 512}
    folder = make_model(tmp_path / "vision", model_type="mistral3", text_config=text)
    config = json.loads((folder / "config.json").read_text())
    for key in text:
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    assert probe(folder, {}).train_window == 512


@pytest.mark.parametrize(
    ("model_type", "row"),
    [
        pytest.param("jamba", "jamba", id="by-its-type"),
        pytest.param("falcon_mamba", "mamba", id="by-the-file-that-builds-it"),
    ],
)
def test_family_row_says_why_it_cannot_batch(
    tmp_path: Path, make_model: Make, model_type: str, row: str
) -> None:
    card = probe(make_model(tmp_path / "m", model_type=model_type), {row: "recurrent state"})
    assert (card.can_batch, card.reason) == (False, "recurrent state")


@pytest.mark.parametrize(
    ("config", "window"),
    [
        pytest.param({"max_position_embeddings": 4096}, 4096, id="plain"),
        pytest.param({"n_positions": 1024}, 1024, id="older-name"),
        pytest.param({}, 0, id="not-said"),
        pytest.param(
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                },
            },
            131072,
            id="yarn-on-top",
        ),
        pytest.param(
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 40,
                    "original_max_position_embeddings": 4096,
                },
            },
            163840,
            id="yarn-included",
        ),
        pytest.param(
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "original_max_position_embeddings": 8192,
                },
            },
            131072,
            id="llama3-is-included",
        ),
        pytest.param(
            {"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 2}},
            4096,
            id="linear",
        ),
    ],
)
def test_train_window(config: dict[str, Any], window: int) -> None:
    assert train_window(config) == window


def test_sampling_defaults_are_the_numbers_of_generation_config(
    tmp_path: Path, make_model: Make
) -> None:
    folder = make_model(tmp_path / "m")
    said = {"temperature": 0.6, "top_k": 20, "top_p": "high", "do_sample": True, "min_p": 0.1}
    (folder / "generation_config.json").write_text(json.dumps(said))
    assert probe(folder, {}).sampling == {"temperature": 0.6, "top_k": 20}


def test_unsupported_type_names_the_nearest(tmp_path: Path, make_model: Make) -> None:
    folder = make_model(tmp_path / "m", model_type="lama")
    with pytest.raises(UnsupportedModel, match=r"'lama' is not supported.*nearest.*llama"):
        probe(folder, {})


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        pytest.param("config.json", None, "no config.json", id="no-config"),
        pytest.param("config.json", "{", "config.json is not JSON", id="broken-config"),
        pytest.param("config.json", "[]", "not a JSON object", id="list"),
        pytest.param("config.json", "{}", "names no model_type", id="no-type"),
        pytest.param("generation_config.json", "{", "generation_config.json", id="generation"),
    ],
)
def test_refusal_names_file_and_reason(
    tmp_path: Path, make_model: Make, name: str, content: str | None, why: str
) -> None:
    folder = make_model(tmp_path / "m")
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(ModelUnusable, match=why) as refused:
        probe(folder, {})
    assert str(folder) in refused.value.message


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match="nowhere: there is no such folder"):
        probe(tmp_path / "nowhere", {})
