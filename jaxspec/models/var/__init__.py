"""VAR: `var` is the network that draws an image scale by scale, `scale_blocks` its transformer."""
