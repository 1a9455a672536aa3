"""The cost of other programs' deviations from the paper, as far as they are settings here."""
