"""`python -m mlxcel` is `mlxcel`."""

from mlxcel.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
