"""What a program tells apart: each kind of error has its class, and is still a ValueError or a RuntimeError of one line."""

import pickle
import shutil

import jax
import pytest

from jaxspec import errors
from jaxspec.core.error_lines import one_line
from jaxspec.errors import CheckpointError, LinkError, OptionError, OutOfMemory, PromptError
from jaxspec.io import checkpoints
from jaxspec.methods import Eagle, Gsd, Speculative
from jaxspec.run.loading import load_pipeline
from jaxspec.sampling import DenoisingSampling, SamplingConfig
from jaxspec.serving.wire.cloud import CloudError, Status


def raises(kind, call, *args, **kwargs):
  with pytest.raises(kind) as caught:
    call(*args, **kwargs)
  assert type(caught.value) is kind and isinstance(caught.value, (ValueError, RuntimeError))
  assert str(caught.value) == one_line(caught.value)
  return str(caught.value)


def test_settings(toys):
  pipe = load_pipeline(toys)
  for options in (
    dict(method="none"), dict(method=Speculative(draft="other")), dict(method="cspd"), dict(temperature=-1.0),
    dict(top_k=-1), dict(unknown=1), dict(max_len=0), dict(max_len=5), dict(batch=0), dict(batch="2"), dict(callback=3),
    dict(key=True), dict(key="0"), dict(sampling=DenoisingSampling()),
    dict(method="speculative", sampling=SamplingConfig(), top_k=1), dict(method=Speculative(gamma=30)),
  ):  # fmt: skip
    raises(OptionError, pipe, [1], **{"key": 0, **options})
  for make in (
    lambda: Gsd(window=0),
    lambda: Eagle(tree_size=9, tree_top_k=2, tree_depth=1),
    lambda: SamplingConfig(top_p=2),
  ):
    raises(OptionError, make)
  for options in (dict(dtype="int8"), dict(matmul_precision="float8"), dict(mesh="data=0")):
    raises(OptionError, load_pipeline, toys, **options)


def test_prompts(toys, captions, texts):
  raises(PromptError, load_pipeline(toys), ["one"], key=0)
  raises(PromptError, load_pipeline(captions), ["?!"], key=0)
  pipe = load_pipeline(texts)
  for prompt in ([""], [3], [], ["once" * 60]):
    raises(PromptError, pipe, prompt, key=0, method="ar")
  raises(PromptError, pipe, ["once"], key=0, captions=["a", "b"])


def test_files(captions, tmp_path):
  raises(CheckpointError, load_pipeline, tmp_path / "none")
  raises(CheckpointError, load_pipeline, captions, tokenizer=tmp_path / "none")
  raises(CheckpointError, load_pipeline, captions / "target")  # without a part
  raises(CheckpointError, load_pipeline, captions, draft=captions / "tokenizer")
  raises(CheckpointError, load_pipeline, 3)
  broken = shutil.copytree(captions, tmp_path / "broken")
  (broken / "draft" / "params.safetensors").write_bytes(b"1")
  pipe = load_pipeline(broken)
  assert "draft" in raises(CheckpointError, pipe, ["apple"], key=0)
  (broken / "bundle.json").write_text("{")
  raises(CheckpointError, load_pipeline, broken)
  (broken / "target" / "config.json").unlink()
  raises(CheckpointError, checkpoints.load, broken / "target")
  raises(CheckpointError, checkpoints.digest, broken / "target")


@pytest.mark.slow
def test_memory(toys, monkeypatch):
  pipe = load_pipeline(toys)

  def full(*args, **kwargs):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 10 bytes")

  with monkeypatch.context() as patch:
    patch.setattr("jaxspec.run.memory_check.available_bytes", lambda: 1)
    assert "GiB" in raises(OutOfMemory, pipe, [1, 2], key=0, max_len=3)
    raises(OutOfMemory, pipe, [1, 2], key=0, max_len=3, callback=print)
  with monkeypatch.context() as patch:
    patch.setattr("jaxspec.run.run.prepare", full)
    assert "allocating 10 bytes" in raises(OutOfMemory, pipe, [1], key=0)
  out = pipe([1], key=0)
  with monkeypatch.context() as patch:
    patch.setattr(type(pipe.family), "decode", full)
    raises(OutOfMemory, lambda: out.images)
  assert out.images is not None  # the next attempt may find more memory
  assert issubclass(OutOfMemory, ValueError) and issubclass(OutOfMemory, RuntimeError)


def test_links():
  error = CloudError(Status.UNAVAILABLE, "no answer")
  assert isinstance(error, LinkError) and isinstance(error, RuntimeError) and not isinstance(error, ValueError)


def test_errors_cross_processes():
  for name in errors.__all__:
    error = pickle.loads(pickle.dumps(getattr(errors, name)("one line")))
    assert type(error).__name__ == name and str(error) == "one line"
