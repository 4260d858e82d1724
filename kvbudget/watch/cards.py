"""The cards of this machine, read through gpu.nvml; a card that is lost yields an error reading."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.watch.samples import GpuReading, ProcessReading

if TYPE_CHECKING:
    from kvbudget.gpu.nvml import GpuSnapshot


class Cards:
    """The wanted cards (index or UUID; none named is all). Raises InputError without a driver."""

    def __init__(self, wanted: tuple[str, ...]) -> None:
        from kvbudget.gpu.nvml import NoLibrary, open_nvml

        self._stack = ExitStack()
        try:
            self._nvml = self._stack.enter_context(open_nvml())
        except NoLibrary as error:
            hint = "run where the GPU is; --url watches a server alone, --replay needs neither"
            raise NoLibrary(error.what, hint) from error
        ids: list[int | str] = [int(name) if name.isdigit() else name for name in wanted]
        self._wanted = ids or list(range(self._nvml.count()))
        if not self._wanted:
            self.close()
            raise InputError("the driver lists no GPU", "watch a server with --url instead")
        if ids:
            for device in ids:  # a name that does not exist is a mistake, not a lost card
                self._nvml.snapshot(device)

    def read(self) -> tuple[GpuReading, ...]:
        return tuple(self._read(device) for device in self._wanted)

    def close(self) -> None:
        self._stack.close()

    def _read(self, device: int | str) -> GpuReading:
        try:
            return _reading(self._nvml.snapshot(device))
        except InputError as error:
            index = device if isinstance(device, int) else -1
            uuid = device if isinstance(device, str) else None
            return GpuReading(index, uuid=uuid, error=str(error))


def _reading(card: GpuSnapshot) -> GpuReading:
    processes = None
    if card.processes is not None:
        processes = tuple(ProcessReading(p.pid, p.used) for p in card.processes)
    error = None if card.free is not None else "memory is not reported for this device"
    return GpuReading(
        card.index,
        card.uuid,
        card.name,
        card.total,
        card.used,
        card.free,
        card.reserved,
        processes,
        error,
    )
