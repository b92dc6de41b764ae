"""From a folder on disk to arrays in memory. Imported before anything else that uses mlx:
a fast BLAS must be in place before `mlx.core` is loaded."""

from mlxcel.worker import blas

blas.preload()
