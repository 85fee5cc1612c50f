"""What both ends of a stream must have the same of: protocol, network, and numerics where an edge asks for them."""

from __future__ import annotations

from jaxspec.serving.wire.cloud import DIGEST_BYTES, PROTOCOL, CloudError, Description, Opening, Status


def check_versions(opening: Opening, served: Description) -> None:
  """Refuses an opening that asks for another protocol, model or numerics.

  Raises:
    CloudError: ``FAILED_PRECONDITION`` with both values.
  """
  check_protocol(opening.protocol)
  check_same("model", opening.model, served.model)
  if opening.need_numerics:
    check_same("numerics", opening.need_numerics, served.numerics)


def check_protocol(protocol: int) -> None:
  """Refuses another protocol than ours."""
  if protocol != PROTOCOL:
    raise CloudError(Status.FAILED_PRECONDITION, f"protocol {protocol} was asked for, {PROTOCOL} is served")


def check_same(field: str, asked: bytes, served: bytes) -> None:
  """Refuses a digest of ``field`` that is not the served one."""
  if asked != served:
    told = f"{field} {asked[:DIGEST_BYTES].hex() or 'none'} was asked for, {served.hex()} is served"
    raise CloudError(Status.FAILED_PRECONDITION, told)
