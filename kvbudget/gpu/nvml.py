"""The only importer of pynvml: devices, memory, neighbours. Bytes; unknown is None, never 0."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class NoLibrary(InputError):
    """There is no NVIDIA management library on this machine (no driver)."""


class NoDevice(InputError):
    """The library works, but the device asked for is not there."""


class NvmlFailed(InputError):
    """The library answered with an error; `code` is NVML's name for it."""

    def __init__(self, what: str, code: str, hint: str | None = None) -> None:
        super().__init__(what, hint)
        self.code = code


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with memory on the card. `used` is None where the driver does not say (WSL)."""

    pid: int
    used: int | None


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """One reading of one device, in bytes.

    memory_api: `v2` (used excludes what the driver reserves), `v1` (used includes it and
    `reserved` is None), or None where memory is not supported at all (unified memory).
    processes: None where the list cannot be read; other_used: memory in use by anybody.
    """

    index: int
    uuid: str | None
    name: str | None
    driver: str | None
    total: int | None
    free: int | None
    used: int | None
    reserved: int | None
    memory_api: str | None
    processes: tuple[GpuProcess, ...] | None
    mig: bool | None
    ecc: bool | None
    integrated: bool
    notes: tuple[str, ...] = field(default_factory=tuple)


def _load() -> Any:  # noqa: ANN401 - a module
    try:
        import pynvml
    except ImportError as exc:
        raise NoLibrary("nvidia-ml-py is not installed", "pip install nvidia-ml-py") from exc
    return pynvml


def _text(value: Any) -> str:  # noqa: ANN401 - bytes in old releases, text in new ones
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class Nvml:
    """An open library. Use `with open_nvml() as nvml`."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - the pynvml module
        self._nv = module

    def count(self) -> int:
        """Physical devices. Raises NvmlFailed."""
        return int(self._call("count devices", self._nv.nvmlDeviceGetCount))

    def snapshot(self, device: int | str = 0) -> GpuSnapshot:
        """Read one device by index or UUID (`GPU-...`, `MIG-...`).

        Raises NoDevice when it is not there, NvmlFailed when it fell off the bus.
        """
        handle = self._handle(device)
        notes: list[str] = []
        total, free, used, reserved, api = self._memory(handle, notes)
        uuid = self._maybe(lambda: _text(self._nv.nvmlDeviceGetUUID(handle)))
        is_slice = (uuid or "").startswith("MIG-")
        mig = is_slice or self._mig(handle)  # a slice itself has no mode to ask for
        integrated = api is None or (total is not None and total == 0)
        if integrated:
            notes.append("memory is shared with the host; the card has no figure of its own")
            total = free = used = reserved = None
        if mig and not is_slice:
            notes.append("the card is cut into MIG slices; these figures are of the whole card")
        return GpuSnapshot(
            index=self._maybe(lambda: int(self._nv.nvmlDeviceGetIndex(handle)), -1),
            uuid=uuid,
            name=self._maybe(lambda: _text(self._nv.nvmlDeviceGetName(handle))),
            driver=self._maybe(lambda: _text(self._nv.nvmlSystemGetDriverVersion())),
            total=total, free=free, used=used, reserved=reserved, memory_api=api,
            processes=self._processes(handle, notes), mig=mig,
            ecc=self._maybe(lambda: bool(self._nv.nvmlDeviceGetEccMode(handle)[0])),
            integrated=integrated, notes=tuple(notes),
        )  # fmt: skip

    def used(self, device: int | str) -> int | None:
        """Bytes in use on a device; None where the driver has no figure."""
        return self._memory(self._handle(device), [])[2]

    def mig_slices(self, device: int | str) -> list[str]:
        """UUIDs of the MIG slices of a card; empty without MIG."""
        handle = self._handle(device)
        limit = self._maybe(lambda: int(self._nv.nvmlDeviceGetMaxMigDeviceCount(handle)), 0)
        found = []
        for index in range(limit or 0):
            get = partial(self._nv.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            slice_ = self._maybe(get)
            if slice_ is not None:
                uuid = self._maybe(partial(self._nv.nvmlDeviceGetUUID, slice_))
                if uuid:
                    found.append(_text(uuid))
        return found

    def visible(self, setting: str | None = None) -> list[int | str]:
        """Devices a CUDA program may use, in its order: card numbers, and MIG slices by UUID.

        setting: CUDA_VISIBLE_DEVICES (None: all). Numbers count cards in the bus's order; a name
        may be cut short. As in CUDA, the first entry that names nothing ends the list.
        """
        cards = list(range(self.count()))
        if setting is None:
            return [device for card in cards for device in self._parts(card)]
        uuids: dict[str, int | str] = {}
        for card in cards:
            uuids[self.snapshot(card).uuid or ""] = card
            uuids |= {name: name for name in self.mig_slices(card)}
        found: list[int | str] = []
        for entry in (part.strip() for part in setting.split(",")):
            named = [device for uuid, device in uuids.items() if entry and uuid.startswith(entry)]
            if entry.isdigit() and int(entry) in cards:
                found += self._parts(int(entry))
            elif len(named) == 1 and not entry.isdigit():
                found += self._parts(named[0]) if isinstance(named[0], int) else named
            else:
                break
        return found

    def _parts(self, card: int) -> list[int | str]:
        """A card, or its slices where it is cut. Raises NoDevice for one cut into none."""
        if not self._mig(self._handle(card)):
            return [card]
        slices = self.mig_slices(card)
        if not slices:
            raise NoDevice(
                f"device {card} is in MIG mode without a slice",
                "create one (nvidia-smi mig -cgi ... -C) or switch MIG off",
            )
        return list(slices)

    def _handle(self, device: int | str) -> Any:  # noqa: ANN401 - NVML's handle
        if isinstance(device, str):
            return self._call(
                f"find device {device}", lambda: self._nv.nvmlDeviceGetHandleByUUID(device)
            )
        if self.count() == 0:
            raise NoDevice("no NVIDIA device is visible", "is one passed through to this machine?")
        return self._call(
            f"open device {device}", lambda: self._nv.nvmlDeviceGetHandleByIndex(device)
        )

    def _memory(
        self,
        handle: Any,  # noqa: ANN401 - NVML's handle
        notes: list[str],
    ) -> tuple[int | None, int | None, int | None, int | None, str | None]:
        nv = self._nv
        try:
            info = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
            return int(info.total), int(info.free), int(info.used), int(info.reserved), "v2"
        except (nv.NVMLError, AttributeError, TypeError) as exc:
            if isinstance(exc, nv.NVMLError) and not self._absent(exc):
                raise self._failed("read memory", exc) from exc
        try:
            info = nv.nvmlDeviceGetMemoryInfo(handle)
        except nv.NVMLError as exc:
            if not self._absent(exc):
                raise self._failed("read memory", exc) from exc
            return None, None, None, None, None
        notes.append("the driver only has the old memory call: used includes the driver's reserve")
        return int(info.total), int(info.free), int(info.used), None, "v1"

    def _processes(self, handle: Any, notes: list[str]) -> tuple[GpuProcess, ...] | None:  # noqa: ANN401
        try:
            rows = self._nv.nvmlDeviceGetComputeRunningProcesses(handle)
        except self._nv.NVMLError as exc:
            notes.append(f"the process list cannot be read ({exc})")
            return None
        unknown = (1 << 64) - 1
        found = []
        for row in rows:
            used = getattr(row, "usedGpuMemory", None)
            found.append(GpuProcess(int(row.pid), None if used in (None, unknown) else int(used)))
        if any(p.used is None for p in found):
            notes.append("the driver does not say what each process uses")
        return tuple(found)

    def _mig(self, handle: Any) -> bool | None:  # noqa: ANN401
        try:
            return bool(self._nv.nvmlDeviceGetMigMode(handle)[0])
        except self._nv.NVMLError as exc:
            return False if self._absent(exc) else None

    def _absent(self, exc: Any) -> bool:  # noqa: ANN401
        nv = self._nv
        return getattr(exc, "value", None) in (
            nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_FUNCTION_NOT_FOUND,
            nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        )  # fmt: skip

    def _maybe(self, call: Callable[[], Any], fallback: Any = None) -> Any:  # noqa: ANN401
        try:
            return call()
        except self._nv.NVMLError:
            return fallback

    def _call(self, what: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        nv = self._nv
        try:
            return call()
        except nv.NVMLError as exc:
            if getattr(exc, "value", None) in (
                nv.NVML_ERROR_NOT_FOUND,
                nv.NVML_ERROR_INVALID_ARGUMENT,
            ):
                raise NoDevice(f"cannot {what}: it is not there", "see nvidia-smi -L") from exc
            raise self._failed(what, exc) from exc

    def _failed(self, what: str, exc: Any) -> NvmlFailed:  # noqa: ANN401
        return NvmlFailed(
            f"the NVIDIA driver could not {what}: {exc}", type(exc).__name__,
            "nvidia-smi should show the same; the kernel log may say why",
        )  # fmt: skip


@contextlib.contextmanager
def open_nvml() -> Iterator[Nvml]:
    """The library, initialised and shut down again.

    Raises NoLibrary without a driver, NvmlFailed when the driver refuses.
    """
    module = _load()
    try:
        module.nvmlInit()
    except module.NVMLError as exc:
        absent = (module.NVML_ERROR_LIBRARY_NOT_FOUND, module.NVML_ERROR_DRIVER_NOT_LOADED)
        if getattr(exc, "value", None) in absent:
            raise NoLibrary(
                f"no NVIDIA driver on this machine ({exc})",
                "run where the GPU is; --device cpu and --device fake need none",
            ) from exc
        raise NvmlFailed(f"the NVIDIA driver does not start: {exc}", type(exc).__name__) from exc
    try:
        yield Nvml(module)
    finally:
        with contextlib.suppress(module.NVMLError):
            module.nvmlShutdown()
