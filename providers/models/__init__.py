"""Language models: one module per dialect, chosen by the configuration's type."""

from providers.models.base import Model, ModelAnswer, ModelCall, ModelError
from providers.models.routing import make_model

__all__ = ["Model", "ModelAnswer", "ModelCall", "ModelError", "make_model"]
