"""The messages of the network protocol, version 1: `jaxspec_link.proto` and the code that is generated from it."""
