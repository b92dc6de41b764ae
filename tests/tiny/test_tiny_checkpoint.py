import json
from pathlib import Path

import mlx.core as mx
from mlx_lm.models import llama

from mlxcel.core.byte_vocab import ASSISTANT, BYTES, END, USER
from tests.tiny.checkpoint import build_tiny_checkpoint


def test_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    one = build_tiny_checkpoint(tmp_path / "one", seed=3)
    two = build_tiny_checkpoint(tmp_path / "two", seed=3)
    other = build_tiny_checkpoint(tmp_path / "other", seed=4)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (one, two, other)]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_greedy_output_is_varied_and_made_of_bytes(tmp_path: Path) -> None:
    folder = build_tiny_checkpoint(tmp_path / "tiny")
    config = json.loads((folder / "config.json").read_text())
    model = llama.Model(llama.ModelArgs.from_dict(config))
    model.load_weights(str(folder / "model.safetensors"))
    ids = [USER, *b"hello", END, ASSISTANT]
    for _ in range(32):
        ids.append(int(mx.argmax(model(mx.array([ids]))[0, -1])))
    answer = ids[-32:]
    assert len(set(answer)) >= 12
    assert max(answer) < BYTES
