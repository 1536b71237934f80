"""Stop signals: Ctrl-C and SIGTERM end a run after the current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Event that Ctrl-C and SIGTERM set inside the block, so that the current step can finish.

    A second signal has its default effect; signals with a custom handler are left alone.
    """
    stopped = threading.Event()
    usual: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    if threading.current_thread() is not threading.main_thread():
        usual = {}
    usual = {number: do for number, do in usual.items() if signal.getsignal(number) == do}

    def restore() -> None:
        for number, do in usual.items():
            signal.signal(number, do)

    def stop(*_: object) -> None:
        stopped.set()
        restore()

    for number in usual:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        restore()
