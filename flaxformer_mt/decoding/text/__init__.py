"""Lines as pieces that fit the model, and translations as lines again."""
