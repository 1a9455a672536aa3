"""Documents with markup: what is translated of them, and where their tags go."""
