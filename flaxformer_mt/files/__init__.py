"""Files here and in object stores: paths, reading, and writing whole."""
