"""What weights are held in: the table of the decision, case by case."""

import pytest

from mlxcel.worker.precision import Backend, Facts, decide

GIB = 2**30


def facts(backend: Backend, **changes: int | bool | None) -> Facts:
    defaults = {
        "batch": 4, "is_quantised": True, "dense_bytes": 16 * GIB, "memory_bytes": 139 * GIB,
    }  # fmt: skip
    return Facts(backend=backend, **(defaults | changes))


@pytest.mark.parametrize(
    ("asked", "known", "dtype"),
    [
        pytest.param("auto", facts(Backend.CPU), "float32", id="cpu-quantised"),
        pytest.param("auto", facts(Backend.CPU, is_quantised=False), "float32", id="cpu-dense"),
        pytest.param("auto", facts(Backend.METAL), None, id="metal-as-stored"),
        pytest.param("auto", facts(Backend.CUDA), "bfloat16", id="cuda-batch"),
        pytest.param("auto", facts(Backend.CUDA, batch=1), None, id="cuda-one-row"),
        pytest.param("auto", facts(Backend.CUDA, dense_bytes=99 * GIB), None, id="cuda-no-room"),
        pytest.param("auto", facts(Backend.CUDA, memory_bytes=None), None, id="cuda-unknown"),
        pytest.param("auto", facts(Backend.CUDA, is_quantised=False), None, id="cuda-dense"),
        pytest.param("as-stored", facts(Backend.CPU), None, id="forced-as-stored"),
        pytest.param("float16", facts(Backend.CPU), "float16", id="forced-float16"),
    ],
)
def test_precision_follows_the_backend(asked: str, known: Facts, dtype: str | None) -> None:
    precision = decide(asked, known)
    assert precision.dtype == dtype
    assert precision.reason in str(precision)
