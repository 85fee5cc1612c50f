"""What commands and the studio draw: maps of a decode, sheets of images, and progress on stderr."""
