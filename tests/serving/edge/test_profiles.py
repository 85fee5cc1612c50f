"""Different settings of edge and cloud are an error before the first call."""

import jax
import pytest

from jaxspec.codecs import topk_lattice
from jaxspec.core.no_draft import NO_DRAFTER
from jaxspec.models.conditions import ClassLabels
from jaxspec.sampling.logit_processing import Warp
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.wire.ciar_codec import CiarCodec
from jaxspec.serving.wire.cloud import Description
from jaxspec.serving.wire.handshake import PROTOCOL
from jaxspec.serving.wire.profiles import check_profile, find_profile, profile_of
from jaxspec.serving.wire.sqs_codec import PlainCodec, SqsCodec

VOCAB, MAX_LEN = 7, 12
SPARSE = topk_lattice(VOCAB, 3, ell=10, coding="trimmed")
CODEC = SqsCodec(SPARSE, 4)
CODECS = (CODEC, CiarCodec(VOCAB, 4), PlainCodec(VOCAB), SqsCodec(topk_lattice(VOCAB, 3, ell=10, coding="lazy"), 4))
NUCLEUS = profile_of(CODEC, len(CODECS), warp=Warp(top_k=5, nucleus=True), guided=True, max_len=MAX_LEN)
PROFILES = (*(profile_of(codec, id, max_len=MAX_LEN) for id, codec in enumerate(CODECS)), NUCLEUS)
SERVED = Description(PROTOCOL, PROTOCOL, "", b"", b"", VOCAB, MAX_LEN, 1, (), PROFILES)


def test_every_profile_is_found_by_its_codec():
  for id, codec in enumerate(CODECS):
    assert find_profile(SERVED, codec).id == id
    check_profile(SERVED, id, codec, max_len=MAX_LEN)
  for asked in (dict(top_k=5), dict(top_p=0.5), dict(cfg_scale=2.0)):
    assert find_profile(SERVED, CODEC, **asked) == NUCLEUS
  assert find_profile(SERVED, CODEC, top_k=0).id == 0
  check_profile(SERVED, NUCLEUS.id, CODEC, max_len=1, top_p=0.5, cfg_scale=2.0)


@pytest.mark.parametrize(
  "codec, words",
  [
    (SqsCodec(SPARSE, 5), "window 5 where the cloud has 4$"),
    (SqsCodec(SPARSE, 4, block=True), "rule 'block' where the cloud has 'exact'$"),
    (CODECS[3], "coding 'lazy' where the cloud has 'trimmed'$"),
    (SqsCodec(topk_lattice(VOCAB, 3, ell=11, coding="trimmed"), 4), "ell 11 where the cloud has 10$"),
    (SqsCodec(topk_lattice(VOCAB, 2, ell=10, coding="trimmed"), 4), "max_support 2 where the cloud has 3$"),
    (SqsCodec(topk_lattice(8, 3, ell=10, coding="trimmed"), 4), "vocab 8 where the cloud has 7$"),
    (CiarCodec(VOCAB, 4, SPARSE), "method 'ciar' where the cloud has 'sqs'$"),
  ],
)
def test_what_differs_is_one_line_with_both_values(codec, words):
  with pytest.raises(ValueError, match=words) as caught:
    check_profile(SERVED, 0, codec, max_len=MAX_LEN)
  assert "\n" not in str(caught.value)


def test_what_a_stream_asks_besides():
  for asked, words in (
    (dict(top_p=0.5), "top_p 0.5 where the cloud has 1.0"),
    (dict(cfg_scale=3.0), "cfg_scale 3.0 where the cloud has 1.0"),
    (dict(max_len=MAX_LEN + 1), f"at most {MAX_LEN} tokens, which the cloud has"),
  ):
    with pytest.raises(ValueError, match=words):
      check_profile(SERVED, 0, CODEC, **dict(max_len=MAX_LEN) | asked)
  with pytest.raises(ValueError, match="a profile of the cloud .*we instead got number 9"):
    check_profile(SERVED, 9, CODEC, max_len=1)
  with pytest.raises(ValueError, match=r"max_support=3.*we instead got .*top_k=6 guided$"):
    find_profile(SERVED, CODEC, top_k=6, cfg_scale=2.0)


def test_no_call_is_made_to_a_cloud_that_decodes_in_another_way():
  cloud = type("Cloud", (), {"description": SERVED})()
  decode = lambda **options: decode_over_cloud(
    Edge((), NO_DRAFTER, max_len=4, **options), jax.random.key(0), ClassLabels(jax.numpy.zeros(1, int)), cloud
  )
  with pytest.raises(ValueError, match="method 'plain' where the cloud has 'sqs', window 0 where the cloud has 4"):
    decode(codec=PlainCodec(VOCAB), profile=0)
  with pytest.raises(ValueError, match="vocab 8 where the cloud has 7"):
    decode(codec=PlainCodec(8))
