"""The error envelope and the model list."""

import pytest

from mlxcel.core import errors
from mlxcel.core.errors import MlxcelError
from mlxcel.core.ports import ServedModel
from mlxcel.core.status import ModelInfo
from mlxcel.protocols.openai.errors import error_body
from mlxcel.protocols.openai.models import model_body, models_body

MODEL = ServedModel(
    id="a",
    names=("a", "b", "/m/t"),
    aliases=("a", "b"),
    family="llama",
    vocab_size=264,
    hidden_size=64,
    train_window=512,
    context_window=128,
    tags=("fast", "small"),
)
INFO = ModelInfo(
    family="llama",
    vocab_size=264,
    context_window=128,
    train_window=512,
    hidden_size=64,
    parameters=1000,
    weights_bytes=4000,
    precision="float32 (cpu: no half precision)",
    device="cpu",
)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        pytest.param(errors.BadField("f", "x"), "invalid_request_error", None, id="field"),
        pytest.param(errors.BadRequest("x"), "invalid_request_error", None, id="request"),
        pytest.param(errors.BodyTooLarge(), "invalid_request_error", None, id="too-large"),
        pytest.param(
            errors.UnsupportedMediaType(None), "invalid_request_error", None, id="media-type"
        ),
        pytest.param(
            errors.ContextLengthExceeded(9, 8),
            "invalid_request_error",
            "context_length_exceeded",
            id="context",
        ),
        pytest.param(
            errors.ModelNotFound("x", ("a",)),
            "invalid_request_error",
            "model_not_found",
            id="model",
        ),
        pytest.param(errors.InvalidApiKey(), "invalid_api_key", "invalid_api_key", id="key"),
        pytest.param(errors.RouteNotFound("/x"), "not_found_error", None, id="route"),
        pytest.param(errors.NotImplementedHere("x"), "not_implemented", None, id="no-worker"),
        pytest.param(errors.NotSupported("x", param="m"), "not_supported_error", None, id="media"),
        pytest.param(errors.QueueFull(), "server_busy", None, id="queue"),
        pytest.param(errors.NoKvLeft(), "server_busy", None, id="no-kv-left"),
        pytest.param(errors.KvBudgetExceeded(9, 8), "invalid_request_error", None, id="kv-budget"),
        pytest.param(
            errors.RequestMemoryExceeded(9, 8), "request_memory_budget_exceeded", None, id="memory"
        ),
        pytest.param(errors.Unavailable("x"), "unavailable_error", None, id="unavailable"),
        pytest.param(errors.WorkerDied("chat", "9"), "server_error", None, id="worker"),
        pytest.param(errors.GenerationFailed("x"), "server_error", None, id="generation"),
        pytest.param(errors.DecodeTimeout(5), "server_timeout", None, id="timeout"),
    ],
)
def test_error_body(error: MlxcelError, kind: str, code: str | None) -> None:
    assert error_body(error.info()) == {
        "error": {"message": error.message, "type": kind, "param": error.param, "code": code}
    }


def test_the_model_list_names_ids_and_facts() -> None:
    body = models_body(MODEL, INFO, ftype="MLX Q4", created=1790000000)
    entry = body["data"][0]
    assert (body["object"], body["models"][0]["name"], entry["id"]) == ("list", "a", "a")
    assert (entry["aliases"], entry["tags"]) == (["a", "b"], ["fast", "small"])
    assert (entry["created"], entry["capabilities"]) == (1790000000, ["completion"])
    assert entry == model_body(MODEL, INFO, ftype="MLX Q4", created=1790000000)
    assert entry["meta"] == {
        "vocab_type": 2,
        "n_vocab": 264,
        "n_ctx": 128,
        "n_ctx_train": 512,
        "n_embd": 64,
        "n_params": 1000,
        "size": 4000,
        "ftype": "MLX Q4",
    }


def test_the_model_list_stands_before_the_worker_is_ready() -> None:
    meta = models_body(MODEL, None, ftype="", created=0)["data"][0]["meta"]
    assert (meta["n_params"], meta["size"], meta["ftype"]) == (0, 0, "MLX")
