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
    revision: str | None = None,
    error: type[EvaluatorError],
    hint: str,
) -> Path:
    """Download the files that match `patterns`, unless they are cached, and return their folder.

    The folder's name is the commit of the revision.

    Args:
        repository: owner/name.
        kind: kind of the repository.
        patterns: glob patterns of file paths.
        revision: branch, tag or commit; None: the default branch.
        error: class of the errors to raise.
        hint: last sentence of their messages.

    Raises `error` if the repository does not exist or is not open to this user, or if the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download

    with _refusals(repository, kind, revision, error, hint):
        return Path(snapshot_download(repository, repo_type=kind, revision=revision, allow_patterns=list(patterns)))


def hub_files(repository: str, revision: str, *, error: type[EvaluatorError], hint: str) -> list[str]:
    """Return the paths of a dataset repository's files, sorted.

    If the hub cannot be reached, these are the Parquet files in the local cache. Raises `error` as hub_snapshot does.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, LocalEntryNotFoundError

    with _refusals(repository, "dataset", revision, error, hint):
        try:
            return sorted(HfApi().list_repo_files(repository, revision=revision, repo_type="dataset"))
        except HfHubHTTPError:  # the hub was reached and refuses the request
            raise
        except (OSError, HTTPError):  # no network, or HF_HUB_OFFLINE
            with suppress(LocalEntryNotFoundError):
                cached = snapshot_download(repository, repo_type="dataset", revision=revision, local_files_only=True)
                return sorted(path.relative_to(cached).as_posix() for path in Path(cached).rglob("*.parquet"))
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
    except (errors.HTTPError, OSError, RuntimeError) as cause:
        raise error(
            f"{missing}: it is not in the local hub cache, and the hub cannot be reached. Run once with a network and "
            f"without HF_HUB_OFFLINE. {hint} (The first cause: {str(cause).partition('. ')[0]}.)"
        ) from cause
