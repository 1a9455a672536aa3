"""Masks, one a module: which tokens each bans, and the arrays that it reads."""
