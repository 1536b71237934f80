"""Processes of a run: one process, or those of torchrun, which share each batch."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from looped.errors import ConfigError


@dataclass(frozen=True)
class Ranks:
    """This process and the number of processes of the run."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """True for the process that writes the files."""
        return self.rank == 0

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of `values` over all processes, in place."""
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def wait(self) -> None:
        """Wait until all processes have reached this point."""
        if self.world_size > 1:
            dist.barrier()


@contextmanager
def connected(device: str = "auto") -> Iterator[Ranks]:
    """The processes that torchrun started, connected inside the block; otherwise this process.

    Args:
        device: auto (a card if there is one), cpu, cuda, or cuda:N.

    Raises:
        ConfigError: an unknown device, or cuda without a card.
    """
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    chosen = choose_device(device, int(os.environ.get("LOCAL_RANK", 0)), world_size)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if world_size == 1:
        yield Ranks(0, 1, chosen)
        return
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), world_size, chosen)
        dist.barrier()
    finally:
        gc.collect()  # a reducer that outlives its group makes gloo abort at exit
        dist.destroy_process_group()


def choose_device(device: str, local_rank: int = 0, world_size: int = 1) -> torch.device:
    """The device of a process; with several processes, the card with its local rank.

    Raises:
        ConfigError: an unknown device, or cuda without a card.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device: got {device!r}, expected auto, cpu or cuda ({error})") from None
    if chosen.type not in ("cpu", "cuda"):
        raise ConfigError(f"device: got {device!r}, expected auto, cpu or cuda")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device: got {device!r}, but torch sees no card; use device='cpu'")
    if chosen.type == "cuda" and (chosen.index is None or world_size > 1):
        return torch.device("cuda", local_rank)
    return chosen
