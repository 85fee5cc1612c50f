"""A seed and a number name an image; layouts and freedom are counted exactly."""

import collections
import itertools
import math

import numpy as np
import pytest

from jaxspec.evaluation.scenes import (
  IMAGE_SIZE,
  SPLITS,
  Object,
  Reading,
  Scene,
  draw,
  draw_scene,
  freedom_nats,
  holds,
  paint_batch,
  parse,
  sample_scene,
)
from jaxspec.evaluation.scenes.held_out import COLOUR_GLYPHS
from jaxspec.evaluation.scenes.layouts import count_layouts, draw_layout, relation_of
from jaxspec.evaluation.scenes.sprites import load_tiles
from jaxspec.evaluation.scenes.world import BACKGROUNDS, CELL, CLASHES, GRID, LOOKS, SIZES, are_apart


def test_a_seed_and_a_number_name_an_image():
  for split in SPLITS:
    caption, scene, image = draw(3, 5, split)
    again = draw(3, 5, split)
    assert (caption, scene) == again[:2] == draw_scene(3, 5, split)
    np.testing.assert_array_equal(image, again[2])
    assert image.shape == (IMAGE_SIZE, IMAGE_SIZE, 3) and image.dtype == np.uint8
  assert len({draw_scene(3, 5, split) for split in SPLITS}) == 3
  assert draw_scene(3, 5) != draw_scene(4, 5) and draw_scene(3, 5) != draw_scene(3, 6)


def test_captions_name_the_materials_of_their_world():
  captions = [draw_scene(0, number, materials=("flat", "wood"))[0] for number in range(200)]
  assert any("wood" in caption for caption in captions)
  assert not any(material in caption for caption in captions for material in ("water", "marble", "cloth"))


def test_these_images_stay_the_same():
  assert draw_scene(0, 0)[0] == "a large yellow circle"


@pytest.mark.parametrize("arguments", [(0, 0, "test"), (-1, 0, "train"), (0, -1, "train")])
def test_other_splits_and_numbers_are_refused(arguments):
  with pytest.raises(ValueError, match="Must have"):
    draw(*arguments)


def test_scenes_satisfy_their_captions():
  for split in SPLITS:
    for index in range(150):
      caption, scene = draw_scene(1, index, split)
      held = holds(parse(caption), Reading(scene.background, scene.objects, 0.0))
      assert held["right"], (caption, scene, held)
      if split != "held_out":
        assert not any((one.colour, one.noun) in COLOUR_GLYPHS for one in scene.objects)


def test_painted_images_are_background_and_tiles():
  scene = Scene("pink", (Object("cat", "noto", None, "small", 9, 0), Object("star", "plain", "blue", "large", 0, 8)))
  image = paint_batch([scene])[0]
  tiles, pink = load_tiles(), list(BACKGROUNDS).index("pink")
  np.testing.assert_array_equal(image[72:, :24], tiles["small"][0, pink])
  image[72:, :24] = image[:32, 64:] = BACKGROUNDS["pink"]
  assert (image == BACKGROUNDS["pink"]).all()


@pytest.mark.parametrize("size", SIZES)
def test_sprites_can_be_seen_unless_they_clash(size):
  backgrounds = np.array(list(BACKGROUNDS.values()), np.float64)
  tiles = load_tiles()[size].astype(np.float64)
  white, black = (tiles[:, list(BACKGROUNDS).index(name)] for name in ("white", "black"))
  solid = np.abs(white - black).max(-1) < 100  # alpha above one half
  for number, look in enumerate(LOOKS):
    for column, background in enumerate(BACKGROUNDS):
      distance = np.linalg.norm(tiles[number, column] - backgrounds[column], axis=-1)
      clash = background in CLASHES.get(look.noun, ()) or look.colour == background
      assert clash or (distance[solid[number]] > 50).mean() > 0.5, (look, background)


@pytest.mark.parametrize(
  "objects, background, message",
  [
    ((), "white", "one to 4"),
    (("moon", "noto", None, "small", 0, 0), "yellow", "can be seen"),
    (("heart", "plain", "black", "small", 0, 0), "black", "can be seen"),
    (("cat", "noto", None, "small", 0, 0), "red", "background among"),
    (("cat", "plain", None, "small", 0, 0), "white", "look"),
    (("cat", "noto", "red", "small", 0, 0), "white", "look"),
    (("cat", "noto", None, "tiny", 0, 0), "white", "size"),
    (("cat", "noto", None, "small", 10, 0), "white", "grid"),
  ],
)
def test_scenes_that_cannot_be_painted_are_refused(objects, background, message):
  with pytest.raises(ValueError, match=message):
    Scene(background, (Object(*objects),) if objects else ())


def test_objects_need_a_gap():
  one, near = Object("cat", "noto", None, "small", 0, 0), Object("dog", "noto", None, "small", 0, 3)
  assert not are_apart(one, near) and are_apart(one, Object("dog", "noto", None, "small", 0, 4))
  with pytest.raises(ValueError, match="between objects"):
    Scene("white", (one, near))


@pytest.mark.parametrize(
  "sizes, relation", [(("large", "small"), None), (("small", "large"), "above"), (("large",) * 3, None)]
)
def test_layouts_are_counted_exactly(sizes, relation):
  places = [list(itertools.product(range(GRID - SIZES[size] + 1), repeat=2)) for size in sizes]
  middles = [SIZES[size] / 2 for size in sizes]

  def is_apart(first, second):
    (one, at), (other, to) = first, second
    reach = [SIZES[sizes[one]] + 1, SIZES[sizes[other]] + 1]
    return any(to[axis] - at[axis] >= reach[0] or at[axis] - to[axis] >= reach[1] for axis in (0, 1))

  count = 0
  for first in places[0]:
    near = [[place for place in places[i] if is_apart((0, first), (i, place))] for i in range(1, len(sizes))]
    if len(sizes) == 2:
      centres = [[(row + middles[i], column + middles[i]) for row, column in group] for i, group in ((1, near[0]),)][0]
      middle = (first[0] + middles[0], first[1] + middles[0])
      count += sum(relation in (None, relation_of(middle, other)) for other in centres)
    else:
      count += sum(is_apart((1, second), (2, third)) for second in near[0] for third in near[1])
  assert count_layouts(sizes, relation) == count


def test_layouts_are_uniform():
  generator = np.random.default_rng(0)
  counts = collections.Counter(draw_layout(generator, ("large",) * 4) for _ in range(2000))
  assert max(counts.values()) <= 3  # of hundreds of thousands
  first = collections.Counter(layout[0] for layout in counts.elements())
  last = collections.Counter(layout[3] for layout in counts.elements())
  # Equal sizes are exchangeable: a chi-square of two samples over 81 places.
  statistic = sum((first[place] - last[place]) ** 2 / (first[place] + last[place]) for place in first | last)
  assert statistic < 130


def test_freedom_is_the_entropy_of_the_painter():
  # one small key on white: three styles, 100 places
  assert freedom_nats("a small key on white") == pytest.approx(math.log(3 * 100))
  # two equal hearts: unordered pairs; held-out purple is not painted
  pairs = count_layouts(("small", "small")) / 2
  assert freedom_nats("two small red hearts on white") == pytest.approx(math.log(pairs))
  assert freedom_nats("a small heart on white") == pytest.approx(math.log(6 * 100))
  generator = np.random.default_rng(0)
  request = parse("a small red heart on white")
  scenes = collections.Counter(sample_scene(generator, request) for _ in range(3000))
  assert len(scenes) == 100 and max(scenes.values()) < 3 * min(scenes.values())


def test_freedom_lies_where_a_lossy_rule_can_be_seen():
  nats = [freedom_nats(draw_scene(0, index)[0]) for index in range(200)]
  assert 9 < np.mean(nats) < 13 and max(nats) < 20


def test_a_cell_is_a_token():
  assert IMAGE_SIZE == GRID * CELL == 96
