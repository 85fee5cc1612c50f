"""Certificates for a trial on one machine, or in a lab: an authority of its own, and a certificate that it signed.

Command::

    python -m jaxspec.serving.server.certificates DIR --name edge-box.local --name 192.168.1.7

It writes ``ca.pem`` (for edges), ``cert.pem`` and ``key.pem`` (for the server). For a service on the internet take
certificates of a public authority instead.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

import click

from jaxspec.core.command_line import PATH

try:
  from cryptography import x509
  from cryptography.hazmat.primitives import hashes, serialization
  from cryptography.hazmat.primitives.asymmetric import ec
  from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as missing:
  _NEEDED = "Certificates need: pip install 'jaxspec-decoding[serve]'"
  raise SystemExit(f"Error: {_NEEDED}") if __name__ == "__main__" else ImportError(_NEEDED) from missing

HERE = ("localhost", "127.0.0.1", "::1")
_EARLIER = datetime.timedelta(minutes=5)  # clocks differ


def write_certificates(folder: Path, names: tuple[str, ...] = HERE, *, days: int = 30) -> None:
  """Makes an authority and a certificate for a server; the authority's key is forgotten.

  Args:
    names: host names and addresses by which edges know the server.
  Raises:
    ValueError: if files are there already.
  """
  paths = [folder / name for name in ("ca.pem", "cert.pem", "key.pem")]
  if taken := [path for path in paths if path.exists()]:
    raise ValueError(f"Must have a folder without certificates, we instead got {taken[0]}")
  ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
  ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jaxspec trial authority")])
  ca = _certificate(ca_name, ca_name, ca_key, ca_key, days, x509.BasicConstraints(ca=True, path_length=0), ())
  name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jaxspec server")])
  own = _certificate(name, ca_name, key, ca_key, days, x509.BasicConstraints(ca=False, path_length=None), names)
  pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
  secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
  folder.mkdir(parents=True, exist_ok=True)
  for path, data, mode in zip(
    paths, (ca.public_bytes(pem), own.public_bytes(pem), secret), (0o644, 0o644, 0o600), strict=True
  ):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
      file.write(data)


def _certificate(
  subject: x509.Name,
  issuer: x509.Name,
  key: ec.EllipticCurvePrivateKey,
  issuer_key: ec.EllipticCurvePrivateKey,
  days: int,
  constraints: x509.BasicConstraints,
  names: tuple[str, ...],
) -> x509.Certificate:
  now = datetime.datetime.now(datetime.UTC)
  is_ca = constraints.ca
  usage = dict.fromkeys(
    ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
  )
  builder = (
    x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
    .serial_number(x509.random_serial_number())
    .not_valid_before(now - _EARLIER)
    .not_valid_after(now + datetime.timedelta(days=days))
    .add_extension(constraints, critical=True)
    .add_extension(x509.KeyUsage(digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, **usage), critical=True)
    .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
  )
  if not is_ca:
    builder = builder.add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
  return builder.sign(issuer_key, hashes.SHA256())


def _name(text: str) -> x509.GeneralName:
  try:
    return x509.IPAddress(ipaddress.ip_address(text))
  except ValueError:
    return x509.DNSName(text)


@click.command()
@click.argument("folder", type=PATH)
@click.option("--name", "names", multiple=True, metavar="HOST", help="Host name or address of the server; may be repeated.")
@click.option("--days", type=click.IntRange(1, 825), default=30, show_default=True, help="How long they are valid.")
def main(folder: Path, names: tuple[str, ...], days: int) -> None:
  """Write an authority, a server certificate and its key to FOLDER, for a trial.

  The names of this machine itself are always in the certificate.
  """
  try:
    write_certificates(folder, (*HERE, *names), days=days)
  except (ValueError, OSError) as error:
    raise click.ClickException(str(error)) from error
  click.echo(f"server: --tls-cert {folder / 'cert.pem'} --tls-key {folder / 'key.pem'}   edges: --ca {folder / 'ca.pem'}")


if __name__ == "__main__":
  main()
