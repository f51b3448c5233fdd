"""Weight files: which of a folder's files engines open, which tensors they hold, and their digests."""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import filelock
from safetensors import SafetensorError, safe_open

from evaluator.config import cache_folder
from evaluator.errors import ModelError, StoreError, WriteError, shown
from evaluator.files.json_files import read_foreign_object, read_json, write_json
from evaluator.files.whole import file_digest, reason

logger = logging.getLogger(__name__)

_STEMS = {".safetensors": "model", ".bin": "pytorch_model"}  # in the order of preference of both engines
_OF_TRAINING = ("training_args.bin", "optimizer.bin")  # which vLLM leaves out as well

_FLOATS = ("F16", "BF16", "F32", "F64")
_NUMBERS_AT_A_TIME = 2**22
_LARGE_BYTES = 2**26  # of a file that takes long to hash


class Tensor(NamedTuple):
    """A tensor as the header of a safetensors file describes it."""

    name: str
    dtype: str  # safetensors' name: "BF16"
    shape: tuple[int, ...]


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files that engines open, sorted; empty if there are none.

    transformers opens model.safetensors, or else what model.safetensors.index.json names, or else the same of
    pytorch_model.bin. vLLM opens all *.safetensors at the top of the folder that the index names, without an index all
    of them, and without any all *.bin.

    Raises ModelError where the two would open different files, and for an index that is damaged or names a file that is
    missing or outside the folder.
    """
    for suffix, stem in _STEMS.items():
        single, index = folder / f"{stem}{suffix}", folder / f"{stem}{suffix}.index.json"
        files = _top_files(folder, suffix)
        if index.is_file():
            indexed = _indexed_files(folder, index, suffix)
            # vLLM ignores the index of *.bin.
            others = {single} if suffix == ".safetensors" else {*files}
            if extra := sorted(others & {*files} - {*indexed}):
                raise _ambiguous(folder, index, extra)
            return indexed
        if single in files and len(files) > 1:
            raise _ambiguous(folder, single, [file for file in files if file != single])
        if files and suffix == ".safetensors" and single not in files:
            pickles = [path for name in ("pytorch_model.bin", "pytorch_model.bin.index.json")
                       if (path := folder / name).is_file()]  # fmt: skip
            if pickles:
                raise _ambiguous(folder, pickles[0], files)
        if files:
            return files
    return []


def _top_files(folder: Path, suffix: str) -> list[Path]:
    # Never a pipe, which would be waited for.
    return sorted(path for path in folder.glob(f"*{suffix}") if path.is_file() and path.name not in _OF_TRAINING)


def _indexed_files(folder: Path, index: Path, suffix: str) -> list[Path]:
    names = read_foreign_object(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError(f"{index} must name the file of each tensor in weight_map, got {shown(names)}.")
    files = set()
    for tensor, name in names.items():
        path = PurePosixPath(name) if isinstance(name, str) else PurePosixPath("/")
        if path.is_absolute() or ".." in path.parts or path.suffix != suffix:
            raise ModelError(
                f"{index} names {shown(name)} for {shown(tensor)}, which is no {suffix} file in the model's folder. "
                "Copy the file there, and write its relative path into the index."
            )
        if not (folder / path).is_file():
            raise ModelError(f"{index} names {name}, which is missing. Download or save the model again.")
        files.add(folder / path)
    return sorted(files)


def _ambiguous(folder: Path, chosen: Path, others: list[Path]) -> ModelError:
    names = ", ".join(file.name for file in others)
    return ModelError(
        f"{folder} holds {chosen.name} and beside it {names}, so that transformers and vLLM would read different "
        "weights. Move those that are not the model's to another folder."
    )


def read_header(path: Path) -> list[Tensor]:
    """Return the tensors of a safetensors file; no number is read.

    Raises ModelError, naming the file, for one that the library does not open.
    """
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
            return [Tensor(name, part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()]
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"{path} is damaged or no safetensors file: its header is refused ({error}). Download or save it again."
        ) from error


def has_plain_head(files: Iterable[Path], vocab_size: int) -> bool:
    """Return whether the LM head among safetensors files, or the embeddings that are tied to it, is not quantised.

    A quantised matrix is of integers or 8-bit floats, or has scales and zero points beside it.
    """
    tensors = [tensor for file in files if file.suffix == ".safetensors" for tensor in read_header(file)]
    of_head = [tensor for tensor in tensors if ".lm_head." in f".{tensor.name}"]
    of_vocabulary = [tensor for tensor in tensors if len(tensor.shape) == 2 and tensor.shape[0] >= vocab_size]
    head = of_head or of_vocabulary
    return bool(head) and all(tensor.dtype in _FLOATS and tensor.name.endswith((".weight", ".bias")) for tensor in head)


def first_not_finite(path: Path) -> str | None:
    """Return the name of the first tensor with a NaN or an infinity, or None. Reads all of a safetensors file."""
    with safe_open(path, framework="pt") as file:
        for tensor in read_header(path):
            if tensor.dtype in _FLOATS:
                pieces = file.get_tensor(tensor.name).flatten().split(_NUMBERS_AT_A_TIME)
                if not all(piece.isfinite().all() for piece in pieces):
                    return tensor.name
    return None


def combined_digest(parts: Mapping[str, str]) -> str:
    """Return the SHA-256 of named strings, in any order; all 64 hex digits, since models are compared by it."""
    return hashlib.sha256(json.dumps(dict(sorted(parts.items()))).encode()).hexdigest()


def file_digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file by its path in the folder, reading several files at once."""
    files = list(files)
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        names = (file.relative_to(folder).as_posix() for file in files)
        return dict(zip(names, pool.map(_cached_digest, files), strict=True))


def _cached_digest(file: Path) -> str:
    """Return the SHA-256 of a file, kept in the cache folder so that unchanged gigabytes are read only once.

    Raises ModelError where it cannot be read.
    """
    try:
        cached = _digest_file(file)
        if known := _read_digest(cached):
            return known
        with _hashing_alone(cached, file.stat().st_size):
            if known := _read_digest(cached):  # another process has read it meanwhile
                return known
            digest = file_digest(file)
            if _digest_file(file) != cached:  # it changed while it was read
                return _cached_digest(file)
            write_json(cached, {"file": digest})
    except WriteError as error:
        logger.warning("%s The weights are read again by the next run.", error)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {reason(error)}.") from error
    return digest


def _digest_file(file: Path) -> Path:
    """Return the file of the cache folder for the digest of a file as it is now."""
    status = file.stat()
    # Size and time of modification can be set to what they were; the time of the last change cannot.
    known_by = (str(file.resolve()), status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino,
                status.st_ctime_ns)  # fmt: skip
    return cache_folder() / "digests" / f"{combined_digest({'file': json.dumps(known_by)})}.json"


def _read_digest(cached: Path) -> str | None:
    with suppress(StoreError):  # a damaged one is written again
        if known := read_json(cached):
            return str(known["file"])
    return None


@contextmanager
def _hashing_alone(cached: Path, size: int) -> Iterator[None]:
    """Hash a large file while no other process of this host does: replicas that start together need it once."""
    lock = filelock.FileLock(cached.with_suffix(".lock"))
    if size >= _LARGE_BYTES:
        with suppress(OSError, NotImplementedError):  # without locks, or a folder to write to, each reads it
            cached.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
