"""Where the messages of a conversation end, counted in its tokens."""

from collections.abc import Callable, Sequence


def message_ends(
    texts: Sequence[str], encode: Callable[[str], Sequence[int]], tokens: Sequence[int]
) -> list[int]:
    """`texts[k]` is the rendering of the first k + 1 messages, `tokens` what was read and said of
    the last of them. Beyond the place where both part nothing is counted.

    Each message is encoded by itself, once: templates end them with a token of its own.
    """
    whole = texts[-1] if texts else ""
    ids: list[int] = []
    ends: list[int] = []
    begin = 0
    for text in texts:
        end = max(begin, len(text) if whole.startswith(text) else _common(text, whole))
        ids += encode(whole[begin:end])
        ends.append(len(ids))
        begin = end
    same = _common(ids, tokens)
    return [min(end, same) for end in ends]


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
