"""Fetches the emoji packages and writes the packed image set of ``experiments.data.emoji``.

Command: ``python -m experiments.data.pack_emoji --work DIR [--out runs/emoji]`` (about a minute; 160 MB of
downloads, which are cached in DIR). Needs ``npm``, unless the four tarballs are already in DIR.

1. ``npm pack`` of four pinned packages; every tarball is checked against its sha256.
2. Base emoji of emoji-datasource without the categories Flags (mostly exact duplicates) and Component; captions of
   emojibase, matched by code point (lower-case, without ``fe0f`` and leading zeros).
3. Fluent images are resized to 64x64 (Lanczos, premultiplied alpha). Within a style, an image that equals an
   earlier one after compositing on white is dropped.
4. Lossless WebP, invisible pixels set to zero, in an uncompressed zip with fixed dates: the same input gives the same
   bytes (with the same libwebp).

Expected: 4,839 images (1,631 noto, 1,610 twemoji, 1,598 fluent), 1,632 labels, 1,433 families, 8 groups, 95
subgroups; train 4,213, val_concept 435, val_style 191; about 15 MB.
"""

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import click
import numpy as np
from PIL import Image

from experiments.data.emoji import DEFAULT_PATH, FORMAT_VERSION, IMAGE_SIZE, SPLITS, STYLES, emoji_family, emoji_split
from experiments.data.npm_package import Package, PackageError, fetch
from jaxspec.core.command_line import PATH, UserError, script

NOTO = Package("emoji-datasource-google", "16.0.0", "fb5fd131b362aab7a55542d2a147a79708cce0a8b1c1bbacd470172708b5c438")
TWEMOJI = Package("emoji-datasource-twitter", "16.0.0", "f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877")
FLUENT = Package("@lobehub/fluent-emoji-3d", "1.1.0", "c1bb7eee7de090205a232518a9ab4adb3df458bfbe8a1f78232991194c8b2e58")
CAPTIONS = Package("emojibase-data", "17.0.0", "d01d0e2ca4e22cb402679532155342c71e2e871f25c32223c013b8b166ebdf5a")

# style -> (package, folder in the tarball, ending)
IMAGES = {
  "noto": (NOTO, "package/img/google/64/", ".png"),
  "twemoji": (TWEMOJI, "package/img/twitter/64/", ".png"),
  "fluent": (FLUENT, "package/assets/", ".webp"),
}
LEFT_OUT_CATEGORIES = ("Flags", "Component")
EXPECTED = {
  "noto": 1631,
  "twemoji": 1610,
  "fluent": 1598,
  "labels": 1632,
  "families": 1433,
  "groups": 8,
  "subgroups": 95,
  "train": 4213,
  "val_concept": 435,
  "val_style": 191,
}
CONTAINER = "emoji64.zip"
ZIP_DATE = (1980, 1, 1, 0, 0, 0)

ATTRIBUTION = """# Attribution

The images in `emoji64.zip` and the captions in `index.json` come from the packages below. Images were resized to
64x64 pixels and stored as WebP; exact duplicates, flags and skin tone variants were left out. Ship this file with the
images and with weights trained on them.

| style / data | credit | licence | npm package | sha256 of the tarball |
|---|---|---|---|---|
{rows}

- Noto Emoji: Copyright Google. Licensed under the Apache License, Version 2.0, <https://www.apache.org/licenses/LICENSE-2.0>.
  Source: <https://github.com/googlefonts/noto-emoji>.
- Twemoji: Copyright 2020 Twitter, Inc and other contributors. Graphics licensed under CC-BY 4.0,
  <https://creativecommons.org/licenses/by/4.0/>. Changes: stored as WebP, some images left out.
  Source: <https://github.com/jdecked/twemoji>.
- Fluent Emoji: Copyright Microsoft Corporation, MIT licence. Source: <https://github.com/microsoft/fluentui-emoji>;
  distributed by LobeHub, <https://github.com/lobehub/fluent-emoji>. Changes: resized, stored as WebP.
- emojibase: Copyright Miles Johnson, MIT licence. Source: <https://github.com/milesj/emojibase>.
- The categories of `index.json` come from `emoji.json` of emoji-datasource: Copyright Cal Henderson, MIT licence.
  Source: <https://github.com/iamcal/emoji-data>.
"""
CREDITS = (
  ("noto", "Noto Emoji, Google", "Apache-2.0", NOTO),
  ("twemoji", "Twemoji, Twitter, Inc and other contributors", "CC-BY-4.0", TWEMOJI),
  ("fluent", "Fluent Emoji, Microsoft, distributed by LobeHub", "MIT", FLUENT),
  ("labels and tags", "emojibase, Miles Johnson", "MIT", CAPTIONS),
)


def codepoint_key(code: str) -> str:
  """Code points in the common spelling: lower-case, without ``fe0f`` and leading zeros."""
  return "-".join(part.lstrip("0") or "0" for part in code.lower().split("-") if part != "fe0f")


def read_json(tarball: Path, member: str) -> list:
  with tarfile.open(tarball) as archive:
    return json.load(archive.extractfile(member))


def read_images(tarball: Path, folder: str, ending: str) -> dict[str, bytes]:
  """Encoded images of a tarball by code point."""
  images = {}
  with tarfile.open(tarball) as archive:
    for member in archive:
      if member.name.startswith(folder) and member.name.endswith(ending):
        code = member.name[len(folder) : -len(ending)]
        images[codepoint_key(code)] = archive.extractfile(member).read()
  return images


def decode(encoded: bytes) -> Image.Image:
  """64x64 RGBA image."""
  image = Image.open(io.BytesIO(encoded)).convert("RGBA")
  if image.size != (IMAGE_SIZE, IMAGE_SIZE):
    # Pillow premultiplies RGBA before filtering.
    image = image.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.LANCZOS)
  return image


def on_white_hash(image: Image.Image) -> str:
  white = Image.new("RGBA", image.size, "white")
  white.alpha_composite(image)
  return hashlib.sha256(white.convert("RGB").tobytes()).hexdigest()


def encode(image: Image.Image) -> bytes:
  pixels = np.array(image)
  pixels[pixels[..., 3] == 0] = 0
  out = io.BytesIO()
  # A higher effort (method 6, quality 100) saves 3 % of the bytes and takes twenty times as long.
  Image.fromarray(pixels, "RGBA").save(out, "WEBP", lossless=True, quality=80, method=4, exact=False)
  return out.getvalue()


def collect(work: Path) -> tuple[dict[str, bytes], list[tuple]]:
  """Reads the tarballs.

  Returns:
    Encoded WebP images by zip entry name, and rows (codepoint, label, tags, group, subgroup, family, splits) where
    splits has one number per style: an index into ``SPLITS``, or -1 without an image.
  """
  tarballs = {package: fetch(package, work) for package in (NOTO, TWEMOJI, FLUENT, CAPTIONS)}
  captions = {codepoint_key(row["hexcode"]): row for row in read_json(tarballs[CAPTIONS], "package/en/data.json")}
  base = [row for row in read_json(tarballs[NOTO], "package/emoji.json") if row["category"] not in LEFT_OUT_CATEGORIES]
  codes = [codepoint_key(row["unified"]) for row in base]
  uncaptioned = [code for code in codes if code not in captions]
  if uncaptioned:
    raise PackageError(f"{CAPTIONS.name}: must have captions for every emoji, we miss {uncaptioned}")

  packed = {}
  for style, (package, folder, ending) in IMAGES.items():
    sources = read_images(tarballs[package], folder, ending)
    seen = set()
    for code in codes:
      if code not in sources:
        continue
      image = decode(sources[code])
      digest = on_white_hash(image)
      if digest not in seen:
        seen.add(digest)
        packed[f"{style}/{code}.webp"] = encode(image)

  rows = []
  for code, row in sorted(zip(codes, base, strict=True), key=lambda pair: pair[1]["sort_order"]):
    label = captions[code]["label"].lower()
    tags = [tag.lower() for tag in captions[code].get("tags", [])]
    family = emoji_family(label)
    splits = [SPLITS.index(emoji_split(family, style)) if f"{style}/{code}.webp" in packed else -1 for style in STYLES]
    if max(splits) >= 0:
      rows.append((code, label, tags, row["category"], row["subcategory"], family, splits))
  return packed, rows


def count(rows: list[tuple]) -> dict[str, int]:
  """The numbers in ``EXPECTED``, as found."""
  counts = Counter()
  for *_, splits in rows:
    for style, split in zip(STYLES, splits, strict=True):
      if split >= 0:
        counts[style] += 1
        counts[SPLITS[split]] += 1
  columns = {"labels": 1, "groups": 3, "subgroups": 4, "families": 5}
  return {**counts, **{name: len({row[column] for row in rows}) for name, column in columns.items()}}


def write(packed: dict[str, bytes], rows: list[tuple], out: Path) -> None:
  """Writes the three files into a new folder and moves it into position."""
  groups = list(dict.fromkeys(row[3] for row in rows))
  subgroups = list(dict.fromkeys(row[4] for row in rows))
  out.parent.mkdir(parents=True, exist_ok=True)
  temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
  try:
    fresh = temporary / "new"
    fresh.mkdir()
    with zipfile.ZipFile(fresh / CONTAINER, "w", zipfile.ZIP_STORED) as archive:
      for name in sorted(packed):
        info = zipfile.ZipInfo(name, ZIP_DATE)
        info.create_system = 3
        info.external_attr = 0o644 << 16
        archive.writestr(info, packed[name])
    head = {
      "format": FORMAT_VERSION,
      "container": CONTAINER,
      "sha256": hashlib.sha256((fresh / CONTAINER).read_bytes()).hexdigest(),
      "styles": STYLES,
      "splits": SPLITS,
      "groups": groups,
      "subgroups": subgroups,
      "fields": ["codepoint", "label", "tags", "group", "subgroup", "family", "split per style (-1: no image)"],
    }
    lines = [
      json.dumps(
        [code, label, tags, groups.index(group), subgroups.index(subgroup), family, splits],
        ensure_ascii=False,
        separators=(",", ":"),
      )
      for code, label, tags, group, subgroup, family, splits in rows
    ]
    text = json.dumps(head, ensure_ascii=False, indent=1)[:-2] + ',\n "emoji": [\n' + ",\n".join(lines) + "\n]}\n"
    (fresh / "index.json").write_text(text, encoding="utf-8")
    table = "\n".join(
      f"| {style} | {credit} | {licence} | `{package.name}` {package.version} | `{package.sha256}` |"
      for style, credit, licence, package in CREDITS
    )
    (fresh / "ATTRIBUTION.md").write_text(ATTRIBUTION.format(rows=table), encoding="utf-8")
    old = temporary / "old"
    if out.exists():
      out.rename(old)
    try:
      fresh.rename(out)
    except OSError:
      if old.exists():
        old.rename(out)
      raise
  finally:
    shutil.rmtree(temporary, ignore_errors=True)


@script(__doc__)
@click.option("--work", type=PATH, required=True, help="Folder of the tarballs; downloads are kept there.")
@click.option("--out", type=PATH, default=DEFAULT_PATH, help="Folder to write.")
def main(work: Path, out: Path) -> None:
  try:
    work.mkdir(parents=True, exist_ok=True)
    packed, rows = collect(work)
    counts = count(rows)
    if counts != EXPECTED:
      wrong = {name: (EXPECTED[name], counts.get(name)) for name in EXPECTED if counts.get(name) != EXPECTED[name]}
      raise PackageError(f"counts must be as expected, these differ (expected, found): {wrong}")
    write(packed, rows, out)
  except (tarfile.TarError, KeyError) as error:
    raise UserError(f"Corrupt package in {work}: {error}") from error
  print(f"{out}: {len(packed)} images, {(out / CONTAINER).stat().st_size / 1e6:.1f} MB, {counts}")


if __name__ == "__main__":
  main()
