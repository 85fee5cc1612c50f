"""Images and texts of a generation, as objects and as files."""

import copy
import pickle

import numpy as np
import pytest
from PIL import Image

from jaxspec.run.loading import load_pipeline


@pytest.fixture(scope="module")
def drawn(toys):
  """A pipeline, and two images of it."""
  pipe = load_pipeline(toys)
  return pipe, pipe([2, 0], key=0)


def test_images_as_pil_and_as_files(drawn, tmp_path):
  _, out = drawn
  assert isinstance(out.images, np.ndarray) and all(isinstance(image, Image.Image) for image in out.pil)
  np.testing.assert_array_equal(np.stack([np.asarray(image) for image in out.pil]), out.images)
  (tmp_path / "new").mkdir()
  (tmp_path / "new" / "0001.png").write_text("old")
  paths = out.save(tmp_path / "new" / ".." / "new")
  assert (
    [path.name for path in paths] == ["0000.png", "0001.png"] == sorted(path.name for path in (tmp_path / "new").iterdir())
  )
  for path, image in zip(paths, out.images):
    with Image.open(path) as read:
      np.testing.assert_array_equal(np.asarray(read), image)
  assert out.save(str(tmp_path / "deep" / "er"))[0].is_file()


@pytest.mark.slow
def test_texts_as_files(texts, tmp_path):
  out = load_pipeline(texts)(["once", "on"], key=0, max_len=2, method="ar")
  assert out.pil is None and [path.name for path in out.save(tmp_path)] == ["0000.txt", "0001.txt"]
  assert [path.read_text("utf-8") for path in sorted(tmp_path.iterdir())] == out.texts


@pytest.mark.slow
def test_what_cannot_be_saved(drawn, tmp_path):
  pipe, whole = drawn
  short = pipe([1], key=0, max_len=2)
  assert short.pil is None
  with pytest.raises(ValueError, match="whole images"):
    short.save(tmp_path / "images")
  assert not (tmp_path / "images").exists()
  (tmp_path / "file").write_text("")
  with pytest.raises(ValueError, match="Cannot write"):
    whole.save(tmp_path / "file")
  with pytest.raises(ValueError, match="^Must have a folder to write to, we instead got ''$"):
    whole.save("")


def test_copies_share_the_networks(drawn):
  """The arrays of a copy are its own. Networks and compiled programs are not pickled; what they drew is."""
  pipe, out = drawn
  copied = copy.deepcopy(out)
  assert copied.job.pipeline is pipe and copied.job.decoder is out.job.decoder and copy.copy(pipe) is pipe
  assert not np.shares_memory(copied.tokens, out.tokens)
  np.testing.assert_array_equal(copied.tokens, out.tokens)
  np.testing.assert_array_equal(copied.images, out.images)
  for value in (out, out.job, pipe, pipe.decoder()):
    with pytest.raises(TypeError, match=r"without loaded networks to pickle it, .*: of a result, take \.tokens"):
      pickle.dumps(value)
  again = pickle.loads(pickle.dumps((out.result, out.images, out.method, out.sampling)))
  np.testing.assert_array_equal(again[0].tokens, out.tokens)
  np.testing.assert_array_equal(again[1], out.images)
  assert again[2:] == (out.method, out.sampling)
