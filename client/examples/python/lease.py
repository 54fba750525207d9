"""The time until which exclusive tasks may run, and who sees to it: the kernel.

CLOCK_BOOTTIME, since a lease runs on while a machine is suspended. A thread of Python could be held up by any handler that
keeps the interpreter's lock; a POSIX timer with SIGKILL can't.
"""
import ctypes
import signal
import struct
import time

_TIMER_ABSTIME = 1
_libc = ctypes.CDLL(None, use_errno=True)


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Deadline:
    """Ends this process at a time of now()."""

    def __init__(self):
        event = struct.pack('qii48x', 0, signal.SIGKILL, 0)  # struct sigevent with SIGEV_SIGNAL
        self._timer = ctypes.c_void_p()
        if _libc.timer_create(time.CLOCK_BOOTTIME, event, ctypes.byref(self._timer)):
            raise OSError(ctypes.get_errno(), 'timer_create')

    def set(self, when):
        """None: never."""
        whole = int(when or 0)
        value = struct.pack('qqqq', 0, 0, whole, max(1, int((when - whole) * 1e9)) if when else 0)  # struct itimerspec
        if _libc.timer_settime(self._timer, _TIMER_ABSTIME, value, None):
            raise OSError(ctypes.get_errno(), 'timer_settime')
