"""The fastest plain thing: a greedy loop over equal rows, with mlx-lm's own caches and one step
in flight. Reads lines `ROWS STEPS`, writes tokens a second of the decode steps."""

import sys
import time

from mlxcel.weights.load import load_model

import mlx.core as mx  # isort: skip
from mlx_lm.models.cache import KVCache

PROMPT_TOKENS = 40


def decode_rate(network: object, layers: int, rows: int, steps: int) -> float:
    caches = [KVCache() for _ in range(layers)]
    prompt = mx.random.randint(0, 1000, (rows, PROMPT_TOKENS))
    tokens = mx.argmax(network(prompt, cache=caches)[:, -1], axis=-1)
    mx.eval(tokens)
    began = time.perf_counter()
    for _ in range(steps):
        following = mx.argmax(network(tokens[:, None], cache=caches)[:, -1], axis=-1)
        mx.async_eval(following)
        tokens.tolist()
        tokens = following
    mx.eval(tokens)
    return rows * steps / (time.perf_counter() - began)


def main() -> None:
    options = {
        "path": sys.argv[1],
        "precision": "float32",
        "batch": 4,
        "device": "auto",
        "train_window": 8192,
        "fuse_projections": "off",
        "weight_materialization": "eager",
    }
    model = load_model(options, lambda step, fraction: None)
    for line in sys.stdin:
        rows, steps = map(int, line.split())
        print(decode_rate(model.network, len(model.network.layers), rows, steps), flush=True)


if __name__ == "__main__":
    main()
