"""What KV is kept as, vector by vector: round trips, bounds, codes and their packing."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.engine.kv.codec import Affine, Codec, Int8, Plain
from mlxcel.engine.kv.turbo import MAGNITUDES, PER_WORD, Turbo, is_power_of_two

CODECS: dict[str, Codec] = {
    "plain": Plain(),
    "int8": Int8(),
    "affine4": Affine(4, 64),
    "affine8": Affine(8, 32),
    "turbo4": Turbo(4, 128, layer=0, side="k"),
    "turbo3": Turbo(3, 128, layer=0, side="v"),
}


def turbo(bits: int, dim: int = 128, layer: int = 0, side: str = "k") -> Turbo:
    return Turbo(bits, dim, layer=layer, side=side)


def normal(*shape: int, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def through(codec: Codec, vectors: mx.array) -> np.ndarray:
    decoded = codec.decode(codec.encode(vectors), vectors.dtype)
    assert decoded.dtype == vectors.dtype
    assert decoded.shape == vectors.shape
    return np.array(decoded.astype(mx.float32))


def relative_error(codec: Codec, vectors: mx.array) -> float:
    exact = np.array(vectors.astype(mx.float32))
    return float(((through(codec, vectors) - exact) ** 2).mean() / (exact**2).mean())


# Every codec.


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Codec:
    return CODECS[request.param]


def test_arrays_are_columns_of_tokens(codec: Codec) -> None:
    parts = codec.encode(normal(2, 3, 7, 128))
    assert len(parts) == codec.arrays
    assert {part.shape[:3] for part in parts} == {(2, 3, 7)}


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_type_of_the_model_comes_back(codec: Codec, dtype: mx.Dtype) -> None:
    bounds = {"turbo3": 0.04, "turbo4": 0.011, "affine4": 0.01}
    vectors = normal(1, 2, 50, 128).astype(dtype)
    name = codec.name.split("/")[0]
    assert relative_error(codec, vectors) < bounds.get(name, 1e-4)


def test_zeros_stay_zeros(codec: Codec) -> None:
    assert not through(codec, mx.zeros((1, 1, 3, 128))).any()


def test_room_that_was_never_written_is_zeros(codec: Codec) -> None:
    """A mask hides it, but what it holds is multiplied by 0: it must be a number."""
    room = [mx.zeros_like(part) for part in codec.encode(normal(1, 1, 3, 128))]
    assert not np.array(codec.decode(room, mx.float32)).any()


def test_token_does_not_depend_on_its_neighbours(codec: Codec) -> None:
    """What is kept is equal to the bit; a product of more rows may sum in another order."""
    vectors = normal(2, 2, 9, 128)
    one = vectors[1:, :, 4:5]
    for part, alone in zip(codec.encode(vectors), codec.encode(one), strict=True):
        np.testing.assert_array_equal(np.array(part[1:, :, 4:5]), np.array(alone))
    got = through(codec, vectors)[1:, :, 4:5]
    np.testing.assert_allclose(got, through(codec, one), rtol=1e-5, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99), spikes=st.integers(0, 128))
@pytest.mark.parametrize("name", CODECS)
def test_numbers_stay_numbers(name: str, scale: float, seed: int, spikes: int) -> None:
    vectors = np.array(normal(1, 1, 4, 128, seed=seed)) * scale
    vectors[..., :spikes] = 0.0
    got = through(CODECS[name], mx.array(vectors))
    assert np.isfinite(got).all()
    assert np.abs(got).max() <= 2 * np.abs(np.linalg.norm(vectors, axis=-1)).max() + 1e-6


# int8 and affine.


def test_int8_is_off_by_half_a_step_at_most() -> None:
    vectors = normal(1, 2, 64, 80) * 7
    exact = np.array(vectors)
    steps = np.abs(exact).max(axis=-1, keepdims=True) / 127
    assert (np.abs(through(Int8(), vectors) - exact) <= 0.56 * steps).all()


def test_int8_keeps_the_largest_of_each_vector() -> None:
    exact = np.array(normal(1, 1, 100, 64))
    got = through(Int8(), mx.array(exact))
    at = np.abs(exact).argmax(axis=-1)[..., None]
    largest, kept = np.take_along_axis(exact, at, -1), np.take_along_axis(got, at, -1)
    np.testing.assert_allclose(kept, largest, rtol=1e-3)


def test_int8_of_a_tiny_vector_keeps_its_signs() -> None:
    """Its scale is rounded down by a third in float16, so that codes are cut at 127."""
    exact = np.array(normal(1, 1, 50, 64)) * 1e-6
    exact[..., 0] = 1.13e-5
    got = through(Int8(), mx.array(exact))
    assert (got * exact >= 0).all()
    assert got.max() == pytest.approx(127 * 2.0**-24, rel=1e-3)


def test_more_bits_of_a_group_are_nearer() -> None:
    vectors = normal(1, 2, 64, 64)
    errors = [relative_error(Affine(bits, 64), vectors) for bits in (4, 8)]
    assert errors[1] < 1e-4 < errors[0] < 0.015


# Turbo.


@pytest.mark.parametrize(
    ("bits", "error"), [(4, 0.0095), (3, 0.0345)], ids=["four-bits", "three-bits"]
)
@pytest.mark.parametrize("dim", [64, 128])
def test_round_trip_of_normal_vectors(bits: int, error: float, dim: int) -> None:
    got = relative_error(turbo(bits, dim), normal(1, 4, 500, dim))
    assert got == pytest.approx(error, rel=0.08)


@pytest.mark.parametrize(("bits", "error"), [(4, 0.0095), (3, 0.0345)])
def test_small_heads_lose_less(bits: int, error: float) -> None:
    """Coordinates of a short unit vector are less spread than a normal distribution."""
    assert 0.7 * error < relative_error(turbo(bits, 16), normal(1, 4, 500, 16)) < error


def test_rotation_makes_hard_vectors_as_easy() -> None:
    """One number far from the others is what plain rounding to four bits cannot do."""
    vectors = np.array(normal(1, 1, 200, 128)) * 0.05
    vectors[..., 5] = 4.0
    assert relative_error(turbo(4), mx.array(vectors)) < 0.02


@pytest.mark.parametrize("bits", [3, 4])
def test_norm_is_kept(bits: int) -> None:
    vectors = normal(1, 4, 500, 128) * 3
    norms = np.linalg.norm(np.array(vectors), axis=-1)
    kept = np.linalg.norm(through(turbo(bits), vectors), axis=-1)
    assert (np.abs(kept / norms - 1) < 0.001).all()


def test_norm_beyond_float16_is_cut() -> None:
    got = through(turbo(4), mx.full((1, 1, 1, 128), 1e5))
    assert np.linalg.norm(got) == pytest.approx(65504, rel=0.1)


def test_codes_are_nearest_levels_with_a_sign_bit() -> None:
    codec = turbo(4)
    numbers = [0.0, 0.1284, 0.2582, 0.2583, -0.1284, -2.9, 9.0]
    assert codec.codes(mx.array(numbers)).tolist() == [0, 0, 0, 1, 8, 15, 7]
    levels = np.array([*MAGNITUDES[4], *(-m for m in MAGNITUDES[4])])
    many = np.array(normal(1000))
    nearest = np.abs(many[:, None] - levels).argmin(axis=1)
    np.testing.assert_array_equal(np.array(codec.codes(mx.array(many))), nearest)


def test_zero_vector_has_codes_and_norm_of_zero() -> None:
    words, norm = turbo(4).encode(mx.zeros((1, 1, 2, 128)))
    assert not np.array(words).any()
    assert not np.array(norm).any()


@pytest.mark.parametrize("bits", [3, 4])
def test_first_code_is_in_the_lowest_bits_of_a_word(bits: int) -> None:
    per_word = PER_WORD[bits]
    codec = turbo(bits, 16)
    codes = [(5 * at) % 2**bits for at in range(16)]
    words = codec.pack(mx.array(codes, dtype=mx.uint32))
    assert words.dtype == mx.uint32
    assert words.tolist() == [
        sum(code << bits * at for at, code in enumerate(codes[start : start + per_word]))
        for start in range(0, 16, per_word)
    ]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([3, 4]), st.sampled_from([2, 8, 16, 64, 128, 256]))
def test_codes_survive_packing(data: st.DataObject, bits: int, dim: int) -> None:
    some = st.lists(st.integers(0, 2**bits - 1), min_size=dim, max_size=dim)
    codes = data.draw(some)
    codec = turbo(bits, dim)
    packed = codec.pack(mx.array([codes], dtype=mx.uint32))
    assert packed.shape == (1, -(-dim // PER_WORD[bits]))
    levels = np.array([*MAGNITUDES[bits], *(-m for m in MAGNITUDES[bits])], np.float32)
    np.testing.assert_array_equal(np.array(codec.levels(packed))[0], levels[codes])


def test_layers_and_sides_have_signs_of_their_own() -> None:
    vectors = normal(1, 1, 1, 128)
    places = [(0, "k"), (0, "v"), (1, "k")]
    words = [turbo(4, layer=n, side=side).encode(vectors)[0].tolist() for n, side in places]
    assert words[0] != words[1] != words[2] != words[0]
    assert turbo(4).encode(vectors)[0].tolist() == words[0]


def test_signs_do_not_change_between_versions() -> None:
    """Files of other versions are read by them."""
    words, _ = turbo(4, 16).encode(mx.arange(1, 17)[None].astype(mx.float32))
    assert words.tolist() == [[939856873, 3523947808]]


@pytest.mark.parametrize(
    ("dim", "fits"), [(1, False), (64, True), (80, False), (96, False), (128, True), (256, True)]
)
def test_heads_of_a_power_of_two_can_be_rotated(dim: int, fits: bool) -> None:
    assert is_power_of_two(dim) is fits
