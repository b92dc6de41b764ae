"""Numbers in [0, 1) that depend on (seed, position) alone, made on the host.

So the same seed gives the same text on every backend, alone and in any batch.
"""

import numpy as np

XTC_SALT = np.uint64(0xA5A5_5A5A_0F0F_F0F0)
"""A row's second number of a position, independent of its draw."""
PROPOSAL_SALT = np.uint64(0x3C6E_F372_FE94_F82B)
"""What a drafter draws with that tells its odds: independent of how its row draws."""
TEST_SALT = np.uint64(0x510E_527F_ADE6_82D1)
"""Whether that proposal is taken."""
REST_SALT = np.uint64(0x1F83_D9AB_FB41_BD6B)
"""What is said where it is not."""


def uniforms(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """splitmix64 of both, 24 bits, so that each number is exact in float32.

    (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014.)
    """
    with np.errstate(over="ignore"):
        bits = _mix(_mix(seeds) + positions) >> np.uint64(40)
    numbers: np.ndarray = bits.astype(np.float64) / (1 << 24)
    return numbers


def _mix(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed
