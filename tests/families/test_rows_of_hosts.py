"""Rows in parallel on families of images with prompts, with and without row ends, and the refusal of others.

LlamaGen is the transformer of tests/methods/test_rows.py and test_row_windows.py. Anole is the network of Lumina without row
ends, and Emu3 shares its row ends.
"""

import jax
import numpy as np
import pytest

from conversion import janus
from jaxspec import methods
from jaxspec.run.loading import load_pipeline
from jaxspec.sampling.row_schedule import num_passes
from tests.models import janus_golden
from tests.run import tiny, tiny_chameleon

PROMPTS = ["a red fox", "two cats on a mat"]


def _janus(folder):
  janus.convert_folder(janus_golden.FOLDER / "target", folder / "target", janus_golden.FIELDS)
  return folder / "target"


# The folder, and the id that ends a row, of families with row ends.
HOSTS = {
  "janus": (_janus, None),
  "lumina": (lambda folder: tiny_chameleon.networks(folder)["lumina"], 16),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTS)
def test_images_of_families(name, tmp_path):
  """Whole images; with a width of all columns the greedy tokens of plain decoding, with any window."""
  make, row_end = HOSTS[name]
  pipe = load_pipeline(make(tmp_path / name))
  rows, columns = pipe.family.space.grid
  draw = lambda method, **options: pipe(PROMPTS, method=method, key=jax.random.key(2), **options)
  plain, whole = draw("ar", temperature=0.0), draw(methods.Rows(width=columns, row_window=columns), temperature=0.0)
  np.testing.assert_array_equal(plain.tokens, whole.tokens)
  assert (whole.counters.target_calls <= plain.counters.target_calls).all()  # a window commits at least one token a pass
  out = draw(methods.Rows(width=1, row_window=columns), audit=True)
  grid, kl = out.tokens.reshape(2, rows, columns), np.asarray(out.result.metrics.kl).reshape(2, rows, columns)
  assert (out.counters.target_calls <= num_passes((rows, columns), 1)).all() and out.images.shape[0] == 2
  assert kl[:, 0].max() < 1e-4 < kl[:, 1:].max()
  if row_end is not None:
    assert (grid[:, :, -1] == row_end).all() and (grid[:, :, :-1] < row_end).all() and kl[:, :, -1].max() == 0
  assert out.counters.accepted.sum() > 0


def test_texts_have_no_rows(tmp_path):
  pipe = load_pipeline(tiny.texts(tmp_path) / "target")
  with pytest.raises(ValueError, match="images with a grid of tokens for method rows, we instead got none") as caught:
    pipe(["on"], key=0, method=methods.Rows(row_window=2))
  assert "\n" not in str(caught.value)
