"""How far two texts are the same."""


def shared_chars(one: str, other: str) -> int:
    """By halves and not letter by letter: texts are as long as prompts."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
