"""The program cache: what it keeps, and what it refuses to run."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import staged as st
from staged.errors import CacheError, CompilerError, StagedError
from staged.runtime import cache as cache_module
from staged.runtime import compiler
from staged.runtime.c import load
from staged.runtime.cache import Cache, default_cache, digest
from staged.runtime.compiler import compile_shared
from tests.runtime.programs import program, result
from tests.threads import run_at_once

ANSWER = program("answer", (result("x", "i32"),), "*args->x = 42;")
EVIL = program("answer", (result("x", "i32"),), "*args->x = 666;")


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("STAGED_CACHE_DIR", str(folder))
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def count_compiles(monkeypatch) -> list[list[str]]:
    seen: list[list[str]] = []
    run = subprocess.run

    def counting(command, **options):
        if "-shared" in command:
            seen.append(command)
        return run(command, **options)

    monkeypatch.setattr(compiler.subprocess, "run", counting)
    return seen


def test_a_program_is_compiled_once(root, monkeypatch):
    compiles = count_compiles(monkeypatch)
    first = compile_shared(ANSWER)
    assert compile_shared(ANSWER) == first
    assert len(compiles) == 1
    assert load(ANSWER)()[0] == 42


def test_source_flags_and_options_each_make_another_entry(root, monkeypatch):
    paths = {compile_shared(ANSWER), compile_shared(EVIL)}
    paths.add(compile_shared(ANSWER, compiler.CompileOptions(optimise="0")))
    paths.add(compile_shared(ANSWER, compiler.CompileOptions(extra=("-DX=1",))))
    monkeypatch.setenv("STAGED_CFLAGS", "-DX=2 -DY='a b'")
    paths.add(compile_shared(ANSWER))
    assert len(paths) == 5


def test_another_compiler_version_makes_another_entry(root, tmp_path, monkeypatch):
    real = shutil.which("cc")
    script = tmp_path / "mycc"
    found = []
    for version in ("1.0", "2.0"):
        script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo mycc {version} && exit\nexec {real} "$@"\n')
        script.chmod(0o755)
        os.utime(script, (len(found), len(found)))
        monkeypatch.setenv("STAGED_CC", str(script))
        found.append(compile_shared(ANSWER))
    assert found[0] != found[1]


def test_everything_in_the_folder_is_private(root):
    old = os.umask(0)
    try:
        library = compile_shared(ANSWER)
        default_cache().put_text("ab" * 16, "text")
    finally:
        os.umask(old)
    assert mode(root) == mode(root / "programs") == mode(root / "texts") == mode(library.parent) == 0o700
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len(files) >= 5
    assert all(mode(path) == 0o600 for path in files)


# ---- attacks and accidents ----------------------------------------------------------------------


def test_a_planted_library_is_not_run(root):
    library = compile_shared(ANSWER)
    evil = compile_shared(EVIL)
    library.write_bytes(evil.read_bytes())
    assert load(ANSWER)()[0] == 42


def test_a_truncated_library_is_rebuilt(root):
    library = compile_shared(ANSWER)
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    assert load(ANSWER)()[0] == 42
    assert compile_shared(ANSWER).read_bytes()[:64] == whole[:64]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": {}}', '{"files": []}'])
def test_a_damaged_note_is_rebuilt(root, content):
    library = compile_shared(ANSWER)
    (library.parent / "entry.json").write_text(content)
    assert load(ANSWER)()[0] == 42
    assert json.loads((library.parent / "entry.json").read_text())["name"] == "answer"


def test_a_link_in_place_of_the_library_is_not_followed(root, tmp_path):
    library = compile_shared(ANSWER)
    elsewhere = tmp_path / "elsewhere.so"
    shutil.copy(library, elsewhere)  # even with the right content: its owner could exchange it later
    library.unlink()
    library.symlink_to(elsewhere)
    assert not compile_shared(ANSWER).is_symlink()
    assert elsewhere.exists()


def test_a_link_in_place_of_an_entry_is_not_followed(root, tmp_path):
    library = compile_shared(ANSWER)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(library.parent, elsewhere)
    library.parent.symlink_to(elsewhere)
    assert not compile_shared(ANSWER).parent.is_symlink()
    assert (elsewhere / "answer.so").exists()


def test_a_library_that_others_may_write_is_rebuilt(root, monkeypatch):
    library = compile_shared(ANSWER)
    library.chmod(0o666)
    compiles = count_compiles(monkeypatch)
    assert mode(compile_shared(ANSWER)) == 0o600
    assert len(compiles) == 1


def test_a_folder_open_to_others_is_refused(root):
    compile_shared(ANSWER)
    for folder, bad, good in ((root, 0o777, 0o700), (root / "programs", 0o755, 0o700)):
        folder.chmod(bad)
        with pytest.raises(
            CacheError, match=f"open to other users \\(mode {bad:04o}\\)(?s:.*)To fix: .*STAGED_CACHE_DIR"
        ):
            compile_shared(ANSWER)
        folder.chmod(good)
    compile_shared(ANSWER)


def test_a_cache_folder_that_is_a_link_is_refused(root, tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "real")
    with pytest.raises(CacheError, match="is a symbolic link"):
        compile_shared(ANSWER)


def test_a_cache_folder_of_another_user_is_refused(root, monkeypatch):
    compile_shared(ANSWER)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    with pytest.raises(CacheError, match=f"belongs to another user \\(id {mine}\\)"):
        compile_shared(ANSWER)


def test_a_cache_folder_that_cannot_be_made_is_explained(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheError, match="cannot be used(?s:.*)STAGED_CACHE_DIR"):
        compile_shared(ANSWER)


def test_keys_cannot_leave_the_folder(root):
    for key in ("../x", "", "a" * 65, "A" * 32, "abc/def"):
        with pytest.raises(ValueError, match="no cache key"):
            default_cache().put_text(key, "x")
    assert digest("a", "b") != digest("ab") != digest("a,b")


# ---- company ------------------------------------------------------------------------------------


def test_processes_that_start_together_all_get_the_program(root):
    code = (
        "from staged.runtime.c import load\n"
        "from tests.runtime.test_cache import ANSWER\n"
        "print(load(ANSWER)()[0])\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) for _ in range(3)
    ]
    assert [process.communicate()[0] for process in processes] == ["42\n"] * 3
    assert [path.name for path in (root / "programs").iterdir() if path.name.startswith("building")] == []


def test_threads_that_find_a_damaged_entry_together_all_get_the_program(root):
    library = compile_shared(ANSWER)
    answers: list[int] = []
    for _ in range(3):
        library.write_bytes(b"broken")
        run_at_once([lambda: answers.append(int(load(ANSWER)()[0]))] * 4)
    assert answers == [42] * 12


# ---- texts, lists, clearing ---------------------------------------------------------------------


def test_texts_are_kept_and_checked(root):
    cache = Cache(root)
    key = digest("some", "key")
    assert cache.get_text(key) is None
    cache.put_text(key, "première\nline\n")
    assert cache.get_text(key) == "première\nline\n"
    cache.put_text(key, "other")
    assert cache.get_text(key) == "other"
    path = root / "texts" / key
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get_text(key) is None
    cache._put_text(key, "x")
    path.write_bytes(path.read_bytes()[:64] + b"\n\xff")
    assert cache.get_text(key) is None
    path.write_bytes(hashlib.sha256(b"\xff").hexdigest().encode() + b"\n\xff")
    assert cache.get_text(key) is None, "a right digest of what is not UTF-8"


def test_a_pipe_in_place_of_an_entry_is_a_miss(root):
    cache = Cache(root)
    cache.put_text("ab" * 16, "text")
    for path in (root / "texts" / ("ab" * 16), compile_shared(ANSWER), compile_shared(ANSWER).parent / "entry.json"):
        path.unlink()
        os.mkfifo(path, 0o600)
    assert cache.get_text("ab" * 16) is None
    assert load(ANSWER)()[0] == 42


@pytest.mark.parametrize("content", ["", "[]", "{}", "7", "[" * 9999, '{"sites": [], "places": [], "parameters": [], "link": 3}'])
def test_a_stored_text_of_another_content_is_a_miss(root, content):
    @st.function(target="portable")
    def f(x):
        return x + 1.0

    x = np.ones(3, np.float32)
    f(x)
    (path,) = (root / "texts").iterdir()
    found = path.read_bytes()
    Cache(root).put_text(path.name, content)
    again = st.function(target="portable")(f.__wrapped__)
    np.testing.assert_array_equal(np.asarray(again(x)), x + 1)
    assert path.read_bytes() == found


def test_listing_and_clearing(root):
    cache = default_cache()
    assert cache.entries() == [] and cache.size() == 0
    before = time.time()
    library = compile_shared(ANSWER)
    cache.put_text("ab" * 16, "text")
    (entry,) = cache.entries()
    assert entry.name == "answer" and entry.key == library.parent.name
    assert before - 1 <= entry.created <= time.time() + 1
    assert library.stat().st_size < entry.size <= cache.size()
    answer = load(ANSWER)
    assert cache.clear() == 1
    assert cache.entries() == [] and cache.size() == 0
    assert answer()[0] == 42  # what is loaded goes on
    assert load(ANSWER)()[0] == 42


def put_texts(keys: str, ago: float = 3600.0) -> None:
    """Texts of 1,000 bytes, stored and used some seconds ago, the first one first."""
    for number, key in enumerate(keys):
        default_cache().put_text(key * 16, "x" * 935)
        used = time.time() - ago + number
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            os.utime(default_cache().root / "texts" / (key * 16), (used, used))


def texts() -> str:
    return "".join(sorted(path.name[0] for path in (default_cache().root / "texts").iterdir()))


def test_the_least_recently_used_entries_leave_a_full_cache(root, monkeypatch):
    monkeypatch.setenv("STAGED_CACHE_SIZE", "10KB")
    put_texts("0123456789")
    assert texts() == "0123456789"
    assert default_cache().get_text("0" * 16) is not None  # a use
    put_texts("a")
    assert texts() == "03456789a"
    monkeypatch.setenv("STAGED_CACHE_SIZE", "0")
    put_texts("bcdef")
    assert texts() == "03456789abcdef"
    monkeypatch.setenv("STAGED_CACHE_SIZE", "1 KiB")
    answer = load(ANSWER)  # whose entry is larger than the limit
    assert texts() == "0" and answer()[0] == 42 and load(ANSWER)()[0] == 42


def test_only_a_write_beyond_the_limit_counts_the_files(root, monkeypatch):
    monkeypatch.setenv("STAGED_CACHE_SIZE", "4000")
    counted = []
    shrink = Cache._shrink
    monkeypatch.setattr(Cache, "_shrink", lambda cache, limit: counted.append(limit) or shrink(cache, limit))
    put_texts("01")
    assert counted == [4000]  # the first write, without a sum
    default_cache().get_text("0" * 16)
    put_texts("11")  # the sum is 4,000 now, the files have 2,000 bytes
    assert counted == [4000]
    put_texts("2")
    assert counted == [4000] * 2 and texts() == "012"
    (root / "size").write_text("many")
    put_texts("3")
    assert counted == [4000] * 3 and (root / "size").read_text() == "4000"


def test_processes_that_fill_a_cache_together_keep_its_limit(root, monkeypatch):
    monkeypatch.setenv("STAGED_CACHE_SIZE", "10KB")
    put_texts("0")
    code = "from tests.runtime.test_cache import put_texts\nfor _ in range(30): put_texts('123456')"
    other = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    while other.poll() is None:
        put_texts("6789abcdef")
    assert other.returncode == 0
    monkeypatch.setattr(cache_module, "_IN_USE", 0.0)
    put_texts("0" * 11)
    assert 0 < default_cache().size() <= 10_000


def test_a_limit_that_is_not_a_size_is_explained(root, monkeypatch):
    monkeypatch.setenv("STAGED_CACHE_SIZE", "5 gigs")
    with pytest.raises(StagedError, match="STAGED_CACHE_SIZE is not a size: '5 gigs'(?s:.*)512MiB or 4GB"):
        load(ANSWER)


def test_a_hit_is_fast(root):
    compile_shared(ANSWER)
    times = []
    for _ in range(5):
        start = time.process_time()  # other work on the machine does not count
        compile_shared(ANSWER)
        times.append(time.process_time() - start)
    assert min(times) < 0.005


# ---- a machine that is short of something -------------------------------------------------------


def fails_below(monkeypatch, root, name, number):
    """`cache.NAME` fails as the system would, for what lies in the cache."""
    real = getattr(cache_module, name)

    def failing(path, *rest):
        if Path(path).is_relative_to(root):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *rest)

    monkeypatch.setattr(cache_module, name, failing)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE], ids=["full disk", "quota", "no open files"])
def test_a_program_runs_without_a_cache_that_cannot_be_written(root, monkeypatch, number):
    fails_below(monkeypatch, root, "_write_own", number)
    with pytest.warns(UserWarning, match=f"cannot be written \\({os.strerror(number)}\\): programs run without it"):
        assert load(ANSWER)()[0] == 42
    assert default_cache().entries() == []


def test_a_text_that_the_cache_has_no_room_for_is_a_note(root, monkeypatch):
    def full(**options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache_module.tempfile, "mkstemp", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        default_cache().put_text("0" * 16, "text")
    assert default_cache().get_text("0" * 16) is None


def test_a_cache_that_others_may_write_is_still_refused(root, monkeypatch):
    fails_below(monkeypatch, root, "_write_own", errno.EACCES)
    with pytest.raises(CompilerError, match="Permission denied"):
        load(ANSWER)


def compiler_that_says(tmp_path, monkeypatch, words, where="*"):
    """A compiler which fails with these words in folders that match."""
    script = tmp_path / "mycc"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo mycc 1 && exit\ncase "$PWD" in {where}) echo "{words}" >&2; exit 1;; esac\n'
        f'exec {shutil.which("cc")} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("STAGED_CC", str(script))


FULL = "cc1: fatal error: error writing to /tmp/cc1.s: No space left on device"


def test_a_disk_that_is_too_full_for_the_compiler_is_avoided(root, tmp_path, monkeypatch):
    compiler_that_says(tmp_path, monkeypatch, FULL, where=f"{root}/*")
    with pytest.warns(UserWarning, match="No space left on device"):
        assert load(ANSWER)()[0] == 42


ENDED = "collect2: fatal error: ld terminated with signal 9 [Killed]"
TOO_LARGE = "collect2: fatal error: ld terminated with signal 25 [File size limit exceeded]"


@pytest.mark.parametrize(
    "words", [FULL, "as: BFD: Too many open files", "cc1: out of memory allocating 65536 bytes", ENDED, TOO_LARGE]
)
def test_what_the_machine_is_short_of_is_no_bug_of_ours(root, tmp_path, monkeypatch, words):
    compiler_that_says(tmp_path, monkeypatch, words)
    with pytest.warns(UserWarning), pytest.raises(CompilerError) as caught:
        load(ANSWER)
    assert "could not be compiled on this machine now" in str(caught.value) and "bug in staged" not in str(caught.value)


def test_a_process_without_open_files_left_says_so(root):
    code = (
        "import os, resource, warnings\nfrom tests.runtime.test_cache import ANSWER\nfrom staged.runtime.c import load\n"
        "warnings.simplefilter('ignore')\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "held = []\ntry:\n    while True: held.append(os.open('/dev/null', os.O_RDONLY))\nexcept OSError: pass\n"
        "try:\n    load(ANSWER)\nexcept Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("CompilerError") and "Too many open files" in done.stdout, done
    assert "bug in staged" not in done.stdout
