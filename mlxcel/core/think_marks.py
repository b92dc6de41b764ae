"""The texts models put around their thinking."""

PAIRS = (
    ("<think>", "</think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|content_thinking|>", "<|end_message|>"),
)
"""In order of preference. Gemma's opening is a token and a word after it."""


def token_of(marker: str) -> str:
    """The part of a marker that is a token: all of it, or what a word follows."""
    return marker[: marker.rfind(">") + 1]
