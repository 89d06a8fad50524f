"""The program cache: compiled programs and derived texts, found by a digest of all their inputs.

A cache hit runs machine code, so the folder must be this user's alone: it is made with mode 0700, its owner and mode
are checked on every use, symbolic links are refused, and every file's digest is compared with the one noted when it was
stored. An entry appears by one rename, so another process sees all of it or nothing.

The folder has a limit (`$STAGED_CACHE_SIZE`). The file `size` holds a sum of the bytes that were written. When the sum
exceeds the limit, the process that writes counts all files, and removes the least recently used entries. A use sets
the modification time of the entry. Entries that were used in the last ten minutes stay.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from staged.errors import CacheError
from staged.runtime.byte_sizes import cache_bytes
from staged.runtime.shortage import ShortageError, shortage_of

_KEY = re.compile(r"[0-9a-f]{16,64}")
_NOTE = "entry.json"
_IN_USE = 600.0
"""An entry that was used in the last so many seconds is not removed: a process may be about to load it."""
_USES_APART = 60.0
"""A use is recorded if the last recorded use is so many seconds old."""
_KEPT = 0.9
"""The part of the limit that remains when entries are removed, so that not each write removes some."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored program, for listings: `created` in seconds since the epoch, `size` in bytes on disk."""

    key: str
    name: str
    size: int
    created: float


def digest(*parts: str) -> str:
    """A key: the SHA-256 of the parts, kept apart so that no two lists of parts read alike."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def default_cache() -> Cache:
    """The cache in `$STAGED_CACHE_DIR`, else in the platform's cache folder."""
    folder = os.environ.get("STAGED_CACHE_DIR")
    return Cache(Path(folder) if folder else Path(platformdirs.user_cache_dir("staged")))


class Cache:
    """A cache folder, created on first use. Every method raises CacheError if the folder cannot be trusted."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))

    # ---- compiled programs ----

    def find(self, key: str, file: str) -> Path | None:
        """The path of `file` of the entry `key`; None without one, or if it was tampered with or truncated."""
        entry = self._folder("programs") / _checked(key)
        try:
            _record_use(entry)
            note = json.loads(_read_own(entry / _NOTE))
            _check_own(entry, folder=True)
            noted = note["files"][file]
            if hashlib.sha256(_read_own(entry / file)).hexdigest() != noted:
                return None
        except (OSError, ValueError, KeyError, TypeError, CacheError):
            return None
        return entry / file

    def keep(self, key: str, name: str, file: str, make: Callable[[Path], None]) -> Path:
        """The path of `file` in the entry `key`, titled `name`: found, or created now by `make` in an empty folder.

        If the disk is full or no files can be opened, the file is made outside of the cache, with a note.
        Raises: errors of `make`; in that case also OSError and ShortageError.
        """
        try:
            found = self.find(key, file)
            if found is None:
                with self._making(key):
                    found = self.find(key, file)  # another process may have made it meanwhile
                    if found is None:
                        with self.workspace() as folder:
                            make(folder)
                            self.publish(key, name, folder)
                        found = self.find(key, file)
        except (OSError, ShortageError) as error:
            if not shortage_of(error):
                raise
            note_unwritten(self.root, shortage_of(error))
            return _made_beside(file, make, shortage_of(error))
        return found or _made_beside(file, make, "")

    @contextmanager
    def _making(self, key: str) -> Iterator[None]:
        """One process at a time creates an entry. Others wait, and find it. If the process dies, its lock is free."""
        path = self._folder("programs") / f"making-{_checked(key)}"
        handle = _locked_file(path)
        while not _is_open_file(path, handle):  # its last holder has removed it
            os.close(handle)
            handle = _locked_file(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # the child of a fork may have the file still open
            os.close(handle)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh private folder on the cache's file system, removed afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="building-", dir=self._folder("programs")))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, key: str, name: str, folder: Path) -> None:
        """Make the files of `folder` (from `workspace`) the entry `key`; a sound one that is there already stays."""
        files = sorted(path for path in folder.iterdir() if path.name != _NOTE)
        for path in files:
            path.chmod(0o600)
        note = {
            "name": name,
            "created": time.time(),
            "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        }
        _write_own(folder / _NOTE, json.dumps(note, indent=1).encode())
        folder.chmod(0o700)
        target = self._folder("programs") / _checked(key)
        with self._locked():
            if all(self.find(key, path.name) for path in files):
                return
            _remove(target)
            folder.rename(target)
            self._count(_bytes_below(target))

    # ---- texts ----

    def get_text(self, key: str) -> str | None:
        """The text stored under `key`, or None."""
        path = self._folder("texts") / _checked(key)
        try:
            _record_use(path)
            stored = _read_own(path)
        except (OSError, CacheError):
            return None
        noted, _, body = stored.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != noted:
            return None
        try:
            return body.decode()
        except UnicodeDecodeError:
            return None

    def put_text(self, key: str, text: str) -> None:
        """Store `text` under `key`, replacing an earlier one. If the disk is full, only a note is written."""
        try:
            self._put_text(key, text)
        except OSError as error:
            if not shortage_of(error):
                raise
            note_unwritten(self.root, shortage_of(error))

    def _put_text(self, key: str, text: str) -> None:
        folder = self._folder("texts")
        content = hashlib.sha256(text.encode()).hexdigest().encode() + b"\n" + text.encode()
        handle, path = tempfile.mkstemp(prefix="writing-", dir=folder)  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(path, folder / _checked(key))
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        with self._locked():
            self._count(len(content))

    # ---- housekeeping ----

    def _count(self, written: int) -> None:
        """Add bytes to the sum of the folder, and remove entries if the sum exceeds the limit; the caller has the lock.

        The sum counts a file that replaces another one as a further file, so it is at least the size of the folder.
        """
        limit = cache_bytes()
        if limit == 0:
            return
        path = self.root / "size"
        try:
            total = int(_read_own(path)) + written
        except (OSError, ValueError, CacheError):
            total = limit + 1  # to be counted
        if total > limit:
            total = self._shrink(limit)
        path.unlink(missing_ok=True)
        _write_own(path, str(total).encode())

    def _shrink(self, limit: int) -> int:
        """Remove the least recently used entries if the folder exceeds the limit; returns the bytes that remain."""
        entries, now = [], time.time()
        for part in ("programs", "texts"):
            for path in self._folder(part).iterdir():
                if _KEY.fullmatch(path.name):
                    with suppress(OSError):
                        entries.append((path.lstat().st_mtime, _bytes_of(path), path))
                elif _is_stale(path):
                    _remove(path)
        total = sum(size for _, size, _ in entries)
        if total <= limit:
            return total
        for used, size, path in sorted(entries):
            if total <= _KEPT * limit or now - used < _IN_USE:
                break
            with suppress(OSError):
                if path.lstat().st_mtime == used:  # not used meanwhile
                    _remove(path)
                    total -= size
        return total

    def entries(self) -> list[Entry]:
        """The stored programs, newest first."""
        found = []
        for entry in self._folder("programs").iterdir():
            if not _KEY.fullmatch(entry.name):
                continue
            try:
                note = json.loads(_read_own(entry / _NOTE))
                found.append(Entry(entry.name, str(note["name"]), _bytes_below(entry), float(note["created"])))
            except (OSError, ValueError, KeyError, TypeError, CacheError):
                continue
        return sorted(found, key=lambda entry: (-entry.created, entry.key))

    def size(self) -> int:
        """Bytes that the cache holds."""
        return sum(_bytes_below(self._folder(part)) for part in ("programs", "texts"))

    def clear(self) -> int:
        """Remove everything stored; returns how many programs that were. Programs that are loaded go on running."""
        removed = 0
        with self._locked():
            for part in ("programs", "texts"):
                for path in self._folder(part).iterdir():
                    if _KEY.fullmatch(path.name) or _is_stale(path):
                        removed += part == "programs" and _KEY.fullmatch(path.name) is not None
                        _remove(path)
            (self.root / "size").unlink(missing_ok=True)
        return removed

    # ---- the folders ----

    def _folder(self, part: str) -> Path:
        """The trusted folder `part`, created if missing."""
        try:
            if not os.path.lexists(self.root):
                self.root.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):
                    self.root.mkdir(0o700)
            _check_own(self.root, folder=True)
            folder = self.root / part
            if not os.path.lexists(folder):
                with suppress(FileExistsError):
                    folder.mkdir(0o700)
            _check_own(folder, folder=True, private=True)
        except OSError as error:
            if shortage_of(error):
                raise
            raise CacheError(
                f"the program cache {self.root} cannot be used: {error.strerror or error}",
                hint="set STAGED_CACHE_DIR to a folder that you can write",
            ) from error
        return folder

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time replaces or removes entries. Readers need no lock."""
        self._folder("programs")
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _locked_file(path: Path) -> int:
    """Open and lock a file, once no other process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
            os.close(handle)
            raise
        # This file system has no locks: each process makes the entry, and the first one stays.
    except BaseException:  # Ctrl-C
        os.close(handle)
        raise
    return handle


def _is_open_file(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def note_unwritten(root: Path, why: str) -> None:
    """Say, once for each reason, that programs run without the cache."""
    warnings.warn(
        f"the program cache {root} cannot be written ({why}): programs run without it", UserWarning, stacklevel=2
    )


def _made_beside(file: str, make: Callable[[Path], None], why: str) -> Path:
    """Make `file` in a private folder that is removed when this process ends; `why` is the cache's shortage."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="staged-"))
    except FileNotFoundError:  # Python's word for having tried every folder for temporary files
        raise ShortageError(why) from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make(folder)
    return folder / file


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no cache key (16 to 64 hexadecimal digits)")
    return key


def _check_own(path: Path, *, folder: bool, private: bool = False) -> None:
    """Raise CacheError unless `path` is this user's, no symbolic link, and closed to others (`private`: to readers
    too).
    """
    _check_status(path, os.lstat(path), folder=folder, private=private)


def _check_status(path: Path, status: os.stat_result, *, folder: bool, private: bool = False) -> None:
    wrong = None
    if stat.S_ISLNK(status.st_mode):
        wrong = "is a symbolic link"
    elif folder and not stat.S_ISDIR(status.st_mode):
        wrong = "is not a folder"
    elif not folder and not stat.S_ISREG(status.st_mode):
        wrong = "is not a regular file"
    elif status.st_uid != os.getuid():
        wrong = f"belongs to another user (id {status.st_uid})"
    elif status.st_mode & (0o077 if private else 0o022):
        wrong = f"is open to other users (mode {stat.S_IMODE(status.st_mode):04o})"
    if wrong:
        raise CacheError(
            f"the program cache is not safe to run code from: {path} {wrong}",
            hint=f"look at who made {path}, then remove it, or set STAGED_CACHE_DIR to a folder of your own",
        )


def _read_own(path: Path) -> bytes:
    """The bytes of a file that is ours; checked on the open file, so that it cannot be exchanged in between."""
    # Without O_NONBLOCK, a pipe in place of the file would wait for a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        _check_status(path, os.fstat(file.fileno()), folder=False)
        return file.read()


def _write_own(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)


def _remove(path: Path) -> None:
    """Remove a file, a link (not its target) or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_stale(path: Path) -> bool:
    """Return whether a folder or file in the making was left behind by a process that died, and is not being written
    now.
    """
    try:
        return time.time() - path.lstat().st_mtime > 3600
    except OSError:
        return False


def _record_use(path: Path) -> None:
    """Set the modification time of an entry, from which `Cache` finds the least recently used ones."""
    if time.time() - path.lstat().st_mtime > _USES_APART:
        with suppress(OSError):
            os.utime(path, follow_symlinks=False)


def _bytes_of(path: Path) -> int:
    return _bytes_below(path) if path.is_dir() else path.lstat().st_size


def _bytes_below(folder: Path) -> int:
    total = 0
    for inside, _, files in os.walk(folder):  # which passes over folders that another process removes meanwhile
        for name in files:
            with suppress(OSError):
                status = (Path(inside) / name).lstat()
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write `texts` (name to content) into `folder`."""
    for name, text in texts.items():
        _write_own(folder / name, text.encode())
