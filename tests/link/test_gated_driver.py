"""A gated device and its cloud through real bytes: the fused loop's tokens, and what was emitted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.decode.state import Origin
from jaxspec.link.bitstream import MessageError
from jaxspec.link.gated_driver import decode_gated_over_link
from jaxspec.link.gated_message import GatedWire, read_gated, write_gated
from jaxspec.link.message import OVERHEAD_BYTES
from jaxspec.link.records import Record
from tests.ciar_pair import keys_of, transformer_gated
from tests.helpers import TARGET, labels

N, WINDOW, ROWS = 16, 3, 4
CODEC = jaxspec.topk_lattice(TARGET.vocab_size, 5, ell=20)


def pair(laws, **options):
  if laws:
    options |= dict(rule=jaxspec.lossless_sparse, draw=jaxspec.SparseDraw(CODEC))
  params, kwargs = transformer_gated(window=WINDOW, **({"rule": jaxspec.greedy} | options))
  draft = params.draft._replace(draw=TopKParams(jnp.int32(5)) if laws else ())
  return jaxspec.SpecParams(draft, params.target), kwargs


def over_link(params, kwargs, laws, **channels):
  sizes = dict(codec=CODEC if laws else None, vocab=TARGET.vocab_size, window=WINDOW, max_len=N)
  return decode_gated_over_link(params, keys_of(ROWS), labels(ROWS), **kwargs, **sizes, **channels)


@pytest.mark.slow
@pytest.mark.parametrize("laws", [True, False])
def test_link_gives_the_tokens_of_the_loop(laws):
  """Identical tokens, origins, counters and scores; bytes and exchanges are those of the rows' own calls."""
  params, kwargs = pair(laws, prefix=jnp.array([0, 2, 0, 4]))
  out = jaxspec.speculate(params, keys_of(ROWS), labels(ROWS), max_len=N, **kwargs)
  seen = []
  far, traffic = over_link(params, kwargs, laws, uplink=lambda data: seen.append(data) or data)
  np.testing.assert_array_equal(far.tokens, out.tokens)
  np.testing.assert_array_equal(far.origin, out.origin)
  jax.tree.map(np.testing.assert_array_equal, far.counters, out.counters)
  np.testing.assert_array_equal(far.report.scores, out.report.scores)
  np.testing.assert_array_equal(far.report.sent, out.report.sent)

  first = np.asarray(out.origin)[:, 0] == Origin.FIRST
  np.testing.assert_array_equal(traffic.exchanges, np.asarray(out.counters.target_calls) - first)
  assert traffic.uplink_bytes.sum() == sum(map(len, seen)) and len(seen) == traffic.exchanges.sum()
  reply = OVERHEAD_BYTES + 4
  np.testing.assert_array_equal(traffic.downlink_bytes, reply * (traffic.exchanges + first))
  if not laws:  # 16 + 16 bits, and 4 bits for each token that went up
    np.testing.assert_array_equal(traffic.payload_bits, 32 * traffic.exchanges + 4 * np.asarray(out.report.sent))
  assert (np.asarray(out.counters.settled) > 0).any() and (traffic.exchanges > 0).all()


@pytest.mark.slow
def test_damage_is_found():
  params, kwargs = pair(False)
  with pytest.raises(MessageError, match="checksum"):
    over_link(params, kwargs, False, uplink=lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
  with pytest.raises(MessageError, match="length"):
    over_link(params, kwargs, False, downlink=lambda data: data[:3])


def test_messages_and_what_they_refuse():
  ids = GatedWire.of(None, vocab=13, window=3, max_len=N)
  data, bits = write_gated(5, 2, [7, 1], [12, 0, 3], ids)
  got = read_gated(data, ids, read=2)
  assert (got.round, got.read, got.unread, got.drafts) == (5, 2, (7, 1), (12, 0, 3)) and bits == 32 + 5 * 4
  assert len(data) == OVERHEAD_BYTES + -(-bits // 8) <= ids.max_bytes
  laws = GatedWire.of(CODEC, vocab=13, window=3, max_len=N)
  record = Record((1, 4, 8), (3, 7, 10), 20, 4)
  assert read_gated(write_gated(0, 0, [2], [record], laws)[0], laws, read=0).drafts == (record,)
  with pytest.raises(MessageError, match="order"):
    read_gated(data, ids, read=3)
  with pytest.raises(MessageError, match="token is not below"):
    read_gated(write_gated(5, 2, [15], [], GatedWire.of(None, vocab=16, window=3, max_len=N))[0], ids, read=2)
  with pytest.raises(MessageError, match="range"):
    read_gated(write_gated(0, 10, [1] * 6, [], ids)[0], GatedWire.of(None, vocab=13, window=3, max_len=15), read=10)
  for unread, drafts in (([], []), ([1], [1] * 4), ([1] * N, [1])):
    with pytest.raises(ValueError, match="settled tokens and at most 3 drafts"):
      write_gated(0, 0, unread, drafts, ids)
  generator = np.random.default_rng(0)
  for _ in range(300):  # whatever arrives, it is a message or a MessageError
    noisy = bytearray(data)
    for _ in range(generator.integers(1, 4)):
      noisy[generator.integers(len(noisy))] = generator.integers(256)
    try:
      read_gated(bytes(noisy[: generator.integers(len(noisy) + 1)]), ids, read=2)
    except MessageError:
      pass
