"""The likeliest tokens of each row, without sorting the vocabulary.

The `width` largest logits stand in the `width` blocks with the largest maxima; so two small
partitions do the work of one over the whole vocabulary (on a CPU 1.5 ms instead of 7 for
16 x 49152; on a GPU a partition is a full sort).
"""

import mlx.core as mx

from mlxcel.engine.sampling.rowwise import LANES


def likeliest(logits: mx.array, width: int) -> mx.array:
    """Ids of the `width` largest logits of each row, largest first, ties by lower id.

    Of tokens that tie with the last one inside, any may be the ones left out. `logits` are
    `[rows, vocab]`, padded to whole lanes; narrower ones come back whole.
    """
    vocab = logits.shape[-1]
    if width >= vocab:
        return mx.argsort(-logits, axis=-1)
    ids = _candidates(logits, width)
    inside = _largest(mx.take_along_axis(logits, ids, axis=-1), width)
    # In the order of their ids first: the sort by logit is stable.
    ids = mx.sort(mx.take_along_axis(ids, inside, axis=-1), axis=-1)
    order = mx.argsort(-mx.take_along_axis(logits, ids, axis=-1), axis=-1)
    return mx.take_along_axis(ids, order, axis=-1)


def _candidates(logits: mx.array, width: int) -> mx.array:
    """Ids among which the largest are: all tokens of the blocks with the largest maxima. Token t
    belongs to block t % blocks."""
    rows, vocab = logits.shape
    size = _block_size(vocab, width)
    blocks = vocab // size
    if blocks <= width:
        return mx.broadcast_to(mx.arange(vocab)[None], (rows, vocab))
    best = _largest(mx.max(logits.reshape(rows, size, blocks), axis=1), width)
    ids = best[:, None, :] + blocks * mx.arange(size)[None, :, None]
    return ids.reshape(rows, size * width)


def _block_size(vocab: int, width: int) -> int:
    """The power of two, at most `LANES`, that makes both partitions about equally wide."""
    size = LANES
    while size > 1 and size * size * width > 2 * vocab:
        size //= 2
    return size


def _largest(values: mx.array, width: int) -> mx.array:
    """Places of the `width` largest of each row, in no order."""
    if width >= values.shape[-1]:
        return mx.broadcast_to(mx.arange(values.shape[-1])[None], values.shape)
    return mx.argpartition(-values, kth=width - 1, axis=-1)[:, :width]
