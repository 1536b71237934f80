"""Causal attention, and the choice of the kernel that computes it.

    sdpa     torch's own kernels, on every device
    flash2   FlashAttention 2, package flash_attn (arXiv 2307.08691): Ampere, Ada
    flash3   FlashAttention 3 through torch (arXiv 2407.08608): Hopper
    flash4   FlashAttention 4 through torch: Blackwell, also runs on Hopper

The kernels agree up to rounding, so which one runs is no part of a run's spec.
Shapes: B batch, T time, H heads, K d_head.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch.nn import attention as torch_attention

from looped.errors import ConfigError

LOG = logging.getLogger("looped")


def attend(q_BTHK, k_BTHK, v_BTHK, backend: str = "sdpa"):
    """softmax(q kᵀ / √K) v, where position t sees positions up to t. Returns o_BTHK."""
    return BACKENDS[backend].function(q_BTHK, k_BTHK, v_BTHK)


def choose_backend(
    requested: str, device: torch.device, dtype: torch.dtype, d_head: int = 128
) -> str:
    """Backend for tensors of this kind: the one requested, or with `auto` the chip's best.

    The choice is logged once a process (logger `looped`).

    Raises:
        ConfigError: an unknown backend, or a requested one that cannot run here.
    """
    device = torch.device(device)
    name = _fastest(device, dtype, d_head) if requested == "auto" else requested
    if name not in BACKENDS:
        raise ConfigError(f"attention: got {name!r}, expected 'auto' or one of {sorted(BACKENDS)}")
    if why_not := _why_not(name, device, dtype, d_head):
        raise ConfigError(
            f"attention: {name!r} cannot run on {device} with {dtype}: {why_not}; "
            "use 'auto' or 'sdpa'"
        )
    _announce(name, str(device))
    _activate(BACKENDS[name].torch_impl)
    return name


def available_backends(device: torch.device) -> dict[str, str | None]:
    """Backend -> None if it can run on the device, else the reason why not."""
    device = torch.device(device)
    return {name: _why_not(name, device, torch.bfloat16, 128) for name in BACKENDS}


def _fastest(device, dtype, d_head):
    best = PREFERRED.get(_capability(device), "sdpa")
    return "sdpa" if _why_not(best, device, dtype, d_head) else best


def _why_not(name, device, dtype, d_head):
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


def _capability(device):
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_capability(device)


@cache
def _import_problem(module, attribute):
    """Why a package cannot be used; None if it can.

    Looking for the package alone would not do: FlashAttention 4 installs a folder `flash_attn`
    that has none of FlashAttention 2's functions.
    """
    try:
        getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, OSError) as error:
        return f"{module}.{attribute} cannot be imported ({error})"
    return None


@cache
def _announce(name, device):
    LOG.info("attention backend on %s: %s", device, name)


def _activate(impl):
    """Put torch's flash kernel in the state that the backend expects; it is one per process."""
    if torch_attention.current_flash_attention_impl() == impl:
        return
    if impl is None:
        torch_attention.restore_flash_attention_impl()
    else:
        torch_attention.activate_flash_attention_impl(impl)


def _sdpa(q_BTHK, k_BTHK, v_BTHK):
    q_BHTK, k_BHTK, v_BHTK = (x.transpose(1, 2) for x in (q_BTHK, k_BTHK, v_BTHK))
    o_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
    return o_BHTK.transpose(1, 2)


def _torch_flash(q_BTHK, k_BTHK, v_BTHK):
    # Without the restriction, torch would silently fall back to another kernel.
    with torch_attention.sdpa_kernel(torch_attention.SDPBackend.FLASH_ATTENTION):
        return _sdpa(q_BTHK, k_BTHK, v_BTHK)


def _flash2(q_BTHK, k_BTHK, v_BTHK):
    from flash_attn import flash_attn_func

    return flash_attn_func(q_BTHK, k_BTHK, v_BTHK, causal=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """A kernel, and what it needs. `module` None: nothing but torch."""

    function: Callable
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
"""Compute capability -> what `auto` takes if it is installed; torch's SDPA otherwise."""
