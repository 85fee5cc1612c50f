"""Protocol, network and required numerics, which must be equal at both ends of a stream."""

from __future__ import annotations

from jaxspec.serving.wire.cloud import CloudError, Description, Status
from jaxspec.serving.wire.handshake import DIGEST_BYTES, PROTOCOL, Handshake


def check_versions(handshake: Handshake, served: Description) -> None:
  """Refuses a handshake with another protocol, model or required numerics.

  Raises:
    CloudError: ``FAILED_PRECONDITION`` with both values.
  """
  check_protocol(handshake.protocol)
  check_same("model", handshake.model, served.model)
  if handshake.need_numerics:
    check_same("numerics", handshake.need_numerics, served.numerics)


def check_protocol(protocol: int) -> None:
  """Refuses another protocol than ours."""
  if protocol != PROTOCOL:
    raise CloudError(Status.FAILED_PRECONDITION, f"protocol {protocol} was requested, {PROTOCOL} is served")


def check_same(field: str, requested: bytes, served: bytes) -> None:
  """Refuses a digest of ``field`` that is not the served one."""
  if requested != served:
    detail = f"{field} {requested[:DIGEST_BYTES].hex() or 'none'} was requested, {served.hex()} is served"
    raise CloudError(Status.FAILED_PRECONDITION, detail)
