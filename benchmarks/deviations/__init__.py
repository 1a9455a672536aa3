"""What deviations of other programs from the paper cost, where they are settings here."""
