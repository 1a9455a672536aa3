"""What outputs must and must not have: from the texts of callers to tokens and automata."""
