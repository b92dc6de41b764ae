"""Attention of one new token a row over rows of unequal length, without a mask.

CUDA's fused attention takes 2 to 9 times as long with a mask as without (decision 2), so rows of
unequal length get a kernel of their own there: a block for each row and KV head, whose warps take
turns at the row's own positions with a running softmax (Milakov and Gimelshein, 2018), merged at
the end. Metal's kernel takes masks well, and a CPU has none to win; both keep the mask.

Models of mlx-lm call the attention of `mlx_lm.models.base` by a name in their own module. That
name is led here, and whether it was is tried out on the loaded model before it is relied on.
"""

import logging
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import base

log = logging.getLogger(__name__)

NAME = "scaled_dot_product_attention"
LANES = 32
WARPS = 16
WIDE = 512
"""Query heads of a group times their width that a block of so many warps has registers for."""

SOURCE = """
constexpr int PER = D / 32;
constexpr int ALIGN = (PER & (PER - 1)) == 0 ? sizeof(T) * PER : sizeof(T);
struct alignas(ALIGN) Share { T at[PER]; };
constexpr float LOWEST = -3.0e38f;
const int warp = threadIdx.x / 32;
const int lane = threadIdx.x % 32;
const int head = blockIdx.x;
const int row = blockIdx.y;
const int heads = keys_shape[1];
const int columns = keys_shape[2];
const int held = offsets[row] + 1;

__shared__ float merged_max[W][G];
__shared__ float merged_sum[W][G];
__shared__ float merged_out[W][G][D];

const size_t start = ((size_t)row * heads + head) * (size_t)columns * D + lane * PER;
const T* key = keys + start;
const T* value = values + start;

float query[G][PER], out[G][PER], most[G], sum[G];
for (int g = 0; g < G; g++) {
  const T* from = queries + ((size_t)(row * heads + head) * G + g) * D + lane * PER;
  for (int i = 0; i < PER; i++) {
    query[g][i] = static_cast<float>(from[i]) * scale[0];
    out[g][i] = 0.0f;
  }
  most[g] = LOWEST;
  sum[g] = 0.0f;
}
for (int at = warp * RUN; at < held; at += W * RUN) {
  float score[RUN][G];
  float v[RUN][PER];
  for (int r = 0; r < RUN; r++) {
    const size_t place = (size_t)(at + r < held ? at + r : held - 1) * D;
    const Share key_share = *reinterpret_cast<const Share*>(key + place);
    const Share value_share = *reinterpret_cast<const Share*>(value + place);
    float k[PER];
    for (int i = 0; i < PER; i++) {
      k[i] = static_cast<float>(key_share.at[i]);
      v[r][i] = static_cast<float>(value_share.at[i]);
    }
    for (int g = 0; g < G; g++) {
      float dot = 0.0f;
      for (int i = 0; i < PER; i++) dot += query[g][i] * k[i];
      for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffff, dot, step);
      score[r][g] = at + r < held ? dot : LOWEST;
    }
  }
  for (int g = 0; g < G; g++) {
    float now = most[g];
    for (int r = 0; r < RUN; r++) now = fmaxf(now, score[r][g]);
    const float shrink = __expf(most[g] - now);
    sum[g] *= shrink;
    for (int i = 0; i < PER; i++) out[g][i] *= shrink;
    for (int r = 0; r < RUN; r++) {
      const float p = at + r < held ? __expf(score[r][g] - now) : 0.0f;
      sum[g] += p;
      for (int i = 0; i < PER; i++) out[g][i] += p * v[r][i];
    }
    most[g] = now;
  }
}
for (int g = 0; g < G; g++) {
  if (lane == 0) {
    merged_max[warp][g] = most[g];
    merged_sum[warp][g] = sum[g];
  }
  for (int i = 0; i < PER; i++) merged_out[warp][g][lane * PER + i] = out[g][i];
}
__syncthreads();
for (int at = threadIdx.x; at < G * D; at += W * 32) {
  const int g = at / D;
  const int d = at % D;
  float top = LOWEST;
  for (int w = 0; w < W; w++) top = fmaxf(top, merged_max[w][g]);
  float total = 0.0f, part = 0.0f;
  for (int w = 0; w < W; w++) {
    const float weight = __expf(merged_max[w][g] - top);
    total += merged_sum[w][g] * weight;
    part += merged_out[w][g][d] * weight;
  }
  result[((size_t)(row * heads + head) * G + g) * D + d] = static_cast<T>(part / total);
}
"""
RUN = 4
"""Positions a warp reads at a time: their loads overlap."""


class RaggedAttention:
    """Led to by every model that was taught; passes on whatever is not its own."""

    def __init__(self, attention: Callable[..., mx.array]) -> None:
        self._attention = attention

    def __call__(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        cache: Any,
        scale: float,
        mask: mx.array | None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        ragged = getattr(cache, "unmasked", None)
        if ragged is None:
            return self._attention(queries, keys, values, cache, scale, mask, sinks)
        assert sinks is None, "tried out when the model was taught"
        return attend(queries, cache.keys, cache.values, ragged, scale)


def attend(
    queries: mx.array, keys: mx.array, values: mx.array, offsets: mx.array, scale: float
) -> mx.array:
    """`queries` `[rows, query heads, 1, dim]`; `keys` and `values` `[at least rows, heads,
    columns, dim]`, whole buffers; row b attends to columns 0..offsets[b]. -> as `queries`."""
    rows, query_heads, _, dim = queries.shape
    heads = keys.shape[1]
    group = query_heads // heads
    warps = max(1, WARPS * WIDE // max(WIDE, group * dim))
    (result,) = _kernel()(
        inputs=[queries, keys, values, offsets, _scale(scale)],
        template=[("T", queries.dtype), ("D", dim), ("G", group), ("W", warps), ("RUN", RUN)],
        grid=(heads * warps * LANES, rows, 1),
        threadgroup=(warps * LANES, 1, 1),
        output_shapes=[queries.shape],
        output_dtypes=[queries.dtype],
    )
    return result


def teach(network: nn.Module) -> bool:
    """Leads the attention of the model's own module here. False: it calls another one."""
    modules = {sys.modules[type(module).__module__] for _, module in network.named_modules()}
    taught = False
    for module in modules:
        found = getattr(module, NAME, None)
        if found is base.scaled_dot_product_attention:
            setattr(module, NAME, RaggedAttention(found))
        taught |= isinstance(getattr(module, NAME, None), RaggedAttention)
    return taught


@cache
def _scale(scale: float) -> mx.array:
    return mx.array([scale], dtype=mx.float32)


@cache
def _kernel() -> Any:
    return mx.fast.cuda_kernel(
        name="mlxcel_ragged_attention",
        input_names=["queries", "keys", "values", "offsets", "scale"],
        output_names=["result"],
        source=SOURCE,
    )
