"""What is said of a model without asking its worker."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlxcel.generation.facts import model_facts
from mlxcel.text.bytes import BYTE_TEMPLATE
from tests.generation.speaking import HERMES, TURNS, chat_model


def test_template_and_ends_of_texts(tmp_path: Path) -> None:
    facts = model_facts(chat_model(BYTE_TEMPLATE), tmp_path)
    assert (facts.path, facts.chat_template) == (str(tmp_path), BYTE_TEMPLATE)
    assert facts.abilities.system_role
    assert model_facts(chat_model(), None).path == ""


@pytest.mark.parametrize(
    ("template", "words", "reads"),
    [
        pytest.param(TURNS, (), False, id="knows-no-tools"),
        pytest.param(TURNS, ("<tool_call>", "</tool_call>"), False, id="only-the-vocabulary-does"),
        pytest.param(HERMES + "{{ tools }}", (), True, id="hermes"),
        pytest.param("{{ tools }}", (), False, id="in-a-form-nobody-knows"),
    ],
)
def test_whether_its_calls_can_be_read(template: str, words: tuple[str, ...], reads: bool) -> None:
    assert model_facts(chat_model(template, words), None).has_tool_parser is reads


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"quantization": {"bits": 4, "group_size": 64}, "torch_dtype": "bfloat16"}, "MLX Q4"),
        ({"quantization_config": {"bits": 8}}, "MLX Q8"),
        ({"text_config": {"quantization": {"bits": 6}}}, "MLX Q6"),
        ({"torch_dtype": "bfloat16"}, "MLX BF16"),
        ({"dtype": "float16"}, "MLX F16"),
        ({"text_config": {"dtype": "float32"}}, "MLX F32"),
        ({"dtype": "mxfp4"}, "MLX MXFP4"),
        ({"quantization": "odd", "text_config": 7}, "MLX"),
        (None, "MLX"),
        ([], "MLX"),
    ],
    ids=repr,
)
def test_what_the_weights_are_held_in(tmp_path: Path, config: Any, kind: str) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    assert model_facts(chat_model(), tmp_path).weights_type == kind
    assert model_facts(chat_model(), None).weights_type == ""
