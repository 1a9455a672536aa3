"""Files, local and in object stores: paths, reading, and atomic writing."""
