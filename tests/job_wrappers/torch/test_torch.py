"""The torch that these tests use is there, and can do what they need."""

from __future__ import annotations


def test_torch_has_gloo_to_synchronise_processes_on_cpu() -> None:
    import torch.distributed

    assert torch.distributed.is_available()
    assert torch.distributed.is_gloo_available()
