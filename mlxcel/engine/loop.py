"""Whether an answer has begun to say the same block over and over. Pure."""

from collections.abc import Sequence

from mlxcel.core.steering import LoopGuard


def repeats(tokens: Sequence[int], guard: LoopGuard) -> bool:
    """Whether the last tokens are one block, `guard.count` times over; `tokens` are all that
    were generated. Costs O(longest) a token, O(longest * count) while something repeats."""
    if not guard.is_on:
        return False
    longest = min(guard.longest, len(tokens) // guard.count)
    sizes = range(max(1, guard.shortest), longest + 1)
    likely = [size for size in sizes if tokens[-1] == tokens[-1 - size]]
    if not likely:
        return False
    matched = _self_matches(tokens[: -1 - longest * guard.count : -1])
    return any(matched[size] >= size * (guard.count - 1) for size in likely)


def _self_matches(text: Sequence[int]) -> list[int]:
    """For every place, how long `text` from there is equal to its own beginning (the Z
    function; Gusfield, Algorithms on Strings, 1.4), in one pass over the text."""
    lengths = [len(text), *[0] * (len(text) - 1)]
    left = right = 0
    for place in range(1, len(text)):
        length = max(0, min(right - place, lengths[place - left]))
        while place + length < len(text) and text[length] == text[place + length]:
            length += 1
        lengths[place] = length
        if place + length > right:
            left, right = place, place + length
    return lengths
