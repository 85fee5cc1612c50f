"""The digest of the replies of a stream, by which a draft says what it assumes.

An edge that does not wait sends drafts before the replies to earlier ones have come. It draws them as if all earlier drafts
were accepted. With the requests, the replies determine the round, the committed tokens and their number. So a frame has
the digest of all replies that its drafts assume, and the cloud compares it with the digest of those that it gave. If they
differ, the drafts are void: the cloud says so without a pass, and the edge drafts again.
"""

from __future__ import annotations

import hashlib

DIGEST_BYTES = 8
NO_REPLIES = bytes(DIGEST_BYTES)


def extended(digest: bytes, reply: bytes) -> bytes:
  """The digest after one more reply.

  Args:
    digest: of the replies before; `NO_REPLIES` at the beginning of a row.
    reply: the frame that ends a round. Void calls and requests for a distribution end none.
  """
  return hashlib.sha256(digest + reply).digest()[:DIGEST_BYTES]
