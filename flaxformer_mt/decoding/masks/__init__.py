"""Reasons why tokens may not come next, one a module: what is banned, and the arrays it reads."""
