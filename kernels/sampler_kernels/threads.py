"""How many threads the CPU backend's passes run on: one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs torch on the calling thread alone; also a decorator.

    A pass over one row takes microseconds. Sharing it saves little (a tenth of a step on two idle cores), costs a
    barrier each time, which on a host of many cores takes longer than the pass, and which waits for the scheduler when
    the cores are busy with anything else: then a step of milliseconds took seconds. Bits that do not depend on the
    number of threads come with it.

    Threads that use torch already keep their own setting; one whose very first use falls into the context starts with
    one thread.
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
