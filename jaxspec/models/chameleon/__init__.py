"""Chameleon: `chameleon` is the network of Anole and Lumina-mGPT, `chameleon_drawing` keeps it to tokens of images."""
