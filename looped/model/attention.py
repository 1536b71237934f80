"""Causal attention, and the choice of its kernel.

    sdpa     torch's own kernels, on every device
    flash2   FlashAttention 2, package flash_attn (arXiv 2307.08691): Ampere, Ada
    flash3   FlashAttention 3 through torch (arXiv 2407.08608): Hopper
    flash4   FlashAttention 4 through torch: Blackwell, also runs on Hopper

The kernels agree up to rounding, so the choice is not part of a run's spec.
Shapes: B batch, T time, H heads, K d_head.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import attention as torch_attention

from looped.errors import ConfigError, pick

LOG = logging.getLogger("looped")


def attend(q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor, backend: str = "sdpa") -> Tensor:
    """o_BTHK = softmax(q kᵀ / √K) v, where position t sees the positions up to t."""
    return BACKENDS[backend].function(q_BTHK, k_BTHK, v_BTHK)


def choose_backend(
    requested: str, device: torch.device, dtype: torch.dtype, d_head: int = 128
) -> str:
    """Name of the backend for tensors of this kind: `requested`, or for `auto` the fastest.

    The choice is logged once per process (logger `looped`).

    Raises:
        ConfigError: an unknown backend, or a backend that cannot run on this device.
    """
    device = torch.device(device)
    name = pick("attention", requested, ("auto", *BACKENDS))
    if name == "auto":
        name = _fastest(device, dtype, d_head)
    if why_not := _why_not(name, device, dtype, d_head):
        raise ConfigError(
            f"attention: {name!r} cannot run on {device} with {dtype}: {why_not}; "
            "use 'auto' or 'sdpa'"
        )
    _announce(name, str(device))
    _activate(BACKENDS[name].torch_impl)
    return name


def available_backends(device: torch.device) -> dict[str, str | None]:
    """Backend -> None if it can run on the device, else the reason why it cannot."""
    device = torch.device(device)
    return {name: _why_not(name, device, torch.bfloat16, 128) for name in BACKENDS}


def _fastest(device: torch.device, dtype: torch.dtype, d_head: int) -> str:
    capability = _capability(device)
    best = "sdpa" if capability is None else PREFERRED.get(capability, "sdpa")
    return "sdpa" if _why_not(best, device, dtype, d_head) else best


def _why_not(name: str, device: torch.device, dtype: torch.dtype, d_head: int) -> str | None:
    backend = BACKENDS[name]
    if backend.module is None:
        return None
    capability = _capability(device)
    if capability is None or not backend.runs_on(capability):
        chip = "no CUDA device" if capability is None else "{}.{}".format(*capability)
        return f"it needs compute capability {backend.needs}, this is {chip}"
    if dtype not in (torch.bfloat16, torch.float16):
        return "it computes in bfloat16 or float16 only"
    if d_head % 8 or d_head > backend.max_d_head:
        return f"d_head is {d_head}, it needs a multiple of 8 up to {backend.max_d_head}"
    return _import_problem(backend.module, backend.attribute)


def _capability(device: torch.device) -> tuple[int, int] | None:
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_capability(device)


@cache
def _import_problem(module: str, attribute: str) -> str | None:
    """Why a function cannot be imported; None if it can.

    It is not enough to find the package: FlashAttention 4 installs a folder `flash_attn` without
    the functions of FlashAttention 2.
    """
    try:
        getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, OSError) as error:
        return f"{module}.{attribute} cannot be imported ({error})"
    return None


@cache
def _announce(name: str, device: str) -> None:
    LOG.info("attention backend on %s: %s", device, name)


def _activate(impl: str | None) -> None:
    """Switch torch's flash kernel, which is global to the process, to the backend's."""
    if torch_attention.current_flash_attention_impl() == impl:
        return
    if impl is None:
        torch_attention.restore_flash_attention_impl()
    else:
        torch_attention.activate_flash_attention_impl(impl)


def _sdpa(q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor) -> Tensor:
    q_BHTK, k_BHTK, v_BHTK = (x.transpose(1, 2) for x in (q_BTHK, k_BTHK, v_BTHK))
    o_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
    return o_BHTK.transpose(1, 2)


def _torch_flash(q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor) -> Tensor:
    # Without the restriction, torch would silently fall back to another kernel.
    with torch_attention.sdpa_kernel(torch_attention.SDPBackend.FLASH_ATTENTION):
        return _sdpa(q_BTHK, k_BTHK, v_BTHK)


def _flash2(q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor) -> Tensor:
    from flash_attn import flash_attn_func

    return flash_attn_func(q_BTHK, k_BTHK, v_BTHK, causal=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """A kernel and its requirements. `module` None: torch alone is enough."""

    function: Callable[[Tensor, Tensor, Tensor], Tensor]
    module: str | None = None
    attribute: str = "flash_attn_func"
    runs_on: Callable[[tuple[int, int]], bool] = bool
    needs: str = ""
    torch_impl: str | None = None
    max_d_head: int = 256


BACKENDS: dict[str, Backend] = {
    "sdpa": Backend(function=_sdpa),
    "flash2": Backend(
        function=_flash2,
        module="flash_attn",
        runs_on=lambda capability: capability >= (8, 0),
        needs="8.0 or above",
    ),
    "flash3": Backend(
        function=_torch_flash,
        module="flash_attn_interface",
        runs_on=lambda capability: capability == (9, 0),
        needs="9.0",
        torch_impl="FA3",
    ),
    "flash4": Backend(
        function=_torch_flash,
        module="flash_attn.cute.interface",
        runs_on=lambda capability: capability in ((9, 0), (10, 0)),
        needs="9.0 or 10.0",
        torch_impl="FA4",
        max_d_head=128,
    ),
}

PREFERRED = {
    (8, 0): "flash2",
    (8, 6): "flash2",
    (8, 7): "flash2",
    (8, 9): "flash2",
    (9, 0): "flash3",
    (10, 0): "flash4",
}
"""Compute capability -> backend of `auto` if it is installed; otherwise `auto` is sdpa."""
