"""Object stores: what the rooms above share of them."""
