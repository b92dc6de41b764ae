"""`mlx_lm.server` with the BLAS that we use, so that the comparison is of servers alone."""

from mlxcel.worker import blas

blas.preload()

from mlx_lm.server import main  # noqa: E402

if __name__ == "__main__":
    main()
