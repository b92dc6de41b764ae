"""What the end of a text may still become, when more of it will come."""


def begins_at(text: str, mark: str) -> int | None:
    """Where the longest tail of `text` starts that is a proper beginning of `mark`, which is
    not empty."""
    start = text.find(mark[0], max(0, len(text) - len(mark) + 1))
    while start != -1:
        if mark.startswith(text[start:]):
            return start
        start = text.find(mark[0], start + 1)
    return None
