"""Download files of a Hugging Face repository into the hub's local cache."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from evaluator.errors import EvaluatorError

Kind = Literal["model", "dataset"]


def hub_snapshot(
    repository: str,
    kind: Kind,
    patterns: Sequence[str],
    *,
    ignored: Sequence[str] = (),
    revision: str | None = None,
    error: type[EvaluatorError],
    hint: str,
) -> Path:
    """Download the files that match `patterns`, unless they are cached, and return their folder.

    The folder's name is the commit of the revision.

    Args:
        repository: owner/name.
        kind: kind of the repository.
        patterns: glob patterns of file paths, in which `*` stands for slashes, too.
        ignored: patterns of files that are not downloaded, and not missed.
        revision: branch, tag or commit; None: the default branch.
        error: class of the errors to raise.
        hint: last sentence of their messages.

    Raises `error` if the repository does not exist or is not open to this user, or if the hub cannot be reached and
    files are missing; for a dataset also if the cache does not tell, so that no split is read without its last files.
    """
    from huggingface_hub import get_cached_repo_tree, snapshot_download

    with _refusals(repository, kind, revision, error, hint):
        folder = Path(
            snapshot_download(
                repository,
                repo_type=kind,
                revision=revision,
                allow_patterns=list(patterns),
                ignore_patterns=list(ignored),
            )
        )
        if kind == "dataset":
            get_cached_repo_tree(repository, repo_type=kind, revision=folder.name)  # raises without a list of files
        return folder


def hub_files(repository: str, revision: str, *, error: type[EvaluatorError], hint: str) -> list[str]:
    """Return the paths of a dataset repository's files, sorted.

    If the hub cannot be reached, the list is from the local cache. Raises `error` as hub_snapshot does.
    """
    from huggingface_hub import HfApi, get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError, HfHubHTTPError, HTTPError

    with _refusals(repository, "dataset", revision, error, hint):
        try:
            return sorted(HfApi().list_repo_files(repository, revision=revision, repo_type="dataset"))
        except HfHubHTTPError:  # the hub was reached and refuses the request
            raise
        except (OSError, HTTPError):  # no network, or HF_HUB_OFFLINE
            with suppress(CachedRepoTreeNotFoundError):
                files = get_cached_repo_tree(repository, repo_type="dataset", revision=revision)
                return sorted(file.path for file in files)
            raise


@contextmanager
def _refusals(
    repository: str, kind: Kind, revision: str | None, error: type[EvaluatorError], hint: str
) -> Iterator[None]:
    """Turn the errors of huggingface_hub into `error`."""
    from huggingface_hub import errors

    missing = f"The {kind} {repository!r} was not found"
    try:
        yield
    except errors.HFValidationError as cause:
        raise error(f"{missing}: it is not a hub name (owner/name). {hint}") from cause
    except errors.GatedRepoError as cause:
        raise error(f"{repository!r} requires a login and acceptance of its licence on the hub. {hint}") from cause
    except errors.RevisionNotFoundError as cause:
        raise error(f"{missing} in revision {revision!r}. {hint}") from cause
    except errors.RepositoryNotFoundError as cause:
        raise error(f"{missing}: no {kind} on the hub has this name. {hint}") from cause
    # HTTPError: of the HTTP client that the library uses; RuntimeError: from hf_xet, which transfers large files.
    except (errors.HTTPError, errors.CachedRepoTreeNotFoundError, OSError, RuntimeError) as cause:
        raise error(
            f"{missing}: it is not in the local hub cache, or may be incomplete there, and the hub cannot be reached. "
            f"Run once with a network and without HF_HUB_OFFLINE. {hint} (The first cause: "
            f"{str(cause).partition('. ')[0]}.)"
        ) from cause
