"""Errors of certificates and keys name the file."""

import datetime

import pytest

pytest.importorskip("cryptography", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import trustme
from cryptography.hazmat.primitives import serialization

from jaxspec.serving.wire.pem import check_authorities, check_pair

AUTHORITY = trustme.CA()
OWN, OTHER = AUTHORITY.issue_cert("edge"), AUTHORITY.issue_cert("other")
PEM, KEY = OWN.cert_chain_pems[0].bytes(), OWN.private_key_pem.bytes()
JUNK = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"


def test_what_belongs_together():
  check_pair(PEM, KEY, "--cert", "--key")
  check_authorities(AUTHORITY.cert_pem.bytes() + PEM, "--ca")


def encrypted():
  secret = serialization.load_pem_private_key(KEY, None)
  form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"word"))
  return secret.private_bytes(*form)


@pytest.mark.parametrize(
  "pem, key, words",
  [
    (b"", KEY, "in --cert, we instead got nothing"),
    (KEY, PEM, "in --cert, we instead got a private key"),
    (b"\x30\x82\x01", KEY, "in --cert, we instead got DER"),
    (b"hello", KEY, "in --cert, we instead got none"),
    (JUNK.format("CERTIFICATE").encode(), KEY, "in --cert, we instead got a damaged one"),
    (PEM, PEM, "in --key, we instead got a certificate"),
    (PEM, JUNK.format("PRIVATE KEY").encode(), "in --key, we instead got a damaged one"),
    (PEM, encrypted(), "in --key, we instead got an encrypted one"),
    (PEM, OTHER.private_key_pem.bytes(), "in --key, we instead got that of another certificate"),
  ],
  ids=lambda value: value if isinstance(value, str) else "",  # bytes are new in every process
)
def test_pairs_that_are_none(pem, key, words):
  with pytest.raises(ValueError, match=words):
    check_pair(pem, key, "--cert", "--key")


def test_a_pair_of_yesterday():
  days = lambda number: datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=number)
  old = AUTHORITY.issue_cert("edge", not_before=days(-9), not_after=days(-1))
  with pytest.raises(ValueError, match="--cert, it expired on"):
    check_pair(old.cert_chain_pems[0].bytes(), old.private_key_pem.bytes(), "--cert", "--key")


@pytest.mark.parametrize(
  "pem, words",
  [(PEM, "that of a server or an edge"), (KEY, "a private key"), (b"", "nothing")],
  ids=["leaf", "key", "empty"],
)
def test_authorities_that_are_none(pem, words):
  with pytest.raises(ValueError, match=f"in --ca, we instead got {words}"):
    check_authorities(pem, "--ca")
