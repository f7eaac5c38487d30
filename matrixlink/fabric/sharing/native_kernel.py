"""The kernel in C, if this machine has a C compiler. It is optional: without it arrays give the same results.

`kernel()` compiles `kernel.c` once per version of its text into the user's cache and loads it; CLOUDMATRIX_KERNEL=off
disables it. It returns None if there is none, for whatever reason.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from matrixcommon.native.loader import cache_folder, find_compiler, is_disabled

SOURCE = Path(__file__).with_name("kernel.c")
OPTIONS = ("-O3", "-shared", "-fPIC")
DEADLINE_S = 60

_f64 = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
_i64 = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
_i32 = np.ctypeslib.ndpointer(np.int32, flags="C_CONTIGUOUS")
_fabric, _int, _double, _pointer = ctypes.c_void_p, ctypes.c_int32, ctypes.c_double, ctypes.c_void_p

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "fabric_new": (_fabric, [_int, _int, _int, _f64]),
    "fabric_free": (None, [_fabric]),
    "fabric_fill_all": (None, [_fabric, _i64, _i32, _f64, _f64, _f64]),
    "fabric_add": (_int, [_fabric, _int, _pointer, _int, _double, _double, _double]),
    "fabric_remove": (_int, [_fabric, _int]),
    "fabric_set_capacity": (_int, [_fabric, _int, _double]),
    "fabric_shares": (ctypes.POINTER(ctypes.c_double), [_fabric]),
    "fabric_set_of": (ctypes.POINTER(ctypes.c_int32), [_fabric]),
    "fabric_run": (ctypes.c_int64, [_fabric, _i64, _i32, _f64, _f64, _f64, _f64, _f64, _i32, _double, _f64]),
}


@functools.cache
def load_kernel() -> Any:
    """The loaded library, or None."""
    if is_disabled():
        return None
    try:
        library = ctypes.CDLL(str(_built_library()))
    except (OSError, subprocess.SubprocessError):
        return None
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _built_library() -> Path:
    """The path of the library, which is compiled if needed. Raises OSError without a compiler or a writable place."""
    version = hashlib.sha256(SOURCE.read_bytes() + " ".join(OPTIONS).encode()).hexdigest()[:16]
    target = cache_folder() / f"fabric-{version}.so"
    if not target.exists():
        with_what = find_compiler()
        if with_what is None:
            raise FileNotFoundError("no C compiler")
        cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            made = Path(folder) / "fabric.so"
            command = [with_what, *OPTIONS, "-o", str(made), str(SOURCE), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
            made.replace(target)  # atomic, so that another process never loads half a library
    return target
