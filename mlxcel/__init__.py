"""mlxcel: a declarative, config-driven inference server on MLX."""

__version__ = "0.1.0"
