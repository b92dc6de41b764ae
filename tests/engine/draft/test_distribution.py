"""What is drawn with speculation is distributed as the model says: 20,000 samples of two tokens
against the exact probabilities, with a bound that one run in some 10,000 would exceed by chance."""

from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.engine.draft.dflash_pair import load_head
from tests.engine.draft.mtp_parts import heads
from tests.engine.draft.test_full_model import DRAFT as FULL_MODEL
from tests.engine.driver import Driver, submit
from tests.tiny import mtp_more
from tests.tiny.dflash import build_head

SAMPLES = 20_000
CHOICES = 8
BINS = 64
PROMPT = [7, 9, 7, 9, 7]
LOOKUP = {
    "kind": "prompt_lookup",
    "ngram_min": 1,
    "ngram_max": 3,
    "max_draft": 5,
    "max_batch": CHOICES,
    "policy": "graded",
}
DFLASH = {"kind": "dflash", "max_batch": CHOICES, "policy": "graded"}
MTP = {
    "kind": "mtp",
    "max_batch": CHOICES,
    "policy": "graded",
    "adaptive": False,
    "force": True,
    "allow_inexact": True,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "none"},
    "prompt-lookup": LOOKUP,
    "full-model": FULL_MODEL | {"max_batch": CHOICES},
    "rejection": FULL_MODEL | {"max_batch": CHOICES, "stochastic_accept": True},
    "dflash": DFLASH,
    "dflash-rejection": DFLASH | {"stochastic_accept": True},
    "mtp": MTP,
    "mtp-rejection": MTP | {"stochastic_accept": True},
}
TAPS = {"mask_token_id": 263, "target_layer_ids": [0, 1]}


def pairs_of(driver: Driver) -> np.ndarray:
    """`[vocab, vocab]`: how probable each pair of tokens is."""
    network, vocab = driver.model.network, driver.model.vocab_size
    first = np.array(mx.softmax(network(mx.array([PROMPT]))[0, -1]), dtype=np.float64)
    texts = mx.array([[*PROMPT, token] for token in range(vocab)])
    second = np.array(mx.softmax(network(texts)[:, -1], axis=-1), dtype=np.float64)
    pairs: np.ndarray = first[:, None] * second
    return pairs / pairs.sum()


def binned(pairs: np.ndarray) -> np.ndarray:
    """`[vocab, vocab]`: the bin of each pair; all bins are about as probable."""
    return (np.minimum(pairs.cumsum(), 1 - 1e-9) * BINS).astype(int).reshape(pairs.shape)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_tokens(tiny: Path, other: Path, near: Path, tmp_path: Path, kind: str) -> None:
    drafter = {"full-model": other, "rejection": near}.get(kind)
    head, target = None, tiny
    if kind.startswith("mtp"):  # of a target that is attention alone: several rows share rounds
        target = mtp_more.build_target(tmp_path / "mimo", mtp_more.MIMO)
        mx.save_safetensors(str(target / "heads.safetensors"), mtp_more.mimo_as_trained())
        head = partial(heads, stochastic_accept=kind == "mtp-rejection")
    if kind.startswith("dflash"):
        folder = build_head(tmp_path / "head", num_target_layers=2, dflash_config=TAPS)
        accepts = kind == "dflash-rejection"
        head = partial(load_head, folder, stochastic_accept=accepts)
    driver = Driver(target, parallel=CHOICES, draft=KINDS[kind], drafter=drafter, head=head)
    pairs = pairs_of(driver)
    bins = binned(pairs)
    counts = np.zeros(BINS)
    for seed in range(0, SAMPLES, CHOICES):
        driver.frames.clear()
        driver.run(submit("r", PROMPT, 3, temperature=1.0, seed=seed, choices=CHOICES))
        for choice in range(CHOICES):
            first, second, _ = driver.tokens("r", choice)  # so that two are proposed at once
            counts[bins[first, second]] += 1
    wanted = np.bincount(bins.ravel(), weights=pairs.ravel(), minlength=BINS) * SAMPLES
    is_used = wanted > 0  # a pair may be more probable than a bin
    assert wanted[is_used].min() > 5
    assert not counts[~is_used].sum()
    freedom = is_used.sum() - 1
    chi_square = ((counts - wanted)[is_used] ** 2 / wanted[is_used]).sum()
    assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)
    if kind != "plain":
        assert driver.stats.draft_rounds > SAMPLES / CHOICES
    driver.close()
