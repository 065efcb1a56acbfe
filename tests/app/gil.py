"""Calls into C that hold the GIL without using the processor, as a computation would."""

from __future__ import annotations

import ctypes

_C = ctypes.PyDLL(None)  # unlike CDLL, it does not release the GIL during a call


def hold_for_ever() -> None:
    """Lock a mutex twice: the second lock never comes, and no signal interrupts the wait for it."""
    mutex = ctypes.create_string_buffer(128)  # more than a pthread_mutex_t anywhere
    _C.pthread_mutex_init(mutex, None)
    _C.pthread_mutex_lock(mutex)
    _C.pthread_mutex_lock(mutex)


def hold(seconds: float) -> None:
    """Sleep without releasing the GIL; less than a second, which is what usleep() takes."""
    _C.usleep(int(seconds * 1e6))
