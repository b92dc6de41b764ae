import json
from pathlib import Path

import mlx.core as mx
from mlx_lm.models import llama
from tokenizers import Tokenizer

from mlxcel.core.byte_vocab import ASSISTANT, BYTES, END, USER
from tests.tiny.checkpoint import FIRST_MARKER, build_tiny_checkpoint


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


def test_markers_are_tokens_of_their_own_and_change_nothing_else(tmp_path: Path) -> None:
    words = ("<think>", "</think>")
    folder = build_tiny_checkpoint(tmp_path / "marked", markers=words)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert [tokenizer.token_to_id(word) for word in words] == [FIRST_MARKER, FIRST_MARKER + 1]
    assert tokenizer.encode("a<think>b", add_special_tokens=False).ids == [97, FIRST_MARKER, 98]
    weights = mx.load(str(folder / "model.safetensors"))
    assert weights["lm_head.weight"].shape[0] == 272
    assert json.loads((folder / "config.json").read_text())["vocab_size"] == 272
