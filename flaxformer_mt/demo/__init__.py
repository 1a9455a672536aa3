"""The English-German model that comes with the package, to try translation before training."""
