"""Scores of images against their captions, with intervals over prompts.

An image is *correct* if it shows everything that its caption demands, nothing else, and no debris. Each demand is also
scored alone. The scores follow from the reading of the image (`jaxspec.evaluation.scenes.reader`), without a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.evaluation.scenes import held_out
from jaxspec.evaluation.scenes.captions import parse
from jaxspec.evaluation.scenes.layouts import relation_of
from jaxspec.evaluation.scenes.reader import Reading, read
from jaxspec.evaluation.scenes.requests import TASKS, Request
from jaxspec.evaluation.scenes.world import Object
from jaxspec.statistics import Corrected, Share, correct_table, paired_share_difference, share

DEMANDS = ("right", "objects", "count", "relation", "attribute", "background", "nothing_more", "clean")


class Scores(NamedTuple):
  """Scores of N images.

  Attributes:
    requests: those of the captions.
    readings: those of the images.
    held: one dict per image, see `holds`.
    clusters: ``[N]`` number of the prompt of each image.
  """

  requests: tuple[Request, ...]
  readings: tuple[Reading, ...]
  held: tuple[dict[str, float | bool | None], ...]
  clusters: np.ndarray


def parse_captions(captions: Sequence[str]) -> tuple[Request, ...]:
  """Requests of captions.

  Raises:
    ValueError: with the number, from 1, of each caption that cannot be parsed.
  """
  requests, errors = [], []
  for number, caption in enumerate(captions, 1):
    try:
      requests.append(parse(caption))
    except ValueError as error:
      errors.append(f"caption {number}: {error}")
  if errors:
    raise ValueError("\n".join(errors))
  return tuple(requests)


def score_images(captions: Sequence[str], images: np.ndarray, *, clusters: np.ndarray | None = None) -> Scores:
  """Reads images and compares them with their captions.

  Args:
    captions: N texts of the grammar (`jaxspec.evaluation.scenes.captions`).
    images: ``[N, 96, 96, 3]`` uint8, or float in [-1, 1].
    clusters: ``[N]`` labels of prompts; by default, images with the same request have one prompt.
  Raises:
    ValueError: for captions that cannot be parsed, or different numbers of images and captions.
  """
  if len(captions) != len(images):
    raise ValueError(f"Must have one caption per image, we instead got {len(captions)} captions and {len(images)} images")
  requests = parse_captions(captions)
  return score_readings(requests, read(images), clusters=clusters)


def score_readings(
  requests: Sequence[Request], readings: Sequence[Reading], *, clusters: np.ndarray | None = None
) -> Scores:
  """`score_images` for images that are already read."""
  held = tuple(holds(request, reading) for request, reading in zip(requests, readings, strict=True))
  if clusters is None:
    numbers = {request: number for number, request in enumerate(dict.fromkeys(requests))}
    clusters = np.array([numbers[request] for request in requests], np.int64)
  return Scores(tuple(requests), tuple(readings), held, np.asarray(clusters))


def holds(request: Request, reading: Reading) -> dict[str, float | bool | None]:
  """The demands of a request that an image satisfies.

  Returns:
    ``right``: all of the others hold, and all objects are there. ``objects``: share of the demanded objects that are there,
    by noun. ``count``: every noun has a number that the request allows. ``relation``, ``attribute`` (colours and sizes) and
    ``background`` (with its material): None where nothing is demanded. ``nothing_more``: no object of another noun.
    ``clean``: no debris.
  """
  groups = [[one for one in reading.objects if one.noun == phrase.noun] for phrase in request.phrases]
  allowed = [request.numbers(phrase) for phrase in request.phrases]
  least = [min(numbers) for numbers in allowed]
  held: dict[str, float | bool | None] = {
    "objects": sum(min(len(group), number) for group, number in zip(groups, least, strict=True)) / sum(least),
    "count": all(len(group) in numbers for group, numbers in zip(groups, allowed, strict=True)),
    "relation": None,
    "attribute": None,
    "background": _holds_background(request, reading),
    "nothing_more": sum(map(len, groups)) == len(reading.objects),
    "clean": not reading.has_debris,
  }
  if request.relation is not None:
    first, second = groups
    held["relation"] = bool(first and second) and all(
      relation_of(_centre(one), _centre(other)) == request.relation for one in first for other in second
    )
  if any(phrase.colour or phrase.size for phrase in request.phrases):
    held["attribute"] = all(
      bool(group) and all(phrase.colour in (None, one.colour) and phrase.size in (None, one.size) for one in group)
      for phrase, group in zip(request.phrases, groups, strict=True)
      if phrase.colour or phrase.size
    )
  return {"right": all(value is None or value == 1 for value in held.values()), **held}


def _holds_background(request: Request, reading: Reading) -> bool | None:
  demands = [
    (wanted, found)
    for wanted, found in ((request.background, reading.background), (request.material, reading.material))
    if wanted is not None
  ]
  return all(wanted == found for wanted, found in demands) if demands else None


def summarise(scores: Scores, *, level: float = 0.95) -> dict[str, dict[str, Share]]:
  """Shares with intervals of Wilson over prompts.

  Returns:
    Rows: each task, ``all``, and ``train`` and ``held_out`` for combinations that training has and lacks; those without an
    image are left out. Columns: the names in ``DEMANDS`` that occur in a caption of the row.
  """
  table = {}
  for name, chosen in _rows(scores).items():
    row = {}
    for demand in DEMANDS:
      index = [number for number in chosen if scores.held[number][demand] is not None]
      if index:
        hits = np.array([scores.held[number][demand] for number in index], np.float64)
        labels = scores.clusters[index]
        alone = len(np.unique(labels)) == len(labels)  # single trials have the textbook interval
        row[demand] = share(hits, clusters=None if alone else labels, level=level)
    table[name] = row
  return table


def compare_right(first: Scores, second: Scores, *, level: float = 0.95) -> dict[str, Corrected]:
  """Differences of the shares of correct images, first minus second, on the same captions in the same order.

  The p value of each row is that of McNemar's test by sign flips where every prompt has one image, and its extension to
  several images (`jaxspec.statistics.paired_share_difference`) otherwise; corrected by Holm over the rows, each with its
  smallest detectable difference.

  Returns:
    Rows as in `summarise`; those with less than two prompts are left out.
  Raises:
    ValueError: if the captions differ.
  """
  if first.requests != second.requests:
    raise ValueError("Must have scores of the same captions in the same order, we instead got others")
  differences = {}
  for name, chosen in _rows(first).items():
    if len(np.unique(first.clusters[chosen])) >= 2:
      hits = [np.array([scores.held[number]["right"] for number in chosen], np.float64) for scores in (first, second)]
      differences[name] = paired_share_difference(*hits, clusters=first.clusters[chosen], level=level)
  return correct_table(differences, level=level)


def _rows(scores: Scores) -> Mapping[str, list[int]]:
  """Numbers of the images of each row of a table."""
  tasks = [request.task for request in scores.requests]
  lacks = [bool(held_out.reasons(request)) for request in scores.requests]
  everything = range(len(tasks))
  rows = {task: [number for number in everything if tasks[number] == task] for task in TASKS}
  rows["all"] = list(everything)
  rows["train"] = [number for number in everything if not lacks[number]]
  rows["held_out"] = [number for number in everything if lacks[number]]
  return {name: chosen for name, chosen in rows.items() if chosen}


def _centre(one: Object) -> tuple[float, float]:
  """(row, column) in cells."""
  return one.row + one.cells / 2, one.column + one.cells / 2
