import subprocess
import sys
from typing import Any

import pytest

from mlxcel.store.supported import architecture, nearest


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({"model_type": "llama"}, "llama", id="own-file"),
        pytest.param({"model_type": "mistral"}, "llama", id="renamed"),
        pytest.param(
            {"model_type": "bailing_hybrid", "architectures": ["BailingMoeV3ForCausalLM"]},
            "bailing_moe_v3",
            id="renamed-by-architecture",
        ),
        pytest.param(
            {"model_type": "bailing_hybrid", "architectures": ["Other"]},
            "bailing_hybrid",
            id="other-architecture",
        ),
        pytest.param({"model_type": "bert"}, None, id="unknown"),
        pytest.param({"model_type": "base"}, None, id="a-tool-of-mlx-lm"),
        pytest.param({"model_type": "cache"}, None, id="another-tool"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_architecture_of_a_config(config: dict[str, Any], expected: str | None) -> None:
    assert architecture(config) == expected


def test_nearest_finds_the_family() -> None:
    assert "qwen3" in nearest("qwen3.0")


def test_looking_imports_no_mlx_lm() -> None:
    code = (
        "import sys; from mlxcel.store.supported import architecture; "
        "architecture({'model_type': 'llama'}); sys.exit('mlx_lm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
