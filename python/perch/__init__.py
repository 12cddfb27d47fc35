"""Regions of a program's own code, counted by perch.

    import perch

    perch.init(events=["instructions,cycles"])
    with perch.region("solve"):
        ...
    print(perch.values("solve"))

Each thread counts itself. Run the program under ``perch stat`` to see its regions there. The package needs the shared
library libperch.so.0, which a wheel has in it; the variable PERCH_LIBRARY names another file. docs/regions.md describes
events and reports.
"""

import contextlib
import ctypes
import json as _json
import os
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from glob import glob

__all__ = [
    "Error", "count_names", "finish", "init", "init_if_asked", "is_on", "next_set", "read", "region", "report", "reset",
    "start", "stop", "values", "write_report",
]

_OK, _OFF, _ON = 0, -1, -2
_SCOPES = {"thread": 0, "process": 1}
_SPACES = {"all": 0, "user": 1, "kernel": 2}
_QUALITIES = ("exact", "scaled", "doubtful", "missing")


class Error(Exception):
    """What perch cannot do, and why."""


class _Options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("events", POINTER(c_char_p)),
        ("metrics", POINTER(c_char_p)),
        ("virtuals", POINTER(c_char_p)),
        ("report", c_char_p),
        ("interval_ms", c_uint32),
        ("space", c_int),
    ]


class _Values(Structure):
    _fields_ = [
        ("calls", c_uint64),
        ("threads", c_uint32),
        ("open", c_uint32),
        ("wall_s", c_double),
        ("cpu_s", c_double),
        ("counted_s", c_double),
    ]


class _Count(Structure):
    _fields_ = [("value", c_double), ("counted", c_double), ("share", c_double), ("quality", c_int)]


def _load():
    # A wheel brings the library with it.
    bundled = sorted(glob(os.path.join(os.path.dirname(__file__), "_native", "*.so")))
    name = os.environ.get("PERCH_LIBRARY") or (bundled or ["libperch.so.0"])[0]
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(f"{name}: {error}; install perch, or set PERCH_LIBRARY to its libperch.so") from error
    signatures = {
        "perch_init": (c_int, [POINTER(_Options)]),
        "perch_init_if_asked": (c_int, [POINTER(_Options)]),
        "perch_is_on": (c_int, []),
        "perch_start": (c_int, [c_char_p]),
        "perch_stop": (c_int, [c_char_p]),
        "perch_read": (c_int, [c_char_p]),
        "perch_reset": (c_int, [c_char_p]),
        "perch_next_set": (c_int, []),
        "perch_report": (c_int, [c_char_p]),
        "perch_finish": (c_int, []),
        "perch_get": (c_int, [c_char_p, c_int, POINTER(_Values)]),
        "perch_get_count": (c_int, [c_char_p, c_int, c_char_p, POINTER(_Count)]),
        "perch_get_metric": (c_int, [c_char_p, c_int, c_char_p, POINTER(c_double)]),
        "perch_event_count": (c_size_t, []),
        "perch_event_name": (c_size_t, [c_size_t, c_char_p, c_size_t]),
        "perch_json": (c_void_p, []),
        "perch_free": (None, [c_void_p]),
        "perch_error": (c_char_p, []),
    }
    for function, (result, arguments) in signatures.items():
        found = getattr(library, function)
        found.restype, found.argtypes = result, arguments
    return library


_library = _load()
# Metrics that are defined here, to be asked for by name.
_metrics = []


def _check(status):
    if status < 0:
        words = _library.perch_error().decode()
        raise Error(words if status != _OFF else "nothing is counted: call perch.init first")
    return status


def _list(texts):
    texts = [text.encode() for text in texts]
    return (c_char_p * (len(texts) + 1))(*texts, None)


def _options(events, metrics, virtuals, report, interval_ms, space):
    return _Options(
        ctypes.sizeof(_Options), _list(events), _list(metrics), _list(virtuals),
        report.encode() if report else None, interval_ms, _SPACES[space],
    )


def init(events=(), metrics=(), virtuals=(), report=None, interval_ms=0, space="all"):
    """Counts from now on, in regions of all threads. What the environment says goes before the arguments.

    events: event sets, as for ``perch stat -e``, a string each; none: the standard events.
    metrics: ``NAME=FORMULA``, or names of the profile's; virtuals: ``run_delay``, ``context_switches``, ...
    report: at exit, ``stderr`` or a file (JSON if it ends in .json). interval_ms: sample regions at this interval.
    space: ``all``, ``user`` or ``kernel``.
    """
    asked = _options(events, metrics, virtuals, report, interval_ms, space)
    _check(_library.perch_init(byref(asked)))
    _metrics[:] = [text.split("=")[0].split("[")[0] for text in metrics] + list(virtuals)


def init_if_asked():
    """Counts from now on if the environment asks for it; returns whether it does."""
    return _check(_library.perch_init_if_asked(None)) == 1


def is_on():
    """Whether regions are counted."""
    return _library.perch_is_on() == 1


def start(name):
    """Starts a region of this thread. Does nothing if nothing is counted."""
    status = _library.perch_start(name.encode())
    if status != _OFF:
        _check(status)


def stop(name):
    """Stops the innermost region of this name of this thread. Does nothing if nothing is counted."""
    status = _library.perch_stop(name.encode())
    if status != _OFF:
        _check(status)


@contextlib.contextmanager
def region(name):
    """A region: for ``with``, or as a decorator of a function. What cannot be counted is not, and the report says so."""
    started = _library.perch_start(name.encode()) == _OK
    try:
        yield
    finally:
        if started:
            _library.perch_stop(name.encode())


def read(name):
    """Ends a sample of a region of this thread here."""
    _check(_library.perch_read(name.encode()))


def next_set():
    """Switches this thread to the next event set."""
    _check(_library.perch_next_set())


def reset(name):
    """Forgets what this thread has counted in a region, and in those in it."""
    _check(_library.perch_reset(name.encode()))


def count_names():
    """The names of the events that are asked for."""
    names = []
    for event in range(_library.perch_event_count()):
        room = ctypes.create_string_buffer(256)
        _library.perch_event_name(event, room, len(room))
        names.append(room.value.decode(errors="replace"))
    return names


def values(name, scope="process"):
    """What was counted in a region, by this ``thread`` or by the ``process``, as a dictionary.

    Counts are dictionaries with value (None if doubtful or missing), counted, share and quality.
    """
    region, scope = name.encode(), _SCOPES[scope]
    found = _Values()
    _check(_library.perch_get(region, scope, byref(found)))
    answer = {field: getattr(found, field) for field, _ in _Values._fields_}
    answer["counts"], answer["metrics"] = {}, {}
    for event in count_names():
        count = _Count()
        _check(_library.perch_get_count(region, scope, event.encode(), byref(count)))
        quality = _QUALITIES[count.quality]
        answer["counts"][event] = {
            "value": count.value if quality in ("exact", "scaled") else None,
            "counted": count.counted, "share": count.share, "quality": quality,
        }
    for metric in _metrics:
        number = c_double()
        if _library.perch_get_metric(region, scope, metric.encode(), byref(number)) == _OK:
            answer["metrics"][metric] = number.value
    return answer


def report():
    """All regions of all threads, with samples, as a dictionary (docs/regions.md)."""
    text = _library.perch_json()
    if not text:
        raise Error("nothing is counted: call perch.init first")
    try:
        return _json.loads(ctypes.string_at(text))
    finally:
        _library.perch_free(text)


def write_report(destination):
    """Writes a report now: to ``stderr``, or to a file, as JSON if its name ends in .json."""
    _check(_library.perch_report(os.fspath(destination).encode()))


def finish():
    """Ends counting and writes the report, as the end of the program does."""
    _check(_library.perch_finish())
