"""A model whose tensors stand on the host and come to the device layer by layer.

Source: Hare, HPDC '22, section 4, after PipeSwitch: the transfer of a layer overlaps the forward
pass of the layers before it. On a GPU the copies run on a stream of their own from pinned memory;
on a CPU the same code copies from one place in memory to another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Slot:
    """One tensor of a model.

    Attributes:
        tensor: the model's own, which is empty while nothing is on the device.
        host: its values on the host.
        names: by which the model knows it, several if it is tied.
        owners: the modules that have it.
        buffer: whether it is a buffer, which a forward pass may change.
        there: its values on the device.
        ready: set once they are there, or on their way in the order of the device.
        copied: on a GPU, the event after which they are there.
        stale: the values on the device are not those on the host.
    """

    tensor: Any
    host: Any
    buffer: bool
    names: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    there: Any = None
    ready: threading.Event = field(default_factory=threading.Event)
    copied: Any = None
    stale: bool = True


class ModelLayers:
    """The tensors of a model, on the host and, now and then, on the device.

    Which tensors a module needs is seen in the first forward pass, before which everything is
    waited for: its own, and those of modules within it that are never called themselves. From then
    on a module that is called waits for its tensors alone, and they come in the order of the calls.
    A module that reads the tensors of one that is called only later is not supported.

    Attributes:
        model: whose tensors are on the device while it is resident, and empty otherwise.
        size: bytes of all tensors.
        stalled_s: for how long the last forward pass has waited for tensors on the host's side.
    """

    def __init__(self, model: Any, device: str) -> None:
        """Take over a model that is on the host."""
        import torch

        self._torch = torch
        self._device = torch.device(device)
        self._stream = None
        if self._device.type == "cuda":
            self._stream = torch.cuda.Stream(self._device)
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="layers")
        self._loading: Future[None] | None = None
        self.model = model
        self.stalled_s = 0.0
        self._slots = self._found()
        self.size = sum(slot.host.numel() * slot.host.element_size() for slot in self._slots)
        self._order = list(self._slots)
        self._up_front = list(self._slots)
        self._needs: dict[str, list[_Slot]] | None = None
        self._called: list[str] = []
        for prefix, module in model.named_modules():
            module.register_forward_pre_hook(self._hook(prefix))
        self._give_up()

    @property
    def resident(self) -> bool:
        """Whether the tensors are on the device, or on their way."""
        return self._loading is not None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters on the host, by name, in the order of `model.parameters()`."""
        names = {slot.names[0]: slot.host for slot in self._slots if not slot.buffer}
        return {name: names[name] for name, _ in self.model.named_parameters()}

    def take_gradients(self) -> dict[str, Any]:
        """Return what a backward pass has left, on the host and by name; None where nothing.

        What was on the device is overwritten.
        """
        found = {}
        for name, parameter in self.model.named_parameters():
            found[name] = gradient = parameter.grad
            if gradient is not None:
                gradient = gradient.to_dense() if gradient.is_sparse else gradient
                found[name] = self._on_host(gradient)
                gradient.zero_()
                parameter.grad = None
        if self._stream is not None:
            self._torch.cuda.current_stream(self._device).synchronize()
        return found

    def tensors(self) -> list[Any]:
        """Return what is on the device."""
        return [slot.there for slot in self._slots if slot.there is not None]

    def state(self) -> dict[str, Any]:
        """Return the values on the host as `model.state_dict()` would."""
        of = {name: slot.host for slot in self._slots for name in slot.names}
        return {name: of[name].clone() for name in self.model.state_dict() if name in of}

    def buffers(self) -> dict[str, Any]:
        """Return the buffers as a forward pass has left them, on the host."""
        self.wait()
        of = {name: slot for slot in self._slots if slot.buffer for name in slot.names}
        kept = self.model.state_dict()
        return {
            name: slot.there.detach().cpu().clone() for name, slot in of.items() if name in kept
        }

    def put(self, state: Mapping[str, Any]) -> None:
        """Set the values on the host, by name; those on the device follow with the next `load`.

        Raises:
            ValueError: the state is of another model.
        """
        self.wait()
        of = {name: slot for slot in self._slots for name in slot.names}
        for name, values in state.items():
            if name not in of or of[name].host.shape != values.shape:
                raise ValueError(f"the state is of another model: {name} does not fit")
            of[name].host.copy_(values)
        for slot in self._slots:
            slot.stale = True

    def load(self) -> None:
        """Begin to bring to the device what is not there as it is on the host; do not wait."""
        self.wait()
        stale = [slot for slot in self._order if slot.stale]
        for slot in stale:
            slot.ready.clear()
            slot.stale = False
            if slot.there is None:
                slot.there = self._torch.empty_like(slot.host, device=self._device)
                slot.tensor.data = slot.there
        began = (
            None
            if self._stream is None
            else self._torch.cuda.current_stream(self._device).record_event()
        )
        self._loading = self._loader.submit(self._copy, stale, began)

    def wait(self) -> None:
        """Wait until `load` has done all of it; raise what it met."""
        if self._loading is not None:
            self._loading.result()
            if self._stream is not None:
                self._stream.synchronize()

    @contextmanager
    def forward_pass(self) -> Iterator[None]:
        """Run a forward pass, which waits for each layer as it comes to it."""
        self.stalled_s = 0.0
        self._called = []
        self._await(self._up_front)
        yield
        if self._needs is None:
            self._learn()
        for slot in self._slots:
            # The next task begins with the buffers of its round, not with what this one left.
            slot.stale = slot.stale or slot.buffer

    def evict(self) -> None:
        """Take everything from the device, its content first."""
        self.wait()
        for slot in self._slots:
            if slot.there is not None:
                slot.there.zero_()
        if self._stream is not None:
            self._torch.cuda.synchronize(self._device)
        self._give_up()
        if self._stream is not None:
            self._torch.cuda.empty_cache()

    def _on_host(self, tensor: Any) -> Any:
        """Begin to copy a tensor from the device; pinned memory makes that many times faster."""
        pinned = self._stream is not None
        host = self._torch.empty_like(tensor, device="cpu", pin_memory=pinned)
        return host.copy_(tensor, non_blocking=True)

    def _found(self) -> list[_Slot]:
        slots: dict[int, _Slot] = {}
        for prefix, module in self.model.named_modules():
            own = [(name, p, False) for name, p in module.named_parameters(recurse=False)]
            own += [(name, b, True) for name, b in module.named_buffers(recurse=False)]
            for name, tensor, buffer in own:
                slot = slots.get(id(tensor))
                if slot is None:
                    host = tensor.detach().clone()
                    pinned = host if self._stream is None else host.pin_memory()
                    slot = slots[id(tensor)] = _Slot(tensor, pinned, buffer)
                slot.names.append(f"{prefix}.{name}" if prefix else name)
                slot.owners.append(prefix)
        return list(slots.values())

    def _give_up(self) -> None:
        for slot in self._slots:
            slot.there = slot.copied = None
            slot.tensor.data = self._torch.empty(0, dtype=slot.host.dtype, device=self._device)
            slot.stale = True
        self._loading = None

    def _copy(self, slots: list[_Slot], began: Any) -> None:
        """Copy tensors in this order; in the thread that loads."""
        try:
            with self._torch.cuda.stream(self._stream):  # of no stream, nothing
                if self._stream is not None:
                    # Memory that was just got may still be in use by what was queued before.
                    self._stream.wait_event(began)
                for slot in slots:
                    slot.there.copy_(slot.host, non_blocking=True)
                    if self._stream is not None:
                        slot.copied = self._stream.record_event()
                    slot.ready.set()
        finally:
            # Nobody is to wait for ever; `_await` raises what happened.
            for slot in slots:
                slot.ready.set()

    def _hook(self, prefix: str) -> Any:
        def hook(_module: Any, _inputs: Any) -> None:
            if self._needs is None:
                self._called.append(prefix)
            else:
                self._await(self._needs.get(prefix, ()))

        return hook

    def _await(self, slots: Any) -> None:
        for slot in slots:
            if not slot.ready.is_set():
                began = time.monotonic()
                slot.ready.wait()
                self.stalled_s += time.monotonic() - began
            if self._loading is not None and self._loading.done():
                self._loading.result()
            if slot.copied is not None:
                self._torch.cuda.current_stream(self._device).wait_event(slot.copied)

    def _learn(self) -> None:
        """Give each tensor to the modules whose calls must wait for it."""
        rank = {prefix: at for at, prefix in reversed(list(enumerate(self._called)))}
        needs: dict[str, list[_Slot]] = {}
        first: dict[int, int] = {}
        self._up_front = []
        for slot in self._slots:
            callers = {_caller(owner, rank) for owner in slot.owners}
            if None in callers:
                self._up_front.append(slot)
            for caller in callers - {None}:
                needs.setdefault(str(caller), []).append(slot)
            first[id(slot)] = min(-1 if c is None else rank[c] for c in callers)
        self._order.sort(key=lambda slot: first[id(slot)])
        self._needs = needs


def _caller(owner: str, rank: Mapping[str, int]) -> str | None:
    """Return the module, this one or the nearest around it, that is called; None if none is."""
    while owner not in rank:
        if not owner:
            return None
        owner = owner.rpartition(".")[0]
    return owner
