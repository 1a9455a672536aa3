"""`flaxformer-mt COMMAND`, which is also `python -m flaxformer_mt COMMAND`."""

import sys

from flaxformer_mt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
