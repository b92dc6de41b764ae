"""The chat engine: ids and arrays only. A fast BLAS must be in place before any module here
loads mlx."""

from mlxcel.worker import blas

blas.preload()
