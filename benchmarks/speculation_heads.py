"""What a DFlash head is worth for one row, by how much of what it proposes comes true.

    python benchmarks/speculation_heads.py [--shape 0.6b] [--rates 0 0.5 0.8 0.9 1] [--repeats 5]

Target and head have random weights in a Qwen3 shape, 16 positions a block, five layers, five
taps; both do all their work, then the target is made to say a script, and the head's proposals are
replaced by the script's, each wrong with a given probability. Tokens a second over plain steps of
the same turn; and what a round takes in plain steps, drafting included.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench_blas  # noqa: F401  # isort: skip
import mlx.core as mx
from bench_runs import PLAIN, Bench, Mode, Ran, Work
from bench_scripted import Foresight
from engine_decode import SHAPES, random_model
from mlx.utils import tree_flatten

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.dflash.config import read_config
from mlxcel.engine.draft.dflash.load import load_dflash
from mlxcel.engine.draft.dflash.network import Network
from mlxcel.engine.draft.heads import DraftHead, HiddenDrafter
from mlxcel.weights.load import LoadedModel

BLOCK = 16
TAPS = 5
OPTIONS = {
    "block_size": None,
    "precision": "auto",
    "stochastic_accept": False,
    "weight_materialization": "eager",
}
DRAFT = {"kind": "dflash", "max_batch": 1, "policy": "gated", "weighs_time": False}


class Replaced:
    """Works as the head's own drafter does, and says what another foresees."""

    is_free = False
    odds = None

    def __init__(self, own: HiddenDrafter, foresight: Foresight) -> None:
        self._own = own
        self._foresight = foresight

    def hear(self, tokens: Sequence[int]) -> None:
        self._own.hear(tokens)
        self._foresight.hear(tokens)

    def look(self, rows: mx.array) -> None:
        self._own.look(rows)

    def propose(self, count: int) -> list[int]:
        self._own.propose(count)
        return self._foresight.propose(count)


def random_head(model: LoadedModel, shape: str) -> DraftHead:
    hidden, layers, wide, heads, kv_heads, dim, vocab = SHAPES[shape]
    count = min(TAPS, layers)
    taps = [n * layers // count for n in range(count)]
    config = {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": hidden,
        "intermediate_size": wide, "num_hidden_layers": TAPS, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": dim, "rms_norm_eps": 1e-6,
        "vocab_size": vocab, "rope_theta": 1e6, "max_position_embeddings": 40960,
        "block_size": BLOCK, "num_target_layers": layers,
        "dflash_config": {"mask_token_id": vocab - 1, "target_layer_ids": taps},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        network = Network(read_config(folder), has_embedding=False, has_head=False)
        weights = dict(tree_flatten(network.parameters()))
        mx.save_safetensors(str(folder / "model.safetensors"), weights)
        options = {**OPTIONS, "path": str(folder)}
        return load_dflash(options, lambda step, share: None, model=model)


def foreseeing(head: DraftHead, text: Sequence[int], rate: float) -> DraftHead:
    def make(sampling: SamplingParams) -> Any:
        return Replaced(head.make(sampling), Foresight(text, rate, seed=1))

    return replace(head, make=make)


def main() -> int:
    args = _arguments()
    is_cpu = mx.default_device() == mx.Device(mx.cpu)
    model = random_model(args.shape, mx.float32 if is_cpu else mx.bfloat16)
    bench = Bench(model)
    head = random_head(model, args.shape)
    numbers = random.Random(2)
    text = [numbers.randrange(2, 2000) for _ in range(args.prompt + args.tokens + BLOCK)]
    work = Work(texts=[text], prompts=[args.prompt])
    modes = {"plain": PLAIN} | {
        f"{rate:g}": Mode(draft=DRAFT, drafter=foreseeing(head, text, rate)) for rate in args.rates
    }
    ran: dict[str, list[Ran]] = {name: [] for name in modes}
    for turn in range(-1, args.repeats):
        for name, mode in modes.items():
            one = bench.run(mode, work, skip=8, tokens=args.tokens - 16, most_s=args.most_s)
            if turn >= 0:  # the first turn compiles
                ran[name].append(one)
            print(f"  turn {turn + 1} of {args.repeats}, {name}", file=sys.stderr, flush=True)
    print(f"{mx.default_device()}, mlx {mx.__version__}, {args.shape}, block {BLOCK}")
    print("| came true | a round, plain steps | tokens/s | of plain |")
    print("| --- | --- | --- | --- |")
    for name, runs in ran.items():
        print(_line(name, runs, ran["plain"]))
    return 0


def _line(name: str, runs: Sequence[Ran], plain: Sequence[Ran]) -> str:
    ratios = [a.tokens_per_s / b.tokens_per_s for a, b in zip(runs, plain, strict=True)]
    price = [a.tick_ms / b.tick_ms for a, b in zip(runs, plain, strict=True)]
    middle = statistics.median(run.tokens_per_s for run in runs)
    share = [run.accepted / run.proposed for run in runs if run.proposed]
    told = f"{statistics.median(share):.2f}" if share else name
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    return f"| {told} | {statistics.median(price):.2f} | {middle:.1f} | {spread} |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="0.6b", choices=sorted(SHAPES))
    parser.add_argument("--rates", nargs="+", type=float, default=[0, 0.5, 0.8, 0.9, 1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--most-s", type=float, default=float("inf"))
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
