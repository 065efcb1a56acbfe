"""Calls into C that hold the GIL without using the processor, as a computation would."""

from __future__ import annotations

import ctypes

_C = ctypes.PyDLL(None)  # unlike CDLL, it does not release the GIL during a call


def hold_for_ever() -> None:
    """Lock a mutex twice. The second call waits forever, and no signal interrupts it."""
    mutex = ctypes.create_string_buffer(128)  # larger than a pthread_mutex_t on any system
    _C.pthread_mutex_init(mutex, None)
    _C.pthread_mutex_lock(mutex)
    _C.pthread_mutex_lock(mutex)


def hold(seconds: float) -> None:
    """Sleep without releasing the GIL, for less than a second, because usleep() accepts no more."""
    _C.usleep(int(seconds * 1e6))


def hold_seconds(seconds: int) -> None:
    """Sleep without releasing the GIL, for whole seconds."""
    _C.sleep(seconds)
