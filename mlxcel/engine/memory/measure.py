"""What KV takes in the mode it is kept in, and how full the account of it is."""

import math
from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn

from mlxcel.engine.cache.counters import PoolNumbers
from mlxcel.engine.kv.choose import row_caches
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.kv.parts import column_bytes
from mlxcel.engine.memory.estimate import token_bytes
from mlxcel.engine.memory.pool import BLOCK, KVPool
from mlxcel.weights.card import MemoryCard


def card_in_mode(card: MemoryCard, network: nn.Module, plan: KVPlan) -> MemoryCard:
    """The card, with as many bytes a token as the KV mode really takes."""
    if not plan.codecs or not card.attention_layers:
        return card
    caches = row_caches(network, plan)
    network(mx.array([[0]]), cache=caches)
    one = math.ceil(column_bytes(caches) / (card.attention_layers * 2 * card.kv_heads))
    return replace(card, head_dim=one, kv_dtype_bytes=1)


def pool_numbers(pool: KVPool, card: MemoryCard) -> PoolNumbers:
    """A block is one layer's: 32 tokens of it."""
    block = BLOCK * token_bytes(card) // max(1, card.attention_layers)
    budget = pool.budget
    return PoolNumbers(
        block_size=BLOCK,
        blocks_allocated=pool.live,
        blocks_live=pool.live,
        blocks_free=0 if budget is None else budget - pool.live,
        bytes_reserved=pool.live * block,
        bytes_in_use=pool.live * block,
        block_budget=budget,
    )
