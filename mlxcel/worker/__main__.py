import sys

from mlxcel.worker.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
