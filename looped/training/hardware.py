"""Hardware and software of a run: kind of processor or card, peak FLOP/s, versions.

It records no host name and no user name.
"""

import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from looped.paths import PACKAGE

if TYPE_CHECKING:
    import torch

PEAK_FLOPS = {
    "GH200": 989e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "A40": 149.7e12,
    "L40S": 362e12,
    "RTX 4090": 165.2e12,
    "RTX 3090": 71e12,
}
"""Dense bf16 FLOP/s with fp32 accumulation, by part of the card's name: NVIDIA's data sheets."""

PACKAGES = ["numpy", "torch", "safetensors", "tokenizers", "flash-attn", "flash-attn-4"]


def hardware_name(device: "torch.device") -> str:
    """Model name of the card, or of the processor."""
    if device.type == "cuda":
        return _card(device)
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def peak_flops(device: "torch.device") -> float | None:
    """Dense bf16 FLOP/s of the card by its data sheet; None for other devices."""
    if device.type != "cuda":
        return None
    name = _card(device)
    words = (part for part in PEAK_FLOPS if re.search(rf"\b{part}\b", name))
    return PEAK_FLOPS.get(max(words, key=len, default=""))


def versions() -> dict[str, str]:
    """Versions of Python, CUDA, and the packages used in training."""
    import torch

    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def code_version() -> str:
    """Version of this package, with the git commit if it runs from a checkout."""
    described = version("looped")
    try:
        if Path(_git("rev-parse", "--show-toplevel")) != PACKAGE.parent:
            return described  # installed inside the checkout of another project
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", str(PACKAGE))
    except (OSError, subprocess.CalledProcessError):
        return described
    return f"{described}+g{commit}{'.changed' if changed else ''}"


def _card(device: "torch.device") -> str:
    import torch

    return torch.cuda.get_device_name(device)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PACKAGE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()
