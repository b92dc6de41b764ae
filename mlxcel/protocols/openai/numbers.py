"""What is done to a number a request sent, or left out, before it is used."""

from typing import TypeVar

INT32_MAX = 2**31 - 1

T = TypeVar("T")


def given(sent: T | None, default: T) -> T:
    return default if sent is None else sent


def clamped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
