"""What was measured, call by call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Sample(NamedTuple):
    """One answered call; times in microseconds.

    Attributes:
        latency_us: From the intended start, which in a closed loop is the start, to the answer read.
        late_us: From the intended start to the start.
        tokens: Emitted.
        failed: Requests of the step whose status is not OK.
        queue_us, upload_us, device_us, download_us, server_us: What the server says; NaN from the echo.
    """

    latency_us: float
    late_us: float
    tokens: int
    failed: int
    queue_us: float
    upload_us: float
    device_us: float
    download_us: float
    server_us: float


_FIELDS: Final = Sample._fields


@dataclass(frozen=True, eq=False)
class Phase:
    """One turn of the service or of the echo.

    Attributes:
        table: [n, fields of Sample] float64, every answered call.
        codes: gRPC's status of every call, by name, and how many had it.
        seconds: From the first start to the last end.
        errors: The first message for each code other than OK.
    """

    table: NDArray[np.float64]
    codes: Counter[str]
    seconds: float
    errors: dict[str, str]

    @staticmethod
    def of(samples: Iterable[Sample], codes: Counter[str], seconds: float, errors: dict[str, str]) -> Phase:
        """A phase of the samples of all its callers."""
        table = np.array(list(samples), dtype=np.float64).reshape(-1, len(_FIELDS))
        return Phase(table, codes, seconds, errors)

    @staticmethod
    def joined(phases: Sequence[Phase]) -> Phase:
        """Several turns as one."""
        errors: dict[str, str] = {}
        for phase in phases:
            errors = phase.errors | errors
        return Phase(
            np.concatenate([phase.table for phase in phases]),
            sum((phase.codes for phase in phases), Counter()),
            sum(phase.seconds for phase in phases),
            errors,
        )

    def __len__(self) -> int:
        return len(self.table)

    def column(self, field: str) -> NDArray[np.float64]:
        """[n] one field of all samples."""
        return self.table[:, _FIELDS.index(field)]

    @property
    def service_us(self) -> NDArray[np.float64]:
        """[n] what the service adds to the step: from the start to the answer read, less the time on the device.

        The echo has no device, and its latency is all of it.
        """
        spent = self.column("latency_us") - self.column("late_us")
        return np.asarray(spent - np.nan_to_num(self.column("device_us")))
