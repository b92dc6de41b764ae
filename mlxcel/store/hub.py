"""A repository of the Hugging Face hub: found in its cache, or downloaded into a folder.

The cache of other programs is only read; what we download lives in our own store.
`huggingface_hub` takes 0.3 s to import, so that happens where it is needed.
"""

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlxcel.core.errors import StartupError
from mlxcel.store import space
from mlxcel.store.problems import ModelMissing
from mlxcel.store.progress import Progress
from mlxcel.store.watch import folder_bytes, watched

log = logging.getLogger(__name__)
WANTED = ("model*.safetensors", "*.json", "*.jinja", "*.txt", "tokenizer*", "*.model", "*.tiktoken")
"""What mlx-lm and the tokenizer read; no code and no second copies of the weights."""
WEIGHTS = ".safetensors"
COMMIT_NOTE = ".commit"
"""Which commit the files of an unfinished folder are of."""

Sizes = Mapping[str, int]
"""File name to bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A model on the hub. `token` None: the one `hf auth login` stored, if any."""

    id: str
    revision: str
    token: str | None = None
    is_token_bare: bool = False
    """Whether a token may travel without TLS."""

    def __str__(self) -> str:
        return self.id if self.revision == "main" else f"{self.id} (revision {self.revision})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The wanted files of one commit."""

    commit: str
    texts: Sizes
    weights: Sizes


def cached(repository: Repository) -> Path | None:
    """The snapshot in the hub's own cache. It may lack files: an interrupted download stays."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(repository.id, "config.json", revision=repository.revision)
    return Path(config).parent if isinstance(config, str) else None


def listing(repository: Repository) -> Listing:
    """What there is to fetch. Raises ModelMissing where there is nothing we could run."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import filter_repo_objects

    with _named(repository):
        info = HfApi(endpoint=_endpoint(), token=_token(repository)).model_info(
            repository.id, revision=repository.revision, files_metadata=True
        )
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    wanted = set(filter_repo_objects(sizes, allow_patterns=list(WANTED)))
    found = Listing(
        commit=str(info.sha),
        texts={name: sizes[name] for name in wanted if not name.endswith(WEIGHTS)},
        weights={name: sizes[name] for name in wanted if name.endswith(WEIGHTS)},
    )
    if not found.weights:
        raise ModelMissing(
            f"{repository} has no model*{WEIGHTS}; an MLX or safetensors checkpoint is needed"
        )
    return found


def begin(folder: Path, commit: str) -> None:
    """Make `folder` ready for the files of a commit: those of another one must not mix in."""
    note = folder / COMMIT_NOTE
    if not (note.is_file() and note.read_text() == commit):
        shutil.rmtree(folder)
        folder.mkdir()
        note.write_text(commit)


def finish(folder: Path) -> None:
    (folder / COMMIT_NOTE).unlink()


def fetch(
    repository: Repository, commit: str, files: Sizes, folder: Path, progress: Progress
) -> None:
    """Fill `folder` with the files, going on with what an earlier try has left in it.

    One file after the other: an interrupt ends it at once, and at most one file is unfinished.
    """
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    total = sum(files.values())
    with _named(repository), space.full_disk_named(folder):
        space.require(folder, max(0, total - folder_bytes(folder)))
        with watched(folder, total, f"downloading {repository}", progress):
            for name, size in sorted(files.items()):
                _fetch_file(repository, commit, name, size, folder / name)


def _fetch_file(repository: Repository, commit: str, name: str, size: int, target: Path) -> None:
    """By the library's own transfer, which retries; but into a file that outlives us. Its
    `snapshot_download` throws an unfinished file away (2.4)."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    if target.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    url = hf_hub_url(repository.id, name, revision=commit, endpoint=_endpoint())
    # A range of a compressed answer would be a range of other bytes.
    headers = {**build_hf_headers(token=_token(repository)), "Accept-Encoding": "identity"}
    with part.open("ab") as out:
        http_get(url, out, resume_size=out.tell(), headers=headers, expected_size=size)
    part.replace(target)


def _endpoint() -> str | None:
    """Read on each call: the library looks at the variable only once, when it is imported."""
    return os.environ.get("HF_ENDPOINT")


def _token(repository: Repository) -> str | bool | None:
    """False: none at all, not even one that is stored."""
    endpoint = _endpoint() or "https:"
    if endpoint.lower().startswith("https:") or repository.is_token_bare:
        return repository.token
    if repository.token is not None:
        log.warning(
            "HF_ENDPOINT %s is not https://: the token is not sent there; "
            "MLXCEL_ALLOW_INSECURE_ENDPOINT=1 (model.allow_insecure_endpoint) sends it",
            endpoint,
        )
    return False


@contextmanager
def _named(repository: Repository) -> Iterator[None]:
    """The hub's errors in words for the person who asked for the model."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as why:
        raise ModelMissing(
            f"{repository} is gated: accept its terms on the hub, then give a token of that "
            "account with HF_TOKEN (model.hf_token)"
        ) from why
    except errors.RevisionNotFoundError as why:
        raise ModelMissing(
            f"{repository.id} has no revision {repository.revision!r} (model.revision)"
        ) from why
    except errors.RepositoryNotFoundError as why:
        raise ModelMissing(
            f"{repository} is not on the hub, or is private and needs HF_TOKEN (model.hf_token); "
            "a local folder is named by its path, a bare name means model.default_org/name"
        ) from why
    except errors.OfflineModeIsEnabled as why:
        raise ModelMissing(
            f"{repository} is not on this machine and HF_HUB_OFFLINE forbids the download"
        ) from why
    except (errors.HTTPError, OSError) as why:
        raise StartupError(
            f"{repository} cannot be downloaded ({_first_line(why)}); the next try goes on "
            "where this one stopped; --offline (model.offline) uses only what is here"
        ) from why


def _first_line(why: BaseException) -> str:
    lines = str(why).strip().splitlines()
    return lines[0] if lines else type(why).__name__
