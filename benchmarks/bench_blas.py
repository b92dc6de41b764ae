"""Imported before mlx: what is measured on a CPU adds up as the product does."""

from mlxcel.worker import blas

blas.preload()
