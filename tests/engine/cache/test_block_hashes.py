"""The chained hashes of blocks of tokens: the contract's vectors, and what a change changes."""

import builtins
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.cache import NO_DIGEST
from mlxcel.core.errors import StartupError
from mlxcel.engine.cache.blocks import block_hashes, chain, digest_of

ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=70)


@pytest.mark.parametrize(
    ("tokens", "extra", "expected"),
    [
        pytest.param(
            range(40),
            NO_DIGEST,
            ["1ed11a4448432ef3", "4784627b931bad67", "1309c9ff5dd93cf5"],
            id="forty",
        ),
        pytest.param([1, 2, 3], NO_DIGEST, ["c78aa2722210b461"], id="partial"),
        pytest.param([], NO_DIGEST, [], id="none"),
        pytest.param(
            range(40),
            b"\x01" * 32,
            ["8c7e86c3e1ff30e0", "6ffd6b9e0ca3bf24", "e6592c84850ab3ee"],
            id="media",
        ),
    ],
)
def test_hashes_are_those_of_the_contract(tokens: Any, extra: bytes, expected: list[str]) -> None:
    assert [made.hex()[:16] for made in block_hashes(list(tokens), 16, extra)] == expected


def test_other_media_change_every_block() -> None:
    plain, media = (block_hashes(range(100), 16, extra) for extra in (NO_DIGEST, b"\x02" * 32))
    assert not {*plain} & {*media}


@given(ids, st.integers(1, 20), st.data())
def test_changed_token_changes_its_block_and_those_after_it(
    tokens: list[int], block: int, data: st.DataObject
) -> None:
    made = block_hashes(tokens, block)
    assert len(made) == -(-len(tokens) // block) == len({*made})
    if not tokens:
        return
    at = data.draw(st.integers(0, len(tokens) - 1))
    other = block_hashes([*tokens[:at], tokens[at] ^ 1, *tokens[at + 1 :]], block)
    assert made[: at // block] == other[: at // block]
    assert not {*made[at // block :]} & {*other}


@given(ids, st.integers(1, 20), st.integers(0, 4))
def test_chain_goes_on_behind_a_full_block(tokens: list[int], block: int, blocks: int) -> None:
    start = min(blocks, len(tokens) // block) * block
    whole = block_hashes(tokens, block)
    parent = whole[start // block - 1] if start else NO_DIGEST
    rest = list(chain(tokens[start:], block, digest_of("sha-256"), parent=parent))
    assert rest == whole[start // block :]


def test_unknown_hash_names_those_that_are_known() -> None:
    with pytest.raises(StartupError, match=r"cache\.apc\.hash: 'md5'.*sha256.*blake3"):
        block_hashes([1], 16, kind="md5")


@pytest.mark.parametrize("kind", ["blake3", "blake-3"])
def test_blake3_without_its_package_says_how_to_get_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name == "blake3":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.delitem(sys.modules, "blake3", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StartupError, match=r"pip install 'mlxcel\[blake3\]'"):
        digest_of(kind)


def test_blake3_where_it_is_installed() -> None:
    pytest.importorskip("blake3", reason="the optional package blake3 is not installed")
    made, other = block_hashes(range(40), 16, kind="blake3"), block_hashes(range(40), 16)
    assert [len(one) for one in made] == [32, 32, 32]
    assert not {*made} & {*other}
