"""The error envelope of the native completion routes."""

import pytest

from mlxcel.core import errors
from mlxcel.core.errors import MlxcelError
from mlxcel.protocols.native.errors import error_body
from mlxcel.protocols.openai.errors import error_body as openai_body


def test_a_prompt_that_is_too_long_has_the_type_its_clients_know() -> None:
    error = errors.ContextLengthExceeded(9, 8, param="prompt").info()
    assert error_body(error) == {
        "error": {
            "message": error.message,
            "type": "exceed_context_size_error",
            "param": "prompt",
            "code": "context_length_exceeded",
        }
    }


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(errors.BadField("f", "x"), id="field"),
        pytest.param(errors.QueueFull(), id="queue"),
        pytest.param(errors.NotSupported("x"), id="markers"),
    ],
)
def test_all_else_is_told_as_on_the_other_routes(error: MlxcelError) -> None:
    assert error_body(error.info()) == openai_body(error.info())
