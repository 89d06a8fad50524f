"""The table of known code that is not converted: calls without outside effects, and the staged alternative for others.

One row per callable, class or module, by its name: `module.Class.method`, `module.Class.*` or `module.*`, where the
module is the outermost one without the underscore of C accelerators (`_heapq` is `heapq`, `posix` is `os`). The longest
name that fits counts. A call that no row fits is *unknown*: it may run while staging, but not where the program decides
whether or how often.
"""

from __future__ import annotations

HARMLESS = None
"""It changes nothing that outlives the call, and gives the same whenever it runs: once, while staging, is as good as
ever.
"""

_PRINT = 'use `print(...)`, or a file of the program: `with open("run.log", "a") as f: f.write(...)`'
_SAVE = 'save them from the program, `st.save("arrays.safetensors", {"name": x})`; or return them'
_OUTSIDE = "do it in Python, before or after the call of the staged function"
_FILES = 'write text with `with open(path, "w") as f: f.write(...)`; do the rest in Python, before or after the call'
_LEAVE = "raise an exception, `raise RuntimeError(...)`: the caller decides what to do with it"
_RESULT = "return the values, and do it in Python after the call"
_CLOCK = "read the clock with `time.time()` or `time.perf_counter()`, which the program does"
_WAIT = "a program has one thread of Python's: do it in Python, before or after the call"

KNOWN: dict[str, str | None] = {
    # ---- values alone ----
    **dict.fromkeys(
        (
            "abc.* array.* ast.* attr.* attrs.* base64.* binascii.* bisect.* builtins.* calendar.* cmath.* "
            "collections.* "
            "collections_abc.* colorsys.* contextlib.* contextvars.* copy.* copyreg.* dataclasses.* datetime.* "
            "decimal.* "
            "difflib.* einops.* enum.* fractions.* functools.* genericpath.* hashlib.* heapq.* html.* inspect.* "
            "itertools.* "
            "json.* keyword.* linecache.* locale.* math.* ml_dtypes.* numbers.* numpy.* operator.* optree.* "
            "packaging.* "
            "pathlib.* platform.* posixpath.* ntpath.* pprint.* re.* reprlib.* scipy.* sre.* staged.* statistics.* "
            "string.* "
            "struct.* sysconfig.* textwrap.* token.* tokenize.* traceback.* types.* typing.* typing_extensions.* "
            "unicodedata.* weakref.* zlib.* zoneinfo.*"
        ).split(),
        HARMLESS,
    ),
    # ---- logs, warnings and texts ----
    **dict.fromkeys("logging.* loguru.* structlog.*".split(), _PRINT),
    **dict.fromkeys(
        "logging.getLogger logging.getLevelName logging.Logger.isEnabledFor logging.Logger.getChild".split(), HARMLESS
    ),
    "logging.Logger.getEffectiveLevel": HARMLESS,
    **dict.fromkeys("pprint.pprint pprint.pp pprint.PrettyPrinter.pprint".split(), "use `print(...)`"),
    **dict.fromkeys("traceback.print_exc traceback.print_stack traceback.print_exception".split(), _OUTSIDE),
    **dict.fromkeys("io.TextIOWrapper.* io.StringIO.* io.BytesIO.* io.BufferedWriter.* io.FileIO.*".split(), _PRINT),
    **dict.fromkeys("io.TextIOWrapper.flush io.TextIOWrapper.fileno io.TextIOWrapper.isatty".split(), HARMLESS),
    **dict.fromkeys("contextlib.redirect_stdout contextlib.redirect_stderr contextlib.chdir".split(), _OUTSIDE),
    "tqdm.*": "use `st.progress(...)`: the program draws its bar",
    # ---- the process ----
    **dict.fromkeys("sys.exit os._exit os.abort os.kill os.killpg os.execv sitebuiltins.Quitter.*".split(), _LEAVE),
    **dict.fromkeys("os.* signal.* atexit.* subprocess.* gc.collect".split(), _OUTSIDE),
    **dict.fromkeys(
        "os.fspath os.getcwd os.getenv os.cpu_count os.getpid os.listdir os.stat os.path os.fsdecode os.fsencode "
        "os._Environ.get os._Environ.__getitem__ os._Environ.__contains__ os._Environ.copy "
        "os.sched_getaffinity".split(),
        HARMLESS,
    ),
    **dict.fromkeys("sys.setrecursionlimit sys.setprofile sys.settrace sys.addaudithook".split(), _OUTSIDE),
    **dict.fromkeys(
        "sys.getsizeof sys.getrefcount sys.getrecursionlimit sys.exc_info sys.intern sys._getframe".split(), HARMLESS
    ),
    # ---- files ----
    **dict.fromkeys("shutil.* tempfile.* zipfile.* tarfile.* gzip.* bz2.* lzma.* csv.* shelve.* dbm.*".split(), _FILES),
    "json.dump": _FILES,
    **dict.fromkeys("shutil.get_terminal_size shutil.which".split(), HARMLESS),
    **dict.fromkeys(
        (
            "pathlib.Path.write_text pathlib.Path.write_bytes pathlib.Path.mkdir pathlib.Path.rmdir "
            "pathlib.Path.unlink "
            "pathlib.Path.touch pathlib.Path.rename pathlib.Path.replace pathlib.Path.chmod pathlib.Path.symlink_to "
            "pathlib.Path.hardlink_to pathlib.Path.open"
        ).split(),
        _FILES,
    ),
    **dict.fromkeys(
        (
            "numpy.save numpy.savez numpy.savez_compressed numpy.savetxt numpy.memmap numpy.ndarray.tofile "
            "numpy.ndarray.dump pickle.* safetensors.* h5py.* scipy.savemat scipy.save_npz scipy.mmwrite scipy.write"
        ).split(),
        _SAVE,
    ),
    **dict.fromkeys("pickle.loads pickle.dumps safetensors.load_file".split(), HARMLESS),
    **dict.fromkeys("numpy.seterr numpy.set_printoptions numpy.seterrcall numpy.setbufsize".split(), _OUTSIDE),
    # ---- others who listen ----
    **dict.fromkeys(
        "socket.* ssl.* urllib.* http.* requests.* httpx.* smtplib.* ftplib.* sqlite3.* webbrowser.*".split(), _RESULT
    ),
    **dict.fromkeys("matplotlib.* wandb.* mlflow.* tensorboard.* tensorboardX.* comet_ml.* neptune.*".split(), _RESULT),
    **dict.fromkeys("queue.* multiprocessing.* concurrent.* asyncio.* sched.*".split(), _WAIT),
    **dict.fromkeys(
        "threading.Event.* threading.Thread.* threading.Timer.* threading.Barrier.* threading.Condition.* "
        "threading.Semaphore.*".split(),
        _WAIT,
    ),
    **dict.fromkeys("threading.get_ident threading.current_thread threading.local threading.Lock".split(), HARMLESS),
    # ---- the clock and chance ----
    **dict.fromkeys(
        "datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today".split(), _CLOCK
    ),
    **dict.fromkeys("time.ctime time.localtime time.gmtime time.strftime".split(), _CLOCK),
    **dict.fromkeys("uuid.uuid1 uuid.uuid4 secrets.*".split(), "make it in Python and pass it as an argument"),
}
"""The staged way for what has effects; HARMLESS for what has none."""

ONCE: dict[str, str] = {
    "warnings.*": f"warn before the branch or loop; or {_PRINT.removeprefix('use ')}",
}
"""Calls that may run while staging, once, if they are certain to be reached; the hint elsewhere."""

CHANGES_FIRST = frozenset(
    "heapq.heappush heapq.heappop heapq.heapify heapq.heapreplace heapq.heappushpop bisect.insort bisect.insort_left "
    "bisect.insort_right operator.setitem operator.delitem operator.iadd operator.iconcat numpy.copyto numpy.put "
    "numpy.place "
    "numpy.putmask numpy.fill_diagonal numpy.put_along_axis".split()
)
"""Functions that change the container or array that is their first argument."""

CHANGES_ITSELF: dict[str, frozenset[str]] = {
    "containers": frozenset(
        "append appendleft extend extendleft insert remove pop popleft clear sort reverse rotate update setdefault "
        "popitem add "
        "discard subtract move_to_end difference_update intersection_update symmetric_difference_update "
        "__setitem__ __delitem__ __iadd__ __ior__ __iand__ __isub__ __ixor__ frombytes fromlist".split()
    ),
    "arrays": frozenset("fill sort partition put itemset resize setflags setfield byteswap __setitem__".split()),
}
"""The methods with which Python's containers, and NumPy's arrays, change in place."""
