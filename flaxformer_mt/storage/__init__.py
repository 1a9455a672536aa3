"""Files and object stores: what the rooms above share of them."""
