"""The handlers that route rows may name."""

from mlxcel.http.generate import generate
from mlxcel.http.handlers import health, models, settings
from mlxcel.http.routes import Handler

HANDLERS: dict[str, Handler] = {
    "generate": generate,
    "models.list": models.listing,
    "health.show": health.show,
    "settings.show": settings.show,
    "settings.patch": settings.patch,
    "settings.history": settings.history,
    "settings.revert": settings.revert,
}
