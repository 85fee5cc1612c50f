"""Certificates and keys in PEM, checked before a network is used: gRPC does not say what is wrong with them."""

from __future__ import annotations

import datetime

try:
  from cryptography import x509
  from cryptography.hazmat.primitives import serialization
except ImportError as missing:
  raise ImportError("TLS needs: pip install 'jaxspec-decoding[serve]'") from missing

_PUBLIC = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def check_authorities(pem: bytes, name: str) -> None:
  """Raises a ValueError unless these are certificates to trust.

  Args:
    name: of what the user gave, for the message.
  """
  for each in _certificates(pem, name):
    if each.issuer == each.subject:
      return
    try:
      if each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
        return
    except x509.ExtensionNotFound:
      continue
    except ValueError:  # an extension that cannot be read: the handshake decides
      return
  raise ValueError(f"Must have the certificate of an authority in {name}, we instead got that of a server or an edge")


def check_pair(certificate: bytes, key: bytes, name: str, key_name: str) -> None:
  """Raises a ValueError unless this is a certificate of today and the private key of it.

  Args:
    name, key_name: of what the user gave, for the message.
  """
  own = _certificates(certificate, name)[0]
  if b"PRIVATE KEY-----" not in key:
    raise ValueError(f"Must have a private key in PEM in {key_name}, we instead got {_kind(key)}")
  try:
    private = serialization.load_pem_private_key(key, None)
  except TypeError:
    raise ValueError(f"Must have a private key without a password in {key_name}, we instead got an encrypted one") from None
  except Exception as error:  # the library has errors of many types
    raise ValueError(f"Must have a private key in PEM in {key_name}, we instead got a damaged one") from error
  if own.public_key().public_bytes(*_PUBLIC) != private.public_key().public_bytes(*_PUBLIC):
    raise ValueError(f"Must have the private key of {name} in {key_name}, we instead got that of another certificate")
  if own.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
    raise ValueError(f"Must have a valid certificate in {name}, it expired on {own.not_valid_after_utc:%Y-%m-%d}")


def _certificates(pem: bytes, name: str) -> list[x509.Certificate]:
  if b"-----BEGIN CERTIFICATE-----" not in pem:
    raise ValueError(f"Must have a certificate in PEM in {name}, we instead got {_kind(pem)}")
  try:
    return x509.load_pem_x509_certificates(pem)
  except Exception as error:
    raise ValueError(f"Must have a certificate in PEM in {name}, we instead got a damaged one") from error


def _kind(data: bytes) -> str:
  """What a file holds that is not what it should be."""
  if not data:
    return "nothing"
  for mark, kind in ((b"PRIVATE KEY-----", "a private key"), (b"-----BEGIN CERTIFICATE-----", "a certificate"),
                     (b"-----BEGIN ", "something else in PEM")):  # fmt: skip
    if mark in data:
      return kind
  return "DER (openssl converts it)" if data.startswith(b"\x30\x82") else "none"
